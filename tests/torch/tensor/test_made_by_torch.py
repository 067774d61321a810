"""Plain tensors that torch makes inside of its own functions, and those of programs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import drawn, line


def _approximates(x):
    u, s, v = torch.svd_lowrank(x, 4)
    return (u * s) @ v.mT


def _pools(x):
    """The largest of all, whichever windows were drawn."""
    return functional.fractional_max_pool2d(x.view(1, 1, 6, 4), 2, output_size=(2, 2)).amax()


#: What is called with one matrix of 6 x 4.
MADE = {
    "combinations": lambda x: torch.combinations(x[:, 0].contiguous(), 2),
    "causal": lambda x: functional.scaled_dot_product_attention(
        *(x.view(2, 3, 4), x.view(2, 3, 4).exp(), x.view(2, 3, 4)), is_causal=True
    ),
    "tensor_split": lambda x: torch.tensor_split(x, (x[:2, 0] * 0).cpu().long() + 3)[2],
    "masked.var": lambda x: torch.masked.var(x, 0, mask=x > 0),
    "bags": lambda x: functional.embedding_bag((x[:4] * 0).long() + 2, x.contiguous(), mode="sum"),
    "list": lambda x: x[[0, 5, 1]],
    "svd_lowrank": _approximates,
    "fractional pooling": _pools,
}


def test_what_torch_makes_is_replicated(world, ranks):
    """Numbers that ranks draw there by themselves are those of one of them."""

    def program(group):
        for name, call in MADE.items():
            wanted = call(drawn(6, 4))
            for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
                x = dt.distribute_tensor(drawn(6, 4), line(group), placements, src=None)
                with distarray.config.override(fallback="allow"):
                    found = call(x)
                assert type(found) is dt.DistTensor, name
                told = group.allgather_object(found.full_tensor().tolist())
                assert all(one == told[0] for one in told), name
                if "pool" in name:
                    continue
                torch.testing.assert_close(found.full_tensor(), wanted, msg=name)

    world.run(ranks, program)


def _remembers(x, kind):
    cell = kind(4, 3, batch_first=True, num_layers=2).double()
    shapes = {name: tuple(p.shape) for name, p in cell.named_parameters()}
    values = {name: x.new_ones(shape) * 0.1 for name, shape in shapes.items()}
    return torch.func.functional_call(cell, values, (x.view(2, 3, 4),))[0]


def _orthogonal(x):
    layer = torch.nn.Linear(4, 6, dtype=torch.float64)
    layer.weight = torch.nn.Parameter(x.detach())
    torch.nn.utils.parametrizations.orthogonal(layer)
    return layer.weight.detach().mT @ layer.weight.detach()


def _normal(x):
    found = torch.distributions.Normal(x, x.exp() * 1e-9).rsample()
    return (found / 1e-3).round()


#: Of modules and distributions, which have distributed tensors.
OF_OBJECTS = {
    "LSTM": lambda x: _remembers(x, torch.nn.LSTM),
    "GRU": lambda x: _remembers(x, torch.nn.GRU),
    "orthogonal": lambda x: _orthogonal(torch.linalg.qr(x).Q),
    "normal": _normal,
}


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_what_modules_and_distributions_make(world, ranks, name):
    """Their zeros, and numbers that ranks draw by themselves."""
    wanted = OF_OBJECTS[name](drawn(6, 4))

    def program(group):
        for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
            x = dt.distribute_tensor(drawn(6, 4), line(group), placements, src=None)
            with distarray.config.override(fallback="allow"):
                found = OF_OBJECTS[name](x)
            torch.testing.assert_close(found.full_tensor(), wanted)

    world.run(ranks, program)


def test_one_hot_looks_at_the_classes(world, ranks):
    def program(group):
        x = dt.distribute_tensor(torch.arange(7), line(group), [Shard(0)], src=None)
        for classes in (7, 9, -1):
            found = functional.one_hot(x, classes)
            assert torch.equal(found.full_tensor(), functional.one_hot(torch.arange(7), classes))
        with pytest.raises(RuntimeError, match="smaller than num_classes"):
            functional.one_hot(x, 3)
        with pytest.raises(RuntimeError, match="non-negative"):
            functional.one_hot(x - 1, 7)

    world.run(ranks, program)


def test_what_a_program_makes_is_not(world, ranks):
    def program(group):
        x = dt.distribute_tensor(drawn(6, 4), line(group), [Shard(0)], src=None)
        plain = torch.ones(4, 4, dtype=torch.float64)
        for call in (
            lambda: x + plain[0],
            lambda: functional.linear(x, plain),
            lambda: torch.nn.Linear(4, 4, dtype=torch.float64)(x),
            lambda: functional.scaled_dot_product_attention(x, x, x, torch.ones(6, 6)),
        ):
            with pytest.raises(RuntimeError, match="plain one of shape"):
                call()

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_what_torch_makes_of_a_program_s_is_compared(world, ranks):
    def program(group):
        x = dt.distribute_tensor(drawn(6, 4), line(group), [Shard(0)], src=None)
        mask = torch.arange(24).view(6, 4) % 3 > 0
        found = torch.masked.var(x, 0, mask=mask)
        torch.testing.assert_close(found.full_tensor(), torch.masked.var(drawn(6, 4), 0, mask=mask))
        mask[0, 0] = group.rank == 1
        with pytest.raises(RuntimeError, match="plain one of shape"):
            torch.masked.var(x, 0, mask=mask)

    world.run(ranks, program)


#: Called with a matrix of 6 x 4 and a tensor for the result.
OUT = {
    "mean": lambda x, out: torch.mean(x, 0, out=out),
    "kron": lambda x, out: torch.kron(x, x[:2], out=out),
    "det": lambda x, out: torch.linalg.det(x[:4], out=out),
    "solve": lambda x, out: torch.linalg.solve(x[:4], x[2:], out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_results_for_out(world, ranks, name):
    """Of the result's shape, or empty, as torch's own are inside of some of these."""
    wanted = OUT[name](drawn(6, 4), torch.empty(0, dtype=torch.float64))

    def program(group):
        for place in (Shard(0), Shard(1), Replicate()):
            x = dt.distribute_tensor(drawn(6, 4), line(group), [place], src=None)
            with distarray.config.override(fallback="allow"):
                for shape in (wanted.shape, (0,)):
                    blank = torch.full(shape, 9.0, dtype=torch.float64)
                    where = [place if blank.ndim > 1 else Replicate()]
                    out = dt.distribute_tensor(blank, line(group), where, src=None)
                    assert OUT[name](x, out) is out
                    assert out.shape == wanted.shape
                    torch.testing.assert_close(out.full_tensor(), wanted)
                plain = torch.empty(0, dtype=torch.float64)
                if name == "mean":
                    assert OUT[name](x, plain) is plain
                    torch.testing.assert_close(plain, wanted)

    world.run(ranks, program)


def test_conjugates(world, ranks):
    """What is written to them is written to what they are of."""

    def call(x):
        flipped, pairs = x.conj(), torch.view_as_real(x)
        x.mul_(2)
        flipped.add_(1j)
        flipped[1] = 3
        pairs[..., 0].add_(1)
        x.conj().imag.mul_(3)
        return x, flipped, pairs

    values = torch.complex(drawn(5, 3), drawn(5, 3, seed=1))
    wanted = call(values.clone())

    def program(group):
        x = dt.distribute_tensor(values, line(group), [Shard(0)], src=None)
        for one, other in zip(call(x), wanted, strict=True):
            torch.testing.assert_close(one.full_tensor(), other.resolve_conj())
        whole = dt.DistTensor.from_local(values.conj(), line(group), [Replicate()])
        assert torch.equal(torch.view_as_real(whole).to_local()[..., 1], -values.imag)

    world.run(ranks, program)
