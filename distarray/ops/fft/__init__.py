"""Fourier transforms: slabs and pencils by redistribution, one long dimension in steps.

``arguments`` checks what is asked for, :mod:`distarray.plan.fourier` says how it is done, and
``engine`` does it; ``local`` transforms blocks, ``line`` a dimension that stays cut, by the four
steps of ``grid`` or the detour of ``chirp``; ``transforms`` and ``shifts`` have NumPy's names.
"""

from distarray.ops.fft import shifts, transforms

__all__ = ["shifts", "transforms"]
