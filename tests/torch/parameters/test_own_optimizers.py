"""Optimizers that a program writes itself, which take norms and means of whole parameters."""

from __future__ import annotations

import copy

import pytest
import torch

import distarray.checkpoint
from tests.torch.models import drawn, same_parameters
from tests.torch.parameters.test_outside import LAYOUTS, made

pytestmark = pytest.mark.filterwarnings("ignore::distarray.errors.PerformanceWarning")


class Trusting(torch.optim.Optimizer):
    """Momentum of centred gradients, in steps as long as the parameter is."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["count"], state["mean"] = 0, torch.zeros_like(p)
                state["count"] += 1
                state["mean"].mul_(0.9).add_(p.grad - p.grad.mean(), alpha=0.1)
                trust = p.norm() / (state["mean"].norm() + 1e-3)
                p.add_(state["mean"] * trust, alpha=-group["lr"])


class Steadied(torch.optim.SGD):
    """torch's step with gradients of one length."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.div_(p.grad.norm() + 1e-3)
        return super().step(closure)


KINDS = {"own": Trusting, "torch's": lambda p: Steadied(p, 0.1, momentum=0.5)}


def trained(model, optimizer, steps=3, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = model(torch.arange(5)).square().sum() + drawn(1, seed=step).sum() * 0
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("layout", ["rows", "columns", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_steps(world, ranks, kind, layout):
    reference = made()
    start = copy.deepcopy(reference)
    trained(reference, KINDS[kind](reference.parameters()))

    def program(group):
        model = LAYOUTS[layout](copy.deepcopy(start), group)
        trained(model, KINDS[kind](model.parameters()))
        assert same_parameters(model, reference)

    world.run(ranks, program)


@pytest.mark.parametrize("way", ["state_dict", "checkpoint"])
def test_states_go_on(world, ranks, way, shared_path):
    """After two steps another model of another layout, with a new optimizer, makes two more."""
    reference = made()
    start = copy.deepcopy(reference)
    trained(reference, Trusting(reference.parameters()), 4)

    def program(group):
        model = LAYOUTS["rows"](copy.deepcopy(start), group)
        optimizer = Trusting(model.parameters())
        trained(model, optimizer, 2)
        other = LAYOUTS["columns"](copy.deepcopy(start), group)
        another = Trusting(other.parameters())
        if way == "state_dict":
            other.load_state_dict(model.state_dict())
            another.load_state_dict(optimizer.state_dict())
        else:
            mesh = model[0].weight.mesh if group.size > 1 else None
            path = shared_path / "saved"
            state = {"model": model, "optimizer": optimizer}
            distarray.checkpoint.save(path, state, mesh=mesh)
            distarray.checkpoint.load(path, {"model": other, "optimizer": another}, mesh=mesh)
        trained(other, another, 2, 2)
        assert same_parameters(other, reference)

    world.run(ranks, program)
