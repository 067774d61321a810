"""Contractions: operands are brought together, multiplied on each rank, and folded."""
