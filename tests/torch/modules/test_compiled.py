"""torch.compile around what talks to other ranks: compiled between it, and right, or refused.

The compiler is one for all threads of a process, so ranks are processes, or there is one.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import Transformer, close, drawn, filled, line, same_gradients

pytestmark = [
    pytest.mark.mpi,
    # torch's compiler asks tensors of a graph for their gradients, and says so itself.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]

TOKENS = torch.tensor([[0, 4, 2, 10], [1, 1, 3, 7]])


def plan(local):
    heads = {"multiple_of": 4, "use_local_output": local}
    return {
        "tok_embeddings": dt.RowwiseParallel(),
        "layers.*.attention.w[qkv]": dt.ColwiseParallel(**heads),
        "layers.*.attention.wo": dt.RowwiseParallel(multiple_of=4),
        "layers.*.feed_forward.w[13]": dt.ColwiseParallel(use_local_output=local),
        "layers.*.feed_forward.w2": dt.RowwiseParallel(),
        "layers.*.ffn_norm": dt.PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Replicate(), use_local_output=True
        ),
        "output": dt.ColwiseParallel(output_layouts=Replicate()),
    }


def compiled(model):
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager")


@pytest.mark.parametrize("local", [True, False])
def test_tensor_parallel(world, ranks, local):
    """It hung, or took a part for the whole: the layers ran on made-up tensors."""
    reference = filled(Transformer(heads=4, size=16))
    start = copy.deepcopy(reference)
    wanted = reference(TOKENS)
    wanted.square().sum().backward()

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan(local))
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="goes on after it"):
            torch.compile(model, backend="aot_eager", fullgraph=True)(TOKENS)
        found = compiled(model)(TOKENS)
        found.square().sum().backward()
        again = compiled(model).eval()(TOKENS)
        assert close(found, wanted.detach())
        assert close(again, wanted.detach())
        assert same_gradients(model, reference)

    world.run(ranks, program)


def test_hooks_and_styles(world, ranks):
    """Layouts that hooks change, and layers that run token by token."""
    reference = filled(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 5), nn.Dropout(0.5)))
    start = copy.deepcopy(reference.eval())
    x = drawn(2, 7, 6)
    wanted = reference(x)
    wanted.square().sum().backward()

    def program(group):
        style = dt.PrepareModuleInputOutput(
            input_layouts=Replicate(),
            desired_input_layouts=Shard(1),
            output_layouts=Replicate(),
            desired_output_layouts=Shard(1),
            use_local_output=False,
        )
        plan = {
            "": style,
            "0": dt.SequenceParallel(),
            "1": dt.ColwiseParallel(output_layouts=Replicate()),
        }
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        found = compiled(model)(x)
        found.full_tensor().square().sum().backward()
        assert found.shape == wanted.shape
        assert close(found.full_tensor(), wanted.detach())
        assert same_gradients(model, reference)

    world.run(ranks, program)


def test_functions_of_distributed_tensors(world, ranks):
    """The compiler read the rules of operators, and what they send, as a part of the program."""
    x = drawn(7, 3)

    def function(x):
        return torch.relu(x * 2 + 1).sum(0) - x[1:3].mean()

    def program(group):
        given = dt.distribute_tensor(x, line(group), [Shard(0)]).requires_grad_()
        found = compiled(function)(given)
        found.sum().backward()
        plain = x.clone().requires_grad_()
        wanted = function(plain)
        wanted.sum().backward()
        assert close(found.full_tensor(), wanted.detach())
        assert close(given.grad.full_tensor(), plain.grad)

    world.run(ranks, program)
