"""Collectives on tensors: values, gradients, exactness, messages and refusals, on any device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import distarray
import distarray.torch as dt
from distarray import DeviceMesh
from distarray.errors import DivergenceError, MeshError
from tests.torch.models import line


def drawn(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator).to(dtype)


def chunks(whole, count, dim=0):
    """The parts that Shard gives the ranks: those of torch.chunk, then empty ones."""
    block = -(-whole.shape[dim] // count)
    starts = [min(rank * block, whole.shape[dim]) for rank in range(count + 1)]
    return [whole.narrow(dim, a, b - a) for a, b in itertools.pairwise(starts)]


# -- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e5m2]
)
def test_moving_values(world, ranks, device, dtype):
    """What is moved arrives as it was: uneven and empty parts, along both dimensions."""

    def program(group):
        mesh, p, r = line(group), group.size, group.rank
        for n in (1, p + 1):
            whole = (drawn(n, 3) * 7).to(dtype)
            there = whole.to(device)
            for dim, matrix in ((0, whole), (1, whole.t())):
                parts = chunks(matrix, p, dim)
                mine = parts[r].to(device)
                lengths = [part.shape[dim] for part in parts]
                for sizes in (None, n, lengths) if dim == 0 else (None,):
                    found = dt.all_gather(mine, mesh, "tp", dim=dim, sizes=sizes)
                    assert same(found, matrix, device)
                    assert same(dt.gather_from(mine, mesh, dim=dim, sizes=sizes), matrix, device)
                cut = dt.scatter_to(matrix.to(device), mesh, dim=dim)
                assert same(cut, parts[r], device)
            assert same(
                dt.broadcast(there if r == p - 1 else there != there, mesh, root=-1)
                if dtype is torch.bool
                else dt.broadcast(there, mesh, root=-1),
                whole,
                device,
            )
            assert same(dt.copy_to(there, mesh), whole, device)
            rows = chunks(whole, p)[r].to(device)
            columns = dt.all_to_all(rows, mesh, split_dim=1, concat_dim=0)
            assert same(columns, chunks(whole, p, 1)[r], device)
            back = dt.all_to_all(columns, mesh, split_dim=0, concat_dim=1, concat_sizes=3)
            assert same(back, rows.cpu(), device)

    world.run(ranks, program)


def same(found, wanted, device):
    assert found.device.type == device
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[wanted.itemsize]
    return torch.equal(found.cpu().contiguous().view(bits), wanted.contiguous().view(bits))


def test_all_to_all_along_one_dimension(world, ranks, device):
    def program(group):
        mesh, p, r = line(group), group.size, group.rank
        mine = torch.arange(p * p, device=device) + 100 * r
        gone = [(r + to) % p for to in range(p)]
        gone[-1] += p * p - sum(gone)
        found = dt.all_to_all(mine, mesh, split_sizes=gone).cpu()
        wanted = []
        for other in range(p):
            sizes = [(other + to) % p for to in range(p)]
            sizes[-1] += p * p - sum(sizes)
            start = sum(sizes[:r])
            wanted.append(torch.arange(start, start + sizes[r]) + 100 * other)
        assert torch.equal(found, torch.cat(wanted))

    world.run(ranks, program)


# -- folds --------------------------------------------------------------------------------------

FOLDS = {
    "sum": lambda rows: rows.sum(0),
    "avg": lambda rows: rows.mean(0),
    "product": lambda rows: rows.prod(0),
    "min": lambda rows: rows.amin(0),
    "max": lambda rows: rows.amax(0),
}


@pytest.mark.parametrize("fold", FOLDS)
def test_folds(world, ranks, device, fold):
    def program(group):
        mesh, p, r = line(group), group.size, group.rank
        rows = drawn(p, 5, 2, dtype=torch.float32)
        wanted = FOLDS[fold](rows)
        mine = rows[r].to(device)
        total = dt.all_reduce(mine, mesh, fold=fold)
        torch.testing.assert_close(total.cpu(), wanted)
        assert torch.equal(mine.cpu(), rows[r])
        for dim in (0, 1):
            part = dt.reduce_scatter(mine, mesh, dim=dim, fold=fold)
            torch.testing.assert_close(part.cpu(), chunks(wanted, p, dim)[r])
        if fold in ("sum", "avg"):
            torch.testing.assert_close(dt.reduce_from(mine, mesh, fold=fold).cpu(), wanted)
        dt.all_reduce_(mine, mesh, fold=fold)
        torch.testing.assert_close(mine, total)
        later = rows[r].to(device)
        with dt.transfers() as log:
            dt.all_reduce_(later, mesh, fold=fold, async_op=True).wait()
        crossed = 0 if device == "cpu" else later.nbytes
        assert (log.d2h_bytes, log.h2d_bytes) == (crossed, crossed)
        for same_bits in (total, mine, later):
            assert len(set(group.allgather_object(same_bits.cpu().numpy().tobytes()))) == 1

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_folded_in_float32(world, ranks, device, dtype):
    """256 + 1 is 256 in bfloat16: adding up in it would lose every rank's 1."""

    def program(group):
        mesh, p, r = line(group), group.size, group.rank
        rows = torch.stack([torch.full((300,), 256.0 if k == 0 else 1.3) for k in range(p)])
        rows = rows.to(dtype)
        wanted = rows.float().sum(0).to(dtype)
        mine = rows[r].to(device)
        assert torch.equal(dt.all_reduce(mine, mesh).cpu(), wanted)
        part = dt.reduce_scatter(mine, mesh).cpu()
        assert torch.equal(part, chunks(wanted, p)[r])
        for async_op in (False, True):
            here = mine.clone()
            assert dt.all_reduce_(here, mesh, async_op=async_op).wait() is here
            assert torch.equal(here.cpu(), wanted)

    world.run(ranks, program)


def test_wide_numbers_are_exact(world, ranks, device):
    def program(group):
        mesh, p, r = line(group), group.size, group.rank
        odd = torch.full((3,), 2**53 + 1 + 2 * r, device=device)
        wanted = sum(2**53 + 1 + 2 * k for k in range(p))
        assert dt.all_reduce(odd, mesh).tolist() == [wanted] * 3
        flags = torch.tensor([r == 0, True, False], device=device)
        assert dt.all_reduce(flags, mesh, fold="any").tolist() == [True, True, False]
        assert dt.all_reduce(flags, mesh, fold="all").tolist() == [p == 1, True, False]
        bits = torch.tensor([1 << r], device=device)
        assert dt.all_reduce(bits, mesh, fold="bor").item() == (1 << p) - 1
        if device == "cpu":
            double = torch.full((2,), 1.0 + r * 2.0**-50, dtype=torch.float64)
            total = dt.all_reduce(double, mesh)
            assert total[0].item() == p + sum(range(p)) * 2.0**-50
            numbers = torch.tensor([1 + 2j, r * 1j])
            assert dt.all_reduce(numbers.conj(), mesh)[0].item() == p * (1 - 2j)
            turned = numbers.conj()
            dt.all_reduce_(turned, mesh)
            assert turned[0].item() == p * (1 - 2j)
            assert numbers[0].item() == p * (1 + 2j)

    world.run(ranks, program)


def test_in_place(world, ranks, device):
    """Several at a time, waited for in another order; strided memory; what autograd is told."""

    def program(group):
        mesh, p = line(group), group.size
        tensors = [torch.full((k + 1, 3), k + 1.0, device=device) for k in range(4)]
        tensors.append(torch.ones(4, 4, device=device)[:, ::2])
        tensors.append(torch.ones(0, device=device))
        works = [dt.all_reduce_(t, mesh, "tp", async_op=True) for t in tensors]
        for work in reversed(works):
            work.poke()
            work.wait()
            work.wait()
        for k, t in enumerate(tensors[:4]):
            assert (t == p * (k + 1.0)).all()
        assert (tensors[4] == p).all()
        weight = torch.ones(3, device=device, requires_grad=True)
        factor = torch.ones(3, device=device)
        product = (weight * factor).sum()
        dt.all_reduce_(factor, mesh)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
        with pytest.raises(ValueError, match="detach"):
            dt.all_reduce_(weight, mesh)
        with torch.no_grad():
            dt.all_reduce_(weight, mesh)
        assert (weight == p).all()

    world.run(ranks, program)


# -- gradients ----------------------------------------------------------------------------------

#: Functions of what each rank holds, (tensor, mesh) -> tensor, and the shape of all of it.
MAPS = {
    "all_reduce": lambda t, m: dt.all_reduce(t, m) ** 2,
    "mean": lambda t, m: dt.all_reduce(t, m, fold="avg") ** 2,
    "max": lambda t, m: dt.all_reduce(t, m, fold="max"),
    "product": lambda t, m: dt.all_reduce(t, m, fold="product"),
    "all_gather": lambda t, m: dt.all_gather(t, m, dim=1) ** 2 * (m.rank + 1),
    "reduce_scatter": lambda t, m: dt.reduce_scatter(t**2, m, dim=1),
    "mean_scatter": lambda t, m: dt.reduce_scatter(t**2, m, fold="avg"),
    "max_scatter": lambda t, m: dt.reduce_scatter(t, m, dim=1, fold="max"),
    "product_scatter": lambda t, m: dt.reduce_scatter(t, m, dim=1, fold="product"),
    "all_to_all": lambda t, m: dt.all_to_all(t**2, m, split_dim=1, concat_dim=0) ** 2,
    "all_to_all of rows": lambda t, m: dt.all_to_all(t**2, m) ** 2,
    "broadcast": lambda t, m: dt.broadcast(t**2, m, root=-1) * (m.rank + 1),
}


@pytest.mark.parametrize("name", MAPS)
def test_gradients_of_linear_maps(world, ranks, name):
    """Against numbers: what all ranks hold goes in, what all ranks get comes out, on all ranks."""

    def program(group):
        mesh = line(group)

        def everything(whole):
            mine = dt.scatter_to(whole, mesh)[0]
            found = MAPS[name](mine, mesh).reshape(-1)
            return dt.gather_from(found, mesh)

        whole = drawn(group.size, 2, 3, seed=4)
        if name in ("product", "all_reduce"):
            whole = whole + 1j * drawn(group.size, 2, 3, seed=5)
        whole.requires_grad_()
        assert torch.autograd.gradcheck(everything, (whole,), fast_mode=True)
        if not name.startswith("max"):
            assert torch.autograd.gradgradcheck(everything, (whole,), fast_mode=True)

    if ranks <= 3:
        world.run(ranks, program)


BORDERS = {
    "column then row": lambda x, m: dt.reduce_from(dt.copy_to(x, m).pow(2) * (m.rank + 1), m),
    "mean": lambda x, m: dt.reduce_from(dt.copy_to(x, m) ** 2, m, fold="avg"),
    "cut and gather": lambda x, m: dt.gather_from(dt.scatter_to(x, m, dim=1) ** 2, m, dim=1),
    "sequence": lambda x, m: dt.gather_from(
        dt.reduce_scatter(dt.all_gather(dt.scatter_to(x, m), m) ** 2 * (m.rank + 1), m), m
    ),
}


@pytest.mark.parametrize("name", BORDERS)
def test_gradients_of_borders(world, ranks, name):
    def program(group):
        mesh = line(group)
        x = drawn(ranks + 1, 3, seed=5).requires_grad_()
        assert torch.autograd.gradcheck(lambda x: BORDERS[name](x, mesh), (x,), fast_mode=True)
        twice = torch.autograd.gradgradcheck
        assert twice(lambda x: BORDERS[name](x, mesh), (x,), fast_mode=True)

    if ranks <= 3:
        world.run(ranks, program)


def test_two_layers_in_parallel(world, ranks, device):
    """A column-parallel and a row-parallel layer are one process's two layers; 1 + 1 messages."""

    def program(group):
        mesh, p, r = line(group), group.size, group.rank
        x, w, v = (drawn(*s, dtype=torch.float32) for s in ((4, 3), (5, 3), (2, 5)))
        x1, w1, v1 = (t.clone().requires_grad_() for t in (x, w, v))
        (torch.relu(x1 @ w1.t()) @ v1.t()).pow(2).sum().backward()
        x2 = x.to(device).requires_grad_()
        w2 = chunks(w, p)[r].to(device).requires_grad_()
        v2 = chunks(v, p, 1)[r].to(device).requires_grad_()
        with distarray.trace() as step:
            with distarray.trace() as forward, dt.transfers() as log:
                hidden = torch.relu(dt.copy_to(x2, mesh) @ w2.t())
                out = dt.reduce_from(hidden @ v2.t(), mesh)
            out.pow(2).sum().backward()
        torch.testing.assert_close(x2.grad.cpu(), x1.grad)
        torch.testing.assert_close(w2.grad.cpu(), chunks(w1.grad, p)[r])
        torch.testing.assert_close(v2.grad.cpu(), chunks(v1.grad, p, 1)[r])
        assert [event.kind for event in forward] == (["allreduce"] if p > 1 else [])
        assert [event.kind for event in step] == (["allreduce"] * 2 if p > 1 else [])
        crossed = 0 if device == "cpu" else out.nbytes
        assert (log.d2h_bytes, log.h2d_bytes) == (crossed, crossed)

    world.run(ranks, program)


def test_messages(world, ranks):
    """What each function sends forward and backward, and that known sizes need no asking."""

    def program(group):
        mesh, p = line(group), group.size
        n = 2 * p
        steps = {
            "copy_to": (lambda t: dt.copy_to(t, mesh), [], ["allreduce"]),
            "reduce_from": (lambda t: dt.reduce_from(t, mesh), ["allreduce"], []),
            "all_reduce": (lambda t: dt.all_reduce(t, mesh), ["allreduce"], ["allreduce"]),
            "gather_from": (lambda t: dt.gather_from(t, mesh, sizes=n * p), ["allgather"], []),
            "scatter_to": (lambda t: dt.scatter_to(t, mesh), [], ["allgather"]),
            "all_gather": (
                lambda t: dt.all_gather(t, mesh, sizes=n * p), ["allgather"], ["reduce_scatter"],
            ),
            "reduce_scatter": (
                lambda t: dt.reduce_scatter(t, mesh), ["reduce_scatter"], ["allgather"],
            ),
        }  # fmt: skip
        for name, (step, there, back) in steps.items():
            t = torch.ones(n, 2, requires_grad=True)
            with distarray.trace() as forward:
                result = step(t)
            with distarray.trace() as backward:
                result.sum().backward()
            alone = p == 1
            assert [e.kind for e in forward] == ([] if alone else there), name
            assert [e.kind for e in backward] == ([] if alone else back), name

    world.run(ranks, program)


# -- meshes -------------------------------------------------------------------------------------


@pytest.mark.counts(lambda n: n in (4, 6))
def test_dimensions_of_a_mesh(world, ranks, device):
    def program(group):
        mesh = DeviceMesh(group, (2, ranks // 2), ("dp", "tp"))
        mine = torch.tensor([float(group.rank)], device=device)
        row, column = mesh.coords
        k = ranks // 2
        assert dt.all_gather(mine, mesh, "tp").tolist() == [row * k + j for j in range(k)]
        assert dt.all_gather(mine, mesh, 0).tolist() == [i * k + column for i in range(2)]
        assert dt.all_gather(mine, mesh, ("dp", "tp")).tolist() == list(range(ranks))
        turned = [i * k + j for j in range(k) for i in range(2)]
        assert dt.all_gather(mine, mesh, ("tp", "dp")).tolist() == turned
        assert dt.all_reduce(mine, mesh).item() == sum(range(ranks))
        with pytest.raises(MeshError, match="no dimension 'pp'"):
            dt.all_reduce(mine, mesh, "pp")

    world.run(ranks, program)


def test_outside_of_the_mesh(world, ranks):
    """A rank that the mesh leaves out keeps what it has, sends nothing and waits for nothing."""

    def program(group):
        if group.size == 1:
            return
        mesh = DeviceMesh(group, (group.size - 1,), ranks=range(1, group.size))
        mine = torch.ones(2, 2, requires_grad=True)
        inside = group.rank > 0
        assert dt.all_reduce(mine, mesh)[0, 0].item() == (group.size - 1 if inside else 1)
        assert len(dt.all_gather(mine, mesh)) == (2 * group.size - 2 if inside else 2)
        for function in (dt.reduce_scatter, dt.scatter_to, dt.all_to_all, dt.broadcast, dt.copy_to):
            function(mine, mesh).sum().backward()
        dt.all_reduce_(mine.detach(), mesh, async_op=True).wait()

    world.run(ranks, program)


# -- refusals -----------------------------------------------------------------------------------


class Wrapper(torch.Tensor):
    """What DTensor is: a tensor class that keeps its values in another tensor."""

    _local_tensor = None


REFUSED = [
    (lambda t, m: dt.all_reduce(t.as_subclass(Wrapper), m), TypeError, "to_local"),
    (lambda t, m: dt.all_reduce(np.ones(2), m), TypeError, "ndarray"),
    (lambda t, m: dt.all_reduce(t.to_sparse(), m), TypeError, "to_dense"),
    (lambda t, m: dt.all_reduce(t.to("meta"), m), TypeError, "meta"),
    (lambda t, m: dt.all_reduce(torch.quantize_per_tensor(t, 1.0, 0, torch.qint8), m),
     TypeError, "quantized"),
    (lambda t, m: dt.all_reduce(t, "tp"), TypeError, "DeviceMesh"),
    (lambda t, m: dt.all_reduce(t, m, fold="median"), ValueError, "median"),
    (lambda t, m: dt.all_reduce(t, m, fold="bor"), TypeError, "integers"),
    (lambda t, m: dt.all_reduce(t.long(), m, fold="avg"), TypeError, "floating"),
    (lambda t, m: dt.all_reduce(t + 1j, m, fold="max"), TypeError, "order"),
    (lambda t, m: dt.all_reduce_(t, m, fold="any"), TypeError, "bool"),
    (lambda t, m: dt.reduce_from(t, m, fold="max"), ValueError, "'avg'"),
    (lambda t, m: dt.all_gather(t, m, dim=2), IndexError, "out of range"),
    (lambda t, m: dt.all_gather(t.sum(), m), IndexError, "0 dimension"),
    (lambda t, m: dt.scatter_to(t, m, sizes=[1, 1]), ValueError, "cut|sizes"),
    (lambda t, m: dt.all_gather(t, m, sizes=[-1] * m.size()), ValueError, "sizes"),
    (lambda t, m: dt.all_gather(t, m, sizes=[99] * m.size()), ValueError, "99"),
    (lambda t, m: dt.broadcast(t, m, root=7), ValueError, "root 7"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*[qQ]uantiz.*", "ignore:.*[sS]parse.*")
@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(world, ranks, number):
    call, kind, text = REFUSED[number]

    def program(group):
        mesh = line(group)
        with pytest.raises(kind, match=text):
            call(torch.ones(3, 2), mesh)
        assert dt.all_reduce(torch.ones(1), mesh).item() == group.size  # still in step

    if ranks <= 2:
        world.run(ranks, program)


def test_ranks_that_differ(world, ranks):
    def program(group):
        mesh = line(group)
        if group.size == 1:
            return
        mine = torch.ones(2, 3 if group.rank == 0 else 4)
        with pytest.raises(DivergenceError, match=r"rank 0  torch.float32 \(2, 3\)"):
            dt.all_gather(mine, mesh)
        with (
            distarray.config.override(check=True),
            pytest.raises(DivergenceError, match="not making the same call"),
        ):
            dt.all_reduce(mine, mesh)

    world.run(ranks, program)
