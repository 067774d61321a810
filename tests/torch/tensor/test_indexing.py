"""Reading and writing by tensors of places: as one process does, and without a gather."""

from __future__ import annotations

import pytest
import torch

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.laying import agrees, layouts, line_or_grid, spread

PLACES = torch.tensor([3, 0, 3, 1, 2, 0])


def places(shape, most, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, most, shape, generator=generator)


def apart(shape, dim):
    """Places of which no two are the same along a dimension."""
    return drawn(*shape).argsort(dim)


def every(*ndims):
    """All placements of the first, beside those of the others that are cut most and not at all."""

    def placed(mesh):
        head, *rest = ndims
        for p in layouts(head, mesh):
            yield [p, *[layouts(n, mesh)[0] for n in rest]]
            yield [p, *[layouts(n, mesh)[-1] for n in rest]]
            yield [layouts(head, mesh)[0], *[layouts(n, mesh)[-1] for n in rest]]

    return placed


@pytest.mark.parametrize("dim", [0, 1])
def test_select(world, ranks, dim):
    wholes = [drawn(5, 4), PLACES]
    world.run(
        ranks,
        lambda group: agrees(
            group, lambda x, i: torch.index_select(x, dim, i), wholes, every(2, 1)
        ),
    )


#: Where the order of writing to one place twice is not said.
ONCE = ("index_copy", "accumulated")
WRITES = {
    "index_add": lambda x, dim, i, y: torch.index_add(x, dim, i, y, alpha=2),
    "index_copy": torch.index_copy,
    "index_fill": lambda x, dim, i, y: torch.index_fill(x, dim, i, 2.0) + y.sum(),
    "in place": lambda x, dim, i, y: (x * 1).index_add_(dim, i, y),
    "accumulated": lambda x, dim, i, y: torch.index_reduce(x * 1, dim, i, y.detach(), "amax"),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dim", [0, 1])
def test_writes(world, ranks, name, dim):
    index = torch.tensor([3, 0, 2, 1, 5, 4] if name in ONCE else [3, 0, 2, 1, 2, 0])
    wholes = [drawn(7, 7), index, drawn(*((6, 7) if dim == 0 else (7, 6)), seed=1)]

    def program(group):
        agrees(
            group,
            lambda x, i, y: WRITES[name](x, dim, i, y),
            wholes,
            every(2, 1, 2),
            gradients=name != "accumulated",
        )

    world.run(ranks, program)


SCATTERS = {
    "gather": lambda x, dim, i, y: torch.gather(x, dim, i) + y.sum(),
    "take_along_dim": lambda x, dim, i, y: torch.take_along_dim(x, i, dim) * y.sum(),
    "scatter": torch.scatter,
    "scatter value": lambda x, dim, i, y: torch.scatter(x, dim, i, 3.0) + y.mean(),
    "scatter_add": torch.scatter_add,
    "scatter_reduce": lambda x, dim, i, y: torch.scatter_reduce(x, dim, i, y, "amax"),
    "scatter_": lambda x, dim, i, y: (x * 1).scatter_add_(dim, i, y),
}


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dim", [0, 1])
def test_scatters(world, ranks, name, dim):
    wholes = [drawn(5, 4), apart((5, 4), dim), drawn(5, 4, seed=1)]

    def program(group):
        agrees(group, lambda x, i, y: SCATTERS[name](x, dim, i, y), wholes, every(2, 2, 2))

    world.run(ranks, program)


@pytest.mark.parametrize("name", ["gather", "scatter", "scatter_add"])
def test_fewer_places(world, ranks, name):
    wholes = [drawn(5, 4), torch.tensor([[2, 1, 0], [0, 4, 3]]), drawn(3, 4, seed=1)]

    def call(x, i, y):
        return SCATTERS[name](x, 0, i, y)

    def program(group):  # torch has no derivative for sources that are larger than the places
        agrees(group, call, wholes, every(2, 2, 2), gradients=name == "gather")

    world.run(ranks, program)


def test_places_out_of_range_are_refused_by_all(world, ranks):
    whole, wrong = drawn(5, 4), apart((5, 4), 0)
    wrong[4, 2] = 5
    calls = [
        (lambda x, i: x.gather(0, i), RuntimeError, wrong),
        (lambda x, i: x.scatter(0, i, 1.0), RuntimeError, wrong),
        (lambda x, i: x.index_select(0, i[:, 2]), IndexError, wrong),
        (lambda x, i: x.index_fill(0, i[:, 2], 1), IndexError, wrong),
    ]

    def program(group):
        mesh = line_or_grid(group)
        for p in layouts(2, mesh):
            x, i = spread(whole, mesh, p), spread(wrong, mesh, p)
            for call, kind, _ in calls:
                with pytest.raises(kind, match="out of"):
                    call(x, i)

    world.run(ranks, program)


def test_plain_places_count_as_replicated(world, ranks):
    whole = drawn(5, 4)

    def program(group):
        x = dt.distribute_tensor(whole, line(group), [Shard(0)], src=None)
        found = x.index_select(0, PLACES)
        assert torch.equal(found.full_tensor(), whole[PLACES])
        found = x.gather(1, PLACES[:5, None])
        assert torch.equal(found.full_tensor(), whole.gather(1, PLACES[:5, None]))
        whole_there = dt.distribute_tensor(whole, line(group), [Replicate()], src=None)
        assert torch.equal(whole_there.index_select(1, PLACES).full_tensor(), whole[:, PLACES])

    world.run(ranks, program)


def test_numbers(world, ranks):
    wholes = [torch.tensor(2.5), torch.zeros(1, dtype=torch.int64), torch.tensor([0.5])]

    def program(group):
        for call in (
            lambda x, i, y: x.index_select(0, i) * y,
            lambda x, i, y: x.index_fill(0, i, 1.5) * y,
            lambda x, i, y: x.index_add(0, i, y.sum()),
        ):
            agrees(group, call, wholes, every(0, 1, 1))

    world.run(ranks, program)


def test_no_places_of_another_number_of_dimensions(world, ranks):
    whole, none = drawn(5, 4), torch.zeros(0, dtype=torch.int64)

    def program(group):
        mesh = line(group)
        with distarray.config.override(fallback="allow"):
            for p in layouts(2, mesh):
                found = spread(whole, mesh, p).gather(0, spread(none, mesh, layouts(1, mesh)[1]))
                assert found.shape == whole.gather(0, none).shape

    world.run(ranks, program)
