"""Parameters divided over a mesh dimension, and over two."""

from __future__ import annotations

import copy
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402
from tests.torch.models import local_of  # noqa: E402
from tests.torch.training import (  # noqa: E402
    Feed,
    alone,
    batch,
    full,
    full_gradient,
    grid,
    line,
    mine,
    net,
    same,
    sharded,
    start,
    train,
    values,
)

nn = torch.nn


# -- parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [None, True])
def test_parts_train_as_one_process(world, ranks, keep):
    """Parameters with fewer rows than ranks, and a number, are among them."""

    def program(group):
        again = None if keep is None else not keep
        model = sharded(net(), line(group), reshard_after_forward=again)
        count = sum(p.to_local().numel() for p in model.parameters())
        train(model, *mine(group, *batch()))
        optimizer = torch.optim.Adagrad(model.parameters())
        kept = sum(local_of(s["sum"]).numel() for s in optimizer.state.values())
        return full(model), count, kept

    whole = sum(p.numel() for p in start().parameters())
    results = world.run(ranks, program)
    for arrays, count, kept in results:
        same(arrays, alone())
        assert kept == count
        assert count <= whole / ranks + 150


def test_gathered_parameters_are_given_up(world, ranks):
    """None is left after the forward, save the outermost unit's; none after the backward."""
    seen = {}

    class Watched(nn.Linear):
        def forward(self, x):
            if isinstance(self.weight, nn.Parameter):
                return super().forward(x)  # not divided: one rank
            seen.setdefault(id(self), []).append(weakref.ref(self.weight))
            return super().forward(x)

    def program(group):
        model = nn.Sequential(*[Watched(8, 8) for _ in range(3)])
        for layer in model:
            dt.fully_shard(layer, line(group))
        dt.fully_shard(model, line(group))
        out = model(torch.ones(2, 8, requires_grad=True))
        alive = [ref() is not None for layer in model for ref in seen.get(id(layer), ())]
        out.sum().backward()
        return alive, [tuple(p.grad.shape) == tuple(p.shape) for p in model.parameters()]

    for alive, grads in world.run(ranks, program):
        assert all(grads)
        assert not any(alive)
        assert len(alive) == (3 if ranks > 1 else 0)


def test_evaluation_checkpointing_and_reuse(world, ranks):
    """Without gradients; recomputed in backward; the same unit twice; after an error in forward."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(2)
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]).double()
    x = torch.randn(3, 4, dtype=torch.float64)

    def forward(first, second, x):
        y = checkpoint(first, x, use_reentrant=False)
        return second(torch.tanh(first(second(torch.tanh(y))))).square().sum()

    a, b = copy.deepcopy(layers)
    forward(a, b, x).backward()

    def program(group):
        first, second = copy.deepcopy(layers)
        for layer in (first, second):
            dt.fully_shard(layer, line(group))
        with pytest.raises(RuntimeError, match="shape"):
            first(torch.ones(3, 5, dtype=torch.float64))
        with torch.no_grad():
            quiet = forward(first, second, x)
        loss = forward(first, second, x)
        loss.backward()
        return (
            quiet,
            loss.detach(),
            [
                full_gradient(p, layer, name, group)
                for layer in (first, second)
                for name, p in layer.named_parameters()
            ],
        )

    for quiet, loss, grads in world.run(ranks, program):
        assert torch.equal(quiet, loss)
        for grad, p in zip(grads, [*a.parameters(), *b.parameters()], strict=True):
            np.testing.assert_allclose(grad, p.grad.numpy(), rtol=1e-12)


def test_a_checkpoint_of_a_unit_keeps_nothing(world, ranks):
    """Activations are computed again, and the parameters gathered once more for it, not twice."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(2)
    layer = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    whole = copy.deepcopy(layer)
    whole(x).square().sum().backward()

    def program(group):
        model = copy.deepcopy(layer)
        dt.fully_shard(model, line(group), reshard_after_forward=True)
        alive = []
        model[1].register_forward_hook(lambda m, args, out: alive.append(weakref.ref(out)))
        with da.trace() as book:
            out = checkpoint(model, x, use_reentrant=False)
            kept = alive[0]() is not None
            out.square().sum().backward()
        grads = [full_gradient(p, model, name, group) for name, p in model.named_parameters()]
        return kept, len(alive), book.messages, grads

    for kept, forwards, messages, grads in world.run(ranks, program):
        assert not kept
        assert forwards == 2
        assert messages == (3 if ranks > 1 else 0)
        for grad, p in zip(grads, whole.parameters(), strict=True):
            np.testing.assert_allclose(grad, p.grad.numpy(), rtol=1e-12)


class Chain(nn.Module):
    """Layers in the order that is asked for."""

    def __init__(self, seen):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4, bias=k != 1) for k in range(3)])
        for layer in self.layers:
            layer.register_forward_pre_hook(lambda *_: seen())

    def forward(self, x, order):
        for k in order:
            x = torch.tanh(self.layers[k](x))
        return x


def test_ahead_of_time(world, ranks):
    """As last time, the next unit is gathered while one computes; and if it is not as last time."""
    passes = [(0, 1, 2), (0, 1, 2), (2, 1), (2, 1, 0, 1), (2, 1, 0, 1), (0, 1, 2)]
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    start = Chain(None).state_dict()

    def program(group, ahead):
        seen = []
        with da.trace() as book, da.config.override(check=True):
            model = Chain(lambda: seen.append(gathers(book)))
            model.load_state_dict(start)
            model.double()
            for layer in model.layers:
                dt.fully_shard(layer, line(group), fold="sum", ahead=ahead)
            dt.fully_shard(model, line(group), ahead=ahead)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            told = []
            for number, order in enumerate(passes):
                del seen[:]
                before = gathers(book)
                if number == 4:  # between the units of a pass; their values have gone out already
                    hook = lambda *_: halve(model.layers[1])  # noqa: E731
                    hook = model.layers[2].register_forward_hook(hook)
                mine = x[group.rank :: group.size].clone().requires_grad_()
                out = model(mine, order).square().sum()
                if number == 4:
                    hook.remove()
                out.backward()
                optimizer.step()
                optimizer.zero_grad()
                told.append(([count - before for count in seen], gathers(book) - before))
        return told, full(model)

    results = world.run(ranks, lambda group: [program(group, ahead) for ahead in (False, True)])
    for (waiting, wanted), (early, found) in results:
        same(found, wanted)
        if ranks > 1:
            assert [total for _, total in waiting] == [6, 6, 4, 8, 8, 6]
            assert waiting[1][0] == [1, 2, 3]
            assert early[0] == waiting[0]
            assert early[1] == ([2, 3, 3], 6)
            assert early[4][0][0] == 2


def halve(layer):
    with torch.no_grad():
        layer.weight.mul_(0.5)


def gathers(book):
    return sum(event.kind == "allgather" for event in book.events)


# -- both -------------------------------------------------------------------------------------


@pytest.mark.parametrize("divided", [False, True])
def test_two_dimensions(world, ranks, divided):
    """Tensor-parallel inside, data-parallel outside, nine columns on two ranks."""
    torch.manual_seed(3)
    begin = nn.Sequential(Feed(), Feed()).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    whole = copy.deepcopy(begin)
    plan = {"*.up": dt.ColwiseParallel(), "*.down": dt.RowwiseParallel()}

    def steps(model, x, clip):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        norms = []
        for _ in range(3):
            optimizer.zero_grad()
            (model(x).square().sum() / 5).backward()
            norms.append(float(clip(model.parameters(), 1.0)))
            optimizer.step()
        return norms, optimizer

    norms, alone = steps(whole, x, nn.utils.clip_grad_norm_)
    moments = {
        f"{name}.exp_avg": alone.state[p]["exp_avg"].numpy() for name, p in whole.named_parameters()
    }

    def program(group):
        mesh = grid(group)
        model = dt.parallelize_module(copy.deepcopy(begin), mesh["tp"], plan)
        if divided:
            for part in (*model, model):
                dt.fully_shard(part, mesh, "dp", fold="sum")
        else:
            dt.data_parallel(model, mesh, "dp", fold="sum")
        mine = x.tensor_split(mesh.shape[0])[mesh.coords[0]]
        found, optimizer = steps(model, mine, dt.clip_grad_norm_)
        arrays = dt.module_state(model, mesh)
        state = dt.optimizer_state(optimizer, model)
        return (
            found,
            {n: a.full() for n, a in arrays.items()},
            {n: a.full() for n, a in state.items()},
        )

    for found, arrays, state in world.run(ranks, program):
        np.testing.assert_allclose(found, norms, rtol=1e-12)
        same(arrays, values(whole))
        same(state, moments)


def test_replicated_gradients_on_a_grid(world, ranks):
    """Of what both dimensions replicate, all ranks have the same gradient, bit for bit."""
    torch.manual_seed(3)
    begin = Feed()
    x = torch.randn(12, 6)

    def program(group):
        mesh = grid(group)
        plan = {"up": dt.ColwiseParallel(), "down": dt.RowwiseParallel()}
        model = dt.parallelize_module(copy.deepcopy(begin), mesh["tp"], plan)
        dt.data_parallel(model, mesh, "dp")
        model(x.tensor_split(mesh.shape[0])[mesh.coords[0]]).square().mean().backward()
        grads = [p.grad.numpy() for p in (model.norm.weight, model.norm.bias, model.down.bias)]
        return group.allgather_object(grads)

    for told in world.run(ranks, program):
        for grads in told[1:]:
            for grad, first in zip(grads, told[0], strict=True):
                np.testing.assert_array_equal(grad, first)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.heads = nn.MultiheadAttention(8, 4, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.heads(y, y, y, need_weights=False)[0]


def test_packed_attention_on_a_grid(world, ranks):
    """Queries, keys and values in one weight: heads are cut by one dimension, rows by the other."""
    torch.manual_seed(4)
    begin = Attention().double()
    x = torch.randn(4, 5, 8, dtype=torch.float64)

    def step(model, x):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            (model(x).square().sum() / 4).backward()
            optimizer.step()

    whole = copy.deepcopy(begin)
    step(whole, x)

    def program(group):
        mesh = grid(group)
        plan = {"heads": dt.AttentionParallel()}
        model = dt.parallelize_module(copy.deepcopy(begin), mesh["tp"], plan)
        dt.fully_shard(model, mesh, "dp", fold="sum")
        step(model, x.tensor_split(mesh.shape[0])[mesh.coords[0]])
        return {name: array.full() for name, array in dt.module_state(model).items()}

    for arrays in world.run(ranks, program):
        same({n: arrays[n].reshape(v.shape) for n, v in values(whole).items()}, values(whole))


def test_hybrid(world, ranks):
    """Divided along one dimension, replicated along the other."""

    def program(group):
        mesh = grid(group)
        model = dt.data_parallel(
            dt.fully_shard(net(), mesh, "tp", fold="sum"), mesh, "dp", fold="sum"
        )
        with da.config.override(check=True):  # the ranks compare their calls
            train(model, *mine(group, *batch()))
        return {name: array.full() for name, array in dt.module_state(model).items()}

    for arrays in world.run(ranks, program):
        same(arrays, alone())


@pytest.mark.counts(lambda n: n > 1)
def test_early_optimizers_and_lost_memory(world, ranks):
    """An optimizer made before goes on, with its state cut; p.data of another shape is named."""

    def program(group):
        early, late = nn.Linear(3, 6), nn.Linear(3, 6)
        optimizer = torch.optim.AdamW(early.parameters())
        dt.fully_shard(early, line(group))
        early(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        assert {s["exp_avg"].shape for s in optimizer.state.values()} == {
            p.to_local().shape for p in early.parameters()
        }
        stepped = torch.optim.AdamW(late.parameters())
        late(torch.ones(1, 3)).sum().backward()
        stepped.step()
        stepped.zero_grad()
        dt.fully_shard(late, line(group))
        late(torch.ones(1, 3)).sum().backward()
        stepped.step()
        kept = [stepped.state[p]["exp_avg"].shape for p in late.parameters()]
        assert kept == [p.to_local().shape for p in late.parameters()]
        with pytest.raises(RuntimeError, match="over all ranks"):
            early.weight.data = torch.zeros(7, 3)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n == 1)
def test_compiled_modules_are_refused(world, ranks):
    """Compiled, their gradients were zeros, in silence."""

    def program(group):
        model = dt.fully_shard(nn.Linear(2, 2), line(group))
        with pytest.raises(RuntimeError, match="cannot be compiled"):
            torch.compile(model, backend="eager")(torch.ones(1, 2))
        model(torch.ones(1, 2)).sum().backward()
        return model.weight.grad

    for grad in world.run(ranks, program):
        assert torch.equal(grad, torch.ones(2, 2))
