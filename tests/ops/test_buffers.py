"""Arrays over memory that others lend: buffers, tensors, objects that give their own arrays."""

import numpy as np
import pytest

import distarray.numpy as dnp
from distarray.config import config
from distarray.layout import Shard
from distarray.testing import assert_matches

OVER_BUFFERS = {
    "frombuffer": dnp.frombuffer,
    "ndarray": lambda buffer: dnp.ndarray((10,), float, buffer),
    "asarray": lambda buffer: dnp.asarray(memoryview(buffer).cast("d")),
    "array": lambda buffer: dnp.array(memoryview(buffer).cast("d"), copy=False),
}


@pytest.mark.host
@pytest.mark.parametrize("make", OVER_BUFFERS)
def test_a_buffer_is_not_copied(world, ranks, make):
    """Only a part of what was written to a cut array was in each rank's buffer."""

    def program(group):
        buffer = bytearray(np.arange(10.0).tobytes())
        values, x = np.frombuffer(buffer), OVER_BUFFERS[make](buffer)
        values += 1
        assert_matches(x, values)
        x[1:] = 0
        x += np.arange(10.0)
        np.testing.assert_array_equal(values, [1, *range(1, 10)])
        assert_matches(x, values)

    for limit in (0, 1 << 20):
        with config.override(replicate_below=limit):
            world.run(ranks, program)


class Lender:
    """An object of another library's, which gives its own memory."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __dlpack__(self, **how):
        return self.values.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Copier(Lender):
    """One that gives copies."""

    def __array__(self, dtype=None, copy=None):
        return self.values.copy()


SHARING = {
    "asarray": lambda values: dnp.asarray(Lender(values)),
    "ascontiguousarray": lambda values: dnp.ascontiguousarray(Lender(values)),
    "a view": lambda values: dnp.asarray(Lender(values[:])),
    "what an array is a view of": lambda values: dnp.asarray(
        np.ctypeslib.as_array(np.ctypeslib.as_ctypes(values))
    ),
    "from_dlpack": lambda values: dnp.from_dlpack(Lender(values)),
    "a tensor": lambda values: dnp.asarray(tensor(values)),
    "a tensor's array": lambda values: dnp.asarray(tensor(values).numpy()),
    "a tensor by DLPack": lambda values: dnp.from_dlpack(tensor(values)),
}


def tensor(values):
    return pytest.importorskip("torch").from_numpy(values)


@pytest.mark.host
@pytest.mark.parametrize("make", SHARING)
def test_what_others_lend_is_shared(world, ranks, make):
    """Writes to a cut copy would not reach a tensor, though they do on one rank."""

    def program(group):
        values = np.arange(10.0)
        x = SHARING[make](values)
        x[1:] *= 2
        values[0] = 7
        np.testing.assert_array_equal(values, [7, *range(2, 20, 2)])
        assert_matches(x, values)

    with config.override(replicate_below=0):
        world.run(ranks, program)


COPYING = {
    "a copy": lambda values: dnp.asarray(Copier(values)),
    "array": lambda values: dnp.array(Lender(values)),
    "another type": lambda values: dnp.asarray(Lender(values), "f4"),
    "a part": lambda values: dnp.asarray(Lender(values), placements=[Shard(0)]),
    "the program's array": dnp.asarray,
    "a copy by DLPack": lambda values: dnp.from_dlpack(Lender(values), copy=True),
    "a list": lambda values: dnp.asarray(values.tolist()),
}


@pytest.mark.host
@pytest.mark.parametrize("make", COPYING)
def test_what_is_copied_is_cut(world, make):
    ranks = world.ranks[-1]

    def program(group):
        x = COPYING[make](np.arange(10.0))
        assert x.placements == (Shard(0),)
        assert_matches(x, np.arange(10.0).astype(x.dtype))

    with config.override(replicate_below=0):
        world.run(ranks, program)


def test_what_nobody_writes_to_is_cut(world, ranks):
    """So are parts of a buffer that are asked for."""

    def program(group):
        raw = np.arange(10.0).tobytes()
        for x in (
            dnp.frombuffer(raw),
            dnp.frombuffer(bytearray(raw), placements=[Shard(0)]),
            dnp.asarray(memoryview(raw).cast("d")),
            dnp.array(memoryview(bytearray(raw)).cast("d")),
        ):
            assert x.placements == (Shard(0),)
            assert_matches(x, np.arange(10.0))

    with config.override(replicate_below=0):
        world.run(ranks, program)
