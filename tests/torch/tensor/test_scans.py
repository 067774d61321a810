"""Scans, norms and counts along what is whole and what is cut."""

from __future__ import annotations

import pytest
import torch

import distarray
from tests.torch.models import drawn
from tests.torch.tensor.laying import agrees, layouts, line_or_grid, spread

INF = float("inf")
SCANS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "in place": lambda x, dim: (x * 1).cumsum_(dim),
    "converted": lambda x, dim: torch.cumsum(x, dim, dtype=torch.float32),
    "flip": lambda x, dim: torch.flip(x, [dim]) * 2,
}
NORMS = {
    "logsumexp": torch.logsumexp,
    "logsumexp of two": lambda x, dim: torch.logsumexp(x, (0, 1), keepdim=True),
    **{
        f"norm {order}": lambda x, dim, order=order: torch.linalg.vector_norm(x, order, dim)
        for order in (2, 1, 3, INF, -INF, 0)
    },
    "norm of all": lambda x, dim: torch.linalg.vector_norm(x),
    "norm kept": lambda x, dim: torch.norm(x, dim=dim, keepdim=True),
}


def every(ndim):
    return lambda mesh: [[p] for p in layouts(ndim, mesh)]


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("shape", [(5, 4), (6,)], ids=str)
def test_scans(world, ranks, name, shape):
    whole = drawn(*shape)

    def program(group):
        for dim in {0, len(shape) - 1}:
            agrees(
                group,
                lambda x, dim=dim: SCANS[name](x, dim),
                [whole],
                every(len(shape)),
                gradients=name not in ("cumprod", "converted"),
            )

    world.run(ranks, program)


@pytest.mark.parametrize("name", NORMS)
def test_norms(world, ranks, name):
    def program(group):
        for dim in (0, 1):
            agrees(
                group,
                lambda x, dim=dim: NORMS[name](x, dim),
                [drawn(5, 4)],
                every(2),
                gradients=name != "norm 0",
            )

    world.run(ranks, program)


def test_logsumexp_of_infinities(world, ranks):
    whole = torch.tensor([[-INF, INF, 1.0, 900.0], [-INF, 2.0, 2.0, 900.0], [-INF, 3.0, -INF, 0.0]])

    def program(group):
        for dim in (0, 1):
            agrees(group, lambda x, dim=dim: x.logsumexp(dim), [whole], every(2), gradients=False)

    world.run(ranks, program)


def test_counts(world, ranks):
    whole = torch.tensor([[0, 1, 2], [0, 0, 3], [4, 0, 0], [1, 0, 0], [0, 0, 0]])

    def program(group):
        for call in (torch.count_nonzero, lambda x: torch.count_nonzero(x, 0)):
            agrees(group, call, [whole], every(2), gradients=False)

    world.run(ranks, program)


def test_equal_and_differences(world, ranks):
    whole = drawn(5, 4)

    def program(group):
        for dim in (0, 1):
            agrees(
                group,
                lambda x, dim=dim: torch.diff(x, dim=dim),
                [whole],
                every(2),
                gradients=False,
            )
        mesh = line_or_grid(group)
        for p in layouts(2, mesh):
            with distarray.config.override(fallback="error"):
                x, y = spread(whole, mesh, p), spread(whole, mesh, layouts(2, mesh)[-1])
                assert torch.equal(x, y)
                assert torch.allclose(x, y)
                y[4, 3] += 1
                assert not torch.equal(x, y)
                assert not torch.allclose(x, y)
                assert torch.allclose(x, y, atol=2)
                assert not torch.equal(x, x[:3])

    world.run(ranks, program)
