"""torch's forward derivatives, many gradients at once, and what writes down a program."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.functional import hessian, jacobian
from torch.func import grad, jacfwd, jacrev, jvp, linearize, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import drawn, line

# What torch does where it first takes a forward derivative.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

LAYOUTS = ([Shard(0)], [Shard(1)], [Replicate()])


def _spread(mesh, placements, *shape):
    whole = drawn(*shape)
    if len(shape) == 1 and placements == [Shard(1)]:
        placements = [Shard(0)]
    return dt.distribute_tensor(whole, mesh, placements, src=None)


def _duals(x, w):
    with forward_ad.dual_level():
        moving = forward_ad.make_dual(x, 2 * x)
        found = forward_ad.unpack_dual((moving @ w).relu().sum(0))
        return found.primal, found.tangent


#: Of a matrix of 7 x 5 and one of 5 x 3; only one of them has a derivative.
FORWARD = {
    "one factor": lambda x, w: jvp(lambda x: x @ w, (x,), (2 * x,)),
    "the other": lambda x, w: jvp(lambda w: (x @ w).tanh(), (w,), (w,)),
    "a scaled row": lambda x, w: jvp(lambda x: (x * w.t()[0]).softmax(0), (x,), (x,)),
    "jacfwd": lambda x, w: jacfwd(lambda w: (x @ w).sum(0))(w),
    "dual numbers": _duals,
    "vectors": lambda x, w: jacobian(
        lambda w: (x @ w).sin().sum(0), w, vectorize=True, strategy="forward-mode"
    ),
}


def _listed(found):
    found = found if isinstance(found, tuple) else (found,)
    return [x.full_tensor() if hasattr(x, "full_tensor") else x for x in found]


@pytest.mark.parametrize("name", FORWARD)
def test_derivatives_of_one_operand(world, ranks, name):
    """torch puts zeros of its own in the place of the other's; threads would share its level."""

    def program(group):
        wanted = None
        for placements in LAYOUTS:
            x, w = (_spread(line(group), placements, *shape) for shape in ((7, 5), (5, 3)))
            if world.name == "threads" and group.size > 1:
                with pytest.raises(RuntimeError, match=r"forward derivatives .* mpiexec"):
                    FORWARD[name](x, w)
                group.barrier()
                continue
            if wanted is None:
                wanted = FORWARD[name](drawn(7, 5), drawn(5, 3))
            with distarray.config.override(fallback="allow"):
                found = _listed(FORWARD[name](x, w))
            torch.testing.assert_close(found, _listed(wanted))

    world.run(ranks, program)


#: Of a vector of 5, and a matrix of 5 x 5.
AT_ONCE = {
    "gradients": lambda y, e: torch.autograd.grad(y**2, y, e, is_grads_batched=True),
    "mapped": lambda y, e: vmap(lambda v: torch.autograd.grad(y**2 * y.sum(), y, v)[0])(e),
    "jacrev": lambda y, e: jacrev(lambda y: (y**2 * e).sort(0)[0].sum(1))(y),
    "jacobian": lambda y, e: jacobian(lambda y: y**2 * y.sum(), y, vectorize=True),
    "hessian": lambda y, e: hessian(lambda y: (y**2 * y.sum()).sum(), y, vectorize=True),
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_many_gradients_at_once(world, ranks, name):
    def program(group):
        wanted = AT_ONCE[name](drawn(5).requires_grad_(), drawn(5, 5))
        for placements in LAYOUTS:
            y, e = (_spread(line(group), placements, *shape) for shape in ((5,), (5, 5)))
            with distarray.config.override(fallback="allow"):
                found = AT_ONCE[name](y.requires_grad_(), e)
            torch.testing.assert_close(_listed(found), _listed(wanted))

    world.run(ranks, program)


@pytest.mark.parametrize("transform", [grad, jacrev, vmap])
def test_within_a_transform_a_tensor_has_torchs_methods_alone(world, ranks, transform):
    def program(group):
        x = _spread(line(group), [Shard(0)], 7, 5)
        with pytest.raises(AttributeError, match="redistribute"):
            transform(lambda x: x.redistribute([Replicate()]).sum())(x)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_gradients_at_once_through_an_exchange_are_refused(world, ranks):
    def program(group):
        y = _spread(line(group), [Shard(0)], 5).requires_grad_()
        whole = y.redistribute([Replicate()]) ** 2
        with pytest.raises(RuntimeError, match=r"torch\.func's transforms"):
            torch.autograd.grad(
                whole, y, _spread(line(group), [Shard(0)], 5, 5), is_grads_batched=True
            )

    world.run(ranks, program)


def test_programs_that_are_written_down(world, ranks):
    """Tensors that are not arguments would become constants, and the numbers wrong."""
    if world.name == "threads" and ranks > 1:
        pytest.skip("tracing has one state in a process")

    def program(group):
        x, other = (_spread(line(group), [Shard(0)], 7, 5) for _ in range(2))
        written = make_fx(lambda x: (x * 2).sin().sum(0))(x)
        torch.testing.assert_close(
            written(other + 1).full_tensor(), ((drawn(7, 5) + 1) * 2).sin().sum(0)
        )
        columns = dt.distribute_tensor(drawn(3, 5), line(group), [Shard(1)], src=None)
        torch.testing.assert_close(written(columns).full_tensor(), (drawn(3, 5) * 2).sin().sum(0))
        sloped = make_fx(grad(lambda x: (x.sin() ** 2).sum()))(x)
        torch.testing.assert_close(sloped(other).full_tensor(), (2 * drawn(7, 5)).sin())
        with pytest.raises(RuntimeError, match="not among the function's arguments"):
            make_fx(lambda x: x * other)(x)
        with pytest.raises(RuntimeError, match="not among the function's arguments"):
            make_fx(lambda x: x.redistribute([Replicate()]) * 2)(x)
        with pytest.raises(RuntimeError, match=r"torch\.func\.jvp"):
            linearize(lambda x: x.sin() * 2, x)

    world.run(ranks, program)
