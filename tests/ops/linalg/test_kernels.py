"""Parts of the blocked algorithms, on any number of ranks: panels, triangles, tridiagonals."""

import numpy as np
import pytest

from distarray import DeviceMesh, Replicate, Shard, distribute
from distarray.comm import run_threads
from distarray.engines.factoring import cyclic, lapack, secular, triangular
from distarray.engines.factoring import divide_and_conquer as divide
from distarray.layout import Layout

from .matrices import blocked, positive, well

RNG = np.random.default_rng(3)


def random(shape, dtype="f8", order="C"):
    values = RNG.standard_normal(shape)
    if dtype == "c16":
        values = values + 1j * RNG.standard_normal(shape)
    return np.array(values, dtype, order=order)


@pytest.fixture(params=["library", "numpy"])
def kernels(request, monkeypatch):
    """With the routines of NumPy's library, and without."""
    if request.param == "numpy":
        monkeypatch.setattr(lapack, "_getrf", lambda dtype: None)
        monkeypatch.setattr(lapack, "_gemm", lambda dtype: None)
        monkeypatch.setattr(lapack, "_trsm", lambda dtype: None)
    return request.param


def test_the_library_of_numpys_wheels_is_found():
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    if "scipy-openblas" not in blas:
        pytest.skip(f"NumPy is linked with {blas}")
    for dtype in (np.dtype("f8"), np.dtype("c16")):
        assert lapack._getrf(dtype) is not None
        assert lapack._gemm(dtype) is not None
        assert lapack._trsm(dtype) is not None


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize(("width", "rows"), [(0, 0), (1, 1), (3, 3), (1, 9), (20, 20), (21, 50)])
def test_factors_of_a_panel(kernels, dtype, width, rows):
    columns = random((width, rows), dtype)
    factored = columns.copy()
    pivots = lapack.factor_panel(factored)
    lower = np.tril(factored.T, -1) + np.eye(rows, width)
    assert np.abs(lower).max(initial=0) <= (1 if dtype == "f8" else 2**0.5)
    changed, sources = lapack.row_order(pivots)
    panel = columns.T.copy()
    panel[changed] = panel[sources]
    np.testing.assert_allclose(lower @ np.triu(factored.T[:width]), panel, atol=1e-13)


def test_a_panel_without_a_pivot(kernels):
    columns = np.array([[1.0, 2, 4, 2], [2, 4, 8, 4], [0, 1, 0, 5]])
    factored = columns.copy()
    pivots = lapack.factor_panel(factored)
    assert factored[1, 1] == 0
    lower = np.tril(factored.T, -1) + np.eye(4, 3)
    changed, sources = lapack.row_order(pivots)
    panel = columns.T.copy()
    panel[changed] = panel[sources]
    np.testing.assert_allclose(lower @ np.triu(factored.T[:3]), panel, atol=1e-15)


@pytest.mark.parametrize("dtype", ["f8", "c16", "f4"])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_subtracting_a_product(kernels, dtype, orders):
    for m, n, k in ((7, 5, 3), (1, 5, 3), (7, 1, 3), (7, 5, 1), (1, 1, 1), (300, 9, 4), (0, 3, 2)):
        whole = random((m + 2, n + 3), dtype)
        left, right = random((m, k), dtype, orders[0]), random((k, n), dtype, orders[1])
        expected = whole.copy()
        expected[1 : m + 1, 2 : n + 2] -= left @ right
        lapack.subtract_product(whole[1 : m + 1, 2 : n + 2], left, right)
        np.testing.assert_allclose(whole, expected, atol=1e-12 if dtype != "f4" else 1e-4)
        strided = random((m + 2, n + 3), dtype)[::2, ::-1]
        expected = strided - random((len(strided), 0)) @ random((0, n + 3))
        lapack.subtract_product(strided, strided[:, :0], strided[:0])
        np.testing.assert_array_equal(strided, expected.astype(dtype))
    reverse = random((6, 6), dtype)[::-1, ::-1]
    expected = reverse - reverse @ reverse
    lapack.subtract_product(reverse, reverse.copy(), reverse.copy())
    np.testing.assert_allclose(reverse, expected, atol=1e-12 if dtype != "f4" else 1e-4)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_the_lower_triangle_of_a_panel(kernels, dtype):
    for width, rows, count in ((1, 1, 1), (4, 9, 6), (4, 4, 1), (20, 31, 3), (3, 5, 0)):
        columns, whole = random((width, rows), dtype), random((width, count + 2), dtype)
        lower = np.tril(columns[:, :width].T, -1) + np.eye(width)
        sides = whole[:, 1 : count + 1]
        expected = np.linalg.solve(lower, sides)
        done = lapack.solve_unit_lower(columns, sides)
        assert done == (kernels == "library" and bool(count))
        if done:
            np.testing.assert_allclose(sides, expected, rtol=1e-9)
        sides = random((count + 3, width + 2), dtype)[1 : count + 1, 1:-1]
        square = np.ascontiguousarray(lower + np.triu(np.full((width, width), np.nan), 1))
        expected = sides @ np.linalg.inv(lower.conj().T)
        assert lapack.divide_by_adjoint(sides, square) == done
        if done:
            np.testing.assert_allclose(sides, expected, rtol=1e-9)


@pytest.mark.parametrize("large_dtype", ["f8", "c16"])
@pytest.mark.parametrize("many", [1, 9])
def test_systems_without_the_library(world, kernels, large_dtype, many):
    ranks = world.ranks[-1]
    a, b, s = well(19, large_dtype), random((19, many)), positive(19, large_dtype)

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        np.testing.assert_allclose(np.linalg.solve(x, b).full(), np.linalg.solve(a, b))
        y = distribute(s, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        np.testing.assert_allclose(np.linalg.cholesky(y).full(), np.linalg.cholesky(s), atol=1e-9)

    with blocked():
        world.run(ranks, program)


@pytest.mark.parametrize("size", [0, 1, 5, 32, 33, 71])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_triangles(kernels, size, dtype):
    lower = np.tril(random((size, size), dtype), -1) / 9 + np.eye(size)
    np.testing.assert_allclose(triangular.inverse_of_lower(lower) @ lower, np.eye(size), atol=1e-12)
    upper = lower.T + np.tril(np.full((size, size), np.nan), -1)
    sides, given = random((size, 6), dtype)[:, ::2], upper.copy()
    for triangle in (upper, np.ascontiguousarray(upper), np.pad(upper, 2)[2:-2, 2:-2]):
        found = triangular.solve_upper(triangle, sides)
        np.testing.assert_allclose(np.triu(upper) @ found, sides, atol=1e-12)
        np.testing.assert_array_equal(triangle, given)


def glued(pieces, joint):
    """Wilkinson's matrices, whose eigenvalues come in pairs equal to rounding, weakly joined."""
    d = np.tile(np.abs(np.arange(21) - 10.0), pieces)
    e = np.ones(len(d) - 1)
    e[20::21] = joint
    return d, e


TRIDIAGONALS = {
    "none": (np.zeros(0), np.zeros(0)),
    "one": (np.ones(1), np.zeros(0)),
    "random": (random(75), np.abs(random(74))),
    "second differences": (np.full(70, 2.0), np.ones(69)),
    "glued": glued(4, 1e-10),
    "glued closer": glued(4, 1e-3),
    "graded": (10.0 ** -np.arange(60.0), 10.0 ** -np.arange(59.0)),
    "graded upwards": (10.0 ** np.arange(-59.0, 1), 10.0 ** np.arange(-58.0, 1)),
    "diagonal": (random(40), np.zeros(39)),
    "weak": (random(64), np.abs(random(63)) * 1e-9),
    "few values": (np.repeat([1.0, 2.0], 30), np.tile([0.0, 1.0, 0.0], 20)[:-1]),
    "huge": (random(50) * 1e300, np.abs(random(49)) * 1e299),
}


def solved(d, e, mesh):
    """Eigenvalues, and rows of the vectors from all ranks joined."""
    n, rank, size = len(d), mesh.group.rank, mesh.group.size
    rows = n * rank // size, n * (rank + 1) // size
    values, part = divide.tridiagonal_eigen(d, e, rows, mesh)
    pieces = mesh.group.allgather_varied(np.ascontiguousarray(part.T))
    alone, nothing = divide.tridiagonal_eigen(d, e, (0, 0), mesh)
    assert nothing.shape == (n, 0)
    np.testing.assert_allclose(alone, values, rtol=0, atol=1e-14 * np.abs(d).max(initial=1))
    return values, np.concatenate(pieces)


@pytest.mark.parametrize("ranks", [1, 3])
def test_divide_and_conquer(ranks, monkeypatch):
    """To working precision: residuals, orthogonality, and eigenvalues as LAPACK's."""
    monkeypatch.setattr(divide, "SHARED_FROM", 24)
    monkeypatch.setattr(divide, "LEAF", 12)

    def program(group):
        mesh = DeviceMesh(group, (group.size,), device_type="cpu")
        return [solved(d, e, mesh) for d, e in TRIDIAGONALS.values()]

    for found in run_threads(ranks, program, timeout=30):
        for (values, vectors), (d, e) in zip(found, TRIDIAGONALS.values(), strict=True):
            n, scale = len(d), max(np.abs(d).max(initial=0), np.abs(e).max(initial=0)) or 1.0
            matrix = (np.diag(d) + np.diag(e, 1) + np.diag(e, -1)) / scale if n else np.eye(0)
            assert np.all(np.diff(values) >= 0)
            wanted = np.linalg.eigvalsh(matrix)
            np.testing.assert_allclose(values / scale, wanted, rtol=0, atol=2e-14)
            assert np.abs(vectors.T @ vectors - np.eye(n)).max(initial=0) < 2e-14
            residual = matrix @ vectors - vectors * (values / scale)
            assert np.abs(residual).max(initial=0) < 2e-14


def test_roots_lie_between_the_poles():
    d = np.sort(RNG.standard_normal(40)) * 10.0 ** np.linspace(-12, 3, 40)
    d.sort()
    z = RNG.standard_normal(40)
    z /= np.linalg.norm(z)
    found = secular.roots(d, z, 1e-3, lambda n, compute: compute(0, n))
    table = found.beyond(d, slice(None), slice(None))
    upper = np.arange(40)[:, None] > np.arange(40)
    assert np.all((table > 0) == upper)


def test_dealing_covers_every_column_once(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for columns, width in ((0, 1), (1, 3), (7, 2), (24, 4), (25, 4), (5, 9)):
            dealing = cyclic.Dealing(mesh, columns, width)
            every = np.concatenate([dealing.indices(r) for r in range(group.size)])
            assert sorted(every.tolist()) == list(range(columns))
            for panel in range(dealing.panels):
                start, stop = dealing.interval(panel)
                own = dealing.indices(group.rank)
                assert dealing.place(panel) == np.searchsorted(own, start)
                owns = dealing.owner(panel) == group.rank
                assert owns == bool(stop > start and np.isin(start, own))

    world.run(ranks, program)


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1)])
def test_dealt_and_collected(world, ranks, placement):
    a = np.arange(77.0).reshape(7, 11)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, [placement], src=None)
        dealing = cyclic.Dealing(mesh, 11, 2)
        own = cyclic.dealt(x, dealing, dealing.empty(7, "f8"))
        host = mesh.to_host(own)
        np.testing.assert_array_equal(host, a[:, dealing.indices(group.rank)])
        half = cyclic.dealt(x, dealing, dealing.empty(7, "f8"), lower=True)
        down = np.arange(7)[:, None] >= dealing.indices(group.rank)
        np.testing.assert_array_equal(mesh.to_host(half)[down], host[down])
        own[...] = -own
        np.testing.assert_array_equal(x.full(), a)  # the panels are a copy
        back = cyclic.collected(own, dealing, Layout.chunked((7, 11), (group.size,), [placement]))
        np.testing.assert_array_equal(back.full(), -a)

    world.run(ranks, program)
