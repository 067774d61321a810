"""Calls of unmodified programs that once differed from NumPy's: found by random programs.

Each is made with NumPy's arrays and with cut ones; values, types and exceptions are the same on all
ranks.
"""

import operator
from fractions import Fraction

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray.array import distribute, from_local
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Partial, Replicate, Shard
from distarray.testing import assert_matches
from tests.ops.likeness import outcome

DAYS = np.array(["2020-01-01", "2020-01-05", "NaT"], "M8[D]")
WORDS = np.array(["1", "2", "no"])
FRACTIONS = np.array([Fraction(n, 3) for n in (4, 1, 2)], object)
STRINGS = np.array(["a", "ccc", "bb"], np.dtypes.StringDType())
RECORDS = np.zeros(3, [("a", "i4"), ("b", "f8")])


def after(x, change):
    """The array after a change in place."""
    change(x)
    return x


def put(key, value):
    return lambda x: operator.setitem(x, key, value)


#: Calls of a function that lays an array out, or leaves it NumPy's.
CALLS = {
    "isin, nothing in common": lambda lay: np.isin(lay(DAYS), 2, invert=True),
    "isin, nothing in common, many": lambda lay: np.isin(lay(DAYS), list(range(40))),
    "isin of records": lambda lay: np.isin(lay(RECORDS), 1),
    "setdiff1d, nothing in common": lambda lay: np.setdiff1d(lay(np.ones((1, 1))), DAYS[0]),
    "union1d of a number": lambda lay: np.union1d(lay(np.arange(3, dtype="u1")), 2),
    "union1d of text and a number": lambda lay: np.union1d(lay(WORDS), 2),
    "concatenate a number": lambda lay: np.concatenate((lay(np.ones(3, "f4")), 2.5), axis=None),
    "one element from an array": lambda lay: after(lay(np.ones(3)), put(0, lay(np.ones(1)))),
    "one element from a list": lambda lay: after(lay(np.ones((2, 2))), put((0, -1), [1.0])),
    "one element by ...": lambda lay: after(lay(np.ones(3)), put((0, ...), lay(np.full(1, 2.0)))),
    "a list as an object": lambda lay: after(lay(np.array([1, None])), put(0, [1, 2])),
    "lists as objects": lambda lay: after(lay(np.array([1, None])), put(slice(None), [[1], 2])),
    "fill with a list": lambda lay: after(lay(np.ones(3)), lambda x: x.fill([1.0, 2.0])),
    "fill with an array": lambda lay: after(lay(np.ones(3)), lambda x: x.fill(lay(np.ones(3)))),
    "fill objects": lambda lay: after(lay(np.array([1, None])), lambda x: x.fill([1, 2])),
    "text into flat": lambda lay: operator.setitem(lay(np.ones(3)).flat, slice(1, 3), lay(WORDS)),
    "records into flat": lambda lay: operator.setitem(lay(np.ones(3)).flat, [0], lay(RECORDS)),
    "text into numbers": lambda lay: operator.setitem(lay(np.ones(3)), [0, 1, 2], lay(WORDS)),
    "insert text": lambda lay: np.insert(lay(np.ones((3, 2))), [0, 2], lay(WORDS[1:]), axis=1),
    "insert a number into dates": lambda lay: np.insert(lay(DAYS), [0, 1], 1.5),
    "matmul in place of a vector": lambda lay: operator.imatmul(lay(np.ones(3)), lay(np.ones(3))),
    "unique of objects": lambda lay: np.unique(lay(FRACTIONS)),
    "unique of objects, counted": lambda lay: np.unique(lay(FRACTIONS), return_counts=True),
    "setdiff1d of what is unique": lambda lay: np.setdiff1d(lay(np.arange(5)[::-1]), [1], True),
    "item of objects": lambda lay: lay(np.array([1, None])).item(0),
    "a sum of objects": lambda lay: float(np.trunc(lay(np.array([2, 3], object).sum(keepdims=1)))),
    "types before shapes": lambda lay: np.bitwise_xor(lay(np.ones(3)), lay(np.ones(2))),
    "var about a number": lambda lay: np.var(lay(np.ones((3, 2), "f4")), axis=0, mean=0.5),
    "std in integers": lambda lay: np.std(lay(np.ones((3, 2))), axis=0, dtype="i1"),
    "nanmedian of nothing over no axes": lambda lay: np.nanmedian(lay(np.ones((0, 3))), axis=()),
    "fftshift of 0-d": lambda lay: np.fft.fftshift(lay(np.ones(1)).reshape(())),
    "the diagonal of a turned matrix": lambda lay: after(
        lay(np.arange(25.0).reshape(5, 5)),
        lambda x: put(slice(None), -1)(np.einsum("ii->i", np.rot90(x, 2))),
    ),
    "the square of truth values": lambda lay: lay(np.ones((3, 2))).any(axis=0) ** 2,
    "a running difference, shared": lambda lay: after(
        np.subtract.accumulate(lay(np.arange(8.0).reshape(2, 4)).T).T,
        lambda x: np.cumsum(x, axis=0, out=x),
    ),
    "a running difference without gaps": lambda lay: (
        lambda x, y: (np.cumsum(x, axis=0, out=x), y)
    )(
        *(lambda x: (x, x.astype(float, order="C", copy=False)))(
            np.subtract.accumulate(lay(np.arange(8.0).reshape(4, 2)))
        )
    ),
    "a number copied where a number is true": lambda lay: after(
        lay(np.array(3.0)), lambda x: np.copyto(x, lay(np.ones(1)), where=x > 0)
    ),
    "a number compressed": lambda lay: np.compress(lay(np.ones(1)), lay(np.array(3.5)), axis=-1),
    "bins in an array": lambda lay: np.histogram(lay(np.arange(5.0)), lay(np.array(3))),
    "strides": lambda lay: lay(np.ones((3, 4, 2), "i2")).strides,
    "strides of nothing": lambda lay: lay(np.ones((3, 0))).strides,
    "another shape": lambda lay: after(lay(np.ones((4, 2))), lambda x: setattr(x, "shape", -1)),
    "no such shape": lambda lay: after(lay(np.ones((3, 2))), lambda x: setattr(x, "shape", 5)),
    "fields by number": lambda lay: [(r[0], r["b"], r[-1]) for r in lay(RECORDS)],
    "a field that is not there": lambda lay: lay(RECORDS)[0][2],
    "a record in parts": lambda lay: [*lay(RECORDS)[1], len(lay(RECORDS)[1])],
    "no text of a number": lambda lay: np.i0(lay(WORDS)),
    "no text of a number, joined": lambda lay: np.concatenate(
        [lay(WORDS)] * 2, dtype=float, casting="unsafe"
    ),
    "text placed": lambda lay: np.place(lay(np.ones(3)), [True] * 3, lay(WORDS[:2])),
    "text searched": lambda lay: np.strings.find(lay(np.ones(3)), "a"),
    "text before text": lambda lay: np.insert(lay(WORDS), 1, lay(WORDS)[0]),
    "text interpolated": lambda lay: np.interp(lay(WORDS), [0.0], [1.0]),
    "differences of bools": lambda lay: np.gradient(lay(np.ones(3, bool))),
    "an axis in an array": lambda lay: np.sum(lay(np.ones((2, 3))), axis=(lay(np.array(1)),)),
    "dates at first": lambda lay: lay(DAYS).max(initial=lay(DAYS)[0]),
    "other bytes": lambda lay: np.unique(lay(np.array([np.nan, 1], ">f4")), equal_nan=False),
    "a share of text": lambda lay: np.quantile(
        lay(WORDS), 0.3, method="inverted_cdf", weights=[1, 2, 3]
    ),
    "fractions": lambda lay: (
        lay(FRACTIONS).mean(),
        lay(FRACTIONS).var(),
        np.median(lay(FRACTIONS)),
    ),
    "a product of fractions": lambda lay: np.dot(lay(FRACTIONS), lay(FRACTIONS)),
    "a view of fractions": lambda lay: after(
        lay(FRACTIONS.reshape(3, 1)), lambda x: put(0, 7)(np.moveaxis(np.squeeze(x), 0, 0))
    ),
    "fractions into fractions": lambda lay: after(
        lay(FRACTIONS), lambda x: np.cumsum(lay(FRACTIONS), out=x)
    ),
    "strings of any length": lambda lay: (
        lay(STRINGS)[1],
        np.sort(lay(STRINGS)),
        lay(STRINGS).max(),
    ),
    "a list of nothing": lambda lay: (list(lay(np.ones(0))), list(lay(np.ones((0, 2))))),
    "points of a transform": lambda lay: np.fft.fft(lay(np.ones(3)), 1.5),
    "where with numbers": lambda lay: np.sum(lay(np.ones((2, 3))), where=lay(np.ones(4))),
    "one time and a half": lambda lay: np.repeat(lay(np.ones(3)), 1.5),
    "an array times a matrix": lambda lay: lay(np.ones((3, 2))) * np.matrix([[1.0, 2], [3, 4]]),
    "a matrix times an array": lambda lay: np.matrix([[1.0, 2, 3]]) * lay(np.ones((3, 2))),
    "a record that is written through": lambda lay: after(
        lay(RECORDS), lambda x: put("a", 1)(x[0])
    ),
    "histogramdd": lambda lay: np.histogramdd(lay(np.arange(6.0).reshape(3, 2)), bins=2),
}


@pytest.mark.parametrize("view", [lambda x: x.view(), np.real, np.imag, np.transpose])
def test_views_of_contributions_share_memory(world, ranks, view):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = from_local(np.full((2, 2), 1 + 1j), mesh, [Partial()])
        part = view(x)
        part[0] = 7
        assert np.array_equal(view(x.full()), part.full())

    world.run(ranks, program)


def nesting(value):
    if isinstance(value, (list, tuple)):
        return type(value), *map(nesting, value)
    return None


@pytest.mark.parametrize("name", CALLS)
def test_a_strange_call(world, name):
    expected = outcome(lambda: CALLS[name](np.copy))

    def program(group):
        mesh = DeviceMesh(group)

        def lay(values):
            place = Replicate() if values.dtype.hasobject or not values.ndim else Shard(0)
            return distribute(values.copy(), mesh, [place], src=None)

        with config.override(replicate_below=0):
            found = outcome(lambda: CALLS[name](lay))
        if isinstance(expected, Exception):
            assert type(found) is type(expected), found
        else:
            assert nesting(found) == nesting(expected)
            assert_matches(found, expected)

    for ranks in world.ranks:
        world.run(ranks, program)
