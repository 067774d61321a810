"""torch.compile of distributed models: whole graphs through their layers, right, or refused.

The compiler is one for all threads of a process, so ranks are processes, or there is one.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Replicate, Shard
from distarray.comm.ledger import trace
from distarray.errors import DivergenceError
from tests.torch.models import Norm, Transformer, close, drawn, filled, line, same_gradients
from tests.torch.modules.compiled_models import (
    Block,
    Checkpointed,
    Choosing,
    Mixing,
    Pictures,
    Routed,
    Tokens,
    Weights,
    plain,
)

pytestmark = [
    pytest.mark.mpi,
    # torch's compiler asks tensors of a graph for their gradients, and says so itself.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]

functional = nn.functional
TOKENS = torch.tensor([[0, 4, 2, 10], [1, 1, 3, 7]])
WHOLE = dt.ColwiseParallel(output_layouts=Replicate())


def compiled(model, fullgraph=True):
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager", fullgraph=fullgraph)


def cut(name, module, mesh):
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        dt.distribute_parameter(module, "weight", mesh, [Shard(0)])


def small_transformer():
    return Transformer(heads=4, size=16, layers=1)


def by_plan(plan):
    return lambda model, mesh: dt.parallelize_module(model, mesh, plan)


def heads(local):
    how = {"multiple_of": 4, "use_local_output": local}
    return {
        "tok_embeddings": dt.RowwiseParallel(),
        "layers.*.attention.w[qkv]": dt.ColwiseParallel(**how),
        "layers.*.attention.wo": dt.RowwiseParallel(multiple_of=4),
        "layers.*.feed_forward.w[13]": dt.ColwiseParallel(use_local_output=local),
        "layers.*.feed_forward.w2": dt.RowwiseParallel(),
        "layers.*.ffn_norm": dt.PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Replicate(), use_local_output=True
        ),
        "output": WHOLE,
    }


SEQUENCE = {
    "": dt.PrepareModuleInputOutput(
        input_layouts=Replicate(),
        desired_input_layouts=Shard(1),
        output_layouts=Shard(1),
        desired_output_layouts=Replicate(),
    ),
    "norm": dt.SequenceParallel(),
    "a": dt.ColwiseParallel(use_local_output=False),
    "dropout": dt.DropoutParallel(),
    "b": dt.RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
}
TABLE = {"table": dt.RowwiseParallel(), "out": WHOLE}
#: Models, how they are distributed, and what they are given.
MODELS = {
    "transformer": (small_transformer, by_plan(heads(True)), TOKENS),
    "distributed tensors": (small_transformer, by_plan(heads(False)), TOKENS),
    "sequence": (lambda: Block(nn.LayerNorm(8)), by_plan(SEQUENCE), drawn(2, 5, 8)),
    "a norm of its own": (lambda: Block(Norm(8)), by_plan(SEQUENCE), drawn(2, 5, 8)),
    "attention": (Mixing, by_plan({"attention": dt.AttentionParallel()}), drawn(2, 5, 8)),
    "tied": (Tokens, by_plan(TABLE), TOKENS),
    "weights": (Weights, by_plan({"layer": WHOLE}), drawn(3, 8)),
    "whole parameters": (
        Pictures,
        lambda model, mesh: dt.distribute_module(model, mesh, cut),
        drawn(3, 2, 6, 6),
    ),
    "data parallel": (lambda: Block(nn.LayerNorm(8)), dt.data_parallel, drawn(2, 5, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_whole_graphs(world, ranks, name):
    """Results and gradients of one process; again after a step, and in evaluation."""
    model_of, distribute, x = MODELS[name]
    reference = filled(model_of())
    start = copy.deepcopy(reference)

    def program(group):
        one, model = copy.deepcopy(start), distribute(copy.deepcopy(start), line(group))
        found = compiled(model)
        for _ in range(2):
            one.zero_grad(), model.zero_grad()
            wanted, result = one(x), found(x)
            wanted.square().sum().backward()
            result.square().sum().backward()
            assert close(result, wanted.detach())
            assert same_gradients(model, one)
            with torch.no_grad():
                for p in (*one.parameters(), *model.parameters()):
                    p -= 0.01 * p.grad
        assert close(found.eval()(x), model.eval()(x).detach())

    world.run(ranks, program)


def test_sends_what_the_program_sends(world, ranks):
    """The conversations of a graph, forward and backward, are those of the program."""

    def program(group):
        model = dt.parallelize_module(filled(small_transformer()), line(group), heads(True))
        found = compiled(model)
        found(TOKENS).sum().backward()
        sent = []
        for call in (found, model):
            with trace() as seen:
                call(TOKENS).sum().backward()
            sent.append(sorted((event.kind, event.bytes) for event in seen.events))
        assert sent[0] == sent[1]

    world.run(ranks, program)


def test_numbers_of_modules(world, ranks):
    """A graph was kept for other numbers than those that it had been made for."""
    x = drawn(4, 8)

    def program(group):
        mesh = line(group)
        plan = {"a": WHOLE, "b": dt.RowwiseParallel(input_layouts=Replicate())}
        model = dt.parallelize_module(filled(Block(nn.LayerNorm(8))), mesh, plan)
        found = compiled(model)
        for p in (0.5, 0.1, 0.9):
            model.dropout.p = p
            dt.manual_seed(1, mesh)
            result = found(x)
            dt.manual_seed(1, mesh)
            assert close(result, model(x).detach())
            assert torch.equal(dt.broadcast(result, mesh), result)
        model.dropout.p, model.norm.eps = 0.0, 0.5
        assert close(found(x), model(x).detach())

    world.run(ranks, program)


def test_drawn_alike(world, ranks):
    """What a model draws itself is the same on all ranks, within its graph as well."""

    class Drawing(Block):
        def forward(self, x):
            return self.b(functional.dropout(torch.relu(self.a(x)), 0.5, self.training))

    def program(group):
        mesh = line(group)
        plan = {"a": WHOLE, "b": WHOLE}
        model = dt.parallelize_module(filled(Drawing(nn.LayerNorm(8))), mesh, plan)
        found = compiled(model)
        first, second = found(drawn(4, 8)), found(drawn(4, 8))
        assert torch.equal(dt.broadcast(first, mesh), first)
        assert not torch.equal(first, second)

    world.run(ranks, program)


def test_bad_indices(world, ranks):
    """They are found when the graph runs, on all ranks."""

    def program(group):
        model = dt.parallelize_module(filled(Tokens()), line(group), TABLE)
        found = compiled(model)
        found(TOKENS)
        with pytest.raises(IndexError, match="index out of range"):
            found(TOKENS + 8)
        assert close(found(TOKENS), model(TOKENS).detach())

    world.run(ranks, program)


def test_plain_inputs_that_differ(world, ranks):
    """distribute_module compares them, in its graph as well."""

    def program(group):
        model = dt.distribute_module(nn.Sequential(nn.Linear(8, 5)).double().eval(), line(group))
        found = compiled(model)
        x = drawn(4, 8)
        assert close(found(x), model(x).detach())
        differ = pytest.raises(DivergenceError) if group.size > 1 else nullcontext()
        with differ:
            found(x + group.rank)

    world.run(ranks, program)


def test_functions_for_inputs_and_outputs(world, ranks):
    """Those of distribute_module are read with the rest."""
    x = drawn(4, 8)

    def rows(inputs, mesh):
        return dt.DistTensor.from_local(inputs[0], mesh, [Replicate()])

    def program(group):
        model = filled(nn.Linear(8, 5))
        wanted = model(x).detach()
        model = dt.distribute_module(
            nn.Sequential(model).eval(), line(group), cut, rows, lambda y, mesh: y.full_tensor()
        )
        assert close(compiled(model)(x), wanted)

    world.run(ranks, program)


def test_a_model_within_a_function(world, ranks):
    """A graph through the model in evaluation; in training one that ends where the model begins."""
    x = drawn(2, 5, 8)

    def program(group):
        model = dt.parallelize_module(filled(Block(nn.LayerNorm(8))), line(group), SEQUENCE)

        def loss(x):
            return model(x * 2).square().sum()

        wanted = loss(x).detach()
        model.eval()
        assert close(compiled(loss)(x), wanted)
        model.train()
        assert close(compiled(loss, fullgraph=False)(x), wanted)
        with pytest.raises(torch._dynamo.exc.Unsupported, match="goes on after it"):
            compiled(loss)(x)

    world.run(ranks, program)


def test_parameters_that_are_written_to(world, ranks):
    """A write ends the graph, and is seen by the next one."""

    class Halving(Weights):
        def forward(self, x):
            with torch.no_grad():
                self.layer.weight.mul_(0.5)
                self.layer.weight *= 2
                self.layer.weight[0] = 1.0
            return self.layer(x)

    reference = filled(Halving())
    start = copy.deepcopy(reference)
    wanted = reference(drawn(3, 8)).detach()

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), {"layer": WHOLE})
        assert close(compiled(model, fullgraph=False)(drawn(3, 8)), wanted)
        if group.size > 1:
            with pytest.raises(torch._dynamo.exc.Unsupported, match="goes on after it"):
                compiled(model)(drawn(3, 8))

    world.run(ranks, program)


def test_memory_of_parameters_changes(world, ranks):
    """A graph has each parameter as it is when it runs: loaded, of another type, frozen."""

    def program(group):
        model = dt.parallelize_module(filled(Block(nn.LayerNorm(8))), line(group), SEQUENCE)
        found, x = compiled(model), drawn(2, 5, 8)
        found(x).sum().backward()
        model.load_state_dict({k: plain(v) * 2 for k, v in model.state_dict().items()})
        assert close(found(x), model(x).detach())
        for p in model.a.parameters():
            p.requires_grad_(False).grad = None
        found(x).sum().backward()
        assert model.a.weight.grad is None
        (gradient,) = torch.autograd.grad(found(x).sum(), [model.b.weight])
        assert gradient.shape == (8, 10)
        model.to(torch.float32)
        assert torch.allclose(found(x.float()), model(x.float()))
        again = copy.deepcopy(model)
        with torch.no_grad():
            again.b.weight.mul_(3)
        assert torch.allclose(compiled(again)(x.float()), again(x.float()))

    world.run(ranks, program)


@pytest.mark.parametrize(
    ("model_of", "plan", "why"),
    [
        (lambda: Checkpointed(nn.LayerNorm(8)), SEQUENCE, "talk twice"),
        (lambda: Block(Choosing()), SEQUENCE, "another one at each call"),
        (Routed, {"experts": dt.ExpertParallel()}, "what goes to which rank"),
    ],
)
def test_graphs_that_end(world, ranks, model_of, plan, why):
    """What no graph can have is beside it, and refused where the whole is asked for."""
    x = drawn(6, 8) if model_of is Routed else drawn(2, 5, 8)
    reference = filled(model_of())
    start = copy.deepcopy(reference)
    wanted = reference(x)
    wanted.square().sum().backward()

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        with pytest.raises(torch._dynamo.exc.Unsupported, match=why):
            compiled(model)(x)
        found = compiled(model, fullgraph=False)(x)
        found.square().sum().backward()
        assert close(found, wanted.detach())
        assert same_gradients(model, reference)

    world.run(ranks, program)


def test_other_lengths(world, ranks):
    """Another number of rows is another graph: a symbol in its place met layouts of numbers."""

    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(filled(Block(nn.LayerNorm(8))), mesh, SEQUENCE)
        found = compiled(model)
        total = compiled(lambda x: dt.all_gather(x, mesh, sizes=len(x) * group.size))
        with torch.no_grad():
            for n in (3, 5, 0):
                assert close(found(drawn(n, 5, 8)), model(drawn(n, 5, 8)))
                assert len(total(drawn(n, 2))) == n * group.size

    world.run(ranks, program)


def test_without_a_whole_graph(world, ranks):
    """Layouts that hooks change, and layers that run token by token, as parts of graphs."""
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
        plan = {"": style, "0": dt.SequenceParallel(), "1": WHOLE}
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        found = compiled(model, fullgraph=False)(x)
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
        found = compiled(function, fullgraph=False)(given)
        found.sum().backward()
        one = x.clone().requires_grad_()
        wanted = function(one)
        wanted.sum().backward()
        assert close(found.full_tensor(), wanted.detach())
        assert close(given.grad.full_tensor(), one.grad)

    world.run(ranks, program)
