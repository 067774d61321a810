"""Contractions: operands are redistributed, multiplied on each rank, and the products folded."""
