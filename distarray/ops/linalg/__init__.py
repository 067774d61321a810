"""Linear algebra: factorizations, solvers, norms, products of many operands."""

from distarray.ops.linalg import spectra, square

__all__ = ["spectra", "square"]
