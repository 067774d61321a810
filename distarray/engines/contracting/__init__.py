"""Sums of products: operands brought together, multiplied on each rank, folded."""
