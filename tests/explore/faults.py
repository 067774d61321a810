"""What NumPy itself does wrong on some CPUs, and programs therefore leave out.

With AVX-512, NumPy 2.4 folds floats wrongly in some ufuncs' `reduce` and `reduceat`, sorts and
partitions float16 wrongly, and some unary ufuncs write wrong elements into what has strides.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

__all__ = ["concern"]

#: Not folded where elements may be floats.
_FOLDED_WRONGLY = re.compile(r"np\.(?:power|arctan2|ldexp)\.reduce(?:at)?\(")
#: Not asked of float16.
_SORTED_WRONGLY = re.compile(r"sort|unique|partition|searchsorted|isin|median")
#: Not written into given arrays.
_WRITTEN_WRONGLY = re.compile(r"np\.(?:negative|isnan|isinf|signbit)\(.*(?:out|where)=")


def concern(line: str, env: dict[str, Any]) -> bool:
    """Whether a line asks NumPy for what it does wrong."""
    if _FOLDED_WRONGLY.search(line) or _WRITTEN_WRONGLY.search(line):
        return True
    half = any(name in line and _is_half(value) for name, value in env.items())
    return bool(_SORTED_WRONGLY.search(line)) and half


def _is_half(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float16
