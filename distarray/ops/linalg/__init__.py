"""Linear algebra: factorizations, solvers, norms, products of many operands."""

from distarray.ops.linalg import leastsquares, norms, products, qr, ranks, spectra, square, svd

__all__ = ["leastsquares", "norms", "products", "qr", "ranks", "spectra", "square", "svd"]

#: Prefix under which users call these functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "np.linalg."
