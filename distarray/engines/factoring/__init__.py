"""Factorizations of one large matrix over all ranks, and of stacks of matrices rank by rank."""
