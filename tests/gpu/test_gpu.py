"""On a real GPU: the stand-in cannot show that CuPy computes what it promises.

Left out where there is no CuPy or no device. ``pytest --device cuda tests/ops tests/array`` runs
the families' own tests there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, DistArray, Shard, distribute
from distarray.comm import nccl
from distarray.config import config
from distarray.layout.placement import Fold
from distarray.testing import assert_matches

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cupy(request: pytest.FixtureRequest) -> Any:
    if request.config.option.device in ("standin", "nccl"):
        pytest.skip("blocks are on the stand-in")
    module = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        count = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device: {error}")
    if not count:
        pytest.skip("no CUDA device")
    return module


def written(np, a, places, values):
    x = a.copy()
    x[places] = values
    return x


def added(np, a, places, values):
    x = a.copy()
    np.add.at(x, places, values)
    return x


CALLS = [
    lambda np, a: a + 2 * a - np.float64(1),
    lambda np, a: np.sum(a, axis=0),
    lambda np, a: a.sum(),
    lambda np, a: np.max(a, axis=1, initial=3.0),
    lambda np, a: np.argmin(a, axis=0),
    lambda np, a: np.mean(a, where=a > 2),
    lambda np, a: np.std(a, axis=0),
    lambda np, a: np.cumsum(a, axis=0),
    lambda np, a: a.T @ a,
    lambda np, a: np.einsum("ij,kj->ik", a, a),
    lambda np, a: a[1:-1] - a[2:],
    lambda np, a: a[a > 5],
    lambda np, a: a[np.array([3, 0, 3])],
    lambda np, a: np.concatenate([a, a[::-1]]),
    lambda np, a: np.reshape(a, (-1, 4)),
    lambda np, a: np.repeat(a, 3, axis=0),
    lambda np, a: np.pad(a, 2, mode="reflect"),
    lambda np, a: np.where(a > 4, a, -a),
    lambda np, a: np.spacing(a),
    lambda np, a: np.insert(a, 2, 7.0, axis=0),
    # Where CuPy's own answer is another one, or none.
    lambda np, a: np.max(a > 4, axis=0, initial=0),
    lambda np, a: np.argmax(np.where(a % 3 == 0, np.nan, a), axis=0),
    lambda np, a: np.select([a > 14, a > 4], [a, -a], 0.5),
    lambda np, a: np.stack(np.nonzero(a > 3)),
    lambda np, a: np.add(a, 1, where=a > 3, out=np.zeros_like(a)),
    lambda np, a: written(np, a, [3, 5, 3], a[1:4, :1]),
    lambda np, a: added(np, a, [3, 5, 3], a[1:4, :1]),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_calls(world, ranks, cupy, number):
    values = np.arange(24.0).reshape(8, 3)
    expected = CALLS[number](np, values)

    def program(group):
        mesh = DeviceMesh(group, (ranks,), device_type="cuda")
        x = distribute(values, mesh, [Shard(0)])
        with config.override(device="cuda"):  # for the arrays that a call makes
            result = CALLS[number](dnp, x)
        is_scalar = not np.ndim(expected)  # those are on the host
        assert isinstance(result, np.generic if is_scalar else DistArray)
        assert is_scalar or isinstance(result.to_local(), cupy.ndarray)
        assert_matches(result, expected, exact=False)

    world.run(ranks, program)


def test_scalars_are_on_the_host(world, ranks, cupy):
    def program(group):
        mesh = DeviceMesh(group, (ranks,), device_type="cuda")
        x = distribute(np.arange(10.0), mesh, [Shard(0)])
        total = x.sum()
        with distarray.forbid_communication():
            assert float(total) == 45.0
            assert f"{total / 2:.1f}" == "22.5"

    world.run(ranks, program)


@pytest.fixture
def nccl4py(cupy: Any) -> None:
    pytest.importorskip("nccl.core", reason="nccl4py is not installed")


def test_nccl_takes_and_gives_what_it_is_shown(world, cupy, nccl4py):
    """One rank on one GPU shows whether nccl4py is called rightly, not what goes between GPUs."""
    if world.name == "mpi":
        pytest.skip("about one process")

    def program(group):
        talks = nccl.meet(group, cupy)
        assert isinstance(talks, nccl.Nccl), talks
        same = np.testing.assert_array_equal
        for dtype in "?bBiIlLfdFD":
            host = (np.arange(12) % 3).reshape(3, 4).astype(dtype)
            block = cupy.asarray(host)
            for fold in Fold:
                if nccl.folds(block.dtype, fold):
                    expected = group.allreduce(host, fold)
                    same(talks.allreduce(block, fold).get(), expected)
                    same(talks.reduce_scatter([block[:, ::2]], fold).get(), expected[:, ::2])
            same(talks.allgather(block.T)[0].get(), host.T)
            same(talks.allgather_varied(block[::-1], [3])[0].get(), host[::-1])
            talks.broadcast(block[:, 1:], 0)
            landing, point = cupy.zeros((4, 3), dtype), cupy.zeros((), dtype)
            talks.exchange([(0, block), (0, block[0, 1])], [(0, landing.T), (0, point)])
            same(landing.get(), host.T)
            same(point.get(), host[0, 1])
        talks.free()

    world.run(1, program)


@pytest.mark.mpi
@pytest.mark.parametrize("way", ["nccl", "measured"])
def test_messages_between_gpus(world, ranks, cupy, nccl4py, way):
    """As many processes as GPUs."""
    if not 1 < ranks <= cupy.cuda.runtime.getDeviceCount():
        pytest.skip("needs a GPU for each of several ranks")

    def program(group):
        group._ways = None
        values = np.arange(24.0 * ranks).reshape(-1, 3)
        x = distribute(values, DeviceMesh(group, (ranks,), device_type="cuda"), [Shard(0)])
        assert_matches(x.redistribute(placements=[Shard(1)]), values)
        assert_matches(x[1:] - x[:-1], values[1:] - values[:-1])
        assert_matches(x.sum(axis=0), values.sum(axis=0))
        assert group.uses_nccl

    with config.override(gpu_messages=way):
        world.run(ranks, program)


def test_blocks_are_handed_over_without_a_copy(world, ranks, cupy):
    def program(group):
        mesh = DeviceMesh(group, (ranks,), device_type="cuda")
        block = cupy.arange(6.0)
        x = distarray.DistArray.from_local(block, mesh, [Shard(0)])
        assert x.to_local() is block
        assert x.device == f"cuda:{block.device.id}"

    world.run(ranks, program)
