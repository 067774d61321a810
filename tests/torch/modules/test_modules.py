"""distribute_module, distributed tensors and losses, beside one process."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import distarray
import distarray.torch as dt
from distarray import DeviceMesh, Layout, Partial, Replicate, Shard
from distarray.errors import DivergenceError, LayoutError, MeshError
from distarray.torch.collectives.carrying import carried
from tests.torch.models import (
    ToyModel,
    close,
    drawn,
    filled,
    line,
    local_of,
    on,
    part_of,
    same_gradients,
    same_parameters,
    spread,
)

# -- distribute_module --------------------------------------------------------------------------


class MyModule(nn.Module):
    """The module of DTensor's README."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.fc1(x) + self.fc2(x))


def cut_rows(name, module, mesh):
    for parameter in list(module._parameters):
        dt.distribute_parameter(module, parameter, mesh, [Shard(0)])


FLOWS = {
    "plain": {},
    "distributed": {
        "input_fn": lambda module, inputs, mesh: [
            dt.DistTensor.from_local(inputs[0], mesh, [Replicate()])
        ],
        "output_fn": lambda outputs, mesh: outputs.full_tensor(),
    },
    "batch": {
        "input_fn": lambda inputs, mesh: spread(inputs[0], mesh, [Shard(0)]),
        "output_fn": lambda module, outputs, mesh: outputs.full_tensor(),
    },
}


@pytest.mark.parametrize("flow", FLOWS)
def test_distribute_module(world, ranks, device, flow):
    """T6: parameters cut along rows, whatever is handed in; and without a partition_fn."""
    reference, x = filled(MyModule()), drawn(5, 8)
    start = copy.deepcopy(reference)
    wanted = reference(x)
    wanted.square().sum().backward()

    def program(group):
        mesh = line(group)
        for cut in (cut_rows, None):
            model = dt.distribute_module(on(start, device), mesh, cut, **FLOWS[flow])
            height = local_of(model.fc1.weight).shape[0]
            assert model.fc1.weight.shape == start.fc1.weight.shape
            assert height == (8 if cut is None else len(part_of(x[0], mesh, [Shard(0)])))
            local = x.to(model.fc1.weight.dtype).to(device)
            with distarray.trace() as book:
                found = model(local)
            found.square().sum().backward()
            assert close(found, wanted.detach(), device)
            assert same_gradients(model, reference, device)
            if flow == "distributed" and group.size > 1:
                assert len(book.events) <= (cut is not None)  # one gather, at the end

    world.run(ranks, program)


def test_other_layers_with_cut_parameters(world, ranks):
    """Convolutions, norms, embeddings and a module's own parameters, cut along any dimension."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(6, 4, padding_idx=2)
            self.conv = nn.Conv1d(4, 5, 3, padding=1)
            self.norm = nn.LayerNorm(5)
            self.rms = nn.RMSNorm(5)
            self.out = nn.Linear(5, 3)
            self.scale = nn.Parameter(torch.ones(3, 2))

        def forward(self, tokens):
            x = self.conv(self.words(tokens).transpose(1, 2)).transpose(1, 2)
            return self.out(self.rms(self.norm(x))) @ self.scale

    reference = filled(Model())
    start = copy.deepcopy(reference)
    tokens = torch.tensor([[0, 5, 2, 3], [1, 1, 4, 2]])
    wanted = reference(tokens)
    wanted.square().sum().backward()

    def program(group):
        mesh = line(group)
        for dim in (0, 1):

            def cut(name, module, mesh, dim=dim):
                for parameter, tensor in module._parameters.items():
                    where = min(dim, tensor.ndim - 1)
                    dt.distribute_parameter(module, parameter, mesh, [Shard(where)])

            model = dt.distribute_module(copy.deepcopy(start), mesh, cut)
            found = model(tokens)
            found.square().sum().backward()
            assert close(found, wanted.detach())
            assert same_gradients(model, reference)
            assert same_parameters(model, start)
            with pytest.raises(RuntimeError, match="is distributed"):
                dt.distribute_module(model, mesh)
        if group.size > 1:
            with pytest.raises(TypeError, match="one piece of memory"):
                dt.distribute_module(nn.LSTM(3, 3), mesh, cut_rows)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n in (4, 6))
def test_distribute_module_on_a_grid(world, ranks):
    """Two mesh dimensions: weights cut by either or both, the batch by the other."""
    reference, x = filled(MyModule()), drawn(5, 8)
    start = copy.deepcopy(reference)
    wanted = reference(x)
    wanted.square().sum().backward()
    layouts = [
        ([Replicate(), Shard(0)], [Shard(0), Replicate()]),
        ([Shard(1), Shard(0)], [Replicate(), Replicate()]),
        ([Shard(0), Shard(0)], [Replicate(), Shard(0)]),
        ([Replicate(), Shard(1)], [Shard(0), Shard(1)]),
    ]

    def program(group):
        mesh = DeviceMesh(group, (2, group.size // 2), ("dp", "tp"))
        for weight, given in layouts:

            def cut(name, module, mesh, weight=weight):
                if isinstance(module, nn.Linear):
                    dt.distribute_parameter(module, "weight", mesh, weight)
                    bias = [p if p == Shard(0) else Replicate() for p in weight]
                    dt.distribute_parameter(module, "bias", mesh, bias)

            model = dt.distribute_module(
                copy.deepcopy(start),
                mesh,
                cut,
                lambda inputs, mesh, given=given: spread(inputs[0], mesh, given),
                lambda outputs, mesh: outputs.full_tensor(),
            )
            found = model(x)
            found.square().sum().backward()
            assert close(found, wanted.detach())
            assert same_gradients(model, reference)

    world.run(ranks, program)


def test_inputs_that_differ(world, ranks):
    """Plain inputs count as replicated, and are compared: an error on all ranks, no hang."""

    def program(group):
        mesh = line(group)
        model = dt.distribute_module(filled(MyModule()), mesh, cut_rows)
        if group.size > 1:
            with pytest.raises(DivergenceError, match="input_fn"):
                model(drawn(2, 8, seed=group.rank))
            with pytest.raises(DivergenceError, match="input_fn"):
                model(drawn(2 + group.rank, 8))
        assert model(drawn(2, 8)).shape == (2, 8)

    world.run(ranks, program)


def test_autocast(world, ranks):
    """Data types of layers, of what is between them and of the loss are those of one process."""
    reference = filled(ToyModel()).float()
    x, labels = drawn(4, 10, dtype=torch.float32), torch.tensor([0, 4, 2, 1])

    def program(group):
        model = copy.deepcopy(reference)
        plan = {"in_proj": dt.ColwiseParallel(), "out_proj": dt.RowwiseParallel()}
        dt.parallelize_module(model, line(group), plan)
        found = []
        for net in (reference, model):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = net(x)
                spreading = net is model
                logits = dt.DistTensor.from_local(y, line(group), [Replicate()]) if spreading else y
                loss = nn.functional.cross_entropy(logits, labels)
            grads = torch.autograd.grad(loss, net.out_proj.bias)[0]
            found.append((y.dtype, loss.dtype, loss.detach(), grads.dtype))
        assert found[1][:2] == found[0][:2] == (torch.bfloat16, torch.float32)
        assert found[1][3] is found[0][3] is torch.float32
        assert abs(float(found[1][2] - found[0][2])) < 0.05

    world.run(ranks, program)


# -- distributed tensors ------------------------------------------------------------------------


def test_distributed_tensors(world, ranks, device):
    """Placements, elementwise functions and what is refused."""

    def program(group):
        mesh, p = line(group), group.size
        whole = drawn(5, 7)
        x = spread(
            whole.to(device) if device == "cpu" else whole.float().to(device), mesh, [Shard(0)]
        )
        assert x.shape == (5, 7)
        assert (x.size(1), x.ndim, x.dim(), x.numel(), len(x)) == (7, 2, 2, 35, 5)
        assert "DistTensor((5, 7)" in repr(x)
        y = torch.relu(x * 2 + 1).redistribute(mesh, [Shard(1)])  # as DTensor's users have it
        assert y.redistribute([Shard(1)]) is y.redistribute(placements=Shard(1)) is y
        assert x.redistribute().placements == (Replicate(),)
        with pytest.raises(MeshError, match="stays on its mesh"):
            x.redistribute(DeviceMesh(group, (1, p)), [Replicate(), Replicate()])
        assert close(y.full_tensor(), torch.relu(whole * 2 + 1), device)
        assert close((x.sigmoid() - x / 3).full_tensor(), whole.sigmoid() - whole / 3, device)
        assert close((1 - x).flatten().full_tensor(), 1 - whole.flatten(), device)
        alpha = torch.tensor(3.0, dtype=x.dtype, requires_grad=True, device=device)
        (x * alpha).full_tensor().sum().backward()
        assert close(alpha.grad, whole.sum(), device)
        ragged = dt.DistTensor.from_local(x.to_local()[: 1 + p - mesh.rank], mesh, Shard(0))
        assert close(
            ragged.redistribute([Shard(0)]).full_tensor(),
            ragged.full_tensor().cpu().double(),
            device,
        )
        assert close((x + y).full_tensor(), whole + torch.relu(whole * 2 + 1), device)
        with pytest.raises(RuntimeError, match="does not say how"):
            x + x.to_local().new_ones(5, 7)
        assert close((x == x).full_tensor(), (whole == whole).double())
        assert close((x != 0).full_tensor(), (whole != 0).double())
        assert bool((x.detach() > 0).any())
        highest = dt.DistTensor.from_local(x.to_local()[:0].sum(0), mesh, [Partial("max")])
        assert close(highest.full_tensor(), torch.zeros(7).double(), device)
        with pytest.raises(LayoutError):
            dt.DistTensor.from_local(whole, mesh, [Shard(0)], (4, 7))

    world.run(ranks, program)


@pytest.mark.parametrize(
    "act",
    [
        lambda x: 2 + x - (1 - x),
        lambda x: 3 * x - 2 / x,
        lambda x: -(x**2),
        lambda x: (x < 0.1) == (x >= 0.1),
        lambda x: (x <= 0) != (x > 0),
    ],
)
def test_operators(world, act):
    def program(group):
        whole = drawn(5, 7)
        x = spread(whole, line(group), [Shard(0)])
        assert torch.equal(act(x).full_tensor(), act(whole))

    world.run(world.ranks[-1], program)


def contribution(whole, layout, mesh):
    """This rank's part of a tensor in a layout; sums are spread over all ranks."""
    section = tuple([slice(*s) for s in layout.section(mesh.coords)])
    count = position = 1
    for m in layout.partials:
        position = (position - 1) * mesh.shape[m] + mesh.coords[m] + 1
        count *= mesh.shape[m]
    noise = [drawn(*whole.shape, seed=seed) for seed in range(1, count)]
    rest = whole - sum(noise, torch.zeros_like(whole))
    return [*noise, rest][position - 1][section].clone()


@pytest.mark.counts(lambda n: n in (3, 4, 6))
def test_any_layout_to_any_other(world, ranks):
    """Cut, replicated and pending along each of two mesh dimensions."""
    whole = drawn(5, 7)
    places = [Replicate(), Shard(0), Shard(1), Partial()]

    def program(group):
        mesh = DeviceMesh(group, {3: (3, 1), 4: (2, 2), 6: (2, 3)}[group.size])
        layouts = [
            Layout.chunked(whole.shape, mesh.shape, placements)
            for placements in itertools.product(places, repeat=2)
        ]
        replicas = Layout.replicated(tuple(whole.shape), mesh.shape)
        for source, target in itertools.product(layouts, layouts[:: 2 * group.size - 5]):
            part = carried(contribution(whole, source, mesh), mesh, source, target)
            assert tuple(part.shape) == target.local_shape(mesh.coords)
            assert close(carried(part, mesh, target, replicas), whole)

    world.run(ranks, program)


def test_gradients_of_redistribution(world, ranks):
    """From any placement to any other and to whole tensors, twice; first and second gradients."""
    whole, weights = drawn(5, 7), drawn(5, 7, seed=1)
    places = [Replicate(), Shard(0), Shard(1), Partial()]

    def program(group):
        mesh = line(group)
        for source, middle in itertools.product(places, places[:3]):
            if isinstance(source, Partial):
                local = whole.clone() if mesh.rank == 0 else torch.zeros_like(whole)
            else:
                local = part_of(whole, mesh, [source])
            local.requires_grad_()
            x = dt.DistTensor.from_local(local, mesh, [source]).redistribute([middle])
            loss = (x * x).full_tensor().mul(weights).sum()
            assert close(loss, (whole * whole * weights).sum())
            (first,) = torch.autograd.grad(loss, local, create_graph=True)
            slope = 2 * whole * weights
            wanted = slope if isinstance(source, Partial) else part_of(slope, mesh, [source])
            assert close(first, wanted)
            second = torch.autograd.grad((first * first).sum(), local)[0]
            if isinstance(source, Shard) or group.size == 1:
                assert close(second, part_of(8 * whole * weights**2, mesh, [source]))

    world.run(ranks, program)


# -- losses -------------------------------------------------------------------------------------


def loss_cases(shape, dim, every):
    generator = torch.Generator().manual_seed(1)
    logits = 3 * drawn(*shape)
    samples = [n for d, n in enumerate(shape) if d != dim]
    labels = torch.randint(0, shape[dim], samples, generator=generator)
    if labels.ndim:
        labels.view(-1)[0] = -100
    chances = torch.softmax(drawn(*shape, seed=2), dim)
    weight = torch.rand(shape[dim], generator=generator, dtype=torch.float64)
    cases = list(
        itertools.product((labels, chances), ("mean", "sum", "none"), (0.0, 0.1), (None, weight))
    )
    for target, reduction, smoothing, weights in cases if every else cases[::5]:
        options = {"reduction": reduction, "label_smoothing": smoothing, "weight": weights}
        yield logits, target, options


@pytest.mark.parametrize("shape", [(6, 5), (3,), (3, 7, 4)])
def test_cross_entropy(world, ranks, shape):
    """Every option of torch's, with classes cut, samples cut, or both on a grid."""
    dim = 1 if len(shape) > 1 else 0
    # Each with each in one place; elsewhere every option, with some of the others.
    every = len(shape) == 2 and ranks == 3

    def program(group):
        cuts = [(line(group), [Shard(dim)])]
        if dim and group.size in (4, 6):
            cuts = [(DeviceMesh(group, (2, group.size // 2)), [Shard(0), Shard(dim)])]
        elif dim and group.size == 2:
            cuts.append((line(group), [Shard(0)]))
        for (mesh, placements), case in itertools.product(cuts, loss_cases(shape, dim, every)):
            check_loss(mesh, placements, dim, *case)

    world.run(ranks, program)


def check_loss(mesh, placements, dim, logits, target, options):
    alone = logits.clone().requires_grad_()
    wanted = functional.cross_entropy(alone, target, **options)
    factors = drawn(*wanted.shape, seed=4)
    (wanted * factors).sum().backward()
    layout = Layout.chunked(tuple(logits.shape), mesh.shape, placements)
    section = [slice(*s) for s in layout.section(mesh.coords)]
    mine = logits[tuple(section)].clone().requires_grad_()
    here = list(section)
    if target.ndim == logits.ndim and target.is_floating_point():
        here[dim] = slice(None)
    else:
        del here[dim]
    spread_out = dt.DistTensor.from_local(mine, mesh, placements, tuple(logits.shape))
    with dt.loss_parallel():
        found = functional.cross_entropy(spread_out, target[tuple(here)], **options)
    whole = found.full_tensor() if isinstance(found, dt.DistTensor) else found
    assert close(whole, wanted.detach())
    (whole * factors).sum().backward()
    assert close(mine.grad, alone.grad[tuple(section)])


def test_loss_parallel(world, ranks, device):
    """Plain logits inside the context; targets that are no classes; nothing left behind."""
    logits, labels = drawn(6, 5), torch.tensor([0, 4, 2, 3, 1, 1])

    def program(group):
        mesh = line(group)
        x = logits.to(device) if device == "cpu" else logits.float().to(device)
        mine = part_of(x, mesh, [Shard(1)])
        there = labels.to(device)
        with pytest.raises(IndexError, match="Target 6 is out of bounds"), dt.loss_parallel(mesh):
            functional.cross_entropy(mine, there + 6)
        wanted = functional.cross_entropy(logits, labels)
        with dt.loss_parallel(mesh):
            found = nn.CrossEntropyLoss()(mine, there)
            half = functional.cross_entropy(mine.bfloat16(), there)
        assert close(found, wanted, device)
        assert half.dtype is torch.bfloat16
        assert abs(float(half) - float(wanted)) < 0.05
        assert close(functional.cross_entropy(x, there), wanted, device)
        with pytest.raises(IndexError, match="out of bounds"):
            functional.cross_entropy(
                spread(x, mesh, [Shard(0)]), spread(there + 2, mesh, [Shard(0)])
            )

    world.run(ranks, program)
