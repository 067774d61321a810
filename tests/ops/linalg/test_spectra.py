"""Eigenvalues and eigenvectors: as NumPy's, at once, in stacks, and over all ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import DeviceMesh, Shard, distribute, trace
from distarray.testing import assert_matches

from .matrices import SIDES, blocked, placed, rounding, run, well

LA = np.linalg
DTYPES = ("f8", "c16", "f4", "i4")


def mirrored(a, triangle):
    """The Hermitian matrix of which LAPACK reads one triangle of `a`."""
    part = np.tril(a, -1) if triangle == "L" else np.triu(a, 1)
    diagonal = a.diagonal(axis1=-2, axis2=-1).real[..., None] * np.eye(a.shape[-1])
    return part + np.conjugate(np.swapaxes(part, -1, -2)) + diagonal


def assert_eigen(whole, values, vectors, close):
    """That these are the eigenpairs of a matrix: vectors are equal to a factor only."""
    w, v = values.full(), vectors.full()
    size = np.abs(whole).max(initial=1) * max(1, whole.shape[-1])
    np.testing.assert_allclose(whole @ v, v * w[..., None, :], rtol=0, atol=close["atol"] * size)
    unit = np.conjugate(np.swapaxes(v, -1, -2)) @ v
    np.testing.assert_allclose(unit, np.broadcast_to(np.eye(v.shape[-1]), unit.shape), atol=1e-4)
    assert np.abs(unit - np.eye(v.shape[-1])).max(initial=0) < close["atol"] * 100


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("triangle", ["L", "u"])
@settings(max_examples=12)
@given(data=st.data())
def test_hermitian(world, large, triangle, data):
    dtype = data.draw(st.sampled_from(DTYPES))
    n = data.draw(st.sampled_from([*SIDES, 34]))
    stack = data.draw(st.sampled_from([(), (), (), (7,), (2,), (0,), (2, 4)])) if n < 10 else ()
    a = well(n, dtype, stack=stack)
    expected = LA.eigh(a, triangle)
    close = rounding(dtype)
    tolerance = {"rtol": 0, "atol": close["atol"] * max(1, 10 * n)}

    def check(x):
        result = LA.eigh(x, UPLO=triangle)
        assert type(result) is type(expected)
        assert_matches(result.eigenvalues, expected.eigenvalues, exact=False, **tolerance)
        assert result.eigenvectors.dtype == expected.eigenvectors.dtype
        assert result.eigenvectors.shape == expected.eigenvectors.shape
        assert_eigen(mirrored(a, triangle.upper()), *result, close)
        values = LA.eigvalsh(x, triangle)
        assert_matches(values, LA.eigvalsh(a, triangle), exact=False, **tolerance)
        assert_matches(x, a)

    run(world, data.draw(placed(world, a.shape)), [a], check, large)


def special(n):
    """Symmetric matrices whose eigenvalues cluster, vanish or differ by orders of magnitude."""
    grades = 10.0 ** -np.arange(n)
    wilkinson = np.diag(np.abs(np.arange(n) - n // 2).astype(float))
    return {
        "zero": np.zeros((n, n)),
        "unit": np.eye(n) * 3,
        "all equal": np.ones((n, n)),
        "graded": np.sqrt(grades[:, None] * grades),
        "wilkinson": wilkinson + np.eye(n, k=1) + np.eye(n, k=-1),
        "two values": np.kron(np.eye(n // 2), np.ones((2, 2))),
        "tiny": well(n) @ well(n).T * 1e-200,
        "huge": well(n) @ well(n).T * 1e200,
        "denormal": np.full((n, n), 5e-324),
    }


def test_special_matrices(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for name, a in special(14).items():
            w = LA.eigvalsh(a)
            scale = np.abs(w).max() or 1.0
            x = distribute(a, mesh, [Shard(0)], src=None)
            values, vectors = LA.eigh(x)
            assert np.abs(values.full() - w).max() <= 1e-13 * scale, name
            assert np.abs(LA.eigvalsh(x).full() - w).max() <= 1e-13 * scale, name
            v = vectors.full()
            assert np.abs(v.T @ v - np.eye(14)).max() < 1e-13, name
            assert np.abs((a / scale) @ v - v * (values.full() / scale)).max() < 1e-13, name

    with blocked():
        world.run(ranks, program)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("imaginary", [False, True])
@settings(max_examples=8)
@given(data=st.data())
def test_general(world, imaginary, large, data):
    """Real where all eigenvalues of the whole stack are real, wherever the others are."""
    dtype = data.draw(st.sampled_from(DTYPES))
    stack = data.draw(st.sampled_from([(), (7,), (2,), (0,), (2, 4)]))
    n = data.draw(st.sampled_from([0, 1, 2, 5]))
    a = np.broadcast_to(np.triu(well(n, dtype)), (*stack, n, n)).copy()
    a += (np.arange(n) * 20 * np.eye(n)).astype(dtype)
    if imaginary and a.size and n > 1:
        a.reshape(-1, n, n)[-1, :2, :2] = [[0, -1], [1, 0]]
    expected = LA.eig(a)
    close = rounding(dtype)
    tolerance = {"exact": False, "rtol": 0, "atol": close["atol"] * 100}

    def check(x):
        result = LA.eig(x)
        assert type(result) is type(expected)
        assert_matches(result, tuple(expected), **tolerance)
        assert_matches(LA.eigvals(x), LA.eigvals(a), **tolerance)

    run(world, data.draw(placed(world, a.shape)), [a], check, large)


BAD_CALLS = [
    lambda a: LA.eigh(a[:2]),
    lambda a: LA.eigh(a[0]),
    lambda a: LA.eigh(a, "X"),
    lambda a: LA.eigvalsh(a, "X"),
    lambda a: LA.eigvalsh(a.astype("f2")),
    lambda a: LA.eig(a[:2]),
    lambda a: LA.eigvals(a[0]),
    lambda a: LA.eig(a.astype("f2")),
    lambda a: LA.eig(a / (a * 0)),
    lambda a: LA.eigvals(a[None].repeat(7, axis=0) / np.arange(7.0)[:, None, None]),
]


def test_bad_input(world, ranks):
    a = well(4)

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        for call in BAD_CALLS:
            with pytest.raises(Exception) as wanted, np.errstate(all="ignore"):
                call(a)
            with pytest.raises(wanted.type) as found, np.errstate(all="ignore"):
                call(x)
            assert str(found.value) == str(wanted.value)
            float(x.sum())  # the ranks are in step

    world.run(ranks, program)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_large_matrix_must_be_finite(world, ranks, value):
    a = mirrored(well(9), "L")
    a[4, 2] = value

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(1)], src=None)
        for call in (LA.eigh, LA.eigvalsh):
            if ranks > 1:
                with pytest.raises(LA.LinAlgError, match="Eigenvalues did not converge"):
                    call(x)
        float(x[0].sum())

    with blocked():
        world.run(ranks, program)


def test_what_is_said_and_that_all_ranks_have_the_same_bits(world, ranks):
    n = 36
    a = mirrored(well(n), "L")

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(1)], src=None)
        with trace() as t:
            values, vectors = LA.eigh(x)
        if ranks > 1:
            assert vectors.layout is x.layout
        texts = group.allgather_object(values.full().tobytes())
        assert all(text == texts[0] for text in texts)
        return t

    with blocked():
        traces = world.run(ranks, program)
    share = 8 * n * n / ranks
    for t in traces if ranks > 1 else ():
        largest = max(event.bytes for event in t.events if event.kind != "exchange")
        assert largest <= 8 * n * 3  # a panel: nowhere is the matrix gathered
        assert sum(event.bytes for event in t.events if event.kind == "exchange") <= 6 * share
