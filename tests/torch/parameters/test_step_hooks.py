"""Hooks of optimizers' steps see distributed parameters, and norms of the whole."""

import copy

import pytest
import torch
from torch import nn

import distarray.torch as dt
from tests.torch.models import TOY_PLAN, ToyModel, close, drawn, filled, line, same_parameters

LAYOUTS = {
    "a plan": lambda model, mesh: dt.parallelize_module(model, mesh, TOY_PLAN),
    "rows": dt.fully_shard,
}
STEPS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


def hooked(model, make, x, with_closure):
    """Three steps with hooks that clip the gradients and look at the parameters; what they saw."""
    seen, optimizer = [], make(model.parameters())

    def parameters(optimizer):
        return [p for group in optimizer.param_groups for p in group["params"]]

    def clip(optimizer, args, kwargs):
        seen.append(nn.utils.clip_grad_norm_(parameters(optimizer), 0.1))

    def look(optimizer, args, kwargs):
        seen.append(torch.stack([p.detach().norm() for p in parameters(optimizer)]))

    def loss():
        found = model(x).square().mean()
        found.backward()
        return found

    def closure():
        optimizer.zero_grad()
        found = loss()
        seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.2))
        return found

    for number in range(3):
        if number == 1:  # after hooks of this package's own
            optimizer.register_step_pre_hook(clip)
            optimizer.register_step_post_hook(look)
        optimizer.zero_grad()
        loss()
        optimizer.step(closure if with_closure else None)
    return seen


@pytest.mark.parametrize("with_closure", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", STEPS)
def test_hooks(world, ranks, name, layout, with_closure):
    start, x = filled(ToyModel()), drawn(4, 10)
    alone = copy.deepcopy(start)
    wanted = hooked(alone, STEPS[name], x, with_closure)

    def program(group):
        model = LAYOUTS[layout](copy.deepcopy(start), line(group))
        found = hooked(model, STEPS[name], x, with_closure)
        assert all(close(a, b) for a, b in zip(found, wanted, strict=True))
        assert same_parameters(model, alone)

    world.run(ranks, program)
