"""Small arrays that every rank has whole: NumPy computes at once, and nothing is sent."""

import operator

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray import trace
from distarray.array import DistArray, at_hand, distribute, small
from distarray.array.registry import FUNCTIONS
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches
from tests.waiting import nothing_is_watched

LINE, PLANE = np.array([3.0, -1.0, 2.5, 0.5]), np.arange(12.0).reshape(3, 4)
#: Calls of a function that lays an array out, or leaves it NumPy's.
CALLS = {
    "a function": lambda lay: np.cumsum(lay(PLANE), axis=1),
    "a method": lambda lay: lay(PLANE).mean(axis=0),
    "a number": lambda lay: lay(PLANE).sum(),
    "a truth value": lambda lay: np.any(lay(LINE) > 2),
    "several results": lambda lay: np.nonzero(lay(LINE) > 0),
    "named results": lambda lay: np.linalg.eigh(lay(PLANE[:, :3] + PLANE[:, :3].T)),
    "a list of arrays": lambda lay: np.concatenate([lay(LINE), lay(PLANE[0])]),
    "a list of results": lambda lay: np.array_split(lay(LINE), 3),
    "a keyword": lambda lay: np.clip(lay(LINE), a_min=lay(PLANE[0]), a_max=2.0),
    "first by name": lambda lay: np.sum(a=lay(LINE)),
    "an array of NumPy's first": lambda lay: np.dot(PLANE, lay(LINE)),
    "a ufunc": lambda lay: np.hypot(lay(LINE), lay(PLANE)),
    "a ufunc of two results": lambda lay: np.divmod(lay(PLANE), 2.5),
    "a fold of a ufunc": lambda lay: np.maximum.reduce(lay(PLANE), axis=(0, 1)),
    "a scan of a ufunc": lambda lay: np.multiply.accumulate(lay(PLANE), axis=1),
    "all pairs": lambda lay: np.add.outer(lay(LINE), lay(PLANE)),
    "all pairs with an array of NumPy's": lambda lay: np.subtract.outer(LINE, lay(LINE)),
    "a product": lambda lay: lay(PLANE) @ lay(LINE),
    "numbers": lambda lay: lay(LINE) @ lay(LINE),
    "broadcast": lambda lay: np.subtract(lay(LINE)[:, None], lay(LINE)),
    "texts": lambda lay: np.strings.upper(lay(np.array(["a", "bc"]))),
    "dates": lambda lay: np.diff(lay(np.array(["2020-01-01", "2020-03-01"], "M8[D]"))),
    "an error": lambda lay: np.concatenate([lay(LINE), lay(PLANE)]),
    "an error of a product": lambda lay: lay(PLANE) @ lay(PLANE),
    "an error raised": lambda lay: raised(lambda: np.dot(lay(LINE), lay(LINE * np.inf - np.inf))),
    "a division raised": lambda lay: raised(lambda: lay(LINE) / lay(LINE - LINE)),
    "a method that raises": lambda lay: raised((lay(LINE) * 1e308).prod),
    "a product of spans": lambda lay: np.dot(lay(PLANE.astype("m8[s]")), lay(LINE.astype(int))),
    "a number first": lambda lay: np.float32(2) * lay(PLANE.astype("f4")),
    "a number compared": lambda lay: np.float64(2) < lay(LINE),
    "a number second": lambda lay: np.maximum(lay(PLANE), 2),
    "a function of one": lambda lay: np.sqrt(lay(PLANE.T)),
    "a product of blocks": lambda lay: lay(PLANE) * lay(PLANE),
    "by indices": lambda lay: lay(PLANE)[lay(np.array([2, 0, 2]))],
    "by a mask": lambda lay: lay(PLANE)[lay(PLANE > 5)],
    "by a line's mask": lambda lay: lay(PLANE)[lay(np.array([True, False, True]))],
    "out of bounds": lambda lay: lay(PLANE)[lay(np.array([3]))],
    "a long key": lambda lay: lay(PLANE)[None, 1:, ..., 2, None],
    "in place, broadcast": lambda lay: in_place(lay(PLANE), lay(LINE)),
    "in place, of other shapes": lambda lay: in_place(lay(LINE), lay(PLANE)),
    "in place, of another type": lambda lay: in_place(lay(LINE.astype(int)), lay(LINE)),
    "a copy": lambda lay: lay(PLANE).copy(),
    "of the same form": lambda lay: np.zeros_like(lay(PLANE), dtype=int),
}


def in_place(x, y):
    x += y
    return x


def raised(call):
    with np.errstate(all="raise"):
        return call()


def outcome(call):
    """What a call gives, or the type and text of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


@pytest.fixture(autouse=True)
def _nothing_to_look_at():
    """Nothing is at hand where operators have been overridden, or calls compared."""
    with nothing_is_watched():
        yield


@pytest.mark.host
@pytest.mark.parametrize("name", CALLS)
def test_a_call(world, ranks, name):
    expected = outcome(lambda: CALLS[name](lambda values: values.copy()))

    def program(group):
        mesh = DeviceMesh(group)
        with trace() as messages:
            found = outcome(lambda: CALLS[name](lambda v: distribute(v, mesh, src=None)))
        assert not messages.events
        if isinstance(found, tuple) and isinstance(found[0], type):
            assert found == expected
            return
        parts = found if isinstance(found, (tuple, list)) else [found]
        wanted = expected if isinstance(expected, (tuple, list)) else [expected]
        assert type(found) is type(expected) or not isinstance(expected, (tuple, list, np.generic))
        for part, whole in zip(parts, wanted, strict=True):
            assert_matches(part, whole, rtol=0, atol=0)
            assert not isinstance(part, DistArray) or part.layout.is_replicated

    world.run(ranks, program)


@pytest.mark.host
def test_views_out_and_in_place(world, ranks):
    def program(group):
        x = distribute(PLANE.copy(), DeviceMesh(group), src=None)
        np.transpose(x)[1] = 7.0
        np.ravel(x)[-1] = 9.0
        out = np.zeros_like(x[0])
        returned = np.sum(x, axis=0, out=out)
        np.copyto(x[0], out)
        np.put(x, [4], -1.0)
        return x.full(), returned is out

    expected = PLANE.copy()
    expected[:, 1], expected[-1, -1] = 7.0, 9.0
    expected[0] = expected.sum(axis=0)
    expected[1, 0] = -1.0
    for found, same in world.run(ranks, program):
        np.testing.assert_array_equal(found, expected)
        assert same


@pytest.mark.host
def test_what_is_larger_is_placed_as_ever(world, ranks):
    def program(group):
        mesh = DeviceMesh(group)
        with config.override(replicate_below=200):
            x = distribute(np.arange(20.0), mesh, src=None)
            assert x.layout.is_replicated
            joined = np.concatenate([x, x])
            cut = distribute(np.arange(40.0), mesh, [Shard(0)], src=None)
            return joined.layout.placements, (joined + cut).full()

    for placements, found in world.run(ranks, program):
        assert placements == (Shard(0),) or ranks == 1
        np.testing.assert_array_equal(found, np.tile(np.arange(20.0), 2) + np.arange(40.0))


@pytest.mark.host
def test_a_rank_outside_of_the_mesh(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, ranks=range(max(1, group.size - 1)))
        x = distribute(LINE, mesh, [Replicate()], src=None)
        found = np.cumsum(x) @ x
        return None if mesh.coords is None else float(found)

    for found in world.run(ranks, program):
        assert found in (None, np.cumsum(LINE) @ LINE)


def test_a_row_can_decline():
    """They go to one place for all ranks, or NumPy's order is not ours."""
    declining = [np.save, np.savetxt, np.unique_values, np.array_repr]
    assert [FUNCTIONS[f].small for f in declining] == [None] * len(declining)
    assert FUNCTIONS[np.sum].small is np.ndarray.sum


#: Calls with an array of so many elements; the result may be far larger.
GROWING = {
    "outer": (np.outer, lambda x: (x, x)),
    "kron": (np.kron, lambda x: (x, x)),
    "inner": (np.inner, lambda x: (x[:, None], x[:, None])),
    "tensordot": (np.tensordot, lambda x: (x, x, 0)),
    "einsum": (np.einsum, lambda x: ("i,j", x, x)),
    "tile": (np.tile, lambda x: (x, len(x))),
    "repeat": (np.repeat, lambda x: (x, len(x))),
    "diag": (np.diag, lambda x: (x,)),
    "ones_like": (np.ones_like, lambda x: (x, {"shape": (len(x), len(x))})),
    "take": (np.take, lambda x: (x[None], np.zeros(len(x), int), 0)),
    "where": (np.where, lambda x: (x[:, None] > 0, x, 0.0)),
    "rows by a list": (operator.getitem, lambda x: (x[None], (np.zeros(len(x), int), slice(None)))),
}


@pytest.mark.host
@pytest.mark.parametrize("name", GROWING)
def test_a_result_that_is_not_small_is_not_made_by_numpy(name):
    function, arguments = GROWING[name]
    small = FUNCTIONS[function].small
    made = []

    def counted(*args, **kwargs):
        found = small(*args, **kwargs)
        made.append(found)
        return found

    mesh = DeviceMesh(ranks=[0])

    def called(length):
        made.clear()
        given = arguments(np.ones(length))
        named = given[-1] if isinstance(given[-1], dict) else {}
        given = given[:-1] if named else given
        laid = [distribute(x, mesh, src=None) if isinstance(x, np.ndarray) else x for x in given]
        return at_hand.answer(counted, laid, named)

    if mesh.coords is not None:
        assert isinstance(called(8), DistArray)
        assert called(3000) is NotImplemented
        assert all(x is NotImplemented for x in made)


@pytest.mark.host
def test_what_broadcasts_to_too_much_is_not_made_in_vain(monkeypatch):
    mesh, made = DeviceMesh(ranks=[0]), []
    monkeypatch.setattr(at_hand, "SPREADING", set())
    monkeypatch.setattr(small, "SPREADING", at_hand.SPREADING)

    def added(*operands):
        made.append(operands)
        return np.add(*operands)

    small.spreads(added)
    if mesh.coords is not None:
        x = distribute(np.arange(200.0), mesh, src=None)
        with nothing_is_watched(), config.override(replicate_below=2**16):
            for call in (at_hand.answer_for_two, lambda f, *xs: at_hand.answer(f, xs, {})):
                assert call(added, x[:, None], x) is NotImplemented
                assert not made
                assert_matches(
                    call(added, x[:, None], x[:100]), np.add.outer(*[x.full()] * 2)[:, :100]
                )
                assert len(made) == 1
                made.clear()


@pytest.mark.host
@pytest.mark.parametrize("code", ["?", "i1", "i8", "f4", "f8", "g", "c16", "G", ">f8", "U5", "e"])
def test_pairs_of_every_type(code):
    """All types but half precision are at hand, and none where sums have an order of their own."""
    mesh = DeviceMesh(ranks=[0])
    if mesh.coords is None:
        return
    values = np.arange(6).reshape(2, 3).astype(code)
    x, y = (distribute(part, mesh, src=None) for part in (values, values[1]))
    for function, call in (
        (np.equal, at_hand.answer_to_two),
        (np.append._implementation, at_hand.answer_for_two),
    ):
        found = call(function, x, y)
        if code == "e":
            assert found is NotImplemented
            continue
        assert_matches(found, function(values, values[1]), rtol=0, atol=0)
        with config.override(reproducible=True):
            assert call(function, x, y) is NotImplemented


@pytest.mark.host
def test_what_is_written_may_have_any_size():
    """Operands whose shapes broadcast to nothing do not make a large result."""
    values, mesh = np.arange(5000.0), DeviceMesh(ranks=[0])
    if mesh.coords is not None:
        x, even = values.reshape(50, 100).copy(), values.reshape(50, 100) % 2 == 0
        laid = [distribute(y, mesh, src=None) for y in (x, even, -values[:2500])]
        assert at_hand.answer(FUNCTIONS[operator.setitem].small, laid, {}) is None
        x[even] = -values[:2500]
        np.testing.assert_array_equal(laid[0].full(), x)


@pytest.mark.host
def test_matrices_may_be_four_times_as_large_as_lines():
    values, mesh = np.arange(40.0), DeviceMesh(ranks=[0])
    if mesh.coords is None:
        return
    matrix, line = (
        distribute(x, mesh, [Replicate()], src=None) for x in (values.reshape(5, 8), values)
    )
    with nothing_is_watched(), config.override(replicate_below=100):
        assert_matches(at_hand.answer_to_two(np.add, matrix, matrix), 2 * values.reshape(5, 8))
        assert_matches(at_hand.answer_for_one(np.negative, matrix), -values.reshape(5, 8))
        for found in (
            at_hand.answer_to_two(np.add, line, line),
            at_hand.answer_for_one(np.negative, line),
            at_hand.answer_for_one(np.ndarray.ravel, matrix),
            at_hand.answer_for_one(np.tile, matrix, ((2, 1),)),
        ):
            assert found is NotImplemented
