"""Random numbers drawn from probabilities that are distributed: those of one process."""

from __future__ import annotations

import pytest
import torch

import distarray
import distarray.torch as dt
from distarray import Replicate
from tests.torch.models import drawn
from tests.torch.tensor.laying import layouts, line_or_grid, spread


def into(call, dtype=None):
    def called(x, **how):
        out = x.new_zeros(call(x, **how).shape, dtype=dtype)
        call(x, out=out, **how)
        return out

    return called


#: What is called with probabilities of 6 x 5.
DRAWN = {
    "bernoulli": torch.bernoulli,
    "bernoulli of a number": lambda x, **how: torch.bernoulli(x, 0.3, **how),
    "bernoulli of a view": lambda x, **how: torch.bernoulli(x.T[1:], **how),
    "bernoulli out": into(torch.bernoulli),
    "bernoulli_": lambda x, **how: torch.zeros_like(x).bernoulli_(x, **how),
    "bernoulli_ of a row": lambda x, **how: torch.zeros_like(x).bernoulli_(x[0], **how),
    "bernoulli of float32": lambda x, **how: torch.bernoulli(x.float(), **how).double(),
    "normal of means": lambda x, **how: torch.normal(x, 2.0, **how),
    "normal of deviations": lambda x, **how: torch.normal(1.0, x, **how),
    "normal of both": lambda x, **how: torch.normal(x, x[:, :1].exp(), **how),
    "one of each row": lambda x, **how: torch.multinomial(x, 1, **how),
    "some of each row": lambda x, **how: torch.multinomial(x, 3, **how),
    "some of each column": lambda x, **how: torch.multinomial(x.T, 4, **how),
    "many of each row": lambda x, **how: torch.multinomial(x, 20, True, **how),
    "many of each row out": into(
        lambda x, **how: torch.multinomial(x, 20, True, **how), torch.long
    ),
    "one of a row": lambda x, **how: torch.multinomial(x[1], 1, True, **how),
    "some of a column": lambda x, **how: torch.multinomial(x[:, 2], 4, **how),
    "all of all": lambda x, **how: torch.multinomial(x.reshape(-1), 30, **how),
    "many of a row": lambda x, **how: torch.multinomial(x[1], 20, True, **how),
}
#: One row of probabilities that is cut: which of its sums a number lies between all ranks ask.
GATHERS = {"many of a row"}


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_are_those_of_one_process(world, ranks, name):
    """And the generators of the ranks are then where they were, or all at the same place."""
    call, values = DRAWN[name], drawn(6, 5).abs().clamp(0.01, 1)
    generator = torch.Generator().manual_seed(5)
    wanted, after = call(values, generator=generator), torch.rand(1, generator=generator)

    def program(group):
        mesh = line_or_grid(group)
        before, found = torch.get_rng_state(), []
        for placements in (*layouts(2, mesh), [Replicate()] * mesh.ndim):
            dt.manual_seed(3, mesh)
            with distarray.config.override(fallback="allow" if name in GATHERS else "error"):
                x = spread(values, mesh, placements)
                found.append([call(x).full_tensor() for _ in range(2)])
                generator = torch.Generator().manual_seed(5)
                assert torch.equal(call(x, generator=generator).full_tensor(), wanted)
                assert torch.equal(torch.rand(1, generator=generator), after)
        assert all(torch.equal(x, y) for pair in found for x, y in zip(pair, found[-1]))
        return before, [x.tolist() for x in found[0]]

    told = world.run(ranks, program)
    assert all(one[1] == told[0][1] for one in told)
    assert "all" in name or told[0][1][0] != told[0][1][1]


WRONG = {
    "no probability": (lambda x: torch.bernoulli(x * 2), "p_in"),
    "a negative deviation": (lambda x: torch.normal(1.0, 0.5 - x), "std >= 0"),
    "a negative weight": (lambda x: torch.multinomial(0.5 - x, 2), "element < 0"),
    "a negative weight, many": (lambda x: torch.multinomial(0.5 - x, 9, True), "invalid"),
    "a negative weight of a row": (lambda x: torch.multinomial((0.5 - x)[:, 0], 2), "element < 0"),
    "nothing but zeros": (lambda x: torch.multinomial((x * 0)[:, 0], 2), "probabilities <= 0"),
    "too many": (lambda x: torch.multinomial(x, 7), "without replacement"),
    "too many of a row": (lambda x: torch.multinomial(x[0], 7), "without replacement"),
    "none": (lambda x: torch.multinomial(x[:, 0], 0), "n_sample <= 0"),
    "integers": (lambda x: torch.multinomial((x * 9).long()[:, 0], 2), "floating-point dtypes"),
    "three dimensions": (lambda x: torch.multinomial(x[None], 2), "must be 1 or 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_allowed_is_refused_on_all_ranks(world, ranks, name):
    """One element is wrong, on the last rank perhaps alone; the error is torch's."""
    values = torch.full((6, 5), 0.25)
    values[5] = 0.75
    call, words = WRONG[name]
    with pytest.raises(RuntimeError, match=words):
        call(values)

    def program(group):
        mesh = line_or_grid(group)
        for placements in layouts(2, mesh):
            x = dt.distribute_tensor(values, mesh, placements, src=None)
            with pytest.raises(RuntimeError, match=words):
                call(x)

    world.run(ranks, program)
