"""CUDA tensors in messages by NCCL, on the stand-ins: tensors of the host pass for them.

`lending` is where tensors become CuPy arrays and back; that alone is replaced here.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

import distarray
from distarray import DeviceMesh
from distarray.config import config

torch = pytest.importorskip("torch")

import distarray.torch as dt  # noqa: E402
from distarray.torch.bridge import lending  # noqa: E402


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Any:
    cupy = sys.modules["cupy"]

    def lent(tensor: Any) -> Any:
        return cupy.ndarray._of(tensor.detach().resolve_conj().resolve_neg().numpy())

    monkeypatch.setattr(lending, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(lending, "lent", lent)
    monkeypatch.setattr(lending, "returned", lambda block: torch.from_numpy(block._memory))
    sys.modules["nccl_standin"].install()
    return sys.modules["nccl_standin"]


def both_ways(world: Any, ranks: int, program: Any) -> None:
    """Run a program by the host and by NCCL: equal results, and an equal ledger."""
    found = []
    for way in ("host", "nccl"):

        def body(group: Any) -> Any:
            group.barrier()
            group._ways = None
            mesh = DeviceMesh(group, (group.size,), device_type="cpu")
            with distarray.trace() as t:
                results = program(mesh)
            assert group.uses_nccl == (config.gpu_messages == "nccl" and group.size > 1)
            return [x.tolist() for x in results], [event[:5] for event in t]

        with config.override(gpu_messages=way):
            found.append(world.run(ranks, body))
    assert found[0] == found[1]


def mine(mesh: Any, *shape: int, dtype: Any = torch.float32) -> Any:
    own = torch.Generator().manual_seed(mesh.rank)
    return torch.randint(-4, 5, shape, generator=own).to(dtype)


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64], ids=str)
def test_sums_and_copies(world, ranks, nccl, dtype):
    def program(mesh):
        size, rank = mesh.size(), mesh.rank
        x = mine(mesh, 6, 4, dtype=dtype)
        uneven = x[: rank + 1].T
        sizes = [r + 1 for r in range(size)]
        results = [
            dt.all_reduce(x, mesh),
            dt.all_reduce(x[::2].T, mesh),
            dt.reduce_scatter(x, mesh, dim=0),
            dt.reduce_scatter(x, mesh, dim=1),
            dt.all_gather(x, mesh, dim=1),
            dt.all_gather(uneven, mesh, dim=1, sizes=sizes),
            dt.all_gather(uneven, mesh, dim=1),
            dt.all_to_all(x, mesh, split_dim=0, concat_dim=1),
            dt.broadcast(x, mesh, root=size - 1),
            dt.all_reduce(torch.tensor(rank).to(dtype), mesh),
        ]
        for later in (False, True):
            here = x.clone()
            work = dt.all_reduce_(here, mesh, async_op=later)
            results.append(work.wait() if later else here)
        assert all(result.dtype == dtype for result in results)
        return [result.to(torch.complex64) for result in results]

    before = nccl.calls.total()
    both_ways(world, ranks, program)
    assert (nccl.calls.total() > before) == (ranks > 1)


@pytest.mark.parametrize("fold", ["min", "max", "product", "any", "all", "avg"])
def test_other_folds(world, ranks, nccl, fold):
    def program(mesh):
        x = mine(mesh, 5, dtype=torch.float64)
        whole = mine(mesh, 5, dtype=torch.int32)
        tensors = [x] if fold == "avg" else [x, whole, whole > 0]
        return [dt.all_reduce(each, mesh, fold=fold) for each in tensors]

    both_ways(world, ranks, program)


def test_gradients_and_redistribution(world, ranks, nccl):
    def program(mesh):
        x = mine(mesh, 4, 3).requires_grad_()
        (dt.all_gather(x, mesh, dim=0) * (mesh.rank + 1)).sum().backward()
        whole = torch.arange(21.0).reshape(7, 3)
        t = dt.distribute_tensor(whole, mesh, [distarray.Shard(0)])
        columns = t.redistribute(placements=[distarray.Shard(1)])
        partial = dt.DistTensor.from_local(mine(mesh, 4, 3), mesh, [distarray.Partial()])
        rows = partial.redistribute(placements=[distarray.Shard(0)])
        assert torch.equal(columns.full_tensor(), whole)
        return [x.grad, columns.to_local(), rows.to_local(), t.full_tensor()]

    both_ways(world, ranks, program)


def test_without_cupy_tensors_go_through_the_host(world, ranks, nccl, monkeypatch):
    monkeypatch.setattr(lending, "_cupy", lambda: None)

    def program(group):
        group.barrier()
        group._ways = None
        mesh = DeviceMesh(group, (group.size,), device_type="cpu")
        total = dt.all_reduce(torch.ones(3), mesh)
        assert total.tolist() == [group.size] * 3
        assert not group.uses_nccl

    with config.override(gpu_messages="measured"):
        world.run(ranks, program)
