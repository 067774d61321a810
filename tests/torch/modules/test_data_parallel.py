"""Gradients averaged over a mesh dimension, and what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402
from distarray.errors import DivergenceError  # noqa: E402
from tests.torch.training import (  # noqa: E402
    alone,
    batch,
    full,
    line,
    loss_of,
    mine,
    net,
    same,
    sharded,
    train,
    values,
)

nn = torch.nn


# -- replicas ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bucket_bytes", [300, 1 << 20])
def test_replicas_train_as_one_process(world, ranks, bucket_bytes):
    """Five rows on up to six ranks: parts differ in size, and one may be empty."""

    def program(group):
        model = dt.data_parallel(net(), line(group), fold="sum", bucket_bytes=bucket_bytes)
        return values(train(model, *mine(group, *batch()))), full(model)

    for result, arrays in world.run(ranks, program):
        same(result, alone())
        same(arrays, alone())


@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
def test_on_a_device(world, ranks, device, monkeypatch):
    """Replicas and parts whose tensors live elsewhere, in single precision."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)

    def program(group):
        replica = dt.data_parallel(net().float().to(device), line(group), fold="sum")
        divided = sharded(net().float().to(device), line(group))
        for model in (replica, divided):
            train(model, *mine(group, *batch(), device=device))
            assert {p.device.type for p in model.parameters()} == {torch.device(device).type}
        return full(replica), full(divided)

    for found in filter(None, world.run(ranks, program)):  # None: a rank that is not asked
        for arrays in found:
            same(arrays, alone(), rtol=1e-3, atol=1e-4)


def test_gradients_are_equal_bit_for_bit(world, ranks):
    def program(group):
        model = dt.data_parallel(net().float(), line(group))
        x, t = mine(group, *batch(12))
        nn.functional.cross_entropy(model(x), t).backward()
        grads = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
        return group.allgather_object(grads)

    for told in world.run(ranks, program):
        for grads in told[1:]:
            assert grads.keys() == told[0].keys()
            for name, grad in grads.items():
                np.testing.assert_array_equal(grad, told[0][name])


def test_buckets_are_sent_while_the_pass_goes_on(world, ranks):
    """Last layers first, and before the first layer's gradient is there."""
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])

    def program(group):
        copied = dt.data_parallel(copy.deepcopy(model), line(group), bucket_bytes=1)
        seen = []
        with da.trace() as book:
            copied[0].weight.register_hook(lambda grad: seen.append(len(book.events)))
            copied(torch.ones(2, 4)).sum().backward()
        return seen[0], len(book.events)

    for before, after in world.run(ranks, program):
        if ranks > 1:
            assert after == 8
            assert 5 <= before <= 7


def test_no_sync_accumulates(world, ranks):
    """Two small batches with one conversation, and two with two, are one large batch."""
    x, t = batch(12)
    whole = net()
    loss_of(whole, x, t, 12).backward()

    def program(group):
        model = dt.data_parallel(net(), line(group), fold="sum")
        first, second = (mine(group, *part) for part in ((x[:7], t[:7]), (x[7:], t[7:])))
        with da.trace() as book, dt.no_sync(model):
            loss_of(model, *first, 12).backward()
        quiet = book.messages
        loss_of(model, *second, 12).backward()
        once = {n: p.grad.numpy().copy() for n, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        loss_of(model, *first, 12).backward()
        loss_of(model, *second, 12).backward()
        twice = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
        return quiet, once, twice

    expected = {n: p.grad.numpy() for n, p in whole.named_parameters() if p.grad is not None}
    for quiet, once, twice in world.run(ranks, program):
        assert quiet == 0
        assert once.keys() == twice.keys() == expected.keys()
        same(once, expected)
        same(twice, expected)


def test_parameters_that_some_ranks_use(world, ranks):
    """Used on one rank: averaged; on none: no gradient, on any rank."""

    class Choice(nn.Module):
        def __init__(self):
            super().__init__()
            self.all, self.one, self.none = (nn.Linear(2, 2, bias=False) for _ in range(3))

        def forward(self, x, chosen):
            return self.all(x) + self.one(x) if chosen else self.all(x)

    def program(group):
        model = dt.data_parallel(Choice(), line(group))
        model(torch.ones(1, 2), group.rank == 0).sum().backward()
        return model.all.weight.grad, model.one.weight.grad, model.none.weight.grad

    for everywhere, once, never in world.run(ranks, program):
        assert torch.equal(everywhere, torch.ones(2, 2))
        assert torch.equal(once, torch.full((2, 2), 1 / ranks))
        assert never is None


def test_thawed_parameters_and_buffers(world, ranks):
    """A parameter that becomes trainable later is averaged; running statistics are rank 0's."""

    def program(group):
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        model[0].requires_grad_(False)
        dt.data_parallel(model, line(group))
        model[0].requires_grad_(True)
        x = torch.full((4, 3), float(group.rank)) + torch.arange(4.0)[:, None]
        for _ in range(2):
            model(x).sum().backward()
        model.eval()
        model.train()
        model(x)
        told = (model[0].weight.grad.tolist(), model[1].running_mean.tolist())
        return told, group.allgather_object(told[0])

    for (grad, _), all_grads in world.run(ranks, program):
        assert all(other == grad for other in all_grads)


def test_bfloat16_and_a_second_dtype(world, ranks):
    def program(group):
        model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
        for p in model.parameters():
            nn.init.ones_(p)
        model[1].bfloat16()
        dt.data_parallel(model, line(group), fold="sum")
        model[1](model[0](torch.ones(1, 2)).bfloat16()).sum().backward()
        return [p.grad for p in model.parameters()]

    for first, second in world.run(ranks, program):
        assert first.dtype is torch.float32
        assert torch.equal(first, torch.full((2, 2), float(ranks)))
        assert second.dtype is torch.bfloat16
        assert torch.equal(second, torch.full((1, 2), 2.0 * ranks, dtype=torch.bfloat16))


# -- what is refused --------------------------------------------------------------------------


def tied_across():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


def refused(kind, text, call):
    return pytest.param(kind, text, call, id=text)


@pytest.mark.parametrize(
    "kind, text, call",
    [
        refused(ValueError, "fold is", lambda m: dt.data_parallel(nn.Linear(2, 2), m, fold="max")),
        refused(
            ValueError, "fold is 'avg'", lambda m: dt.fully_shard(nn.Linear(2, 2), m, fold="x")
        ),
        refused(TypeError, "takes a torch.nn.Module", lambda m: dt.fully_shard(3, m)),
        refused(
            ValueError,
            "data-parallel already",
            lambda m: dt.data_parallel(dt.data_parallel(nn.Linear(2, 2), m), m),
        ),
        refused(
            ValueError,
            "sharded already",
            lambda m: dt.fully_shard(dt.fully_shard(nn.Linear(2, 2), m), m),
        ),
        refused(
            ValueError,
            "max_norm",
            lambda m: dt.fully_shard(nn.Embedding(4, 2, max_norm=1.0), m),
        ),
        refused(
            ValueError, "sparse=False", lambda m: dt.fully_shard(nn.Embedding(4, 2, sparse=True), m)
        ),
        refused(
            ValueError, "is not data-parallel", lambda m: dt.no_sync(nn.Linear(2, 2)).__enter__()
        ),
        refused(
            ValueError,
            "shared with a module",
            lambda m: (dt.fully_shard((t := tied_across())[0], m), dt.fully_shard(t, m)),
        ),
        refused(
            TypeError, "is a SyncBatchNorm", lambda m: dt.data_parallel(nn.SyncBatchNorm(2), m)
        ),
        refused(TypeError, "is a SyncBatchNorm", lambda m: dt.fully_shard(nn.SyncBatchNorm(2), m)),
        refused(TypeError, "meta", lambda m: dt.fully_shard(nn.Linear(2, 2, device="meta"), m)),
    ],
)
def test_refused(world, ranks, kind, text, call):
    """The same error on every rank."""

    def program(group):
        with pytest.raises(kind, match=text):
            call(line(group))

    world.run(ranks, program)


def test_parameters_that_are_computed_for_one_call(world, ranks):
    """A step away on one part of the data, as meta-learning takes it, and the gradient of that."""

    x = torch.linspace(-1, 1, 60, dtype=torch.float64).view(12, 5)

    def small():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()

    def met(model, rows):
        first, second = (x.roll(n, 0)[rows] for n in (0, 1))
        values = dict(model.named_parameters())
        loss = torch.func.functional_call(model, values, (first,)).square().mean()
        grads = torch.autograd.grad(loss, list(values.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(values.items(), grads, strict=True)}
        torch.func.functional_call(model, fast, (second,)).square().mean().backward()
        return [p.grad for p in model.parameters()]

    start = small()
    reference = copy.deepcopy(start)
    for rows in torch.arange(12).chunk(ranks):
        wanted = met(reference, rows)  # the sum

    def program(group):
        model = dt.data_parallel(copy.deepcopy(start), line(group))
        for grad, other in zip(met(model, torch.arange(12).chunk(group.size)[group.rank]), wanted):
            torch.testing.assert_close(grad, other / group.size)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_ranks_with_different_modules(world, ranks):
    def program(group):
        for wrap in (dt.data_parallel, dt.fully_shard):
            with pytest.raises(DivergenceError, match="different modules"):
                wrap(nn.Linear(2, 3 if group.rank else 2), line(group))

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_steps_within_the_backward_pass(world, ranks):
    """They are made with gradients that are not averaged yet; a divided model's are."""

    def program(group):
        def stepping(model):
            for p in model.parameters():
                step = torch.optim.SGD([p], lr=1.0).step
                p.register_post_accumulate_grad_hook(lambda p, step=step: step())
            return model

        x = torch.full((1, 2), float(group.rank))
        model = stepping(dt.data_parallel(nn.Linear(2, 1), line(group)))
        with pytest.raises(RuntimeError, match="before its gradient was averaged"):
            model(x).sum().backward()
        start = nn.Linear(2, 1, bias=False)
        nn.init.ones_(start.weight)
        divided = stepping(dt.fully_shard(start, line(group)))
        divided(x).sum().backward()
        return full(divided)["weight"]

    for weight in filter(lambda w: w is not None, world.run(ranks, program)):
        np.testing.assert_allclose(weight, 1 - (ranks - 1) / 2)


@pytest.mark.counts(lambda n: n > 1)
def test_sparse_gradients_and_reentrant_checkpoints_are_refused(world, ranks):
    def program(group):
        model = dt.data_parallel(nn.Embedding(4, 2, sparse=True), line(group))
        with pytest.raises(TypeError, match="sparse=False"):
            model(torch.tensor([1])).sum().backward()

    world.run(ranks, program)


def test_ranks_outside_of_the_mesh(world, ranks):
    """They keep their modules as they are, and wait for nobody."""

    def program(group):
        mesh = da.DeviceMesh(group, (1,), ranks=[0])
        model = dt.fully_shard(nn.Linear(2, 2), mesh)
        dt.data_parallel(nn.Linear(2, 2), mesh)
        model(torch.ones(1, 2)).sum().backward()
        return model.weight.grad

    for grad in world.run(ranks, program):
        assert torch.equal(grad, torch.ones(2, 2))


def test_a_copy_is_no_replica(world, ranks):
    """Such as the average of a model over its steps: it has parameters and gradients of its own."""

    def program(group):
        model = dt.data_parallel(nn.Linear(2, 1), line(group))
        other = copy.deepcopy(model)
        with da.trace() as book:
            other(torch.ones(1, 2) * group.rank).sum().backward()
        return book.messages, other.weight.grad, model.weight.grad

    for rank, (messages, grad, none) in enumerate(world.run(ranks, program)):
        assert messages == 0
        assert none is None
        if world.name == "threads":
            assert torch.equal(grad, torch.full((1, 2), float(rank)))
