"""Random numbers: streams, tiles, distributions, permutations, choices."""
