"""Fourier transforms under NumPy's names, and shifts of their spectra."""

from distarray.ops.fft import shifts, transforms

__all__ = ["shifts", "transforms"]

#: Prefix under which users call these functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "np.fft."
