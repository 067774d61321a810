"""The contract of a distributed array, line by line: read, printed, copied, refused."""

import copy
import operator
import pickle

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DistArray, Partial, Replicate, Shard
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.errors import (
    CommunicationForbidden,
    GatherLimitError,
    MeshError,
    NotDistributedError,
    PerformanceWarning,
)
from distarray.testing import (
    DTYPES,
    assert_matches,
    assert_same_error,
)
from tests.everywhere import line, raises_everywhere

# -- reading -------------------------------------------------------------------------------------


def test_one_rank_may_read_what_all_have_computed(world, ranks):
    def program(group):
        with config.override(replicate_below=0):
            x = dnp.arange(10.0) - 4
        total, mean, anything = x.sum(), x.mean(), (x > 3).any()
        count = (x > 0).sum()
        if group.rank == ranks - 1:
            with distarray.forbid_communication():
                assert float(total) == 5.0
                assert f"{mean:.3e} {total:>8} {mean}" == "5.000e-01      5.0 0.5"
                assert bool(anything)
                assert int(count) == 5
                assert [7, 8, 9, 10, 11, 12][count] == 12
                assert complex(total) == 5
                assert round(mean) == 0
                assert round(total, 1) == 5.0
                assert hash(total) == hash(5.0)
                assert {total: 1}[5.0] == 1
                assert total.item() == 5.0
                assert total.tolist() == 5.0
                assert str(total) == "5.0"
                assert repr(total) == "np.float64(5.0)"
                assert isinstance(total.item(), float)
                assert total == 5
                assert np.asarray(total) == 5.0
                assert total in (3, 5.0)

    world.run(ranks, program)


def test_printing_never_communicates(world, ranks):
    def program(group):
        with config.override(replicate_below=0):
            x = dnp.arange(12.0).reshape(4, 3)
        small = dnp.array([1, 2, 3])
        pending = DistArray.from_local(np.ones(3), line(group), [Partial()])
        row = x[1]
        with distarray.forbid_communication():
            assert repr(small) == "array([1, 2, 3])"
            assert str(small) == "[1 2 3]"
            assert f"{small}" == "[1 2 3]"
            for y in (x, x[1:, ::-1], x.T, pending, row, x[:0]):
                assert str(y)
                assert repr(y)
            if ranks > 1:
                text = repr(x)
                assert "shape=(4, 3)" in text
                assert "float64" in text
                assert "Shard(0)" in text
                assert f"rank {group.rank} of {ranks}" in text
                assert "contribution" in repr(pending)
        with config.override(print_gathered=True):
            assert repr(x) == repr(np.arange(12.0).reshape(4, 3))
            assert str(x) == str(np.arange(12.0).reshape(4, 3))
            assert f"{x}" == str(np.arange(12.0).reshape(4, 3))
            assert str(pending) == str(np.full(3, float(ranks)))

    world.run(ranks, program)


def test_python_asks(world, ranks):
    def program(group):
        values = np.arange(12).reshape(4, 3)
        x = distarray.distribute(values, line(group), Shard(0))
        assert len(x) == 4
        assert 7 in x
        assert 12 not in x
        assert x.tolist() == values.tolist()
        assert x.item(5) == 5
        assert x.item(-1) == 11
        assert x.item(1, 2) == 5
        assert x.item((3, 0)) == 9
        assert [row.tolist() for row in x] == values.tolist()
        flat = x.reshape(-1)
        for element, wanted in zip(flat, values.ravel(), strict=True):
            assert_matches(element, wanted)
        assert operator.index(x[2, 1]) == 7
        assert [*range(12)][x[3, 2]] == 11
        assert not dnp.zeros(1)
        assert x[1:2, 1:2]
        assert float(x[1:2, 1:2].sum()) == 4.0
        assert x[0].tolist() == [0, 1, 2]
        assert list(map(int, x[:, 0])) == [0, 3, 6, 9]
        assert "(4, 3)" in x.summary()
        for one in (x.sum(), x[2, 1], x.max(), next(iter(flat))):
            assert type(one) is np.int64
        one = x[2, 1, ...]  # a view
        assert type(one.full()) is np.ndarray
        assert type(one.gather()) is (np.ndarray if group.rank == 0 else type(None))

    world.run(ranks, program)


ASKED = {
    "truth": bool,
    "float": float,
    "int": int,
    "complex": complex,
    "index": operator.index,
    "index of float": lambda x: operator.index(x.astype(float)[0, 0]),
    "hash": hash,
    "len of 0-d": lambda x: len(x[0, 0]),
    "iteration over 0-d": lambda x: iter(x.sum()),
    "item": lambda x: x.item(),
    "item beyond": lambda x: x.item(99),
    "item of too many": lambda x: x.item(0, 0, 0),
    "format": lambda x: f"{x:.3f}",
    "index beyond": lambda x: x[9],
    "too many indices": lambda x: x[0, 0, 0],
    "two ellipses": lambda x: x[..., ...],
    "no index": lambda x: x["a"],
    "float index": lambda x: x[1.5],
    "step 0": lambda x: x[::0],
    "assign beyond": lambda x: x.__setitem__(9, 0),
    "assign shape": lambda x: x.__setitem__(slice(0, 2), np.zeros(5)),
    "assign a list with text": lambda x: x.__setitem__(0, [1, 2, "text"]),
    "assign too large a number": lambda x: x.astype("u1").__setitem__(0, 300),
    "assign large numbers": lambda x: x.astype("u1").__setitem__(0, [1, 2, 300]),
    "assign NaN": lambda x: x.__setitem__((3, 2), np.nan.__float__()),
    "assign complex": lambda x: x.__setitem__(0, 1j),
    "assign array of text": lambda x: x.__setitem__(0, np.array(["1", "2", "three"])),
    "assign text": lambda x: x.__setitem__(0, "text"),
    "empty truth": lambda x: bool(x[:0]),
    "reshape": lambda x: x.reshape(5, 5),
}


@pytest.mark.parametrize("case", ASKED)
def test_python_is_refused_as_numpy_refuses(world, ranks, case):
    def program(group):
        values = np.arange(12).reshape(4, 3)
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distarray.distribute(values, line(group), placement, src=None)
            assert_same_error(lambda x=x: ASKED[case](x), lambda: ASKED[case](values.copy()))
            assert_matches(x, values)
            group.barrier()

    world.run(ranks, program)


def test_views_of_other_types(world, ranks):
    def program(group):
        values = np.arange(12.0)
        x = distarray.distribute(values, line(group), Shard(0))
        assert_matches(x.view("i8"), values.view("i8"))
        x.view("i8")[0] = 5
        values.view("i8")[0] = 5
        assert_matches(x, values)
        assert_matches(x.view("f4"), values.view("f4"))
        assert_matches(x.byteswap(), values.byteswap())
        y = x.view()
        y[0] = 1.0
        assert float(x[0]) == 1.0

    world.run(ranks, program)


# -- copies and serialization --------------------------------------------------------------------


def test_copies(world, ranks):
    def program(group):
        values = np.arange(12.0).reshape(4, 3)
        x = distarray.distribute(values, line(group), Shard(0))
        for make in (copy.copy, copy.deepcopy, lambda v: v.copy(), np.copy, dnp.array):
            y = make(x)
            assert_matches(y, values)
            y[...] = 0
            assert_matches(x, values)
            z = make(x[1:, ::2])
            assert_matches(z, values[1:, ::2])
        held = copy.deepcopy({"a": x, "mesh": x.mesh})
        assert held["mesh"] is x.mesh
        assert_matches(held["a"], values)
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            for y, expected in ((x, values), (x[1:, ::2], values[1:, ::2]), (x.sum(), 66.0)):
                loaded = pickle.loads(pickle.dumps(y, protocol))
                assert type(loaded) is type(values.sum() if y.ndim == 0 else values)
                np.testing.assert_array_equal(loaded, expected, strict=y.ndim > 0)
                assert loaded.ndim == 0 or loaded.flags.writeable
        if group.size > 1:
            with config.override(gather_limit=8):
                raises_everywhere(
                    group, GatherLimitError, lambda: pickle.dumps(x), "block by block"
                )

    world.run(ranks, program)


# -- protocols -----------------------------------------------------------------------------------


@pytest.mark.host
def test_numpy_arrays_of_it(world, ranks):
    def program(group):
        values = np.arange(12.0).reshape(4, 3)
        x = distarray.distribute(values, line(group), Shard(0))
        assert type(np.asarray(x)) is np.ndarray
        np.testing.assert_array_equal(np.asarray(x), values)
        assert np.asarray(x, "f4").dtype == "f4"
        np.testing.assert_array_equal(np.array([x[0], x[1]]), values[:2])
        with config.override(gather_limit=95):
            if ranks > 1:
                raises_everywhere(group, GatherLimitError, lambda: np.asarray(x), "to_local")
            small = dnp.arange(100)
            assert np.asarray(small).size == 100
            assert x.full().size == 12
        assert np.asarray(x, copy=False).flags.writeable == (ranks == 1)
        whole = dnp.array([1.0, 2.0])
        assert np.shares_memory(np.asarray(whole), whole.to_local())
        assert not np.shares_memory(np.array(whole), whole.to_local())

    world.run(ranks, program)


@pytest.mark.host
def test_gathered_copies_are_read_only(world, ranks):
    """A write into one would be lost; copies that were asked for are the caller's own."""

    def program(group):
        values = np.arange(12.0).reshape(4, 3)
        x = distarray.distribute(values, line(group), Shard(0))
        if ranks > 1:
            for gathered in (np.asarray(x), np.asarray(x, "f8"), np.asanyarray(x[1:])):
                with pytest.raises(ValueError, match="read-only"):
                    gathered[:] = 0
            with config.override(writeable_copies=True):
                np.asarray(x)[:] = 0
        for own in (np.array(x), np.asarray(x, "f4"), np.asarray(x, copy=True), x.full()):
            own[:] = 0
        assert_matches(x, values)
        whole = dnp.array([1.0, 2.0])
        np.asarray(whole)[0] = 7
        assert_matches(whole, np.array([7.0, 2.0]))

    world.run(ranks, program)


@pytest.mark.host
def test_libraries_cannot_lose_what_they_write(world, ranks):
    ndimage = pytest.importorskip("scipy.ndimage", reason="SciPy is not installed")

    def program(group):
        values = np.arange(12.0).reshape(4, 3)
        x = distarray.distribute(values, line(group), Shard(0))
        cut, whole = dnp.zeros_like(x), dnp.zeros((4, 3))
        wanted = ndimage.gaussian_filter(values, 2)
        np.testing.assert_array_equal(ndimage.gaussian_filter(x, 2), wanted)
        ndimage.gaussian_filter(x, 2, output=whole)
        assert_matches(whole, wanted)
        if ranks > 1:
            with pytest.raises(ValueError, match="read-only"):
                ndimage.gaussian_filter(x, 2, output=cut)

    world.run(ranks, program)


@pytest.mark.host
def test_dlpack(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(12.0), line(group), Shard(0))
        whole = dnp.arange(4.0)
        with distarray.forbid_communication():
            exported = np.from_dlpack(whole)
            assert np.shares_memory(exported, whole.to_local())
            assert x.__dlpack_device__() == (1, 0)
            if ranks > 1:
                for y in (x, x[3:4], x[::2]):
                    with pytest.raises(BufferError, match="to_local"):
                        y.__dlpack__()
                    with pytest.raises(BufferError, match="to_local"):
                        np.from_dlpack(y)
            assert_matches(dnp.from_dlpack(np.arange(3)), np.arange(3))
            assert dnp.from_dlpack(x) is x

    world.run(ranks, program)


@pytest.fixture
def no_unwrap(monkeypatch):
    """As if np.unwrap had no distributed form; and nobody has been warned yet."""
    from distarray.array import FUNCTIONS, fallback

    monkeypatch.delitem(FUNCTIONS, np.unwrap)
    monkeypatch.setattr(fallback, "_warned", set())


def test_the_fallback_computes(world, ranks, no_unwrap):
    values = np.array([1.0, -6.0, 11.0, -6.0])

    def program(group):
        x = distarray.distribute(values, line(group), Shard(0))
        with config.override(fallback="allow"):
            found = np.unwrap(x)
        assert_matches(found, np.unwrap(values))
        assert isinstance(found, DistArray)
        with config.override(fallback="error"):
            raises_everywhere(group, NotDistributedError, lambda: np.unwrap(x), r"numpy\.unwrap")
        with config.override(fallback="allow", fallback_limit=31):
            if ranks > 1:
                raises_everywhere(group, NotDistributedError, lambda: np.unwrap(x), "32 bytes")
        with config.override(fallback="error"):
            replicated = dnp.array(values)
            raises_everywhere(group, TypeError, lambda: np.unwrap(replicated), "fallback")

    world.run(ranks, program)


def test_the_fallback_warns_once(world, no_unwrap):
    def program(group):
        x = distarray.distribute(np.array([1.0, -3.0, 2.0]), line(group), Shard(0))
        for _ in range(2):
            np.unwrap(x)

    ranks = world.ranks[-1]
    if ranks == 1:
        return
    with pytest.warns(PerformanceWarning, match="24 bytes") as caught:
        world.run(ranks, program)
    assert len(caught) == (ranks if world.name == "threads" else 1)  # each rank's record has it
    assert {found.filename for found in caught} == {__file__}


def test_other_libraries_are_asked(world, ranks):
    class Foreign:
        def __array_function__(self, func, types, args, kwargs):
            return "theirs"

        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            return "theirs"

    def program(group):
        x = dnp.arange(3.0)
        assert np.concatenate([x, Foreign()]) == "theirs"
        assert x + Foreign() == "theirs"
        assert np.add(x, Foreign()) == "theirs"

    world.run(ranks, program)


# -- meshes --------------------------------------------------------------------------------------


def test_operands_on_different_meshes(world, ranks):
    def program(group):
        x = distarray.distribute(np.zeros(4), line(group), Shard(0))
        y = distarray.distribute(np.zeros(4), DeviceMesh(group, (ranks, 1)), [Shard(0), Shard(0)])
        for call in (lambda: x + y, lambda: np.concatenate([x, y]), lambda: np.where(x, y, 0)):
            raises_everywhere(group, MeshError, call, "redistribute")
        x[...] = y.redistribute(x.mesh, Shard(0))

    world.run(ranks, program)


def test_forbidden_communication_is_refused_everywhere(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(10.0), line(group), Shard(0))
        if ranks > 1:
            with distarray.forbid_communication(), pytest.raises(CommunicationForbidden):
                x.full()
        assert_matches(x, np.arange(10.0))

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", [*DTYPES, "f2", "g", "M8[s]", "m8[ms]", "U5", "S3", "c8", "u8"])
def test_all_dtypes_travel(world, ranks, dtype):
    def program(group):
        values = np.arange(10).astype(dtype)
        x = distarray.distribute(values, line(group), Shard(0))
        np.testing.assert_array_equal(x.full(), values)
        np.testing.assert_array_equal(
            x[::-2].redistribute(placements=Shard(0)).full(), values[::-2]
        )

    world.run(ranks, program)
