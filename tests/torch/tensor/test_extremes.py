"""Sorting and selecting along lines, and extremes with the places that one process finds."""

from __future__ import annotations

import pytest
import torch

from tests.torch.models import drawn
from tests.torch.tensor.laying import agrees, layouts, line_or_grid, spread

LINES = {
    "sort": lambda x, dim: torch.sort(x, dim=dim, stable=True),
    "sort down": lambda x, dim: torch.sort(x, dim=dim, descending=True, stable=True),
    "argsort": lambda x, dim: torch.argsort(x, dim=dim, stable=True),
    "topk": lambda x, dim: torch.topk(x, 2, dim=dim),
    "kthvalue": lambda x, dim: torch.kthvalue(x, 2, dim=dim, keepdim=True),
    "median": lambda x, dim: torch.median(x, dim=dim),
    "cummax": torch.cummax,
    "cummin": torch.cummin,
}
EXTREMES = {
    "max": torch.max,
    "min": lambda x, dim: torch.min(x, dim, keepdim=True),
    "argmax": torch.argmax,
    "argmin": lambda x, dim: torch.argmin(x, dim, keepdim=True),
}
#: Of a line that is cut and the only one.
LONE = {
    "topk of none": lambda x, dim: torch.topk(x, 0, dim=dim),
    "topk": lambda x, dim: torch.topk(x, 4, dim=dim),
    "topk of all": lambda x, dim: torch.topk(x, 6, dim=dim),
    "topk down": lambda x, dim: torch.topk(x, 3, dim=dim, largest=False),
}
SHAPES = [(5, 4), (3, 2, 4)]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lines(world, ranks, name, shape):
    def program(group):
        for dim in (0, -1):
            agrees(
                group,
                lambda x, dim=dim: LINES[name](x, dim),
                [drawn(*shape)],
                lambda mesh: [[p] for p in layouts(len(shape), mesh)],
                gradients="arg" not in name,
            )

    world.run(ranks, program)


@pytest.mark.parametrize("name", LONE)
@pytest.mark.parametrize("shape", [(6,), (1, 6)], ids=str)
def test_a_lone_line_is_not_gathered(world, ranks, name, shape):
    def program(group):
        agrees(
            group,
            lambda x: LONE[name](x, -1),
            [drawn(*shape)],
            lambda mesh: [[p] for p in layouts(len(shape), mesh)],
        )

    world.run(ranks, program)


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("shape", [*SHAPES, (6,)], ids=str)
def test_extremes_gather_nothing(world, ranks, name, shape):
    def program(group):
        for dim in (0, -1):
            agrees(
                group,
                lambda x, dim=dim: EXTREMES[name](x, dim),
                [drawn(*shape)],
                lambda mesh: [[p] for p in layouts(len(shape), mesh)],
                gradients="arg" not in name,
            )

    world.run(ranks, program)


@pytest.mark.parametrize("name", EXTREMES)
def test_ties_and_nan(world, ranks, name):
    ties = torch.tensor([[1, 3, 3, 0, 3, 0], [2, 2, 2, 2, 2, 2], [0, 1, 0, 1, 0, 1]])
    nan = ties.double()
    nan[0, 4] = nan[0, 5] = nan[2, 1] = float("nan")

    def program(group):
        for whole in (ties, nan, nan.bfloat16(), ties.t(), nan.t()):
            for dim in (0, 1):
                agrees(
                    group,
                    lambda x, dim=dim: EXTREMES[name](x, dim),
                    [whole],
                    lambda mesh: [[p] for p in layouts(2, mesh)],
                    gradients=False,
                )

    world.run(ranks, program)


def test_places_in_the_whole(world, ranks):
    ties = torch.tensor([[[1, 0], [3, 3], [0, 3]], [[0, 3], [0, 1], [2, 2]]])
    nan = ties.double()
    nan[1, 0, 1] = nan[1, 2, 0] = float("nan")

    def program(group):
        for whole in (ties, nan, ties[:, 1:], nan.flatten()):
            for call in (torch.argmax, torch.argmin, lambda x: torch.argmax(x, keepdim=True)):
                agrees(
                    group,
                    call,
                    [whole],
                    lambda mesh, whole=whole: [[p] for p in layouts(whole.ndim, mesh)],
                    gradients=False,
                )

    world.run(ranks, program)


def test_out(world, ranks):
    whole = drawn(5, 4)

    def program(group):
        mesh = line_or_grid(group)
        for p in layouts(2, mesh):
            x = spread(whole, mesh, p)
            values = spread(whole[0], mesh, [*layouts(1, mesh)][-1])
            places = spread(torch.zeros(4, dtype=torch.int64), mesh, layouts(1, mesh)[0])
            found = torch.max(x, 0, out=(values, places))
            assert found[0] is values
            wanted = torch.max(whole, 0)
            assert torch.equal(values.full_tensor(), wanted.values)
            assert torch.equal(places.full_tensor(), wanted.indices)
            torch.argmax(x, 0, out=places)
            assert torch.equal(places.full_tensor(), wanted.indices)

    world.run(ranks, program)


def test_what_has_no_elements(world, ranks):
    """torch's errors on all ranks, and the logarithm of a sum of nothing."""

    def program(group):
        for placements in layouts(2, line_or_grid(group)):
            x = spread(torch.ones(0, 3), line_or_grid(group), placements)
            for function in (torch.max, torch.min, torch.amax, torch.argmax):
                with pytest.raises(
                    (RuntimeError, IndexError), match=r"numel|without identity|Expected"
                ):
                    function(x)
            found = x.logsumexp(0)
            assert found.full_tensor().tolist() == 3 * [float("-inf")]

    world.run(ranks, program)
