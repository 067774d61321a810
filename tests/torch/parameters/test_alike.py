"""Equal on all ranks: replicated inputs, dropout, running statistics."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402
from distarray import Replicate, Shard  # noqa: E402
from distarray.errors import DivergenceError, LayoutError  # noqa: E402
from tests.everywhere import raises_everywhere  # noqa: E402
from tests.torch.models import TOY_PLAN, ToyModel, close, drawn, filled, line  # noqa: E402

# -- plain tensors that count as replicated ------------------------------------------------------


def plan(group):
    return dt.parallelize_module(filled(ToyModel()), line(group), TOY_PLAN)


#: What takes a tensor of ten numbers that has to be the same on all ranks.
TAKERS = {
    "plan": plan,
    "dropout": lambda group: dt.parallelize_module(
        nn.Sequential(nn.Dropout(0.5), nn.Linear(10, 4)), line(group), {"1": dt.ColwiseParallel()}
    ),
    "from_torch": lambda group: (
        lambda x: dt.from_torch(x, mesh=line(group), placements=[Replicate()])
    ),
    "from_local": lambda group: (
        lambda x: da.DistArray.from_local(x.numpy(), line(group), [Replicate()], check=True)
    ),
    "DistTensor": lambda group: lambda x: dt.DistTensor.from_local(x, line(group), [Replicate()]),
    "copy_to": lambda group: lambda x: dt.copy_to(x, line(group)),
    "scatter_to": lambda group: lambda x: dt.scatter_to(x, line(group)),
}


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("taker", TAKERS)
def test_replicated_inputs_that_differ(world, ranks, taker):
    """Under config.check an error on all ranks that names the odd one."""

    def program(group):
        take = TAKERS[taker](group)
        if isinstance(take, nn.Module):
            take = take.double()
        odd = group.rank == group.size - 1
        with da.config.override(check=True):
            take(torch.ones(10, dtype=torch.float64))
            words = rf"rank {group.size - 1} .*checksum"
            raises_everywhere(group, DivergenceError, lambda: take(drawn(10, seed=int(odd))), words)

    world.run(ranks, program)


class Dropping(nn.Module):
    """Dropout by a function, of activations that all ranks have."""

    def __init__(self):
        super().__init__()
        self.first, self.second = ToyModel(), nn.Linear(5, 5)

    def forward(self, x):
        return self.second(functional.dropout(self.first(x), 0.5, self.training))


DROPPING_PLAN = {f"first.{name}": style for name, style in TOY_PLAN.items()}


def test_functions_that_draw_draw_alike(world, ranks):
    """Whatever the ranks' own seeds, and when a checkpoint runs the model again."""
    if world.name == "threads":
        pytest.skip("threads have one generator of torch's between them; mpiexec runs this")

    def program(group):
        mesh, x = line(group), drawn(4, 10).requires_grad_()
        model = dt.parallelize_module(filled(Dropping()), mesh, DROPPING_PLAN)
        torch.manual_seed(100 + group.rank)
        dt.manual_seed(3, mesh)
        found = [model(x) for _ in range(3)]
        told = group.allgather_object([y.tolist() for y in found])
        assert all(other == told[0] for other in told)
        assert not torch.equal(found[0], found[1])
        (wanted,) = torch.autograd.grad(found[0].square().sum(), x)
        for reentrant in (False, True):
            dt.manual_seed(3, mesh)
            again = checkpoint(model, x, use_reentrant=reentrant)
            assert torch.equal(again, found[0])
            x.grad = None
            again.square().sum().backward()
            assert close(x.grad, wanted)
        first, second = x.detach(), 2 * x.detach()
        (model(first) + model(second)).sum().backward()
        wanted = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        dt.manual_seed(5, mesh)
        both = [checkpoint(model, y, use_reentrant=False) for y in (first, second)]
        sum(both).sum().backward()  # each is repeated as it was
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        dt.manual_seed(5, mesh)
        (model(first) + model(second)).sum().backward()
        plain = [p.grad.clone() for p in model.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(found, plain))
        assert not all(torch.equal(a, b) for a, b in zip(found, wanted))
        told = group.allgather_object(torch.rand(3).tolist())
        assert len({*map(tuple, told)}) == group.size  # the program's own numbers are the rank's

    world.run(ranks, program)


# -- buffers -------------------------------------------------------------------------------------


def normed():
    return filled(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)))


WRAPS = {
    "data_parallel": dt.data_parallel,
    "fully_shard": dt.fully_shard,
    "of layers": lambda m, mesh: [dt.fully_shard(p, mesh) for p in (m[0], m[1], m)][-1],
}


def statistics(model):
    return [model[1].running_mean.tolist(), model[1].running_var.tolist()]


@pytest.mark.parametrize("wrap", WRAPS)
def test_running_statistics(world, ranks, wrap, tmp_path_factory):
    """The first rank's, as with torch's own: where a model is evaluated, and in what is saved."""
    batches = drawn(4, 4 * ranks, 4)
    directory = str(tmp_path_factory.mktemp("statistics"))
    first = normed()  # what the first rank alone would see
    for batch in batches[:3]:
        first(batch[:4])

    def program(group):
        mine = slice(4 * group.rank, 4 * group.rank + 4)
        path = group.broadcast_object(directory) + f"/{ranks}"
        model = WRAPS[wrap](normed(), line(group))
        for batch in batches[:3]:
            model(batch[mine]).square().mean().backward()
        model.eval()
        with da.trace() as book:
            seen = model(batches[3])
        evaluated = group.allgather_object([seen.tolist(), statistics(model)])
        model.train()
        with torch.no_grad():
            model(batches[3][mine])  # no backward pass follows: equal when it is saved
        da.checkpoint.save(path, {"model": model})
        loaded = normed()
        da.checkpoint.load(path, {"model": loaded})
        saved = group.allgather_object([statistics(model), statistics(loaded)])
        twice = model(batches[3][mine])
        twice.sum().backward(retain_graph=True)
        twice.square().sum().backward()  # is not refused for what was written in between
        return evaluated, saved, book.messages

    for told in filter(None, world.run(ranks, program)):
        evaluated, saved, messages = told
        assert all(other == evaluated[0] for other in evaluated)
        assert all(other == saved[0] for other in saved) and saved[0][0] == saved[0][1]
        assert np.allclose(evaluated[0][1][0], first[1].running_mean.tolist())
        assert np.allclose(evaluated[0][1][1], first[1].running_var.tolist())
        assert messages == 0 or wrap != "data_parallel"


# -- what one rank brings ------------------------------------------------------------------------


def test_arrays_can_be_written_to_on_all_ranks_or_on_none(world, ranks):
    """A part without elements was read-only, and so was one rank's expanded tensor."""

    def program(group):
        mesh, last = line(group), group.rank == group.size - 1
        empty = dt.from_torch(torch.ones(0 if last else 2, 4), mesh=mesh, placements=[Shard(0)])
        empty[...] = 5
        assert np.array_equal(empty.full(), np.full((2 * group.size - 2, 4), 5))
        odd = torch.ones(1, 4).expand(3, 4) if last else torch.ones(3, 4)
        locked = dt.from_torch(odd, mesh=mesh, placements=[Shard(0)])
        flags = group.allgather_object(locked.to_local().flags.writeable)

        def write():
            locked[...] = 5

        raises_everywhere(group, ValueError, write, "read-only")
        return flags

    for flags in filter(None, world.run(ranks, program)):
        assert not any(flags)


@pytest.mark.counts(lambda n: n > 1)
def test_ranks_outside_of_the_mesh_that_distribute(world, ranks):
    """They learn the shape from what they bring, or are told that they have to."""

    def program(group):
        mesh = da.DeviceMesh(group, (group.size - 1,), ranks=list(range(group.size - 1)))
        outside = mesh.coords is None
        for make in (da.distribute, lambda x, *a: dt.distribute_tensor(torch.from_numpy(x), *a)):
            x = make(np.arange(6.0), mesh, [Shard(0)], 0)
            assert x.shape == (6,)
            assert str(x.dtype).endswith("float64")
        bring = lambda: da.distribute(  # noqa: E731
            None if outside else np.arange(6.0), mesh, [Shard(0)], 0
        )
        if outside:
            with pytest.raises(LayoutError, match="outside of"):
                bring()
        else:
            bring()

    world.run(ranks, program)


@pytest.mark.parametrize("bias", [False, True])
def test_packed_weights_are_saved_in_torchs_shape(world, ranks, bias, tmp_path_factory):
    """By a parallel model for a plain one and back, and so is what an optimizer keeps of them."""
    directory = str(tmp_path_factory.mktemp("packed"))
    x = drawn(3, 5, 8)
    start = filled(nn.MultiheadAttention(8, 4, batch_first=True, bias=bias))

    def step(model, optimizer):
        optimizer.zero_grad()
        model(x, x, x, need_weights=False)[0].square().mean().backward()
        optimizer.step()

    def program(group):
        path = group.broadcast_object(directory) + f"/{ranks}"

        def made(seed, parallel):
            model = copy.deepcopy(start) if seed is None else filled(copy.deepcopy(start), seed)
            if parallel:
                dt.parallelize_module(model, line(group), dt.AttentionParallel())
            return model, torch.optim.Adam(model.parameters(), lr=0.1)

        for there in (True, False):
            model, optimizer = made(None, there)
            step(model, optimizer)
            da.checkpoint.save(path, {"model": model, "optimizer": optimizer})
            step(model, optimizer)
            for here in (True, False):
                other, again = made(7, here)
                if here:
                    step(other, again)
                da.checkpoint.load(path, {"model": other, "optimizer": again})
                step(other, again)
                assert close(other(x, x, x)[0], model(x, x, x)[0].detach())

    world.run(ranks, program)
