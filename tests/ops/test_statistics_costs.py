"""Messages of statistics and signals: never a large operand whole."""

import numpy as np
import pytest

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Shard

PART = 1 << 15
#: Call of a line of numbers from 0 to 1 -> the most that a rank may send, in shares of its part.
CALLS = {
    "median": (np.median, 0.7),
    "percentile": (lambda x: np.percentile(x, [5, 95]), 0.7),
    "nanquantile": (lambda x: np.nanquantile(x, 0.3), 0.7),
    "weights": (lambda x: np.quantile(x, 0.3, weights=x, method="inverted_cdf"), 1.2),
    "histogram": (lambda x: np.histogram(x, 50), 0.01),
    "rule": (lambda x: np.histogram(x, "fd"), 0.7),
    "two dimensions": (lambda x: np.histogram2d(x, x, 10), 0.01),
    "bincount": (lambda x: np.bincount((9 * x).astype(int)), 0.01),
    "digitize": (lambda x: np.digitize(x, [0.1, 0.5]), 0.0),
    "cov": (lambda x: np.cov(x.reshape(-1, 4), rowvar=False), 0.01),
    "corrcoef": (lambda x: np.corrcoef(x, x), 0.01),
    "convolve": (lambda x: np.convolve(x, np.ones(5), "same"), 0.001),
    "correlate": (lambda x: np.correlate(x, np.ones(5), "same"), 0.001),
    "windows": (lambda x: np.lib.stride_tricks.sliding_window_view(x, 9), 0.01),
    "gradient": (np.gradient, 0.01),
    "trapezoid": (np.trapezoid, 0.01),
    "interp": (lambda x: np.interp(x, [0.0, 0.5, 1.0], [1.0, 2.0, 5.0]), 0.0),
    "polyadd": (lambda x: np.polyadd(x, x), 0.0),
    "polyder": (np.polyder, 0.01),
    "polyfit": (lambda x: np.polyfit(x, x, 2), 0.01),
    "packbits": (lambda x: np.packbits(x > 0.5), 0.001),
    "unpackbits": (lambda x: np.unpackbits((255 * x).astype(np.uint8)), 0.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_large_operand_is_gathered(world, name):
    ranks = 3 if 3 in world.ranks else max(world.ranks)
    call, most = CALLS[name]
    values = np.random.default_rng(0).random(ranks * PART)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with distarray.trace() as trace:
            call(x)
        return trace.bytes

    for nbytes in world.run(ranks, program):
        assert nbytes <= most * 8 * PART
