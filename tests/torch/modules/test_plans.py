"""parallelize_module: the results of one process, on any number of ranks and any device."""

from __future__ import annotations

import copy
import importlib.util
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from distarray.errors import LayoutError
from tests.torch.models import (
    TOY_PLAN,
    Norm,
    ToyModel,
    Transformer,
    close,
    drawn,
    filled,
    line,
    on,
    same_gradients,
    same_parameters,
)


def kinds(book):
    return [event.kind for event in book.events]


# -- the toy of the Gaudi page ------------------------------------------------------------------


@pytest.mark.parametrize("zero_grad", [True, False])
def test_toy(world, ranks, device, zero_grad):
    """T1: one allreduce forward, none backward; outputs and parameters as in one process."""
    reference = filled(ToyModel())
    alone = torch.optim.AdamW(reference.parameters(), lr=0.25)
    steps = 4
    batches = [drawn(20, 10, seed=seed) for seed in range(steps)]
    wanted = []
    start = copy.deepcopy(reference)
    for x in batches:
        if zero_grad:
            alone.zero_grad()
        wanted.append(reference(x))
        wanted[-1].sum().backward()
        alone.step()

    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(on(start, device), mesh, TOY_PLAN)
        width = model.in_proj.weight.to_local().shape[0]
        assert model.out_proj.weight.to_local().shape == (5, width)
        assert model.out_proj.weight.shape == (5, 32)
        assert model.out_proj.bias.shape == (5,)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
        for x, y in zip(batches, wanted):
            if zero_grad:
                optimizer.zero_grad()
            x = x.to(model.in_proj.weight.dtype).to(device)
            with distarray.trace() as forward:
                found = model(x)
            with distarray.trace() as backward:
                found.sum().backward()
            optimizer.step()
            assert kinds(forward) == ["allreduce"] * (group.size > 1)
            assert kinds(backward) == []
            if device == "cpu":
                assert close(found, y, device)
        assert device != "cpu" or same_parameters(model, reference)
        return width

    widths = world.run(ranks, program)
    assert world.name == "mpi" or sum(widths) == 32


def test_toy_example(world, ranks, device):
    """The program of examples/, and the comparison that it prints."""
    path = Path(__file__).resolve().parents[3] / "examples" / "torch_tensor_parallel.py"
    spec = importlib.util.spec_from_file_location("torch_tensor_parallel", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    def body(group):
        said = []
        assert program.compare(line(group), torch.device(device), 3, said.append)
        assert said[-1] == "the same as one process"

    if world.name == "threads" and ranks > 1:
        return  # it seeds torch's own generator, which threads share
    world.run(ranks, body)


def test_uneven_columns(world, ranks):
    """T2: ten columns over any number of ranks, and fewer columns than ranks."""
    for features in (10, 3):
        reference = filled(nn.Linear(6, features))
        x = drawn(3, 6)

        def program(group, features=features, reference=reference, x=x):
            mesh = line(group)
            model = dt.parallelize_module(copy.deepcopy(reference), mesh, dt.ColwiseParallel())
            found = model(x)
            block = -(-features // group.size)
            here = range(features)[group.rank * block : (group.rank + 1) * block]
            assert close(found, reference(x)[:, here].detach())
            model = dt.parallelize_module(
                copy.deepcopy(reference), mesh, dt.ColwiseParallel(output_layouts=Replicate())
            )
            assert close(model(x), reference(x).detach())

        world.run(ranks, program)


# -- a transformer ------------------------------------------------------------------------------


def transformer_plan(local):
    heads = {"multiple_of": 4, "use_local_output": local}
    parted = dt.PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=local
    )
    return {
        "tok_embeddings": dt.RowwiseParallel(output_layouts=Shard(1)),
        "layers.*.attention_norm": dt.SequenceParallel(use_local_output=local),
        "layers.*.attention": parted,
        "layers.*.attention.w[qkv]": dt.ColwiseParallel(multiple_of=4),
        "layers.*.attention.wo": dt.RowwiseParallel(output_layouts=Shard(1), multiple_of=4),
        "layers.*.ffn_norm": dt.SequenceParallel(use_local_output=local),
        "layers.*.feed_forward": parted,
        "layers.*.feed_forward.w[13]": dt.ColwiseParallel(**heads),
        "layers.*.feed_forward.w2": dt.RowwiseParallel(output_layouts=Shard(1), multiple_of=4),
        "norm": dt.SequenceParallel(),
        "output": dt.ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }


@pytest.mark.parametrize("local", [True, False])
def test_transformer(world, ranks, device, local):
    """Sequence parallelism with uneven heads, words and sequences; a class-parallel loss."""
    reference = filled(Transformer())
    tokens = torch.randint(0, 11, (2, 7), generator=torch.Generator().manual_seed(3))
    labels = torch.randint(0, 11, (2, 7), generator=torch.Generator().manual_seed(4))
    start = copy.deepcopy(reference)
    loss = nn.functional.cross_entropy(reference(tokens).flatten(0, 1), labels.flatten())
    loss.backward()

    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(on(start, device), mesh, transformer_plan(local))
        with distarray.trace() as forward:
            logits = model(tokens.to(device))
        assert logits.shape == (2, 7, 11)
        with dt.loss_parallel():
            found = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().to(device))
        with distarray.trace() as backward:
            found.backward()
        assert close(found, loss.detach(), device)
        assert same_gradients(model, reference, device)
        for name, array in dt.module_state(model).items():
            if array.layout.is_replicated:  # the same bits on all ranks
                gradient = model.get_parameter(name).grad
                assert torch.equal(gradient, dt.all_reduce(gradient, mesh, fold="max"))
        if group.size > 1:
            assert kinds(forward).count("reduce_scatter") == 5  # no allreduce of activations
            assert "allreduce" not in kinds(forward)
        return kinds(backward)

    world.run(ranks, program)


def test_replicated_activations(world, ranks):
    """Without sequence parallelism: a rank with no heads, rows or columns takes part."""
    reference = filled(Transformer(words=5, heads=2, size=4, hidden=3, layers=1))
    tokens = torch.tensor([[0, 4, 2], [1, 1, 3]])
    start = copy.deepcopy(reference)
    wanted = reference(tokens)
    wanted.square().sum().backward()
    plan = {
        "tok_embeddings": dt.ColwiseParallel(output_layouts=Replicate()),
        "layers.*.attention.w[qkv]": dt.ColwiseParallel(multiple_of=2),
        "layers.*.attention.wo": dt.RowwiseParallel(multiple_of=2),
        "layers.?.feed_forward.w[13]": dt.ColwiseParallel(),
        "layers.?.feed_forward.w2": dt.RowwiseParallel(),
        "output": dt.RowwiseParallel(input_layouts=Replicate()),
    }

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        found = model(tokens)
        found.square().sum().backward()
        assert close(found, wanted.detach())
        assert same_gradients(model, reference)

    world.run(ranks, program)


def test_half_precision(world, ranks):
    """bfloat16 weights and activations: sums over the ranks in float32, rounded once."""
    reference = filled(Transformer())
    tokens = torch.tensor([[0, 4, 2, 10], [1, 1, 3, 7]])

    def program(group):
        mesh = line(group)
        model = copy.deepcopy(reference).bfloat16()
        dt.parallelize_module(model, mesh, transformer_plan(False))
        logits = model(tokens)
        assert logits.dtype is torch.bfloat16
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        off = (logits.full_tensor().double() - reference(tokens)).detach().abs().max()
        assert float(off) < 0.2
        assert all(p.grad.dtype is torch.bfloat16 for p in model.parameters())
        assert dt.module_state(model)["norm.weight"].dtype.name == "bfloat16"

    world.run(ranks, program)


def test_prepared_inputs_and_outputs(world, ranks):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)

        def forward(self, x, flag, *, y):
            assert flag == "as it is"
            return self.net(x) + y, flag

    reference = filled(Pair())
    x, y = drawn(5, 4), drawn(5, 4, seed=2)
    wanted = reference(x, "as it is", y=y)[0].detach()
    style = dt.PrepareModuleInputOutput(
        input_layouts=(Shard(0), None),
        desired_input_layouts=(Replicate(), None),
        input_kwarg_layouts={"y": Shard(0)},
        desired_input_kwarg_layouts={"y": Replicate()},
        use_local_input=True,
        output_layouts=(Replicate(), None),
        desired_output_layouts=(Shard(0), None),
    )

    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(copy.deepcopy(reference), mesh, style)
        here = range(5)[
            slice(*distarray.Layout.chunked((5,), mesh.shape, [Shard(0)]).section(mesh.coords)[0])
        ]
        found, flag = model(x[list(here)], "as it is", y=y[list(here)])
        assert flag == "as it is"
        assert close(found, wanted[list(here)])
        with pytest.raises(ValueError, match="positional arguments"):
            model(x[list(here)], y=y[list(here)])

    world.run(ranks, program)


# -- modules that share, freeze, come in parts --------------------------------------------------


def test_one_part_after_the_other(world, ranks):
    """What is distributed already is compared as a whole: of 8 rows three ranks have 3, 3 and 2."""

    def program(group):
        mesh, model = line(group), filled(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6)))
        x = drawn(2, 6)
        wanted = model(x)
        for _ in range(2):  # once more changes nothing
            dt.parallelize_module(model[0], mesh, dt.ColwiseParallel())
        dt.parallelize_module(model, mesh, {"1": dt.RowwiseParallel()})
        assert close(model(x), wanted)

    world.run(ranks, program)


def test_layers_given_one_tensor_share_its_border(world, ranks):
    """The gradients of queries, keys and values are summed before they are sent, once."""
    reference = filled(nn.ModuleList([nn.Linear(4, 6) for _ in range(3)]))
    start, x = copy.deepcopy(reference), drawn(3, 4)

    def run(layers, x, between=lambda y: y):
        y = torch.tanh(x)
        outputs = [layers[0](y), layers[1](y), layers[2](between(y))]
        return [out.square().sum() for out in outputs], weakref.ref(y)

    alone = x.clone().requires_grad_()
    sum(run(reference, alone)[0]).backward()

    def program(group):
        plan = {"*": dt.ColwiseParallel()}
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        mine = x.clone().requires_grad_()
        losses, known = run(model, mine)
        with distarray.trace() as book:
            sum(losses).backward()
        assert close(mine.grad, alone.grad)
        assert same_gradients(model, reference)
        assert kinds(book) == ["allreduce"] * (group.size > 1)
        del losses
        assert known() is None  # nothing is kept for it
        losses, _ = run(model, mine, lambda y: y * 2)  # another tensor
        with distarray.trace() as book:
            sum(losses).backward()
        assert kinds(book) == ["allreduce"] * 2 * (group.size > 1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            sum(run(model, mine, lambda y: y.mul_(2))[0]).backward()

    world.run(ranks, program)


def test_tied_parameters(world, ranks):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(7, 4)
            self.norm = Norm(4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.words.weight

        def forward(self, x):
            return self.head(self.norm(self.words(x)))

    reference = filled(Tied())
    start = copy.deepcopy(reference)
    tokens = torch.tensor([0, 6, 3, 3])
    wanted = reference(tokens)
    wanted.square().sum().backward()
    cut = {
        "words": dt.RowwiseParallel(),
        "head": dt.ColwiseParallel(output_layouts=Replicate()),
    }

    def program(group):
        mesh = line(group)
        model = copy.deepcopy(start)
        with pytest.raises(ValueError, match="shares its weight"):
            dt.parallelize_module(model, mesh, {"words": cut["words"]})
        dt.parallelize_module(model, mesh, cut)
        assert model.head.weight is model.words.weight
        found = model(tokens)
        found.square().sum().backward()
        assert close(found, wanted.detach())
        assert same_gradients(model, reference)
        with pytest.raises(LayoutError, match="Tied parameters"):
            dt.parallelize_module(copy.deepcopy(start), mesh, cut | {"head": dt.RowwiseParallel()})
        model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        model[1].weight = nn.Parameter(model[0].weight.data)
        with pytest.raises(ValueError, match="same memory"):
            dt.parallelize_module(model, mesh, {"0": dt.ColwiseParallel()})

    world.run(ranks, program)


def test_frozen_parameters_and_buffers(world, ranks):
    """Frozen ones stay so; what the plan does not name is rank 0's on all ranks."""

    class Model(nn.Module):
        def __init__(self, rank):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)
            self.register_buffer("scale", torch.tensor([2.0 + rank], dtype=torch.float64))
            self.register_buffer("count", torch.tensor(5 + rank))

        def forward(self, x):
            return self.b(self.a(x)) * self.scale

    def program(group):
        mesh = line(group)
        model = filled(Model(group.rank), seed=group.rank)
        model.a.weight.requires_grad_(False)
        reference = filled(Model(0), seed=0)
        style = dt.ColwiseParallel(output_layouts=Replicate())
        dt.parallelize_module(model, mesh, {"a": style})
        x = drawn(3, 4)
        assert close(model(x), reference(x).detach())
        model(x).sum().backward()
        assert model.a.weight.grad is None
        assert model.a.bias.grad.shape == model.a.bias.shape
        state = dt.module_state(model)
        assert list(state) == list(model.state_dict())
        assert int(state["count"]) == 5
        assert same_parameters(model, reference)

    world.run(ranks, program)
