"""Operators on lists of distributed tensors, some of them beside plain ones, and optimizers."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

import distarray
import distarray.torch as dt
from distarray import Shard
from tests.torch.models import close, drawn
from tests.torch.tensor.laying import layouts, line_or_grid

SHAPES = ((5, 7), (4,), (3, 2))


def wholes(seed):
    return [drawn(*shape, seed=seed + n) for n, shape in enumerate(SHAPES)]


def in_place(call):
    def called(a, b):
        call(a, b)
        return a

    return called


CALLS = {
    "mul by a number": lambda a, b: torch._foreach_mul(a, 0.9),
    "mul by numbers": lambda a, b: torch._foreach_mul(a, [0.1, 0.2, 0.3]),
    "mul by a tensor": lambda a, b: torch._foreach_mul(a, torch.tensor(0.5)),
    "mul_": in_place(torch._foreach_mul_),
    "add": lambda a, b: torch._foreach_add(a, b, alpha=2),
    "add_": in_place(lambda a, b: torch._foreach_add_(a, b, alpha=2)),
    "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.1),
    "lerp_": in_place(lambda a, b: torch._foreach_lerp_(a, b, [0.1, 0.2, 0.3])),
    "lerp of three": lambda a, b: torch._foreach_lerp(a, b, a),
    "addcmul": lambda a, b: torch._foreach_addcmul(a, b, b, 0.5),
    "addcdiv_": in_place(lambda a, b: torch._foreach_addcdiv_(a, b, [x + 9 for x in b])),
    "copy_": in_place(torch._foreach_copy_),
    "zero_": in_place(lambda a, b: torch._foreach_zero_(a)),
    "pow of a number": lambda a, b: torch._foreach_pow(2.0, a),
    "maximum": torch._foreach_maximum,
    "abs": lambda a, b: torch._foreach_abs(a),
    "norm": lambda a, b: torch._foreach_norm(a),
    "greatest norm": lambda a, b: torch._foreach_norm(a, float("inf")),
    "powers": lambda a, b: torch._foreach_powsum(a, 3),
    "powers of a type": lambda a, b: torch._foreach_powsum(
        [x.float() for x in a], 1, torch.float64
    ),
    "mm": lambda a, b: torch._foreach_mm(a[::2], [x.mT for x in b[::2]]),
    "max": lambda a, b: torch._foreach_max(a),
    "with a number": lambda a, b: torch._foreach_mul(a, [x.sum() for x in b]),
}


def same(found, wanted):
    return all(
        close(x.full_tensor() if hasattr(x, "_spec") else x, y)
        for x, y in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("name", CALLS)
def test_rows(world, ranks, name):
    """Rows that lie in several ways, with nothing gathered; and rows of plain tensors."""
    call = CALLS[name]
    wanted = call(wholes(0), wholes(5))

    def program(group):
        mesh = line_or_grid(group)
        places = [layouts(len(shape), mesh) for shape in SHAPES]

        def lists(turn, plain):
            for values in (wholes(0), wholes(5)):
                yield [
                    x if n == plain else dt.distribute_tensor(x, mesh, p[turn % len(p)], src=None)
                    for n, (x, p) in enumerate(zip(values, places, strict=True))
                ]

        for turn in range(3):
            for plain in (None, 1):
                with distarray.config.override(fallback="error"):
                    found = call(*lists(turn, plain))
                assert same(found, wanted), (turn, plain)

    world.run(ranks, program)


def test_rows_that_lie_otherwise(world, ranks):
    """What is added moves to where the first lies; also into a view at one coordinate."""

    def program(group):
        mesh = line_or_grid(group)
        x, y = (dt.distribute_tensor(drawn(5, 7, seed=n), mesh, src=None) for n in (0, 5))
        z = dt.distribute_tensor(drawn(5, 7, seed=9), mesh, [Shard(1)] * mesh.ndim, src=None)
        torch._foreach_mul_([x[1], y], 2.0)
        torch._foreach_add_([x], [z])
        total = torch._foreach_add([x.sum(0)], [z.sum(0)])
        a, b, c = (drawn(5, 7, seed=n) for n in (0, 5, 9))
        torch._foreach_mul_([a[1], b], 2.0)
        a += c
        assert same([x, y, *total], [a, b, a.sum(0) + c.sum(0)])

    world.run(ranks, program)


OPTIMIZERS = {
    "SGD": lambda p, how: torch.optim.SGD(p, lr=0.1, momentum=0.9, **how),
    "AdamW": lambda p, how: torch.optim.AdamW(p, lr=0.1, **how),
    "RMSprop": lambda p, how: torch.optim.RMSprop(p, lr=0.1, foreach=how.get("foreach")),
}


@pytest.mark.parametrize(
    "how", [{"foreach": True}, {"fused": True}], ids=lambda how: next(iter(how))
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_of_some_distributed_parameters(world, ranks, name, how):
    def trained(parameters):
        optimizer = OPTIMIZERS[name](parameters, how)
        for _ in range(3):
            optimizer.zero_grad()
            for p in parameters:
                p.pow(2).sum().backward()
            norm = nn.utils.clip_grad_norm_(parameters, 0.5, foreach=True)
            optimizer.step()
        return [norm, *(p.detach() for p in parameters)]

    def program(group):
        mesh = line_or_grid(group)
        parameters = [
            nn.Parameter(x if n == 1 else dt.distribute_tensor(x, mesh, src=None))
            for n, x in enumerate(wholes(0))
        ]
        with distarray.config.override(fallback="error"):
            found = trained(parameters)
        assert same(found, trained([nn.Parameter(x) for x in wholes(0)]))

    world.run(ranks, program)


def after_adam(weights, state=None, steps=2):
    """Parameters after some steps of Adam, perhaps of one that goes on, and its state."""
    optimizer = torch.optim.Adam(weights, lr=0.1, foreach=state is None)
    if state is not None:
        optimizer.load_state_dict(deepcopy(state))  # torch goes on with the tensors themselves
    for step in range(steps):
        sum(((x - step) ** 2).sum() for x in weights).backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer.state_dict()


def test_a_plain_state_is_loaded(world, ranks):
    """A program of one process has saved it: whole tensors, of the parameters' shapes."""
    plain = [nn.Parameter(x) for x in wholes(3)]
    saved = after_adam(plain)
    before = [x.detach().clone() for x in plain]
    after = after_adam(plain, saved)

    def program(group):
        mesh = distarray.DeviceMesh(group)
        parameters = [
            nn.Parameter(dt.distribute_tensor(x, mesh, [Shard(0)], src=None)) for x in before
        ]
        found = after_adam(parameters, saved)
        kept = found["state"][0]["exp_avg"]
        assert kept.placements == (Shard(0),)
        moments = [found["state"][n]["exp_avg"] for n in range(len(plain))]
        return same(parameters, plain) and same(
            moments, [after["state"][n]["exp_avg"] for n in range(len(plain))]
        )

    assert all(world.run(ranks, program))
