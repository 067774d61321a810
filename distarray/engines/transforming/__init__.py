"""Fourier transforms: slabs and pencils by redistribution, one long dimension in steps.

``passes`` checks what is asked for, :mod:`distarray.plan.fourier` says how it is done, and
``transform`` does it; ``whole_line`` transforms blocks, ``cut_line`` a dimension that stays cut, by
``four_steps`` or the detour of ``bluestein``.
"""
