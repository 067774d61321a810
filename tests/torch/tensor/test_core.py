"""The distributed tensor itself: values, gradients, views that write through, files, refusals."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from torch import nn

import distarray
import distarray.torch as dt
from distarray import DeviceMesh, Partial, Replicate, Shard
from distarray.errors import MeshError, NotDistributedError, PerformanceWarning
from tests.torch.models import drawn, line

PLACED = {"rows": [Shard(0)], "columns": [Shard(1)], "whole": [Replicate()]}
placed = pytest.mark.parametrize("placements", PLACED.values(), ids=PLACED)


def spread(whole, mesh, placements):
    return dt.distribute_tensor(whole, mesh, placements, src=None)


def same(found, wanted):
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found.detach().full_tensor().cpu(), wanted.detach())


@placed
def test_it_is_a_tensor(world, ranks, placements):
    whole = drawn(5, 3)

    def program(group):
        x = spread(whole, line(group), placements)
        assert isinstance(x, torch.Tensor)
        assert type(x) is dt.DistTensor
        assert x.layout is torch.strided
        assert x.placements == tuple(placements)
        assert x.stride() == (3, 1)
        same(x, whole)
        same(torch.add(x, x, alpha=2), whole * 3)
        same(x.t() @ x, whole.t() @ whole)
        assert float(x.sum()) == pytest.approx(float(whole.sum()))
        assert bool((x > 2.5).any()) == bool((whole > 2.5).any())
        assert x.tolist() == whole.tolist()
        assert "DistTensor((5, 3)" in repr(x)

    world.run(ranks, program)


@placed
def test_gradients_have_global_meaning(world, ranks, placements):
    whole, other = drawn(5, 3), drawn(3, 4, seed=1)

    def loss(x, y):
        return ((x @ y).sigmoid() / x.mean() + x.sum(1, keepdim=True)).square().mean()

    wanted = [whole.clone().requires_grad_(), other.clone().requires_grad_()]
    loss(*wanted).backward()

    def program(group):
        mesh = line(group)
        x = nn.Parameter(spread(whole, mesh, placements))
        y = nn.Parameter(spread(other, mesh, placements))
        loss(x, y).backward()
        for found, plain in zip((x, y), wanted, strict=True):
            assert found.grad.placements == found.placements
            same(found.grad, plain.grad)
        torch.optim.AdamW([x, y], lr=0.1).step()
        plain = [nn.Parameter(whole.clone()), nn.Parameter(other.clone())]
        for p, w in zip(plain, wanted, strict=True):
            p.grad = w.grad.clone()
        torch.optim.AdamW(plain, lr=0.1).step()
        same(x, plain[0])
        same(y, plain[1])

    world.run(ranks, program)


@placed
def test_views_write_through(world, ranks, placements):
    whole = drawn(6, 4)

    def program(group):
        x, y = spread(whole, line(group), placements), whole.clone()
        for t in (x, y):
            t[1:5:2] = 7
            t[2] += 1
            t[:, 1].mul_(2)
            t.t()[0].zero_()
        same(x, y)
        flat, plain = x.view(-1), y.view(-1)
        flat[3:9].fill_(5)
        plain[3:9].fill_(5)
        same(x, y)
        x.add_(1)
        y.add_(1)
        same(flat, plain)

    world.run(ranks, program)


@placed
def test_views_are_aliases_in_autograd(world, ranks, placements):
    whole = drawn(6, 4)

    def loss(x):
        y = x * 2
        y[1:3].mul_(3)
        y.view(-1)[5:11].sigmoid_()
        return (y * y).sum()

    wanted = whole.clone().requires_grad_()
    loss(wanted).backward()

    def program(group):
        x = spread(whole, line(group), placements).requires_grad_()
        loss(x).backward()
        same(x.grad, wanted.grad)

    world.run(ranks, program)


def test_an_operator_without_a_rule_gathers_and_says_so(world, ranks):
    whole = drawn(5, 4)

    def program(group):
        x = spread(whole, line(group), [Shard(0)])
        found = x.logcumsumexp(0)
        settings = [({"fallback": "error"}, "'error'"), ({"fallback_limit": 100}, "is 100 bytes")]
        for values, words in settings if group.size > 1 else []:
            with distarray.config.override(**values), pytest.raises(NotDistributedError) as caught:
                x.logcumsumexp(0)
            assert words in str(caught.value)
        same(found, whole.logcumsumexp(0))

    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        world.run(ranks, program)
    said = {str(w.message) for w in log if w.category is PerformanceWarning}
    assert all("aten.logcumsumexp gathers its operands (160 bytes" in text for text in said)
    assert len(said) == (ranks > 1)


def test_out_and_in_place(world, ranks):
    whole = drawn(5, 4)

    def program(group):
        mesh = line(group)
        with distarray.config.override(fallback="allow"):
            for have in PLACED.values():
                for want in PLACED.values():
                    x, out = spread(whole, mesh, have), spread(whole * 0, mesh, want)
                    assert torch.add(x, 1, out=out) is out
                    assert out.placements == tuple(want)
                    same(out, whole + 1)
                    torch.logcumsumexp(x, 0, out=out)
                    same(out, whole.logcumsumexp(0))
                    assert out.sub_(x) is out
                    same(out, whole.logcumsumexp(0) - whole)
                    assert out.placements == tuple(want)
                    with pytest.raises(ValueError, match="keep theirs"):
                        torch.sum(x, 0, out=out)

    world.run(ranks, program)


#: Writes to a row, or a number, of a matrix of 7 x 4; what they write is computed in other layouts.
ROWS = {
    "elements": lambda x, y: torch.mul(y[3], y[4], out=x[2]),
    "sum": lambda x, y: torch.sum(y, 0, out=x[3]),
    "number": lambda x, y: torch.sum(y, (0, 1), out=x[6, 1]),
    "product": lambda x, y: torch.mv(y.t(), y[:, 0], out=x[5]),
    "deviation": lambda x, y: torch.std(y, 0, out=x[4]),
    "gathered": lambda x, y: torch.logcumsumexp(y[3], 0, out=x[1]),
    "column": lambda x, y: torch.std(y, 1, out=x.t()[1]),
    "in place": lambda x, y: x[3].mul_(y.sum(0)),
    "elsewhere": lambda x, y: x[3].index_add_(0, (y[:2, 0] * 0).long(), y[:2, 1]),
}


@pytest.mark.parametrize("name", ROWS)
def test_writes_to_what_some_ranks_hold(world, ranks, name):
    """All ranks compute what goes to the row of one of them."""
    wanted, y = drawn(7, 4), drawn(7, 4).exp()
    ROWS[name](wanted, y)

    def program(group):
        mesh = line(group)
        with distarray.config.override(fallback="allow"):
            for have in PLACED.values():
                for want in PLACED.values():
                    x = spread(drawn(7, 4), mesh, want)
                    ROWS[name](x, spread(y, mesh, have))
                    same(x, wanted)

    world.run(ranks, program)


#: Views of a row of a matrix of 7 x 4, which all but some ranks have nothing of.
STRETCHED = {
    "rows": lambda x: x[0].expand(3, 4),
    "matrices": lambda x: x[2:3].expand(3, 4),
    "numbers": lambda x: x[2, 1].expand(3, 2),
    "columns": lambda x: x[:, 1, None].expand(-1, 5),
    "repeated": lambda x: x[3].repeat(2, 3),
    "pairs": lambda x: torch.view_as_real(torch.complex(x, x)[2, 1]),
}


@pytest.mark.parametrize("name", STRETCHED)
def test_a_row_is_stretched(world, ranks, name):
    def program(group):
        for placements in PLACED.values():
            x = spread(drawn(7, 4), line(group), placements).requires_grad_()
            whole = drawn(7, 4).requires_grad_()
            with distarray.config.override(fallback="allow"):
                found, wanted = STRETCHED[name](x), STRETCHED[name](whole)
                same(found, wanted)
                (found * found).sum().backward()
            (wanted * wanted).sum().backward()
            same(x.grad, whole.grad)

    world.run(ranks, program)


def test_pending_sums_are_settled_where_it_matters(world, ranks):
    whole = drawn(4, 3)

    def program(group):
        mesh = line(group)
        x = dt.DistTensor.from_local(whole / group.size, mesh, [Partial()])
        assert (x + x).placements == (Partial(),)
        assert (x * 2).placements == (Partial(),)
        assert x.t().placements == (Partial(),)
        same(x + x * 2, whole * 3)
        same(x + 1, whole + 1)
        same(x.exp(), whole.exp())
        same(x.max(), whole.max())
        assert float(x[1, 2]) == pytest.approx(float(whole[1, 2]))
        view = x.view(-1)
        x.add_(1)
        same(x, whole + 1)
        same(view, whole.view(-1) + 1)

    world.run(ranks, program)


def test_copies_and_files_are_whole(world, ranks):
    whole = drawn(5, 3)

    def program(group):
        x = nn.Parameter(spread(whole, line(group), [Shard(0)]))
        x.grad = spread(whole * 2, x.mesh, [Shard(0)])
        y = copy.deepcopy(x)
        assert isinstance(y, nn.Parameter)
        assert y.placements == x.placements
        with torch.no_grad():
            y.zero_()
        same(x, whole)
        same(y.grad, whole * 2)
        file = io.BytesIO()
        torch.save({"x": x, "y": x.detach()}, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert type(loaded["x"]) is nn.Parameter
        assert torch.equal(loaded["x"], whole)
        assert type(loaded["y"]) is torch.Tensor

    world.run(ranks, program)


def test_plain_tensors_and_other_meshes(world, ranks):
    whole = drawn(4, 3)

    def program(group):
        x = spread(whole, line(group), [Shard(0)])
        same(x * torch.tensor(2.0), whole * 2)
        same(x + torch.tensor([1.0]), whole + 1)
        for refused in (lambda: x + whole, lambda: whole + x, lambda: torch.mm(whole.t(), x)):
            with pytest.raises(RuntimeError, match="implicit_replication"):
                refused()
        with dt.implicit_replication():
            same(whole + x, whole * 2)
            same(whole.t() @ x, whole.t() @ whole)
        other = spread(whole, DeviceMesh(group, (1, group.size), ("a", "b")), [Replicate()] * 2)
        with pytest.raises(MeshError, match="two meshes"):
            x + other
        with pytest.raises(TypeError, match="from_local"):
            dt.DistTensor(whole)

    world.run(ranks, program)


def test_gradients_of_plain_tensors_are_plain(world, ranks):
    """What a plain tensor was computed from gets no distributed gradient."""
    whole, scale = drawn(4, 3), drawn(3)
    leaf = scale.clone().requires_grad_()
    ((whole * leaf).sum(0) * (leaf * 2)).sum().backward()

    def program(group):
        x = spread(whole, line(group), [Shard(0)])
        mine = scale.clone().requires_grad_()
        kinds = []
        twice = mine * 2
        twice.register_hook(lambda grad: kinds.append(type(grad)))
        with dt.implicit_replication():
            ((x * mine).sum(0) * twice).sum().backward()
        assert kinds == [torch.Tensor]
        assert type(mine.grad) is torch.Tensor
        assert torch.allclose(mine.grad, leaf.grad)

    world.run(ranks, program)


def test_memory_of_other_processes_is_refused(world, ranks):
    def program(group):
        x = spread(drawn(5, 3), line(group), [Shard(0)])
        with pytest.raises(RuntimeError, match="to_local"):
            x.share_memory_()

    world.run(ranks, program)


def test_arrays_and_tensors_share_a_block(world, ranks):
    def program(group):
        mesh = line(group)
        a = distarray.distribute(drawn(5, 3).numpy(), mesh, [Shard(0)], src=None)
        x = a.to_tensor()
        x.mul_(2)
        assert float(a[4, 2]) == pytest.approx(2 * float(drawn(5, 3)[4, 2]))
        b = x.to_array()
        b[0] = 3
        assert x[0].tolist() == [3.0] * 3
        assert b.layout is a.layout
        with pytest.raises(ValueError, match="detach"):
            x.requires_grad_().to_array()

    world.run(ranks, program)


def test_from_local_and_to_local_pass_gradients(world, ranks):
    def program(group):
        mesh, n = line(group), group.size
        local = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        x = dt.DistTensor.from_local(local, mesh, [Shard(0)])
        y = x.redistribute([Shard(1)]).redistribute([Replicate()])
        y.to_local().sum().backward()
        assert torch.equal(local.grad, torch.ones_like(local))
        local.grad = None
        x = dt.DistTensor.from_local(local, mesh, [Shard(0)])
        x.full_tensor(grad_placements=[Partial()]).sum().backward()
        assert torch.equal(local.grad, torch.full_like(local, n))
        local.grad = None
        part = dt.DistTensor.from_local(local, mesh, [Partial()])
        (part * part).sum().backward()
        assert torch.equal(local.grad, torch.full_like(local, 2 * n))
        (again,) = torch.autograd.grad(
            (dt.DistTensor.from_local(local, mesh, [Shard(0)]) ** 3).sum(), local, create_graph=True
        )
        again.sum().backward()
        assert torch.equal(local.grad, torch.full_like(local, 2 * n + 6))

    world.run(ranks, program)


@pytest.mark.parametrize("shape", [(1, 2, 1, 2), (2, 3, 1, 2), (2, 1, 3, 2)], ids=str)
def test_parts_of_what_lies_by_channels_lie_in_order(world, ranks, shape):
    """A view that is one of the whole is one of each part, whose dimensions may have length 1."""
    values = drawn(*shape).contiguous(memory_format=torch.channels_last)

    def program(group):
        for placement in (Shard(0), Shard(1), Shard(3), Replicate()):
            for src in (None, 0):
                x = dt.distribute_tensor(values, line(group), [placement], src=src)
                assert torch.equal(x.view(-1).full_tensor(), values.reshape(-1))

    world.run(ranks, program)
