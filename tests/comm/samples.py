"""Blocks for the tests of groups."""

import numpy as np


def values(rank, dtype, shape=(3, 5)):
    """Different on every rank, the same wherever they are made."""
    rng = np.random.default_rng(rank)
    if np.dtype(dtype).kind == "b":
        return rng.random(shape) < 0.5
    data = rng.integers(0, 5, shape).astype(np.dtype(dtype))
    if np.dtype(dtype).kind == "c":
        data = data + (1j * rng.integers(0, 5, shape)).astype(dtype)
    return data
