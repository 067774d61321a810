"""torch.utils.checkpoint around, inside of and across the units of a sharded model."""

from __future__ import annotations

import copy
import functools
import itertools

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import distarray.torch as dt  # noqa: E402
from tests.torch.models import close, drawn, filled, line, local_of, same_gradients  # noqa: E402
from tests.torch.training import grid  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")


class Block(nn.Module):
    """A block whose parts have parameters, and which has a number of its own."""

    def __init__(self, inside):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 9), nn.Linear(9, 6)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.inside = inside

    def body(self, x):
        return self.down(torch.tanh(self.up(self.norm(x)))) * self.scale

    def forward(self, x):
        if self.inside is None:
            return x + self.body(x)
        return x + checkpoint(self.body, x, use_reentrant=self.inside)


class Net(nn.Module):
    """Blocks that are repeated, from outside, from inside, both or not at all; tied ends."""

    def __init__(self, around, inside):
        super().__init__()
        self.words = nn.Embedding(7, 6)
        self.blocks = nn.ModuleList([Block(inside) for _ in range(2)])
        self.memory = nn.LSTM(6, 6, batch_first=True)
        self.out = nn.Linear(6, 7, bias=False)
        self.out.weight = self.words.weight
        self.around = around

    def forward(self, tokens):
        run = functools.partial(checkpoint, use_reentrant=self.around)
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x) if self.around is None else run(block, x)
        recall = lambda x: self.memory(x)[0]  # noqa: E731
        return self.out(recall(x) if self.around is None else run(recall, x))


def units(model, which):
    return {"root": [model], "blocks": [*model.blocks], "both": [*model.blocks, model]}[which]


@pytest.mark.counts(lambda n: n in (2, 3))
@pytest.mark.parametrize("around, inside", list(itertools.product((None, False, True), repeat=2)))
def test_gradients_are_those_of_one_process(world, ranks, around, inside):
    """Reentrant and not, nested, the outermost unit alone and units of units, given up or kept."""
    tokens = torch.randint(0, 7, (2 * ranks, 3), generator=torch.Generator().manual_seed(1))
    start = filled(Net(None, None))
    alone = copy.deepcopy(start)
    alone(tokens).square().mean().backward()

    def program(group):
        mesh, wrong = line(group), []
        for which, reshard in itertools.product(("root", "both"), (None, True)):
            model = Net(around, inside).double()
            model.load_state_dict(start.state_dict())
            for unit in units(model, which):
                dt.fully_shard(unit, mesh, reshard_after_forward=reshard)
            for _ in range(2):  # the second pass gathers ahead
                model.zero_grad()
                model(tokens[2 * group.rank : 2 * group.rank + 2]).square().mean().backward()
            if not same_gradients(model, alone):
                wrong.append((which, reshard))
        return wrong

    for wrong in world.run(ranks, program):
        assert not wrong


def test_shapes_that_would_broadcast(world, ranks):
    """A weight with as many rows as there are ranks: a part, taken for it, went unnoticed."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.gains = nn.Parameter(drawn(ranks, 1))

        def forward(self, x):
            return checkpoint(
                lambda x: (x[None] * self.gains).tanh().sum(0), x, use_reentrant=False
            )

    start, x = Scaled(), drawn(5)
    alone = copy.deepcopy(start)
    alone(x.clone().requires_grad_()).sum().backward()

    def program(group):
        model = dt.fully_shard(copy.deepcopy(start), line(group))
        model(x.clone().requires_grad_()).sum().backward()
        return same_gradients(model, alone)

    assert all(world.run(ranks, program))


def test_frozen_parameters_and_what_a_failed_pass_leaves(world, ranks):
    tokens = torch.randint(0, 7, (2, 3), generator=torch.Generator().manual_seed(1))
    start = filled(Net(False, False))
    start.words.requires_grad_(False)
    start.blocks[0].requires_grad_(False)
    alone = copy.deepcopy(start)
    alone(tokens).square().mean().backward()
    frozen = {n for n, p in alone.named_parameters() if p.grad is None}

    def program(group):
        model = dt.fully_shard(copy.deepcopy(start), line(group))
        out = model(tokens)
        out.register_hook(lambda grad: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            out.square().mean().backward()
        model.zero_grad()
        model(tokens).square().mean().backward()
        state, wrong = dt.module_state(model), set()
        for (name, mine), whole in zip(model.named_parameters(), alone.parameters()):
            section = tuple(
                [slice(*s) for s in state[name].layout.section(state[name].mesh.coords)]
            )
            if name in frozen:
                wrong |= set() if mine.grad is None else {name}
            elif not close(local_of(mine.grad), whole.grad[section]):
                wrong.add(name)
        return wrong

    for wrong in world.run(ranks, program):
        assert not wrong


class Parallel(nn.Module):
    """What a plan cuts, within what is repeated."""

    def __init__(self):
        super().__init__()
        self.words, self.up, self.down = nn.Embedding(7, 6), nn.Linear(6, 9), nn.Linear(9, 6)
        self.reentrant = None

    def forward(self, tokens):
        body = lambda x: self.down(torch.tanh(self.up(x)))  # noqa: E731
        x = self.words(tokens)
        if self.reentrant is None:
            return x + body(x)
        return x + checkpoint(body, x, use_reentrant=self.reentrant)


@pytest.mark.counts(lambda n: n in (2, 3, 4))
@pytest.mark.parametrize("reentrant", [False, True])
def test_on_a_grid(world, ranks, reentrant):
    """Cut by a plan along one dimension, and divided along the other, which may be of one rank."""
    tokens = torch.randint(0, 7, (4, 3), generator=torch.Generator().manual_seed(1))
    start = filled(Parallel())
    alone = copy.deepcopy(start)
    alone(tokens).square().mean().backward()
    start.reentrant = reentrant

    def program(group):
        mesh = grid(group)
        plan = {"words": dt.RowwiseParallel(), "up": dt.ColwiseParallel()}
        plan["down"] = dt.RowwiseParallel()
        model = dt.parallelize_module(copy.deepcopy(start), mesh["tp"], plan)
        dt.fully_shard(model, mesh, "dp", fold="sum")
        mine = tokens.tensor_split(mesh.shape[0])[mesh.coords[0]]
        for _ in range(2):
            model.zero_grad()
            (model(mine).square().sum() / (tokens.numel() * 6)).backward()
        return same_gradients(model, alone)

    assert all(world.run(ranks, program))
