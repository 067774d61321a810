"""Views: dimensions in another order, number, direction or extent, and pieces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray.array import distribute, wrap
from distarray.comm import DeviceMesh
from distarray.comm.ledger import forbid_communication, trace
from distarray.config import config
from distarray.layout import At, Layout, Replicate, Shard
from distarray.testing import array_values, assert_matches, assert_same_error, shapes

from .likeness import cases, check, check_view

axis = st.integers(-4, 3)


def drawn_views(data, ndim):
    """A call that gives a view; sometimes of arguments that do not fit."""
    one = st.integers(-ndim - (ndim == 0), max(ndim - 1, 0)) | axis
    some = st.lists(one, max_size=3).map(tuple)
    name = data.draw(
        st.sampled_from(
            ["transpose", "swapaxes", "moveaxis", "rollaxis", "matrix_transpose", "squeeze"]
            + ["expand_dims", "flip", "fliplr", "flipud", "rot90", "atleast", "T"]
        )
    )
    if name == "transpose":
        axes = data.draw(st.none() | st.permutations(range(ndim)).map(tuple) | some)
        return lambda x: np.transpose(x, axes)
    if name == "swapaxes":
        a, b = data.draw(one), data.draw(one)
        return lambda x: np.swapaxes(x, a, b)
    if name == "moveaxis":
        a = data.draw(one | some)
        b = data.draw(one if isinstance(a, int) else some)
        return lambda x: np.moveaxis(x, a, b)
    if name == "rollaxis":
        a, b = data.draw(one), data.draw(axis)
        return lambda x: np.rollaxis(x, a, b)
    if name in ("squeeze", "flip"):
        axes = data.draw(st.none() | one | some)
        return lambda x: getattr(np, name)(x, axes)
    if name == "expand_dims":
        axes = data.draw(st.integers(-ndim - 1, ndim) | some)
        return lambda x: np.expand_dims(x, axes)
    if name == "rot90":
        k, axes = data.draw(st.integers(-5, 5)), data.draw(st.just((0, 1)) | some)
        return lambda x: np.rot90(x, k, axes)
    if name == "atleast":
        return data.draw(st.sampled_from([np.atleast_1d, np.atleast_2d, np.atleast_3d]))
    if name == "T":
        return lambda x: x.T
    return getattr(np, name)


@settings(max_examples=150)
@given(data=st.data())
def test_views(world, data):
    case = data.draw(cases(world))
    check_view(world, case, drawn_views(data, case.operands[0].values.ndim))


@settings(max_examples=60)
@given(data=st.data())
def test_scalars(world, data):
    """The 0-d result of an operation is a scalar, and the shape functions keep or lift it."""
    call = drawn_views(data, 0)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = wrap(np.float64(2.5), Layout.replicated((), mesh.shape), mesh)
        try:
            expected = call(np.float64(2.5))
        except Exception:
            assert_same_error(lambda: call(x), lambda: call(np.float64(2.5)))
        else:
            assert_matches(call(x), expected)

    world.run(world.ranks[-1], program)


@pytest.mark.host
@settings(max_examples=72)
@given(data=st.data())
def test_broadcast_to(world, data):
    case = data.draw(cases(world))
    own = case.operands[0].values.shape
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
    fitting = tuple(lead) + tuple(
        [data.draw(st.integers(0, 4)) if n == 1 and data.draw(st.booleans()) else n for n in own]
    )
    shape = data.draw(st.just(fitting) | st.lists(st.integers(-1, 5), max_size=4).map(tuple))

    def after(found, arrays):
        with pytest.raises(ValueError, match="read-only"):
            found[...] = 0

    check(world, case, lambda x: np.broadcast_to(x, shape), after=after)


@settings(max_examples=48)
@given(data=st.data())
def test_broadcast_arrays(world, data):
    common = data.draw(shapes())
    parts = []
    for _ in range(2):
        shape = [n if data.draw(st.integers(0, 2)) else 1 for n in common]
        parts.append(tuple(shape[data.draw(st.integers(0, len(shape))) :]))
    case = data.draw(cases(world, given=[data.draw(array_values(shape)) for shape in parts]))
    check(world, case, lambda x, y: np.broadcast_arrays(x, y, 3.5))


@settings(max_examples=72)
@given(data=st.data())
def test_pieces(world, data):
    case = data.draw(cases(world, min_dims=0))
    points = data.draw(st.integers(-1, 6) | st.lists(st.integers(-5, 9), max_size=4))
    along = data.draw(st.integers(-3, 3))
    name = data.draw(
        st.sampled_from(["array_split", "split", "hsplit", "vsplit", "dsplit", "unstack"])
    )
    if name == "unstack":
        check(world, case, lambda x: np.unstack(x, axis=along))
    elif name[0] in "hvd":
        check(world, case, lambda x: getattr(np, name)(x, points))
    else:
        check(world, case, lambda x: getattr(np, name)(x, points, along))


def test_pieces_are_views(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(40.0).reshape(10, 4)
        x = distribute(values, mesh, [Shard(0)], src=None)
        with forbid_communication():
            top, bottom = np.vsplit(x, [3])
            bottom[...] = top[0, 0] if group.size == 1 else -1
            np.hsplit(x, 2)[1][...] = 5
        values[3:] = 0 if group.size == 1 else -1
        values[:, 2:] = 5
        assert_matches(x, values)

    world.run(ranks, program)


def test_questions_about_the_shape(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.zeros((5, 3)), mesh, [Shard(0)], src=None)
        with forbid_communication():
            assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, -1)) == ((5, 3), 2, 15, 3)
            assert np.size(x, (0, 1)) == 15
            assert type(np.size(x, 0)) is int
            assert_same_error(lambda: np.size(x, 2), lambda: np.size(np.zeros((5, 3)), 2))

    world.run(ranks, program)


def test_views_send_nothing(world, ranks):
    """Whatever the layout, and also for what one rank holds."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.arange(60.0).reshape(5, 4, 3), mesh, [Shard(0)], src=None)
        with forbid_communication():
            for view in (x, x[2], x[1:4:2], x.T):
                for made in (view.T, np.flip(view), view[None], np.moveaxis(view, 0, 1)):
                    assert (
                        np.shares_memory(made.to_local(), x.to_local()) or not made.to_local().size
                    )
            assert np.squeeze(x[2:3]).placements == x[2].placements
            assert np.broadcast_to(x, (2, 5, 4, 3)).placements == (Shard(1),)
        if group.size > 1:
            assert isinstance(np.squeeze(x[2:3]).placements[0], At)

    world.run(ranks, program)


def test_stretching_one_row_sends_it_once(world, ranks):
    """A sharded dimension of extent 1 that is stretched: its owner sends it to the others."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.arange(12.0).reshape(6, 2), mesh, [Shard(0)], src=None)
        with trace() as t:
            wide = np.broadcast_to(x[:1], (4, 2))
        sent = sum([event.bytes for event in t.events if event.kind != "allreduce"])  # of votes
        assert sent == (16 * (group.size - 1) if group.rank == 0 else 0)
        assert_matches(wide, np.broadcast_to(np.arange(2.0), (4, 2)))

    world.run(ranks, program)


def test_a_large_stretch_of_a_replicated_array_is_divided(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(8.0)
        x = distribute(values, mesh, [Replicate()], src=None)
        with config.override(replicate_below=600), forbid_communication():
            wide = np.broadcast_to(x, (40, 8))
            tall = np.broadcast_to(x[:, None], (8, 40))
        assert wide.placements == (Shard(0),)
        assert tall.placements == (Shard(0),)
        assert_matches(wide, np.broadcast_to(values, (40, 8)))
        assert_matches(tall, np.broadcast_to(values[:, None], (8, 40)))

    world.run(ranks, program)
