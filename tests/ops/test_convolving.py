"""Convolution, correlation and sliding windows across the ends of blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Shard
from distarray.ops import convolving
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
)

windows = np.lib.stride_tricks.sliding_window_view
DTYPES = ("f8", "i8", "c16", "?", "u1")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Also short operands are gathered piece by piece."""
    monkeypatch.setattr(convolving, "REPLICATED_BELOW", 0)
    monkeypatch.setattr(convolving, "PIECE", 4)


@settings(max_examples=15)
@given(data=st.data())
def test_convolution(world, ranks, data):
    mesh_shape = data.draw(mesh_shapes(ranks))
    lengths = st.integers(1, 24)
    a, v = [data.draw(array_values(shape=(data.draw(lengths),), dtypes=DTYPES)) for _ in "av"]
    left, right = [data.draw(recipes(x.shape, mesh_shape, x.dtype)) for x in (a, v)]
    mode = data.draw(st.sampled_from(["full", "same", "valid", 0, 1, 2]))
    spread = data.draw(st.sampled_from([(True, True), (True, False), (False, True)]))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = left.build(a, mesh) if spread[0] else a
        y = right.build(v, mesh) if spread[1] else v
        for function in (np.convolve, np.correlate):
            assert_matches(function(x, y, mode), function(a, v, mode))

    with np.errstate(over="ignore"):
        world.run(ranks, program)


@settings(max_examples=15)
@given(data=st.data())
def test_windows(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "u1"), min_dims=1))
    if not values.size:
        return
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype))
    axes = data.draw(st.lists(st.integers(0, values.ndim - 1), min_size=1, max_size=2))
    rest, shape = list(values.shape), []
    for axis in axes:
        shape.append(data.draw(st.integers(0, rest[axis])))
        rest[axis] -= max(0, shape[-1] - 1)

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        found = windows(x, shape, axes)
        assert_matches(found, windows(values, shape, axes))
        assert_matches(found.sum(-1), windows(values, shape, axes).sum(-1), exact=False)

    world.run(ranks, program)


@pytest.mark.host
def test_windows_cannot_be_written_to(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(np.arange(12.0).reshape(3, 4), mesh, [Shard(0)], src=None)
        if mesh.device_type == "cpu":
            for axis in (0, 1):
                with pytest.raises(ValueError, match="read-only"):
                    windows(x, 2, axis)[0] = 1
        view = windows(x, 2, 1, writeable=True)
        view[:, 0, 0] = 7
        assert np.array_equal(x.full()[:, 0], [7, 7, 7])
        windows(x, 2, 0, writeable=True)[1, 2, 1] = 9
        assert x.full()[2, 2] == 9
        windows(x.T[::2, ::2], (1, 2), writeable=True)[1, 0, 0, 1] = 5
        assert x.full()[2, 2] == 5

    world.run(ranks, program)


BAD = {
    "empty": lambda x: np.convolve(x[:0], x),
    "no kernel": lambda x: np.correlate(x, x[:0]),
    "dimensions": lambda x: np.convolve(x[:, None], x),
    "mode": lambda x: np.convolve(x, x, "most"),
    "too wide": lambda x: windows(x, 99),
    "negative": lambda x: windows(x, -1),
    "axes": lambda x: windows(x, (2, 2)),
    "no such axis": lambda x: windows(x, 2, 4),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(world, ranks, what):
    values = np.arange(10.0)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_same_error(lambda: BAD[what](x), lambda: BAD[what](values))

    world.run(ranks, program)


def test_only_the_margins_travel(world, ranks, monkeypatch):
    """Each rank sends its neighbours what a short kernel reaches to."""
    monkeypatch.undo()
    values, kernel = np.arange(4096.0 * ranks), np.ones(9)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with distarray.trace() as trace:
            found = np.convolve(x, kernel, "same")
        assert_matches(found, np.convolve(values, kernel, "same"))
        return trace.bytes, trace.messages

    for nbytes, messages in world.run(ranks, program):
        assert nbytes <= 64
        assert messages <= 2
