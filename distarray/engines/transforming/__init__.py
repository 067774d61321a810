"""Fourier transforms: slabs and pencils by redistribution, one long dimension in steps.

``passes`` checks a call, :mod:`distarray.plan.fourier` plans it, and ``transform`` executes the
plan; ``whole_line`` transforms blocks along a whole dimension, ``cut_line`` transforms arrays along
a cut dimension, by ``four_steps`` or by ``bluestein``.
"""
