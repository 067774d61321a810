"""pad, in all modes, and what it sends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray.array import distribute
from distarray.array.storage import is_contiguous
from distarray.comm import DeviceMesh
from distarray.comm.ledger import forbid_communication, trace
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import array_values, assert_matches

from .likeness import cases, check

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:.*no distributed form")

MODES = ["constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum"]
MODES += ["reflect", "symmetric", "wrap"]


def widths(data, ndim):
    one = st.integers(0, 6) | st.integers(7, 20) if ndim < 3 else st.integers(0, 5)
    pair = st.tuples(one, one)
    kinds = [one, pair, st.lists(pair, min_size=ndim, max_size=ndim)]
    if ndim:
        kinds.append(st.dictionaries(st.integers(-ndim, ndim - 1), one | pair, max_size=1))
    found = data.draw(st.one_of(kinds))
    return -1 if data.draw(st.integers(0, 60)) == 0 else found or 0


@settings(max_examples=150)
@given(data=st.data())
def test_pad(world, data):
    mode = data.draw(st.sampled_from(MODES))
    dtypes = ("f8", "i8", "i4", "u1", "c16", "f4")
    if mode in ("constant", "edge", "reflect", "wrap"):
        dtypes = (*dtypes, "?")
    if mode == "mean":
        dtypes = ("f8", "i8", "u1", "c16")  # single precision would need a tolerance of its own
    if mode == "median":
        dtypes = ("f8", "i4")
    values = data.draw(array_values(dtypes=dtypes))
    case = data.draw(cases(world, given=[values]))
    width = widths(data, values.ndim)
    keywords = {}
    if mode == "constant":
        pair = st.tuples(st.integers(0, 9), st.integers(0, 9))
        keywords = data.draw(
            st.just({}) | st.fixed_dictionaries({"constant_values": st.integers(0, 9) | pair})
        )
    elif mode == "linear_ramp" and data.draw(st.booleans()):
        keywords = {"end_values": data.draw(st.integers(0, 9) | st.just((1, 5)))}
    elif mode in ("maximum", "mean", "median", "minimum") and data.draw(st.booleans()):
        keywords = {"stat_length": data.draw(st.integers(1, 4) | st.just((2, 3)))}
    elif mode in ("reflect", "symmetric") and values.dtype.kind != "b":
        keywords = {"reflect_type": data.draw(st.sampled_from(["even", "odd"]))}
    exact = mode != "mean"
    check(world, case, lambda x: np.pad(x, width, mode, **keywords), exact=exact)


@settings(max_examples=40)
@given(data=st.data())
def test_empty_keeps_the_middle(world, data):
    case = data.draw(cases(world))
    width = data.draw(st.integers(0, 4))
    shape = case.operands[0].values.shape
    middle = tuple([slice(width, width + n) for n in shape])
    check(world, case, lambda x: np.pad(x, width, "empty")[(*middle, ...)])


@settings(max_examples=40)
@given(data=st.data())
def test_functions(world, data):
    case = data.draw(cases(world, max_dims=2))
    width = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))

    def mark(vector, pair, axis, keywords):
        vector[: pair[0]] = axis + keywords.get("more", 0)
        vector[vector.size - pair[1] :] = vector[pair[0] : pair[0] + 1].sum()

    check(world, case, lambda x: np.pad(x, width, mark, more=3))


def test_errors(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(12.0).reshape(4, 3)
        x = distribute(values, mesh, [Shard(0)], src=None)
        for width, mode, keywords in (
            (1, "nonsense", {}),
            (1, "edge", {"constant_values": 3}),
            (1.5, "edge", {}),
            (-1, "edge", {}),
            (((1, 2), (3, 4), (5, 6)), "edge", {}),
            (1, "maximum", {"stat_length": 0}),
        ):
            with pytest.raises(Exception) as wanted:
                np.pad(values, width, mode, **keywords)
            with pytest.raises(wanted.type) as found:
                np.pad(x, width, mode, **keywords)
            assert str(found.value) == str(wanted.value)
        with pytest.raises(ValueError, match="can't extend empty axis 0"):
            np.pad(x[:0], 1, "wrap")

    world.run(ranks, program)


def test_constants_are_cast_as_numpy_casts_them(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(5, dtype="u1")
        x = distribute(values, mesh, [Shard(0)], src=None)
        wanted = np.pad(values, 1, constant_values=300)
        assert_matches(np.pad(x, 1, constant_values=300), wanted)

    world.run(ranks, program)


@pytest.mark.parametrize("mode", ["constant", "edge", "empty", "reflect", "symmetric"])
def test_the_middle_stays_and_edges_are_local(world, ranks, mode):
    """Pads made from rows of the same rank: nothing is sent, nor when the middle is cut out."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(240.0).reshape(24, 10)
        x = distribute(values, mesh, [Shard(0)], src=None)
        with forbid_communication():
            padded = np.pad(x, 2, mode)
            inner = padded[2:-2, 2:-2] * 1
        assert_matches(inner, values)

    world.run(ranks, program)


def test_wrap_sends_the_rows_of_the_pads(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.arange(240.0).reshape(24, 10), mesh, [Shard(0)], src=None)
        with trace() as t:
            np.pad(x, ((2, 3), (0, 0)), "wrap")
        return t.bytes

    found = world.run(ranks, program)
    if len(found) == ranks:
        assert sum(found) == (0 if ranks == 1 else 5 * 80)


def test_wide_pads_are_divided(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(12.0)
        x = distribute(values, mesh, [Shard(0)], src=None)
        wide = np.pad(x, 100, "wrap")
        assert_matches(wide, np.pad(values, 100, "wrap"))
        longest = max([wide.layout.local_shape((r,))[0] for r in range(group.size)])
        assert longest <= 2 * -(-212 // group.size)
        small = distribute(values, mesh, [Replicate()], src=None)
        with config.override(replicate_below=1000):
            assert np.pad(small, 100).placements == (Shard(0),)
            assert np.pad(small, 1).placements == (Replicate(),)

    world.run(ranks, program)


ORDERED = {
    "turned": lambda x: x.T,
    "a result of turned": lambda x: x.T + 1,
    "in Fortran order": lambda x: x.copy("F"),
    "in C order": lambda x: x + 1,
    "a row": lambda x: x[:1].copy("F"),
    "with gaps": lambda x: x.T[::2],
}


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "mean"])
@pytest.mark.parametrize("name", ORDERED)
def test_pads_keep_the_order_of_memory(world, name, mode):
    def program(group):
        values = np.arange(80.0).reshape(8, 10)  # two indices a rank: one does not tell an order
        for placement in (Replicate(), Shard(0), Shard(1)):
            x = distribute(values, DeviceMesh(group), [placement], src=None)
            found, wanted = (np.pad(ORDERED[name](a), ((1, 2), (2, 1)), mode) for a in (x, values))
            assert_matches(found, wanted)
            assert_matches(found.ravel("K"), wanted.ravel("K"))
            fortran = is_contiguous(found, "F")
            assert fortran == wanted.flags.f_contiguous
            assert is_contiguous(found, "C") == wanted.flags.c_contiguous

    for ranks in world.ranks[:4]:
        world.run(ranks, program)
