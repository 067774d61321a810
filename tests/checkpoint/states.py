"""Helpers of the tests of checkpoints: meshes, a table, comparisons of states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distarray import DeviceMesh, DistArray, comm
from distarray.checkpoint import shard_writing, shared_chunks
from tests.io.helpers import cut_small


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so low that small arrays are written and read in several rounds."""
    cut_small(monkeypatch)
    monkeypatch.setattr(shared_chunks, "_ROUND", 600)
    monkeypatch.setattr(shared_chunks, "PAGE", 64)
    monkeypatch.setattr(shard_writing, "_SLAB", 600)
    monkeypatch.setattr(comm.files, "_WORTH", 0)


@pytest.fixture(params=["one", "several"])
def few(request: pytest.FixtureRequest, world: Any) -> int:
    """Numbers of ranks for tests that do not depend on layouts."""
    if world.name == "mpi":
        if request.param == "one":
            pytest.skip("under mpiexec the number of ranks is given")
        return int(world.ranks[-1])
    return 1 if request.param == "one" else 3


TABLE = np.arange(37 * 11.0).reshape(37, 11)


def grid_of(group: Any) -> DeviceMesh:
    n = group.size
    return DeviceMesh(group, (n // 2, 2) if n % 2 == 0 else (1, n), ("down", "across"))


def line_of(group: Any) -> DeviceMesh:
    return DeviceMesh(group, (group.size,))


def assert_same(found: Any, expected: Any, where: str = "state") -> None:
    assert type(found) is type(expected), where
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected)):
            assert_same(one, other, f"{where}[{number}]")
    elif isinstance(expected, (DistArray, np.ndarray, np.generic)):
        one, other = (v.full() if isinstance(v, DistArray) else v for v in (found, expected))
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        assert repr(one.dtype) == repr(other.dtype), where  # also says whose byte order was set
        if other.dtype.names or other.dtype.char in "gG":  # padding means nothing
            assert (one == other).all(), where
        else:
            assert one.tobytes() == other.tobytes(), where
    else:
        assert found == expected or (found != found and expected != expected), where
