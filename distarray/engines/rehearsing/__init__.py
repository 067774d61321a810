"""Operations rehearsed: each rank's part is run with blocks without values, and nothing is sent."""
