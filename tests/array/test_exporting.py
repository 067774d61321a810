"""Gathering for libraries: a warning at the program's line, a count, a refusal."""

import hashlib
import io
import pickle
import warnings
import zlib
from types import ModuleType

import numpy as np
import pytest

import distarray
from distarray import Replicate, Shard, config, trace
from distarray.array.exporting import QUIET, _told
from distarray.comm import DeviceMesh
from distarray.errors import GatherLimitError, NotDistributedError, PerformanceWarning
from tests.everywhere import raises_everywhere

LIBRARY = """
import numpy

def deep(x, act=numpy.asarray):
    return shallow(x, act)

def shallow(x, act):
    return act(x)
"""


@pytest.fixture(scope="module")
def library():
    """A module that is installed as libraries are."""
    module = ModuleType("far.away")
    exec(compile(LIBRARY, "/opt/lib/site-packages/far/away.py", "exec"), vars(module))
    return module


def large(group, placement=None):
    mesh = DeviceMesh(group, (group.size,))
    values = np.arange(QUIET // 8 + 2.0)
    return values, distarray.distribute(values, mesh, [placement or Shard(0)], src=None)


@pytest.mark.host
@pytest.mark.parametrize("act", [np.asarray, pickle.dumps])
def test_it_is_said_once_a_line(world, ranks, library, act):
    def program(group):
        values, x = large(group)
        _told.clear()
        group.barrier()
        with trace() as t:
            for _ in range(3):
                found = library.deep(x, act)
            library.deep(x[:-1], act)
            library.deep(x[:9], act)
            library.deep(large(group, Replicate())[1], act)
            x.tolist()
        return found, values, list(t)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PerformanceWarning)
        results = world.run(ranks, program)
    first = program.__code__.co_firstlineno
    for found, values, events in results:
        found = pickle.loads(found) if act is pickle.dumps else found
        np.testing.assert_array_equal(found, values, strict=True)
        kinds = [event.kind for event in events]
        assert kinds.count("library") == (4 if ranks > 1 else 0)
        assert all("test_exporting.py" in event.where for event in events)
    said = [w for w in caught if w.category is PerformanceWarning]
    here = len(results)
    assert len(said) == (2 * here if ranks > 1 else 0)
    assert {(w.filename, w.lineno - first) for w in said} <= {(__file__, 6), (__file__, 7)}
    assert all("bytes of DistArray(" in str(w.message) for w in said)
    assert all(" for far;" in str(w.message) for w in said)


@pytest.mark.host
def test_it_is_refused(world, ranks, library):
    def program(group):
        values, x = large(group)
        with config.override(fallback="error"):
            if ranks > 1:
                for act in (np.asarray, pickle.dumps):
                    raises_everywhere(
                        group, NotDistributedError, lambda act=act: library.deep(x, act), "for far"
                    )
            np.testing.assert_array_equal(np.asarray(x[:100]), values[:100])
            assert x.tobytes() == values.tobytes()
        with config.override(fallback="allow"), warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(library.deep(x), values)

    world.run(ranks, program)


#: What reads a buffer, of NumPy's array as of ours.
READERS = {
    "memoryview": lambda x: (lambda m: (m.shape, m.format, m.tobytes()))(memoryview(x)),
    "sha256": lambda x: hashlib.sha256(x).hexdigest(),
    "bytearray": bytearray,
    "bytes": bytes,
    "crc32": zlib.crc32,
    "frombuffer": lambda x: np.frombuffer(x, "u1").tolist(),
    "file": lambda x: io.BytesIO().write(x),
    "join": lambda x: b"-".join([x, x]),
}


@pytest.mark.host
def test_arrays_of_buffers_keep_the_memory(world, ranks):
    """The gathered copy was freed, and its memory used again."""
    values = np.arange(5000.0)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group), [Shard(0)], src=None)
        views = [np.frombuffer(x) for _ in range(20)]
        others = [np.full(5000, -1.0) for _ in range(20)]
        assert all(np.array_equal(view, values) for view in views)
        assert len(others) == 20

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize("reader", READERS)
def test_buffers(world, ranks, reader):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        read = READERS[reader]
        for values in (np.arange(6), np.arange(12.0).reshape(3, 4) * 1j, np.ones((2, 2), bool)):
            for placement in (Shard(0), Replicate()):
                x = distarray.distribute(values, mesh, [placement], src=None)
                assert read(x) == read(values)
                whole = placement == Replicate() or ranks == 1
                assert memoryview(x).readonly != whole
                if whole:
                    memoryview(x).cast("B")[0] = 1
                    assert np.asarray(x).ravel()[0] == x.to_local().ravel()[0]

    world.run(ranks, program)


@pytest.mark.host
def test_what_no_buffer_holds(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange("2020-01", "2020-07", dtype="M8[M]")
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        with pytest.raises((BufferError, SystemError)):
            memoryview(x)
        np.testing.assert_array_equal(np.asarray(x), values, strict=True)
        with config.override(gather_limit=8):
            y = distarray.distribute(np.arange(6), mesh, [Shard(0)], src=None)
            if ranks > 1:
                with pytest.raises((GatherLimitError, SystemError)):
                    memoryview(y)

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        ("V3", True),
        ("O", True),
        ([("a", "i4"), ("b", "U2")], True),
        ({"names": ["a"], "formats": ["i4"], "offsets": [4]}, False),
        ({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 0]}, False),
    ],
    ids=str,
)
def test_what_an_interface_describes(world, ranks, dtype, told):
    """An array whose interface would tell less than its data type has none."""
    values = np.zeros(3, dtype)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group), [Replicate()], src=None)
        assert hasattr(x, "__array_interface__") == told
        assert np.asarray(x).dtype == values.dtype

    world.run(ranks, program)


def test_what_cannot_be_reduced_by_name(world, ranks):
    """`__reduce__` itself, as `copyreg` and old picklers call it."""

    def program(group):
        values, x = large(group)
        values, x = values[:99], x[:99]
        make, arguments, *state = x.__reduce__()
        loaded = make(*arguments)
        loaded.__setstate__(*state)
        assert type(loaded) is np.ndarray
        np.testing.assert_array_equal(loaded, values)

    world.run(ranks, program)
