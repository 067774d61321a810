"""parallelize_module: the results of one process, on any number of ranks and any device."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import distarray
import distarray.torch as dt
from distarray import DeviceMesh, Replicate, Shard
from distarray.errors import DivergenceError, LayoutError, MeshError
from tests.torch.models import (
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

TOY_PLAN = {"in_proj": dt.ColwiseParallel(), "out_proj": dt.RowwiseParallel()}


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
        width = model.in_proj.weight.shape[0]
        assert model.out_proj.weight.shape == (5, width)
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
    path = Path(__file__).resolve().parents[2] / "examples" / "torch_tensor_parallel.py"
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


# -- what is refused, on all ranks, before anything has changed ------------------------------------


def test_plans_that_do_not_fit(world, ranks):
    def program(group):
        mesh = line(group)
        model = filled(ToyModel())

        def refused(kind, words, plan, model=model, mesh=mesh):
            with pytest.raises(kind, match=words):
                dt.parallelize_module(model, mesh, plan)

        colwise = dt.ColwiseParallel()
        refused(ValueError, "in_projj.*matches no part.*in_proj", {"in_projj": colwise})
        refused(ValueError, "matches no part", TOY_PLAN | {"layers.*": colwise})
        refused(TypeError, "is a ParallelStyle", {"in_proj": Shard(0)})
        refused(TypeError, "the plan is a style", None)
        refused(TypeError, "not for ReLU", {"relu": colwise})
        refused(TypeError, "AttentionParallel is for", {"relu": dt.AttentionParallel()})
        refused(TypeError, "DropoutParallel is for", {"relu": dt.DropoutParallel()})
        refused(ValueError, "two styles", {"in_proj": colwise, "in_*": dt.RowwiseParallel()})
        refused(LayoutError, "no multiple", {"in_proj": dt.ColwiseParallel(multiple_of=5)})
        grid = DeviceMesh(group, (1, group.size), ("dp", "tp"))
        refused(MeshError, r"mesh\['tp'\]", TOY_PLAN, mesh=grid)
        assert model.in_proj.weight.shape == (32, 10)
        assert model(drawn(2, 10)).shape == (2, 5)
        model(drawn(2, 10)).sum().backward()
        refused(ValueError, "has a gradient", TOY_PLAN)
        refused(TypeError, "no shape yet", TOY_PLAN, nn.Sequential(nn.LazyLinear(3)))
        refused(TypeError, "meta device", colwise, nn.Linear(3, 3, device="meta"))
        refused(TypeError, "cannot be cut", colwise, nn.Embedding(3, 3, max_norm=1.0))

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_ranks_with_different_plans_or_models(world, ranks):
    def program(group):
        mesh = line(group)
        first = group.rank == 0
        plan = TOY_PLAN if first else {"in_proj": dt.ColwiseParallel()}
        with pytest.raises(DivergenceError, match="plan"):
            dt.parallelize_module(ToyModel(), mesh, plan)
        with pytest.raises(DivergenceError, match="weight"):
            dt.parallelize_module(nn.Linear(3, 3 if first else 4), mesh, dt.ColwiseParallel())
        with pytest.raises(ValueError, match="matches no part"):
            dt.parallelize_module(ToyModel(), mesh, TOY_PLAN if first else {"out": plan["in_proj"]})

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


# -- optimizers, states, sharing ------------------------------------------------------------------


def test_optimizers_made_before(world, ranks):
    """The parameters stay the same objects; steps made before are told, not mixed up."""
    reference = filled(ToyModel())
    x = drawn(8, 10)

    def program(group):
        mesh = line(group)
        alone, model = copy.deepcopy(reference), copy.deepcopy(reference)
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (alone, model)]
        dt.parallelize_module(model, mesh, TOY_PLAN)
        for m, optimizer in zip((alone, model), optimizers):
            m(x).sum().backward()
            optimizer.step()
        assert same_parameters(model, alone)
        stepped = copy.deepcopy(reference)
        optimizer = torch.optim.Adam(stepped.parameters())
        stepped(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        dt.parallelize_module(stepped, mesh, TOY_PLAN)
        if group.size > 1:
            with pytest.raises(RuntimeError, match="before its model was distributed"):
                optimizer.step()

    world.run(ranks, program)


def test_sharing(world, ranks):
    """Arrays and parameters are one memory, and it is noticed when they are no longer."""

    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(filled(ToyModel()), mesh, TOY_PLAN)
        state = dt.module_state(model)
        weight = state["in_proj.weight"]
        assert weight.placements == (Shard(0),)
        assert state["out_proj.weight"].placements == (Shard(1),)
        assert state["out_proj.bias"].placements == (Replicate(),)
        weight[...] = 1.0
        assert bool((model.in_proj.weight == 1).all())
        with torch.no_grad():
            model.in_proj.weight.mul_(3)
        assert float(weight.sum()) == 960
        model.in_proj.weight.data = model.in_proj.weight.data.clone()
        with pytest.raises(RuntimeError, match=r"in_proj.weight no longer shares"):
            dt.module_state(model)
        del state, weight
        assert float(dt.module_state(model)["in_proj.weight"].sum()) == 960
        model.in_proj.weight.data = torch.zeros(2, 2, dtype=torch.float64)
        with pytest.raises(LayoutError, match=r"in_proj.weight has become"):
            dt.module_state(model)
        with pytest.raises(ValueError, match="not distributed"):
            dt.module_state(nn.Linear(2, 2))

    world.run(ranks, program)


def test_loading_whole_and_own_states(world, ranks):
    """load_state_dict takes whole parameters and this rank's part; copies are distributed, too."""
    reference, other = filled(ToyModel()), filled(ToyModel(), seed=9)
    x = drawn(4, 10)

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(reference), line(group), TOY_PLAN)
        own = {name: value.clone() for name, value in model.state_dict().items()}
        twin = copy.deepcopy(model)
        state = dt.module_state(model)
        model.load_state_dict(other.state_dict())
        assert close(model(x), other(x).detach())
        assert np.array_equal(state["in_proj.bias"].full(), other.in_proj.bias.detach().numpy())
        assert close(twin(x), reference(x).detach())
        assert same_parameters(twin, reference)
        norms = [dt.clip_grad_norm_(m.parameters(), 1e9) for m in graded(model, twin)]
        assert close(norms[0], norms[1])
        model.load_state_dict(own)
        assert close(model(x), reference(x).detach())
        with pytest.raises(RuntimeError, match="size mismatch"):
            model.load_state_dict(nn.ModuleDict({"in_proj": nn.Linear(3, 3)}).state_dict(), False)

    world.run(ranks, program)


def graded(*models):
    """The models with all gradients 1."""
    for model in models:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
    return models


@pytest.mark.counts(lambda n: n in (4, 6))
def test_part_of_a_mesh(world, ranks):
    """Tensor parallel along one dimension of two; ranks outside keep the module as it is."""
    reference = filled(ToyModel())
    x = drawn(4, 10)

    def program(group):
        mesh = DeviceMesh(group, (2, group.size // 2), ("dp", "tp"))
        model = dt.parallelize_module(copy.deepcopy(reference), mesh["tp"], TOY_PLAN)
        assert close(model(x), reference(x).detach())
        state = dt.module_state(model, mesh)
        assert state["in_proj.weight"].placements == (Replicate(), Shard(0))
        wanted = reference.in_proj.weight.detach().numpy()
        assert np.array_equal(state["in_proj.weight"].full(), wanted)
        few = DeviceMesh(group, (2,), ranks=[0, 1])
        model = dt.parallelize_module(copy.deepcopy(reference), few, TOY_PLAN)
        assert close(model(x), reference(x).detach())
        assert model.in_proj.weight.shape[0] == (16 if group.rank < 2 else 32)

    world.run(ranks, program)


def test_norms_that_are_no_numbers(world, ranks):
    """As in torch: NaN spreads; a single parameter is one; an error if that is wanted."""

    def program(group):
        model = dt.parallelize_module(filled(ToyModel()), line(group), TOY_PLAN)
        model(drawn(2, 10)).sum().backward()
        assert float(dt.clip_grad_norm_(model.out_proj.weight, 1e9)) > 0
        model.out_proj.bias.grad[0] = float("nan")
        with pytest.raises(RuntimeError, match="of all gradients is nan"):
            dt.clip_grad_norm_(model, 1.0, error_if_nonfinite=True)
        for order in (2.0, float("inf")):
            assert torch.isnan(dt.clip_grad_norm_(model, 1.0, order))
        assert all(torch.isnan(p.grad).all() for p in model.parameters())

    world.run(ranks, program)


def test_rows_of_other_words_do_not_matter(world, ranks):
    """A row that is infinite does not make NaN of the words beside it."""
    reference = filled(nn.Embedding(5, 2))
    with torch.no_grad():
        reference.weight[0] = float("inf")

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(reference), line(group), dt.RowwiseParallel())
        found = model(torch.tensor([1, 4, 0]))
        assert torch.equal(found, reference(torch.tensor([1, 4, 0])))

    world.run(ranks, program)
