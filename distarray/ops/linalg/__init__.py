"""Linear algebra: factorizations, solvers, norms, products of many operands."""

from distarray.ops.linalg import leastsquares, norms, products, qr, ranks, spectra, square, svd

__all__ = ["leastsquares", "norms", "products", "qr", "ranks", "spectra", "square", "svd"]

#: How users call its functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "np.linalg."
