"""Random numbers by position: streams, tiles, permutations, choices."""
