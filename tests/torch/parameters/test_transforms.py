"""torch.func's transforms of distributed parameters, and of modules that have some."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import distarray as da
import distarray.torch as dt
from distarray import Shard
from tests.torch.models import close, drawn, filled, line

# What torch does where it first takes a forward derivative.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def made():
    return filled(nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)))


def cutting(name, module, mesh):
    for parameter in list(module._parameters):
        dt.distribute_parameter(module, parameter, mesh, [Shard(0)])


PLAN = {"0": dt.ColwiseParallel(), "2": dt.RowwiseParallel()}
WAYS = {
    "a plan": lambda m, mesh: dt.parallelize_module(m, mesh, PLAN),
    "a function": lambda m, mesh: dt.distribute_module(m, mesh, cutting),
    "fully sharded": dt.fully_shard,
}


def waves(p):
    return (p.sin() ** 2).sum()


def rows(p):
    return p.pow(3).sum(1)


OF_PARAMETERS = {
    "grad": grad(waves),
    "value": grad_and_value(waves),
    "norm": grad(lambda q: q.norm()),
    "twice": grad(lambda q: grad(waves)(q).pow(3).sum()),
    "vjp": lambda p: vjp(waves, p)[0],
    "over columns": vmap(waves, in_dims=1),
    "over rows": vmap(waves),
    "jacrev": jacrev(rows),
    "a constant": lambda p: grad(lambda a: (p * a).sum() + p.detach().norm() * a * a)(
        torch.tensor(2.0, dtype=torch.float64)
    ),
    "a whole constant": lambda p: vmap(lambda a: (a * _whole(p)).sum())(drawn(4)),
}
#: Forward derivatives have one level in a process, which ranks that are threads would share.
FORWARD = {
    "jvp": lambda p: jvp(waves, (p,), (p.detach(),)),
    "jacfwd": jacfwd(rows),
    "hessian": hessian(waves),
}


def _whole(p):
    return p.full_tensor() if hasattr(p, "full_tensor") else p


def _listed(found):
    found = found if isinstance(found, tuple) else (found,)
    return [_whole(x).detach() for x in found]


@pytest.mark.parametrize("way", WAYS)
def test_transforms_of_a_parameter_see_the_whole(way, world, ranks):
    cases = OF_PARAMETERS if world.name == "threads" else {**OF_PARAMETERS, **FORWARD}

    def program(group):
        model = WAYS[way](made(), line(group))
        with da.config.override(fallback="error"):
            found = {name: _listed(f(model[0].weight)) for name, f in cases.items()}
        alone = made()[0].weight
        for name, results in found.items():
            for one, other in zip(results, _listed(cases[name](alone)), strict=True):
                assert close(one, other), name

    world.run(ranks, program)


def _loss(model, values, x):
    return functional_call(model, values, (x,)).pow(2).sum()


THROUGH_MODULES = {
    "parameters": lambda m, x: grad(lambda values: _loss(m, values, x))(
        {name: p.detach() for name, p in m.named_parameters()}
    ),
    "input": lambda m, x: grad(lambda y: m(y).pow(2).sum())(x),
    "jacobian": lambda m, x: jacrev(m)(x),
    "forward": lambda m, x: jvp(m, (x,), (x,)),
    "each sample": lambda m, x: vmap(
        grad(lambda values, row: _loss(m, values, row[None])), in_dims=(None, 0)
    )({name: p.detach() for name, p in m.named_parameters()}, x),
}


@pytest.mark.parametrize("case", THROUGH_MODULES)
@pytest.mark.parametrize("way", WAYS)
def test_transforms_through_a_distributed_module_are_refused(way, case, world, ranks):
    """The numbers of one rank's part would be wrong; the error says what is right."""

    def program(group):
        model = WAYS[way](made(), line(group))
        if group.size == 1 or (world.name == "threads" and case == "forward"):
            return  # one rank has all of it
        with pytest.raises(RuntimeError, match=r"torch\.func's transforms .*to_dist_tensor"):
            THROUGH_MODULES[case](model, drawn(4, 7))

    world.run(ranks, program)


def _per_sample(plain, values, x):
    return vmap(grad(lambda v, row: _loss(plain, v, row[None])), in_dims=(None, 0))(values, x)


@pytest.mark.parametrize("way", WAYS)
def test_what_the_refusal_says_is_right(way, world, ranks):
    def program(group):
        mesh, plain = line(group), made()
        model = WAYS[way](copy.deepcopy(plain), mesh)
        values = {name: p.to_dist_tensor() for name, p in model.named_parameters()}
        x = dt.distribute_tensor(drawn(4, 7), mesh, [Shard(0)])
        found = grad(lambda v: _loss(plain, v, x))(values)
        each = _per_sample(plain, values, x)
        alone = dict(plain.named_parameters())
        wanted = grad(lambda v: _loss(plain, v, drawn(4, 7)))(alone)
        wanted_each = _per_sample(plain, alone, drawn(4, 7))
        for name in alone:
            assert close(_whole(found[name]), wanted[name]), name
            assert close(_whole(each[name]), wanted_each[name]), name

    world.run(ranks, program)
