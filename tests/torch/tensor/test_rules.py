"""What operators give for distributed tensors of drawn layouts, beside plain tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import distarray
from distarray import DeviceMesh
from distarray.testing import mesh_shapes, recipes
from tests.torch.models import drawn

#: What is called with one matrix of 6 x 4; all of it has rules, but for what is said to gather.
ONE = {
    "exp": torch.exp,
    "neg": torch.neg,
    "scaled": lambda x: 3 * x / 4 - 1,
    "power": lambda x: x**2,
    "where": lambda x: torch.where(x > 0, x, -1.0),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 2),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "own rows": lambda x: x + x[0],
    "own columns": lambda x: x * x[:, 1:2],
    "to": lambda x: x.to(torch.float32).double().long(),
    "sum": torch.sum,
    "sum 0": lambda x: x.sum(0),
    "sum 1": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean(0),
    "mean of all": torch.mean,
    "product": lambda x: x.prod(1),
    "amax": lambda x: x.amax(0),
    "min of all": torch.min,
    "any": lambda x: (x > 1).any(1),
    "all": lambda x: (x > -9).all(),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(),
    "powers": lambda x: torch.ops.aten.linalg__powsum(x, 3, [0], True),
    "var_mean": lambda x: sum(torch.var_mean(x, 1)),
    "norm": lambda x: (x * x).sum().sqrt(),
    "transposed": lambda x: x.t() + 1,
    "permuted": lambda x: x.reshape(3, 2, 4).permute(2, 0, 1) * 2,
    "flat": lambda x: x.reshape(-1) + 1,
    "split": lambda x: x.reshape(2, 3, 2, 2),
    "merged": lambda x: x.reshape(3, 8),
    "expanded": lambda x: x.unsqueeze(1).expand(6, 2, 4),
    "squeezed": lambda x: x[2:3].squeeze(0),
    "row": lambda x: x[3],
    "element": lambda x: x[3, 2],
    "slices": lambda x: x[1:5:2, 1:],
    "unbound": lambda x: x.unbind(1)[2],
    "chunks": lambda x: x.chunk(4)[1],
    "pieces": lambda x: x.split([1, 3, 2])[1],
    "product with itself": lambda x: x.t() @ x,
    "batches": lambda x: torch.bmm(x.reshape(3, 2, 4), x.reshape(3, 4, 2)),
    "matrix and vector": lambda x: torch.mv(x, x[0]),
    "a number, matrix and vector": lambda x: torch.addmv(x[0, :1], x[:3], x[1]),
    "dot": lambda x: torch.dot(x[1], x[2]),
    "linear": lambda x: functional.linear(x, x[:3], x[0, :3]),
    "linear of three dimensions": lambda x: functional.linear(x.reshape(2, 3, 4), x[:3], x[0, :3]),
    "matmul": lambda x: x.reshape(2, 3, 4) @ x.reshape(2, 4, 3),
    "turned elsewhere": lambda x: x.reshape(3, 2, 4)[1].t().unsqueeze(1).squeeze(()) * 2,
    "softmax": lambda x: x.softmax(0),
    "softmax of nothing": lambda x: x[:, :0].softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "zeros_like": torch.zeros_like,
    "new_ones": lambda x: x.new_ones(6, 4) * 2,
    "view as complex": lambda x: torch.view_as_complex(x.contiguous().view(6, 2, 2)).abs(),
    "gathered": lambda x: x.logcumsumexp(1),
    "sorted": lambda x: x.sort(0)[0],
}
#: Without a gradient.
WITHOUT = {"to", "any", "all", "powers", "zeros_like", "new_ones"}


@pytest.mark.parametrize("name", ONE)
@given(data=st.data())
def test_operators(world, ranks, name, data):
    values = drawn(6, 4).numpy()
    shape = data.draw(mesh_shapes(ranks))
    kinds = ("plain", "ragged", "transposed", "partial")
    recipe = data.draw(recipes(values.shape, shape, "f8", kinds))
    call = ONE[name]
    plain = torch.from_numpy(values.copy()).requires_grad_()
    wanted = call(plain)
    if name not in WITHOUT:
        weights = drawn(*wanted.shape, seed=3)
        (wanted * weights).sum().backward()

    def program(group):
        x = recipe.build(values, DeviceMesh(group, shape)).to_tensor()
        with distarray.config.override(fallback="allow"):
            found = call(x)
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype
            assert found.dist_layout.local_shape(x.mesh.coords) == tuple(found.to_local().shape)
            torch.testing.assert_close(found.full_tensor(), wanted.detach())
            if name in WITHOUT:
                return
            leaf = x.requires_grad_()
            loss = (call(leaf).full_tensor() * weights).sum()
            loss.backward()
            torch.testing.assert_close(leaf.grad.full_tensor(), plain.grad)

    world.run(ranks, program)


GATHERS = {"gathered", "sorted"}


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", [name for name in ONE if name not in GATHERS])
def test_what_has_a_rule_does_not_gather(world, ranks, name):
    values = drawn(6, 4).numpy()

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for dim in (0, 1):
            x = distarray.distribute(values, mesh, [distarray.Shard(dim)], src=None).to_tensor()
            with distarray.config.override(fallback="error"):
                ONE[name](x)

    world.run(ranks, program)


CHANGES = {
    "add_": lambda x: x.add_(1),
    "mul_ by a row": lambda x: x.mul_(x[0].clone()),
    "assign a row": lambda x: x.__setitem__(2, x[1].clone()),
    "assign slices": lambda x: x.__setitem__((slice(1, 5), 2), 7),
    "fill a column": lambda x: x[:, 1].fill_(3),
    "zero a piece": lambda x: x.t()[1:3].zero_(),
    "through a view": lambda x: x.view(-1)[5:17].mul_(2),
    "through a moved view": lambda x: x.view(3, 8).select(1, 5).add_(1),
    "copy": lambda x: x.copy_(x.sum(0)),
    "addmm_": lambda x: x.addmm_(x.clone(), x[:4].clone(), beta=0.5),
    "gathers": lambda x: x.cumsum_(0),
    "one by one": lambda x: [row.mul_(n) for n, row in enumerate(x.unbind(0))],
    "out": lambda x: torch.add(x, x, out=x),
}


@pytest.mark.parametrize("name", CHANGES)
@given(data=st.data())
def test_changes_in_place(world, ranks, name, data):
    values = drawn(6, 4).numpy()
    shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, shape, "f8", ("plain", "ragged", "partial")))
    wanted = torch.from_numpy(values.copy())
    CHANGES[name](wanted)

    def program(group):
        x = recipe.build(values.copy(), DeviceMesh(group, shape)).to_tensor()
        x, layout = x.clone(), x.dist_layout
        flat = x.reshape(-1)
        with distarray.config.override(fallback="allow"):
            CHANGES[name](x)
        assert x.dist_layout is layout
        torch.testing.assert_close(x.full_tensor(), wanted)
        torch.testing.assert_close(flat.full_tensor(), wanted.reshape(-1))

    world.run(ranks, program)


def test_a_reshape_below_autograd_copies_as_torch_does(world, ranks):
    """Where rules call it, torch does not take it apart first; parts may lie otherwise."""
    values = drawn(1, 9, 2, 2)
    order, shape = (0, 1, 4, 2, 5, 3), (1, 1, 6, 6)
    wanted = values.view(1, 1, 3, 3, 2, 2).permute(order).reshape(shape)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for dim in range(4):
            x = distarray.distribute(
                values.numpy(), mesh, [distarray.Shard(dim)], src=None
            ).to_tensor()
            with torch._C._AutoDispatchBelowAutograd():
                found = x.view(1, 1, 3, 3, 2, 2).permute(order).reshape(shape)
                flat = x.reshape(9, -1)
            torch.testing.assert_close(found.full_tensor(), wanted)
            torch.testing.assert_close(flat.full_tensor(), values.reshape(9, 4))

    world.run(ranks, program)
