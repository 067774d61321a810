"""Fourier transforms: slabs and pencils by redistribution, one long dimension in steps.

``passes`` checks a call, :mod:`distarray.plan.fourier` plans it, and ``transform`` carries it out;
``whole_line`` transforms blocks along a whole dimension, ``cut_line`` arrays along a cut one, by
``four_steps`` or by ``bluestein``.
"""
