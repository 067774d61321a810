"""Factorizations of matrices over all ranks."""
