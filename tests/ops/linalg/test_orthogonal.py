"""qr, svd, lstsq and what is made of them: as NumPy, at once and distributed."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import DeviceMesh, Replicate, Shard, distribute, trace
from distarray.config import config
from distarray.engines.factoring import householder, small, tsqr
from distarray.ops.linalg import leastsquares, qr, svd
from distarray.testing import assert_matches

from .matrices import placed, rounding, run

LA = np.linalg
DTYPES = ("f8", "c16", "f4", "i4")
MODES = ("reduced", "complete", "r", "raw")
SHAPES = ((40, 3), (23, 5), (7, 3), (9, 9), (10, 7), (7, 10), (3, 30), (5, 1), (1, 6), (64, 2))


@contextmanager
def distributed(short=0):
    """No matrix is small; chunks, panels and eliminations are short."""
    changes = [
        (qr, "TALL_BYTES", 0),
        (qr, "SHORT_BYTES", short),
        (small, "SMALL_BYTES", -1),
        (svd, "SQUARE_BYTES", -1),
        (leastsquares, "SMALL_BYTES", -1),
        (leastsquares, "SQUARE_BYTES", short),
        (householder, "PANEL", 3),
        (tsqr, "_CHUNK_ROWS", 6),
        (tsqr, "_CHUNK_WIDTHS", 1),
        (tsqr, "_LEAF", 2),
    ]
    with ExitStack() as stack:
        for module, name, value in changes:
            stack.enter_context(patch.object(module, name, value))
        yield


def made(shape, dtype, seed=0):
    """Matrices of full rank, of moderate condition."""
    rng = np.random.default_rng([seed, *shape])
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return (values * 8).astype(dtype)


def in_either_way(world, drawn, values, check, large):
    if large:
        with distributed(short=large - 1):
            run(world, drawn, values, check)
    else:
        run(world, drawn, values, check)


@pytest.mark.parametrize("large", [0, 1, 1 << 20])
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=8)
@given(data=st.data())
def test_qr_has_lapacks_signs(world, mode, large, data):
    shape, dtype = data.draw(st.sampled_from(SHAPES)), data.draw(st.sampled_from(DTYPES))
    a = made(shape, dtype)
    expected = LA.qr(a, mode)

    def check(x):
        assert_matches(LA.qr(x, mode), expected, exact=False, **rounding(expected[0].dtype))
        assert_matches(x, a)

    in_either_way(world, data.draw(placed(world, shape)), [a], check, large)


SPECIAL = {
    "zero": np.zeros((9, 9)),
    "tall zero": np.zeros((30, 3)),
    "unit": np.eye(10),
    "tall unit": -np.eye(30, 4),
    "triangle": np.triu(made((12, 12), "f8")),
    "imaginary": np.eye(9) * 1j,
    "zero column": made((30, 5), "f8") * [1, 1, 0, 1, 1],
    "equal columns": made((30, 5), "f8")[:, [0, 1, 0, 2, 1]],
    "ones": np.ones((12, 12)),
    "huge": made((20, 4), "f8") * 1e300,
    "graded": made((20, 8), "f8") * 10.0 ** -np.arange(0, 16, 2),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_matrices(world, ranks, name):
    """Orthonormal factors whatever the rank; LAPACK's values where rounding does not decide."""
    a = SPECIAL[name]
    size = np.abs(a).max() or 1
    wanted, values = LA.qr(a)[1], LA.svd(a, compute_uv=False)

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        q, r = (v.full() for v in LA.qr(x))
        assert np.abs(q.conj().T @ q - np.eye(q.shape[1])).max() < 1e-13
        assert np.abs(q @ (r / size) - a / size).max() < 1e-13
        if name in ("unit", "tall unit", "triangle", "tall zero", "imaginary", "graded"):
            np.testing.assert_allclose(r, wanted, atol=1e-13 * size)
        u, s, vh = (v.full() for v in LA.svd(x, full_matrices=False))
        np.testing.assert_allclose(s, values, rtol=0, atol=1e-13 * (values[0] or 1))
        assert np.abs(u.conj().T @ u - np.eye(len(s))).max() < 1e-13
        assert np.abs(vh @ vh.conj().T - np.eye(len(s))).max() < 1e-13
        assert np.abs(u * (s / size) @ vh - a / size).max() < 1e-13

    with distributed():
        world.run(ranks, program)


@pytest.mark.parametrize("large", [0, 1])
@settings(max_examples=18)
@given(data=st.data())
def test_svd(world, large, data):
    shape, dtype = data.draw(st.sampled_from(SHAPES)), data.draw(st.sampled_from(DTYPES))
    full = data.draw(st.booleans())
    a = made(shape, dtype)
    expected = LA.svd(a, full_matrices=full)
    exact = rounding(expected.U.dtype)

    def check(x):
        found = LA.svd(x, full_matrices=full)
        assert_matches(LA.svdvals(x), expected.S, exact=False, **exact)
        assert_matches(found.S, expected.S, exact=False, **exact)
        k = len(expected.S)
        u, s, vh = (v.full() for v in found)
        assert (u.shape, u.dtype) == (expected.U.shape, expected.U.dtype)
        assert (vh.shape, vh.dtype) == (expected.Vh.shape, expected.Vh.dtype)
        for basis in (u, vh.conj().T):
            np.testing.assert_allclose(basis.conj().T @ basis, np.eye(basis.shape[1]), **exact)
        np.testing.assert_allclose((u[:, :k] * s) @ vh[:k], a, **exact)

    in_either_way(world, data.draw(placed(world, shape)), [a], check, large)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_singular_vectors_of_tall_and_wide_matrices_have_lapacks_signs(world, ranks, dtype):
    a = made((2048, 5), dtype)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for values, dim in ((a, 0), (a.conj().T, 1), (a.T, 0)):
            x = distribute(values, mesh, [Shard(dim)], src=None)
            expected = LA.svd(values, full_matrices=False)
            found = LA.svd(x, full_matrices=False)
            assert_matches(found, expected, exact=False, rtol=1e-9, atol=1e-10)

    world.run(ranks, program)


def deficient(shape, rank, dtype="f8"):
    return made((shape[0], rank), dtype) @ made((rank, shape[1]), dtype, seed=1)


@pytest.mark.parametrize("large", [0, 1, 1 << 20])
@settings(max_examples=15)
@given(data=st.data())
def test_lstsq(world, large, data):
    shape = data.draw(st.sampled_from(SHAPES))
    m = shape[0]
    right = data.draw(st.sampled_from([(m,), (m, 1), (m, 2), (m, 0)]))
    low = data.draw(st.booleans()) and min(shape) > 2
    a = deficient(shape, 2) if low else made(shape, data.draw(st.sampled_from(DTYPES)))
    b = made(right, data.draw(st.sampled_from(("f8", "c16"))), seed=2)
    expected = LA.lstsq(a, b)

    def check(x, y):
        found = LA.lstsq(x, y)
        assert_matches(found[:2], expected[:2], exact=False, rtol=1e-8, atol=1e-8)
        assert_matches(found[2:], expected[2:], exact=False, rtol=1e-9, atol=1e-9)

    in_either_way(world, data.draw(placed(world, shape, right)), [a, b], check, large)


CALLS = {
    "pinv": LA.pinv,
    "pinv with rcond": lambda a: LA.pinv(a, 1e-3),
    "pinv with rtol": lambda a: LA.pinv(a, rtol=None),
    "matrix_rank": LA.matrix_rank,
    "matrix_rank with tol": lambda a: LA.matrix_rank(a, tol=5.0),
    "matrix_rank with rtol": lambda a: LA.matrix_rank(a, rtol=0.3),
    "cond": LA.cond,
    "smallest over largest": lambda a: LA.cond(a, -2),
    "svdvals": LA.svdvals,
}


@pytest.mark.parametrize("large", [0, 1])
@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=8)
@given(data=st.data())
def test_calls(world, name, large, data):
    call = CALLS[name]
    shape = data.draw(st.sampled_from(SHAPES))
    a = made(shape, data.draw(st.sampled_from(("f8", "c16"))))
    if data.draw(st.booleans()) and min(shape) > 2 and "cond" not in name:
        a = deficient(shape, 2)
    expected = call(a)

    def check(x):
        assert_matches(call(x), expected, exact=False, rtol=1e-8, atol=1e-10)

    in_either_way(world, data.draw(placed(world, shape)), [a], check, large)


STACKED = {
    **CALLS,
    **{f"qr {mode}": lambda a, mode=mode: LA.qr(a, mode) for mode in MODES},
    "svd": lambda a: tuple(np.abs(v) for v in LA.svd(a, full_matrices=False)),
    "hermitian values": lambda a: LA.svd(a @ np.swapaxes(a, -1, -2), True, False, True),
    "rank of hermitian": lambda a: LA.matrix_rank(a @ np.swapaxes(a, -1, -2), hermitian=True),
    "pinv of hermitian": lambda a: LA.pinv(a @ np.swapaxes(a, -1, -2), 1e-9, hermitian=True),
    "condition by inverse": lambda a: LA.cond(a @ np.swapaxes(a, -1, -2), 1),
}


@pytest.mark.parametrize("name", STACKED)
@settings(max_examples=6)
@given(data=st.data())
def test_stacks(world, name, data):
    stack = data.draw(st.sampled_from([(7,), (2,), (2, 3), (0,)]))
    if not stack[-1] and name in ("cond", "smallest over largest"):
        stack = (3,)
    a = made((*stack, 3, 5), "f8")
    expected = STACKED[name](a)

    def check(x):
        assert_matches(STACKED[name](x), expected, exact=False, rtol=1e-8, atol=1e-9)

    in_either_way(world, data.draw(placed(world, a.shape)), [a], check, data.draw(st.booleans()))


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, a: xp.linalg.qr(a[0]),
        lambda xp, a: xp.linalg.qr(a, "none"),
        lambda xp, a: xp.linalg.svd(a[0]),
        lambda xp, a: xp.linalg.svd(a.astype("f2")),
        lambda xp, a: xp.linalg.lstsq(a, a[:2]),
        lambda xp, a: xp.linalg.lstsq(a[None], a),
        lambda xp, a: xp.linalg.pinv(a, 1e-3, rtol=1e-3),
        lambda xp, a: xp.linalg.matrix_rank(a, 1e-3, rtol=1e-3),
        lambda xp, a: xp.linalg.cond(a, 1),
        lambda xp, a: xp.linalg.cond(a[:0]),
        lambda xp, a: xp.linalg.cond(a[:3], 7),
        lambda xp, a: xp.linalg.svd(a * np.nan),
    ],
)
def test_errors_are_numpys(world, ranks, call):
    a = made((6, 3), "f8")
    with pytest.raises(Exception) as wanted:
        call(np, a)

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        with pytest.raises(type(wanted.value)) as found:
            call(np, x)
        assert str(found.value) == str(wanted.value)

    world.run(ranks, program)


def test_tall_matrices_cost_little(world, ranks):
    """A few messages of the triangle's size: nothing gathers the rows."""
    a = made((4096, 8), "f8")

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        for call in (LA.qr, LA.svdvals, lambda y: LA.lstsq(y, y[:, 0])):
            with trace() as found:
                call(x)
            assert found.bytes <= 8000 * max(1, group.size.bit_length())
        r = LA.qr(distribute(a, x.mesh, [Replicate()], src=None)).R
        np.testing.assert_allclose(r.full(), LA.qr(x).R.full(), rtol=1e-9, atol=1e-9)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n >= 4)  # otherwise a block is too large a part of the matrix
@pytest.mark.parametrize("name", ["qr", "svd", "svdvals", "matrix_rank"])
def test_nothing_gathers_a_large_matrix(world, ranks, name):
    """No message carries what a gather would: three quarters of the operand, or a block."""
    a = made((72, 72), "f8")

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        with config.override(replicate_below=0), trace() as found:
            getattr(LA, name)(x)
        for event in found.events:
            least = 16 * len(a) if event.kind == "allgather" else a.nbytes // 2
            assert event.bytes <= least, event

    with distributed():
        world.run(ranks, program)
