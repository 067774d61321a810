"""Statistics and signals on a mesh that leaves out a rank: it takes no part, nobody waits."""

import numpy as np
import pytest

from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.engines.selecting import order_statistics as lines
from distarray.layout import Replicate, Shard
from distarray.ops import convolving, covariance, interpolating
from distarray.testing import assert_matches

WEIGHTS = np.arange(120).reshape(24, 5) % 4
CALLS = {
    "median": np.median,
    "median of columns": lambda x: np.median(x, 0),
    "median of rows": lambda x: np.nanmedian(x, 1, keepdims=True),
    "quantiles": lambda x: np.quantile(x, [0.1, 0.5]),
    "quantiles of columns": lambda x: np.nanquantile(x, [0.1, 0.5], 0),
    "weights": lambda x: np.quantile(x, 0.3, method="inverted_cdf", weights=WEIGHTS),
    "weights of columns": lambda x: np.quantile(x, 0.3, 0, method="inverted_cdf", weights=WEIGHTS),
    "histogram": lambda x: np.histogram(x, 7),
    "rule": lambda x: np.histogram(x, "fd"),
    "two dimensions": lambda x: np.histogram2d(x[:, 0], x[:, 1], 3),
    "bincount": lambda x: np.bincount(x[:, 0].astype(int)),
    "digitize": lambda x: np.digitize(x, [3.0, 50.0]),
    "cov": np.cov,
    "corrcoef": lambda x: np.corrcoef(x, rowvar=False),
    "convolve": lambda x: np.convolve(x[:, 2], [1.0, 2.0, 3.0]),
    "correlate": lambda x: np.correlate(x[:, 2], x[:, 3], "same"),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 2)).sum((2, 3)),
    "interp": lambda x: np.interp(x, np.arange(120.0), np.arange(120.0)),
    "interp among points that are cut": lambda x: np.interp([2.5, 7.0], x[:, 0], x[:, 1]),
    "gradient": lambda x: np.gradient(x, axis=0),
    "polyadd": lambda x: np.polyadd(x[:, 0], x[:3, 1]),
    "polymul": lambda x: np.polymul(x[:, 0], x[:, 1]),
    "polyint": lambda x: np.polyint(x[:, 0]),
    "polyfit": lambda x: np.polyfit(x[:, 0], x[:, 1], 1),
    "packbits": lambda x: np.packbits(x > 50, 0),
    "unpackbits": lambda x: np.unpackbits(x.astype(np.uint8), 0),
}
HOST = {
    "upper": lambda x: np.strings.upper(x.astype("U5")),
    "multiply": lambda x: np.strings.multiply(x[:, 0].astype("U5"), 3),
    "partition": lambda x: np.strings.partition(x[:, 0].astype("U5"), "."),
    "is_busday": lambda x: np.is_busday(x.astype(int).astype("M8[D]")),
    "dates": lambda x: np.datetime_as_string(x.astype(int).astype("M8[D]")),
}

#: Shape or data type depend on values that an outsider does not see.
SHAPED_BY_VALUES = {"rule", "bincount", "polymul", *HOST}


@pytest.mark.parametrize(
    "name", [*CALLS, *[pytest.param(name, marks=pytest.mark.host) for name in HOST]]
)
def test_a_rank_outside_of_the_mesh(world, monkeypatch, name):
    ranks = world.ranks[-1]
    if ranks == 1:
        pytest.skip("needs a second rank, to leave it out of the mesh")
    for module in (lines, covariance, convolving):
        monkeypatch.setattr(module, "REPLICATED_BELOW", 0)
    monkeypatch.setattr(interpolating, "GATHERED_BELOW", 0)
    call = (CALLS | HOST)[name]

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(1, ranks))
        values = np.arange(120.0).reshape(24, 5)
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distribute(values, mesh, [placement], src=None)
            found = call(x)
            if mesh.coords is not None or name not in SHAPED_BY_VALUES:
                assert_matches(found, call(values), exact=False)

    world.run(ranks, program)
