"""Integers within bounds: bit for bit what NumPy draws from the same stream."""

import numpy as np
import pytest

from distarray.engines.drawing.bounded import drawing_bounded


def pair(seed):
    return [np.random.Generator(np.random.Philox(seed)) for _ in range(2)]


RANGES = [(0, 2), (0, 100), (3, 10), (0, 256), (0, 1000), (5, 65541), (0, 1 << 31), (0, 1 << 32)]
WIDE = [(0, 1 << 40), (-5, (1 << 62) - 5), (-(1 << 63), 1 << 63)]


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "u2", "i8", "u8", "i4", "u4"])
@pytest.mark.parametrize(("low", "high"), RANGES + WIDE)
def test_bits(dtype, low, high):
    limits = np.iinfo(dtype) if dtype != "?" else np.iinfo(np.uint8)
    if not limits.min <= low < high - 1 <= (limits.max if dtype != "?" else 1):
        return
    draw = drawing_bounded((low, high), dtype, False)
    for size in (1, 7, 1 << 14):
        ours, numpys = pair(size)
        found = np.empty(size, dtype)
        draw(ours, found)
        np.testing.assert_array_equal(found, numpys.integers(low, high, size, dtype))


def test_negative_bounds_and_end_points():
    for dtype, low, high in ((np.int32, -20, 20), (np.int8, -128, 127), (np.int16, -3, 9)):
        ours, numpys = pair(1)
        found = np.empty((3, 50), dtype)
        drawing_bounded((low, high), dtype, True)(ours, found)
        np.testing.assert_array_equal(found, numpys.integers(low, high, (3, 50), dtype, True))


def test_refused_numbers_are_passed_over():
    """Of 2**32 numbers 23,296 are refused here: one of eleven tiles has one."""
    count = 134_217_000
    assert (1 << 32) % count == 23_296
    draw = drawing_bounded((0, count), np.int64, False)
    for seed in range(40):
        ours, numpys = pair(seed)
        found = np.empty(1 << 14, np.int64)
        draw(ours, found)
        np.testing.assert_array_equal(found, numpys.integers(0, count, 1 << 14))


@pytest.mark.parametrize(
    ("bounds", "dtype"), [((0, 1), "i8"), ((0, 9.0), "i8"), ((0, 9), ">i8"), ((0, 3 << 40), "i8")]
)
def test_what_is_left_to_numpy(bounds, dtype):
    assert drawing_bounded(bounds, dtype, False) is None
