"""Memory as such: resizing in place, pickles, buffers, and what cannot be deleted."""

import io
import pickle
from functools import partial

import numpy as np
import pytest

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches, assert_same_error
from tests.everywhere import raises_everywhere

pytestmark = pytest.mark.host  # addresses and references are about the host's memory


def arrays(group, values):
    """The values whole on every rank, and cut along each dimension."""
    mesh = DeviceMesh(group, (group.size,))
    for placement in (Replicate(), *map(Shard, range(values.ndim))):
        yield distarray.distribute(values.copy(order="K"), mesh, [placement], src=None)


TABLE = np.arange(12.0).reshape(3, 4)
SOURCES = {
    "a line": np.arange(7.0),
    "a table": TABLE,
    "in Fortran order": np.asfortranarray(TABLE),
    "nothing": np.zeros((0, 3)),
    "one": np.array([[5]]),
}
SHAPES = [
    (3,),
    (9,),
    (2, 8),
    ((5, 3),),
    (4, 3),
    (12,),
    (7,),
    (0,),
    (2, 0, 3),
    ((),),
    (),
    (None,),
    (40, 1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SOURCES)
def test_resize(world, ranks, name, shape):
    def program(group):
        for x in arrays(group, SOURCES[name]):
            wanted = SOURCES[name].copy(order="K")
            wanted.resize(*shape, refcheck=False)
            assert x.resize(*shape) is None
            assert_matches(x, wanted)
            x += 1  # its memory is its own
            wanted += 1
            assert_matches(x, wanted)

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize("dtype", ["U2", "S3", "M8[D]", "?", [("a", "i4"), ("b", "S2")]], ids=str)
def test_resize_of_other_types(world, ranks, dtype):
    def program(group):
        values = np.arange(5).astype("M8[D]" if dtype == "M8[D]" else "u1").astype(dtype)
        for x in arrays(group, values):
            for shape in ((2, 4), (3,)):
                x.resize(shape)
                wanted = values.copy()
                wanted.resize((2, 4), refcheck=False)
                wanted.resize(shape, refcheck=False)
                assert_matches(x, wanted)

    world.run(ranks, program)


REFUSED = {
    "a negative extent": lambda x: x.resize(-1),
    "a negative extent in a shape": lambda x: x.resize((-1, 2)),
    "text": lambda x: x.resize("a"),
    "a fraction": lambda x: x.resize(2.5),
    "a fraction in a shape": lambda x: x.resize((2, 2.0)),
    "gaps": lambda x: x[:, ::2].resize(3),
    "gaps, to the same size": lambda x: x[:, ::2].resize(6),
    "rows of it": lambda x: x[1:].resize(3),
    "one row": lambda x: x[1:2].resize(9),
    "turned": lambda x: x.T.resize(3),
    "too large": lambda x: x.resize(2**40, 2**40),
}


@pytest.mark.parametrize("name", REFUSED)
def test_resize_is_refused_as_by_numpy(world, ranks, name):
    def program(group):
        for x in arrays(group, TABLE):
            table = TABLE.copy()
            assert_same_error(lambda x=x: REFUSED[name](x), lambda t=table: REFUSED[name](t))
            assert_matches(x, TABLE)
            group.barrier()

    world.run(ranks, program)


def test_resize_and_views(world, ranks):
    def program(group):
        for x in arrays(group, TABLE):
            view = x[1:2]
            raises_everywhere(group, ValueError, lambda x=x: x.resize(3), "references or is refer")
            raises_everywhere(group, ValueError, lambda v=view: v.resize(3), "does not own its")
            x.resize(2, 2, refcheck=False)
            x[...] = -1
            assert_matches(view, TABLE[1:2])
            del view
            x.resize(6)
            assert_matches(x, np.array([-1.0, -1, -1, -1, 0, 0]))
            x.flags.writeable = False
            x.resize(3)
            assert not x.flags.writeable

    world.run(ranks, program)


def test_pickles(world, ranks, tmp_path):
    def program(group):
        for number, x in enumerate(arrays(group, TABLE)):
            assert x.dumps() == TABLE.dumps()
            path = tmp_path / f"{group.size}-{number}" if world.name == "threads" else None
            if path is not None:
                x.dump(path)
                group.barrier()
                assert np.array_equal(np.load(path, allow_pickle=True), TABLE)
            file = io.BytesIO()
            x.dump(file)
            found = pickle.loads(file.getvalue())
            assert type(found) is np.ndarray and np.array_equal(found, TABLE)
            raises_everywhere(group, OSError, lambda x=x: x.dump("/nonexistent/x"))

    world.run(ranks, program)


@pytest.mark.host
def test_buffers_of_what_is_whole(world, ranks):
    def program(group):
        for x in arrays(group, TABLE):
            if x.layout.is_whole:
                x.data[1, 2] = 70.0
                assert float(x[1, 2]) == 70.0
                assert x.ctypes.data == x.to_local().ctypes.data
                assert x.__array_interface__ == x.to_local().__array_interface__
                seen = np.asarray(x)
                x.resize(400, refcheck=False)  # the memory that `seen` has lives on
                assert seen[1, 2] == 70.0 and seen.shape == TABLE.shape
                continue
            for name in ("data", "ctypes", "__array_interface__"):
                words = rf"{name}.*x\.to_local\(\).*x\.full\(\)"
                raises_everywhere(group, AttributeError, lambda x=x, n=name: getattr(x, n), words)

    world.run(ranks, program)


DELETED = {
    "an element": lambda x: x.__delitem__(0),
    "elements": lambda x: x.__delitem__(slice(2)),
    "an element of flat": lambda x: x.flat.__delitem__(0),
    "flat": lambda x: delattr(x, "flat"),
    "shape": lambda x: delattr(x, "shape"),
    "dtype": lambda x: delattr(x, "dtype"),
}


@pytest.mark.parametrize("name", DELETED)
def test_nothing_is_deleted(world, name):
    def program(group):
        for x in arrays(group, TABLE):
            assert_same_error(lambda x=x: DELETED[name](x), lambda: DELETED[name](TABLE.copy()))

    world.run(world.ranks[0], program)


VALUES = [
    [],
    5,
    [1, 2],
    np.arange(20.0),
    [[1, 2], [3, 4]],
    1.7,
    [1.7],
    True,
    (3, 4, 5),
    range(3),
    None,
    [None],
]
BAD = ["x", "abc", 2j, ["a"]]


@pytest.mark.parametrize("values", VALUES + BAD, ids=str)
def test_flat_is_assigned_to(world, ranks, values):
    def program(group):
        for x in arrays(group, TABLE):
            for part in (lambda a: a, lambda a: a[:, 1:], lambda a: a.T, lambda a: a[1:2]):
                table = TABLE.copy()
                if any(values is bad for bad in BAD):
                    ours, theirs = (partial(setattr, part(a), "flat", values) for a in (x, table))
                    assert_same_error(ours, theirs)
                else:
                    part(table).flat = values
                    part(x).flat = values
                    assert_matches(x, table)
                x[...] = TABLE

    world.run(ranks, program)


def test_a_new_shape_keeps_what_is_owned(world, ranks):
    def told(x):
        x.shape = (5, 6)
        first = x.flags.owndata, x.base is None
        x.setflags(write=False)
        line = x.reshape(-1)
        try:
            line.flags.writeable = True
        except ValueError as error:
            return first, str(error)
        return first, "allowed"

    def told_with_a_view(x):
        view = x[2:]
        x.shape = (5, 6)
        x[0, 3] = 7
        return float(view[1]), float(x.sum()), x.shape

    def program(group):
        for x in arrays(group, np.arange(30.0)):
            assert told(x) == told(np.arange(30.0))
        for x in arrays(group, np.arange(30.0)):
            assert told_with_a_view(x) == told_with_a_view(np.arange(30.0))

    world.run(ranks, program)
