"""Random numbers by position: streams, tiles, distributions, permutations, choices."""
