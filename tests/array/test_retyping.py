"""Views of other data types: NumPy's results, errors and shared memory, wherever the cuts fall."""

import numpy as np
import pytest

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches
from tests.everywhere import raises_everywhere

pytestmark = pytest.mark.host  # a GPU holds no text and no records

PAIR = np.dtype([("a", "i4"), ("b", "f4")])
POINT = np.dtype([("x", "f8"), ("y", "f8")])
WORDS = np.array([b"abcd", b"efg", b"hi", b"jklm", b"", b"nopq"])

#: Arrays, and the data types that they are read as.
ARRAYS = {
    "numbers": (np.arange(24.0).reshape(6, 4), ["f4", "c16", "u1", "S2", "U1", "S", "V", PAIR]),
    "bytes": (np.arange(48, dtype="u1").reshape(2, 24), ["f8", "i2", "S3", "U1", "S5", "V24", "?"]),
    "complex numbers": (np.arange(6) + 2j, ["f8", POINT, "f4", "S1", "M8[s]", "V12"]),
    "a line": (np.arange(24, dtype="f4"), ["f8", "i2", "c8", PAIR, "S16", "U1", "u1"]),
    "text": (WORDS, ["S1", "S2", "U1", "u1", "i4", "S3", "S24", "S8"]),
    "wide text": (WORDS.astype("U4"), ["U1", "U2", "S1", "U8", "U3", "u4", "S"]),
    "columns of text": (WORDS.reshape(2, 3), ["S1", "u1", "S6", "S12", "i8"]),
    "records": (np.arange(12, dtype="i4").view(PAIR), ["i4", "S1", "f8", "i8", "i2"]),
    "points": (np.arange(24.0).reshape(6, 4).view(POINT), ["f8", ("f8", (2,)), "c16", "u1"]),
    "dates": (np.arange(6).astype("M8[s]"), ["i8", "i4", "M8[D]", "S8"]),
    "objects": (np.arange(6).astype("O"), ["i8", "i4", "S1"]),
    "one column": (np.arange(6.0).reshape(6, 1), ["f4", "c16", "S1"]),
    "nothing": (np.zeros((4, 0)), ["f4", "c16", "S3"]),
    "no rows": (np.zeros((0, 4)), ["f4", "c16", "S3"]),
    "no dimension": (np.array(2.0), ["f4", "i8", "c16"]),
    "truth values": (np.arange(12) % 3 == 0, ["u1", "S1", "i4", "S12"]),
}  # fmt: skip

#: What is read: the array, views of it, and results of operations on views.
SOURCES = {
    "itself": lambda x: x,
    "turned": lambda x: x.T,
    "a result of turned": lambda x: x.T.copy("K"),
    "every other": lambda x: x[..., ::2] if x.ndim else x,
    "a copy of every other": lambda x: x[..., ::2].copy() if x.ndim else x,
    "backwards": lambda x: x[::-1] if x.ndim else x,
    "later rows": lambda x: x[1:] if x.ndim else x,
    "one row": lambda x: x[1:2] if x.ndim else x,
    "later columns": lambda x: x[..., 1:] if x.ndim else x,
    "one column": lambda x: x[..., :1] if x.ndim else x,
    "one element": lambda x: x.reshape(-1)[1:2],
}


def outcome(call, *args):
    try:
        return call(*args)
    except Exception as error:
        return error


def placements(values):
    yield Replicate()
    if not values.dtype.hasobject:
        yield from map(Shard, range(values.ndim))


def check(group, found, wanted):
    """The same view or error on all ranks."""
    texts = set(group.allgather_object(repr(found) if isinstance(found, Exception) else ""))
    assert len(texts) == 1, texts
    if isinstance(found, Exception):
        assert (type(found), str(found)) == (type(wanted), str(wanted))
        return
    assert not isinstance(wanted, Exception), wanted
    assert_matches(found, wanted)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ARRAYS)
def test_views_of_other_sizes(world, name, source):
    values, dtypes = ARRAYS[name]

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for placement in placements(values):
            x = SOURCES[source](distarray.distribute(values, mesh, [placement], src=None))
            plain = SOURCES[source](values.copy())
            for dtype in dtypes:
                found, wanted = (outcome(a.view, dtype) for a in (x, plain))
                refused = isinstance(wanted, Exception) and "contiguous" in str(wanted)
                if refused and source == "a result of turned":
                    continue  # see ravel: blocks of one index each do not tell
                check(group, found, wanted)

    for ranks in world.ranks[:4]:
        world.run(ranks, program)


def test_views_share_memory(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for placement in (Replicate(), Shard(0), Shard(1)):
            values = np.arange(24.0).reshape(3, 8)
            x = distarray.distribute(values.copy(), mesh, [placement], src=None)
            for array in (x, values):
                array.view("i4")[1:, 3:9:2] = 7
                array.view(PAIR)["b"][0] = -2
                array.view("S8")[2, 5] = b"eight by"
            assert_matches(x, values)
            x.flags.writeable = False
            assert not x.view("u1").flags.writeable

    world.run(ranks, program)


def test_a_cut_through_new_items_is_a_view(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        values = np.arange(4 * ranks + 4, dtype="u1")
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        table = np.stack([values, values[::-1]])
        rows = distarray.distribute(table, mesh, [Shard(1)], src=None)
        values, table = values.copy(), table.copy()
        for whole, cut in ((values, x), (table, rows)):
            for dtype in ("i4", "i2", "S4", [("head", "u1"), ("rest", "u1", (3,))]):
                plain, found = whole.view(dtype), cut.view(dtype)
                assert_matches(found, plain)
                whole[..., 2] += 1
                cut[..., 2] += 1
                assert_matches(found, plain)
                plain[..., 1] = plain[..., 0]
                found[..., 1] = found[..., 0]
                assert_matches(cut, whole)

    world.run(ranks, program)


#: Statements about text and records that go through views.
PROGRAMS = {
    "letters": lambda np, x: np.char.upper(x.view("S1")),
    "letters joined": lambda np, x: np.strings.str_len(np.char.lower(x).view("S8")),
    "wide letters": lambda np, x: (x.astype("U4").view("U1").reshape(-1, 4) == "a").sum(1),
    "codes": lambda np, x: x.view("u1").reshape(6, 4).max(0),
    "codes of letters": lambda np, x: x.astype("U4").view("u4") + 1,
    "letters counted": lambda np, x: np.char.count(x.reshape(2, 3).view("S12"), b"o"),
    "records": lambda np, x: np.sort(x.view([("head", "S1"), ("rest", "S3")])["head"]),
    "records and back": lambda np, x: x.view([("head", "S1"), ("rest", "S3")]).view("S4"),
    "types in place": lambda np, x: retyped_in_place(x.copy(), "S2"),
    "arrays": lambda np, x: x.view("u1", np.ndarray)[::-1],
    "arrays by name": lambda np, x: x.view(type=np.ndarray),
    "arrays alone": lambda np, x: x.view(np.ndarray),
}


def retyped_in_place(x, dtype):
    x.dtype = dtype
    return x


@pytest.mark.filterwarnings("ignore:Setting the dtype")  # NumPy 2.5 about its own arrays
@pytest.mark.parametrize("name", PROGRAMS)
def test_text_and_records(world, name):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for placement in (Replicate(), Shard(0)):
            x = distarray.distribute(WORDS.copy(), mesh, [placement], src=None)
            found = outcome(PROGRAMS[name], distarray.numpy, x)
            wanted = PROGRAMS[name](np, WORDS.copy())
            check(group, found, wanted)

    for ranks in world.ranks[:4]:
        world.run(ranks, program)


def test_views_of_subclasses(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(np.arange(6.0).reshape(2, 3), mesh, [Replicate()], src=None)
        seen = x.view(np.matrix)
        assert type(seen) is np.matrix and np.shares_memory(seen, x.to_local())
        assert type(x.view("i8", np.matrix)) is np.matrix
        raises_everywhere(group, ValueError, lambda: x.view(int, int), "sub-type of ndarray")
        if ranks > 1:
            cut = x.redistribute([Shard(0)])
            gathered = cut.view(np.matrix)
            assert type(gathered) is np.matrix and (gathered == np.asarray(x)).all()
            assert not gathered.flags.writeable

    world.run(ranks, program)
