"""Gradients averaged over a mesh dimension, and parameters divided over it."""

from __future__ import annotations

import copy
import functools
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402
from distarray.errors import DivergenceError, LayoutError  # noqa: E402

nn = torch.nn


class Net(nn.Module):
    """One of everything: an embedding, layers, a recurrent one, a number, an unused and a frozen
    layer, and a weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.middle = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 6))
        self.memory = nn.LSTM(6, 5, batch_first=True)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.head = nn.Linear(5, 6)
        self.out = nn.Linear(6, 11)
        self.out.weight = self.words.weight
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(11, 11).requires_grad_(False)

    def forward(self, x):
        y = self.words(x)
        y = y + self.middle(y)
        y, _ = self.memory(y)
        return self.frozen(self.out(self.head(y[:, -1]) * self.scale))


@functools.cache
def start() -> Net:
    torch.manual_seed(0)
    return Net().double()


def net() -> Net:
    return copy.deepcopy(start())


def batch(rows: int = 5):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 11, (rows, 4), generator=generator)
    return x, torch.randint(0, 11, (rows,), generator=generator)


def loss_of(model, x, t, count):
    return nn.functional.cross_entropy(model(x), t, reduction="sum") / count


def train(model, x, t, count=5, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, x, t, count).backward()
        optimizer.step()
    return model


def mine(group, *tensors, device="cpu"):
    return [t.tensor_split(group.size)[group.rank].to(device) for t in tensors]


def line(group):
    return da.DeviceMesh(group, (group.size,))


def sharded(model, mesh, **options):
    for part in (model.middle, model.memory, model):
        dt.fully_shard(part, mesh, fold="sum", **options)
    return model


@functools.cache
def alone():
    """What one process learns."""
    return values(train(net(), *batch()))


def values(model):
    return {name: p.detach().cpu().numpy().copy() for name, p in model.named_parameters()}


def full(model):
    return {name: array.full() for name, array in dt.module_state(model).items()}


def same(found, expected, **tolerance):
    tolerance = tolerance or {"rtol": 1e-10, "atol": 1e-12}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **tolerance)


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


def test_on_a_device(world, ranks, device):
    """Replicas and parts whose tensors live elsewhere, in single precision."""

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


# -- parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [None, True])
def test_parts_train_as_one_process(world, ranks, keep):
    """Parameters with fewer rows than ranks, and a number, are among them."""

    def program(group):
        again = None if keep is None else not keep
        model = sharded(net(), line(group), reshard_after_forward=again)
        count = sum(p.numel() for p in model.parameters())
        train(model, *mine(group, *batch()))
        optimizer = torch.optim.Adagrad(model.parameters())
        kept = sum(s["sum"].numel() for s in optimizer.state.values())
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


def full_gradient(p, module, name, group):
    """A divided parameter's gradient, whole."""
    layout = dt.module_state(module)[name].layout
    array = da.DistArray.from_local(p.grad.numpy(), line(group), layout.placements, layout.shape)
    return array.full()


# -- both -------------------------------------------------------------------------------------


def grid(group):
    """dp and tp; with an odd number of ranks, tp alone or dp alone."""
    shape = {1: (1, 1), 2: (1, 2), 3: (3, 1), 4: (2, 2), 6: (3, 2)}[group.size]
    return da.DeviceMesh(group, shape, ("dp", "tp"))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


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
        refused(TypeError, "cannot be copied", lambda m: copy.deepcopy(divided(m))),
        refused(TypeError, "meta", lambda m: dt.fully_shard(nn.Linear(2, 2, device="meta"), m)),
    ],
)
def test_refused(world, ranks, kind, text, call):
    """The same error on every rank."""

    def program(group):
        with pytest.raises(kind, match=text):
            call(line(group))

    if text == "cannot be copied" and ranks == 1:
        pytest.skip("nothing is divided")
    world.run(ranks, program)


def divided(mesh):
    return dt.fully_shard(nn.Linear(2, 2), mesh)


def test_ranks_with_different_modules(world, ranks):
    if ranks == 1:
        pytest.skip("one rank")

    def program(group):
        for wrap in (dt.data_parallel, dt.fully_shard):
            with pytest.raises(DivergenceError, match="different modules"):
                wrap(nn.Linear(2, 3 if group.rank else 2), line(group))

    world.run(ranks, program)


def test_sparse_gradients_and_reentrant_checkpoints_are_refused(world, ranks):
    if ranks == 1:
        pytest.skip("nothing is averaged")

    def program(group):
        model = dt.data_parallel(nn.Embedding(4, 2, sparse=True), line(group))
        with pytest.raises(TypeError, match="sparse=False"):
            model(torch.tensor([1])).sum().backward()

    world.run(ranks, program)


def test_early_optimizers_and_lost_memory(world, ranks):
    """An optimizer made before goes on if it has made no step; p.data of another shape is named."""

    def program(group):
        early, late = nn.Linear(3, 6), nn.Linear(3, 6)
        optimizer = torch.optim.AdamW(early.parameters())
        dt.fully_shard(early, line(group))
        early(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        assert {s["exp_avg"].shape for s in optimizer.state.values()} == {
            p.shape for p in early.parameters()
        }
        stepped = torch.optim.AdamW(late.parameters())
        late(torch.ones(1, 3)).sum().backward()
        stepped.step()
        stepped.zero_grad()
        dt.fully_shard(late, line(group))
        late(torch.ones(1, 3)).sum().backward()
        with pytest.raises(RuntimeError, match="before its model was distributed"):
            stepped.step()
        early.weight.data = torch.zeros(7, 3)
        with pytest.raises(LayoutError, match="has become a tensor of shape"):
            early(torch.ones(1, 3))

    if ranks == 1:
        pytest.skip("nothing is divided")
    world.run(ranks, program)


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
