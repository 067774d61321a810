"""Ufuncs on operands that lie in different ways: what settles, what is sent, what is not."""

import itertools

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Fold, Partial, Replicate, Shard
from distarray.testing import assert_matches

# Casts warn as NumPy's do; ignored here by mark, as catch_warnings is not for several threads.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_linear_maps_keep_sums_pending(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = DistArray.from_local(np.ones((3, 4)), mesh, [Partial()])
        y = DistArray.from_local(np.full((3, 4), 2.0), mesh, [Partial()])
        with distarray.forbid_communication():
            kept = [x + y, x - y, -x, 3 * x, x / 2, x * np.arange(4.0), np.conjugate(x)]
            assert all(z.placements == (Partial(Fold.SUM),) for z in kept)
        p = float(ranks)
        wanted = [p * 3, p * -1, -p, p * 3, p / 2, p * np.arange(4.0), p]
        for found, value in zip(kept, wanted, strict=True):
            np.testing.assert_allclose(found.full(), np.broadcast_to(value, (3, 4)))
        ends = [
            lambda v: v * y,
            lambda v: v + 1,
            np.exp,
            lambda v: v > 2,
            abs,
            lambda v: v / 0,
            lambda v: v * np.inf,
            lambda v: v * [1, np.nan, 2, 3],
            lambda v: v / np.array(0.0),
        ]
        with np.errstate(all="ignore"):
            for end in ends:
                v = DistArray.from_local(np.ones((3, 4)), mesh, [Partial()])
                assert end(v).placements == (Replicate(),)
        with np.errstate(all="ignore"):
            two = DistArray.from_local(np.array([1.0, -3.0 * (group.rank % 2)]), mesh, [Partial()])
            assert_matches(two / [0.0, 1.0], two.full() / [0.0, 1.0])
        small = DistArray.from_local(np.full(3, 100, "i1"), mesh, [Partial()])
        total = small.full()
        again = DistArray.from_local(np.full(3, 100, "i1"), mesh, [Partial()])
        assert (again * 3).placements == (Partial(Fold.SUM),)
        assert_matches(again * 3, total * np.int8(3))
        for call in (lambda v: v * np.int64(2), lambda v: v / 2, lambda v: v * 1.5, lambda v: -v):
            again = DistArray.from_local(np.full(3, 100, "i1"), mesh, [Partial()])
            assert_matches(call(again), call(total))
        z = DistArray.from_local(np.full((3,), 2.0), mesh, [Partial("max")])
        assert_matches(-z, np.full(3, -2.0))

    world.run(ranks, program)


# -- messages ------------------------------------------------------------------------------------


def test_stencil_sends_two_messages_a_sweep(world, ranks):
    def program(group):
        with config.override(replicate_below=0):
            u = dnp.zeros((24 * ranks, 32))
            u[0] = 1.0
            with distarray.trace() as trace:
                for _ in range(5):
                    u[1:-1, 1:-1] += 0.25 * (
                        u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
                    )
        v = np.zeros((24 * ranks, 32))
        v[0] = 1.0
        for _ in range(5):
            v[1:-1, 1:-1] += 0.25 * (
                v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:] - 4 * v[1:-1, 1:-1]
            )
        assert_matches(u, v)
        return trace.messages, trace.bytes

    for messages, sent in world.run(ranks, program):
        assert messages <= 2 * 5
        assert sent <= 2 * 5 * 8 * 32


def test_aligned_operands_send_nothing(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = dnp.ones((7, 5), mesh=mesh, placements=[Shard(0)])
        row, column = np.arange(5.0), np.arange(7.0)[:, None]
        replicated = dnp.arange(5.0, mesh=mesh, placements=[Replicate()])
        with distarray.forbid_communication():
            for y in (x, 2, row, column, replicated, x[:1] * 0 if ranks == 1 else row):
                assert (x + y).layout is x.layout
            v = x[1:-1]
            assert (v * v + 1).layout is v.layout
            v[...] = 3
            np.multiply(x, row, out=x)

    world.run(ranks, program)


def test_misaligned_operands_send_what_is_missing(world):
    ranks = world.ranks[-1]
    if ranks == 1:
        pytest.skip("nothing is missing where one rank has all")

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = dnp.arange(100.0 * ranks, mesh=mesh, placements=[Shard(0)])
        with distarray.trace() as trace:
            y = x[2:] - x[:-2]
        assert_matches(y, np.full(100 * ranks - 2, 2.0))
        return trace.bytes

    for sent in world.run(ranks, program):
        assert sent <= 2 * 8


ALIKE = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "neighbours": lambda x, y: x[1:] - x[:-1],
    "where": lambda x, y: np.where(x > 3, x, y),
    "a row": lambda x, y: x + y[0],
    "a column": lambda x, y: x + y[:, :1],
    "reversed": lambda x, y: np.maximum(x, x[::-1]),
    "turned": lambda x, y: x.T + y.T,
}


@pytest.mark.host
@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("shape", [(9, 8), (8, 12), (12, 5)], ids=str)
def test_ranks_store_results_alike(world, ranks, name, shape):
    """Also where parts of an operand in Fortran order come from others, on some of the ranks."""
    plain = np.arange(float(np.prod(shape))).reshape(shape)

    def program(group):
        mesh, found = DeviceMesh(group), []
        for dims in itertools.product((0, 1), repeat=2):
            x, y = [
                distarray.distribute(values, mesh, [Shard(dim)], src=None)
                for values, dim in zip((np.asfortranarray(plain), plain), dims, strict=True)
            ]
            block = ALIKE[name](x, y).to_local()
            flags = block.flags.c_contiguous, block.flags.f_contiguous
            found.append(flags if min(block.shape) > 1 else None)
        return found

    for told in zip(*world.run(ranks, program), strict=True):
        assert len({flags for flags in told if flags is not None}) <= 1
