"""Whole graphs of torch.compile: what talks to other ranks is in them, in the order of the program.

The compiler is one for all threads of a process, so ranks are processes, or there is one.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Partial, Replicate, Shard
from distarray.comm.ledger import trace
from tests.torch.models import close, drawn, line

pytestmark = [
    pytest.mark.mpi,
    # torch's compiler asks tensors of a graph for their gradients, and says so itself.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]

functional = nn.functional


def _written_to(x):
    y = x * 1
    y[1:4] = 0
    y.mul_(3)
    return y.t().sum(1)


def _view_written_to(x):
    y = x * 1
    y[2:5].mul_(2)
    return y + 0


def _entropy(x):
    return functional.cross_entropy(x, x.new_zeros(len(x), dtype=torch.long))


#: Functions of a tensor of seven rows and three columns, which is cut or not.
FUNCTIONS = {
    "pointwise": lambda x: torch.relu(x * 2 + 1) - x.sigmoid(),
    "reductions": lambda x: (x.sum(0) - x[1:3].mean(), x.std(0), x.sum()),
    "products": lambda x: (x.softmax(0) @ x.T, torch.einsum("ij,kj->ik", x, x)),
    "writes": _written_to,
    "writes to views": _view_written_to,
    "views": lambda x: (x[1:3], x.t(), x.reshape(3, 7), x.view(-1)[3:9].reshape(2, 3)),
    "order": lambda x: (x.sort(0)[0], x.flip(0), x.max(0)[0], x.cumsum(0)),
    "joined": lambda x: (torch.cat([x, x * 2]), torch.stack([x, x])),
    "losses": _entropy,
    "norms": lambda x: functional.layer_norm(x.T, (7,)),
    "chosen": lambda x: torch.where(x > 0, x, 0).masked_fill(x > 1, -1.0),
}


def _tuple(found):
    return found if isinstance(found, tuple) else (found,)


def _whole(x):
    return x.full_tensor() if isinstance(x, dt.DistTensor) else x


def _compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_gives_what_one_process_gives(world, ranks, name):
    function, x = FUNCTIONS[name], drawn(7, 3)
    plain = x.clone().requires_grad_()
    wanted = _tuple(function(plain))
    sum((y * y).sum() for y in wanted).backward()

    def program(group):
        for placement in (Shard(0), Shard(1), Replicate()):
            given = dt.distribute_tensor(x, line(group), [placement])
            found = _tuple(_compiled(function)(given))
            assert all(close(_whole(a), b.detach()) for a, b in zip(found, wanted, strict=True))
            given = given.clone().requires_grad_()
            found = _tuple(_compiled(function)(given))
            sum((y * y).sum() for y in found).backward()
            assert all(close(_whole(a), b.detach()) for a, b in zip(found, wanted, strict=True))
            assert close(given.grad.full_tensor(), plain.grad)

    world.run(ranks, program)


def _between_layouts(x):
    mesh = x.device_mesh
    y = x.redistribute(mesh, [Shard(1)]) * 2
    z = y.redistribute(mesh, [Partial()]).sum() + y.to_local().sum() * 0
    return dt.DistTensor.from_local(x.to_local() * 3, mesh, [Shard(0)], shape=x.shape) + z


def _collectives(x):
    mesh, part = x.device_mesh, x.to_local()
    whole = dt.all_gather(part, mesh, dim=0, sizes=x.shape[0])
    own = dt.reduce_scatter(whole * whole, mesh, dim=0)
    total = dt.all_reduce(own.sum(), mesh) + dt.reduce_from(part.sum(), mesh)
    return total + dt.broadcast(whole[:1], mesh).sum() + dt.copy_to(whole, mesh).sum()


@pytest.mark.parametrize("function", [_between_layouts, _collectives])
def test_conversations_of_the_program_are_in_the_graph(world, ranks, function):
    x = drawn(7, 3)

    def program(group):
        one, two = [
            dt.distribute_tensor(x, line(group), [Shard(0)]).requires_grad_() for _ in range(2)
        ]
        found, wanted = _compiled(function)(one), function(two)
        assert close(_whole(found).detach(), _whole(wanted).detach())
        (found * found).sum().backward()
        (wanted * wanted).sum().backward()
        assert close(one.grad.full_tensor(), two.grad.full_tensor())

    world.run(ranks, program)


def test_the_graph_sends_what_the_program_sends(world, ranks):
    """Forward and backward, from the second call on: the first one makes the graph."""

    def attend(x):
        return (x.softmax(0) @ x.T).sum()

    def sent(function, mesh):
        given = dt.distribute_tensor(drawn(7, 3), mesh, [Shard(0)]).requires_grad_()
        with trace() as events:
            function(given).backward()
        return [(event.kind, event.bytes) for event in events.events]

    def program(group):
        mesh, compiled = line(group), _compiled(attend)
        sent(compiled, mesh)
        assert sent(compiled, mesh) == sent(attend, mesh)

    world.run(ranks, program)


def test_drawn_anew_at_each_call(world, ranks):
    def program(group):
        x = dt.distribute_tensor(torch.ones(40, 3), line(group), [Shard(0)])
        drop = _compiled(lambda x: functional.dropout(x, 0.5))
        one, two = drop(x).full_tensor(), drop(x).full_tensor()
        assert set(one.unique().tolist()) == {0.0, 2.0}
        assert not torch.equal(one, two)

    world.run(ranks, program)


def test_other_shapes_and_views_that_have_moved(world, ranks):
    def program(group):
        double = _compiled(lambda x: (x * 2).sum(0))
        for rows in (7, 8, 2, 1):
            x = drawn(rows, 3)
            found = double(dt.distribute_tensor(x, line(group), [Shard(0)]))
            assert close(found.full_tensor(), (x * 2).sum(0))
        x = dt.distribute_tensor(drawn(7, 3), line(group), [Shard(0)])
        view = x.reshape(3, 7)
        once = _compiled(lambda x: x + 1)
        assert close(once(view).full_tensor(), view.full_tensor() + 1)
        x.mul_(5)
        assert close(once(view).full_tensor(), x.full_tensor().reshape(3, 7) + 1)

    world.run(ranks, program)


def test_a_write_to_a_view_that_has_moved_ends_the_graph(world, ranks):
    def write(view):
        view[1:3] = 5
        return view * 2

    def program(group):
        torch._dynamo.reset()
        whole = drawn(7, 3)
        x = dt.distribute_tensor(whole, line(group), [Shard(0)])
        found = torch.compile(write, backend="aot_eager")(x.reshape(3, 7))
        assert close(found.full_tensor(), write(whole.reshape(3, 7)))
        assert close(x.full_tensor(), whole)

    world.run(ranks, program)


def test_views_that_a_graph_returns(world, ranks):
    """Of an argument: written through, or refused. Of what the graph has made: like others."""

    def program(group):
        x = dt.distribute_tensor(drawn(7, 3), line(group), [Shard(0)])
        here, moved, made = _compiled(lambda x: (x[1:3], x.reshape(3, 7), (x * 2).reshape(3, 7)))(x)
        here.mul_(5)
        whole = drawn(7, 3)
        before = whole.clone()
        whole[1:3] *= 5
        assert close(x.full_tensor(), whole)
        moves = ranks > 1  # elsewhere it is a view like the other one
        assert close(moved.full_tensor(), (before if moves else whole).reshape(3, 7))
        if moves:
            with pytest.raises(RuntimeError, match="would not reach the argument"):
                moved.mul_(2)
        assert close(made.add_(1).full_tensor(), (before * 2).reshape(3, 7) + 1)

    world.run(ranks, program)


def test_results_that_nothing_is_computed_from(world, ranks):
    """Autograd makes plain zeros for them, which torch took for a mistake."""

    def program(group):
        x = dt.distribute_tensor(drawn(7, 3), line(group), [Shard(0)]).requires_grad_()
        _, total, _ = _compiled(lambda x: (x * 2, (x * 3).sum(0), x.T.sin()))(x)
        total.sum().backward()
        assert close(x.grad.full_tensor(), torch.full((7, 3), 3.0, dtype=torch.float64))

    world.run(ranks, program)


def test_modules_of_distributed_parameters_are_trained(world, ranks):
    plain = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    for p in plain.parameters():
        p.data.copy_(drawn(*p.shape))
    start = {name: p.detach().clone() for name, p in plain.named_parameters()}
    x = drawn(7, 3)

    def step(model, forward, given):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            forward(given).square().mean().backward()
            optimizer.step()

    step(plain, plain, x)

    def program(group):
        mesh = line(group)
        model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
        for name, value in start.items():
            layer = model.get_submodule(name.rpartition(".")[0])
            cut = dt.distribute_tensor(value.clone(), mesh, [Shard(0)])
            setattr(layer, name.rpartition(".")[2], nn.Parameter(cut))
        step(model, _compiled(model), dt.distribute_tensor(x, mesh, [Shard(0)]))
        for name, p in plain.named_parameters():
            assert close(model.get_parameter(name).full_tensor().detach(), p.detach())

    world.run(ranks, program)


def test_what_asks_for_lengths_of_parts_ends_the_graph(world, ranks):
    """Ranks tell one another the lengths when the graph runs, not when one of them makes it."""

    def function(x):
        return dt.DistTensor.from_local(x.to_local() * 2, x.device_mesh, [Shard(0)]).sum(0)

    def program(group):
        given = dt.distribute_tensor(drawn(7, 3), line(group), [Shard(0)])
        torch._dynamo.reset()
        found = torch.compile(function, backend="aot_eager")(given)
        assert close(found.full_tensor(), 2 * drawn(7, 3).sum(0))
        with pytest.raises(torch._dynamo.exc.Unsupported):
            _compiled(function)(given)

    world.run(ranks, program)
