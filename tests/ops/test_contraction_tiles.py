"""Products under ``config.reproducible`` that cross the edges of tiles: the bits of one rank."""

from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard, distribute
from distarray.comm import run_threads
from distarray.engines.contracting import tiling
from distarray.testing import mesh_shapes, recipes

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.skipif(distarray.config.device == "cuda", reason="a GPU has no tiles"),
]

#: Small arrays cross many edges of these.
SMALL = tiling.Sizes(3, 4, 8)

#: Calls, and the shapes of their operands for lengths m, k, n.
CALLS = [
    (np.matmul, lambda m, k, n: ((m, k), (k, n))),
    (lambda a, b: a.T @ b, lambda m, k, n: ((k, m), (k, n))),
    (lambda a, b: a.T @ a, lambda m, k, n: ((k, m), (1,))),
    (lambda a, b: a @ b.T, lambda m, k, n: ((m, k), (n, k))),
    (np.matmul, lambda m, k, n: ((m, k), (k,))),
    (np.matmul, lambda m, k, n: ((k,), (k, n))),
    (np.matmul, lambda m, k, n: ((2, m, k), (3, 1, k, n))),
    (np.tensordot, lambda m, k, n: ((m, k, 5), (k, 5, n))),
    (lambda a, b: np.einsum("kij,lkj->li", a, b), lambda m, k, n: ((k, m, 3), (n, k, 3))),
    (lambda a, b: np.einsum("kb,bk->b", a, b), lambda m, k, n: ((k, m), (m, k))),
    (lambda a, b: np.einsum("ij,ji->", a, b), lambda m, k, n: ((m, k), (k, m))),
]
if hasattr(np, "vecmat"):  # NumPy 2.2's
    CALLS.append((np.vecmat, lambda m, k, n: ((n, k), (k, m))))


@contextmanager
def sizes(wanted):
    """Tiles of another size."""
    before, tiling.SIZES = tiling.SIZES, wanted
    try:
        yield
    finally:
        tiling.SIZES = before


def product(group, mesh_shape, call, operands):
    """The product as a NumPy array; `operands` are called with the mesh."""
    mesh = DeviceMesh(group, mesh_shape)
    with distarray.config.override(reproducible=True):
        return np.array(call(*[operand(mesh) for operand in operands]))


def alone(call, values):
    """The product on one rank."""
    made = [lambda mesh, v=v: distribute(v, mesh, [Replicate()], src=None) for v in values]
    return run_threads(1, lambda group: product(group, (1,), call, made))[0]


def bits(value):
    """The memory of an array; every NaN alike. What follows 80 bits of a number means nothing."""
    array = np.where(np.isnan(value), np.nan, value).astype(value.dtype)
    padded = array.dtype.char in "gG" and np.finfo("g").nmant == 63
    real = np.ascontiguousarray(array).reshape(-1, 1).view(array.real.dtype)
    return real.reshape(-1, 1).view("u1")[:, : 10 if padded else None].tobytes()


def numbers(rng, shape, dtype):
    """Numbers of different magnitudes."""
    spread = 3 if dtype == "f2" else 12
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)
    if np.dtype(dtype).kind == "c":
        found = found + 1j * rng.standard_normal(shape)
    return found.astype(dtype)


def check(found, expected, call, values):
    """The bits of one rank, and an error like NumPy's."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert bits(found) == bits(expected)
    plain = call(*values)
    assert plain.dtype == found.dtype
    finite = np.isfinite(plain)
    np.testing.assert_array_equal(finite, np.isfinite(found))
    np.testing.assert_array_equal(np.isnan(plain), np.isnan(found))
    wide = [v.astype("G" if v.dtype.kind == "c" else "g") for v in values]
    exact, scale = call(*wide), call(*[np.abs(v) for v in wide])
    kept = np.asarray(finite)
    unit = np.finfo(found.dtype).eps * np.asarray(scale)[kept] + np.finfo(found.dtype).tiny
    error, numpys = [np.abs(np.asarray(x - exact))[kept] / unit for x in (found, plain)]
    assert error.max(initial=0) <= max(6, 2 * numpys.max(initial=0))


@settings(max_examples=150)
@given(data=st.data())
def test_the_mesh_does_not_show(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    dtype = data.draw(st.sampled_from(["f8", "f8", "f4", "c16", "c8", "f2", "g"]))
    call, shapes = data.draw(st.sampled_from(CALLS))
    m, n = data.draw(st.integers(0, 14)), data.draw(st.integers(0, 14))
    shapes = shapes(m, data.draw(st.integers(0, 70)), n)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = [numbers(rng, shape, dtype) for shape in shapes]
    if data.draw(st.booleans()):
        odd = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))
        values[0].flat[:: data.draw(st.integers(7, 60))] = odd
        values[1].flat[3 :: data.draw(st.integers(7, 60))] = data.draw(st.sampled_from([0, np.inf]))
    kinds = ("plain", "view", "transposed", "ragged")
    placed = [data.draw(recipes(v.shape, mesh_shape, dtype, kinds)) for v in values]
    pairs = list(zip(placed, values, strict=True))
    made = [lambda mesh, r=r, v=v: r.build(v, mesh) for r, v in pairs]
    with sizes(SMALL):
        expected = alone(call, values)
        everywhere = world.run(ranks, lambda group: product(group, mesh_shape, call, made))
    for found in everywhere:
        check(found, expected, call, values)


@cache
def real(shape, dtype):
    """Operands of these lengths, and their product on one rank, which is as exact as NumPy's."""
    m, k, n = shape
    rng = np.random.default_rng(k)
    values = [numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)]
    found = alone(np.matmul, values)
    check(found, found, np.matmul, values)
    return values, found


@pytest.mark.parametrize("shape", [(193, 2100, 130), (400, 700, 97), (97, 3, 1), (1, 1300, 300)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
def test_real_tiles(world, ranks, shape, dtype):
    values, expected = real(shape, dtype)
    ways = [(Shard(0), Replicate()), (Replicate(), Shard(1)), (Shard(1), Shard(0)), (Shard(0),) * 2]

    def program(group):
        for way in ways:
            made = [
                lambda mesh, v=v, p=p: distribute(v, mesh, [p], src=None)
                for v, p in zip(values, way, strict=True)
            ]
            found = product(group, (ranks,), np.matmul, made)
            assert bits(found) == bits(expected), way

    world.run(ranks, program)


def test_large_operands_and_results(world, ranks, monkeypatch):
    """What moves in panels, and is folded in parts."""
    monkeypatch.setattr("distarray.engines.contracting.program.PANEL_BYTES", 256)
    rng = np.random.default_rng(1)
    a, b = numbers(rng, (40, 70), "f8"), numbers(rng, (70, 30), "f8")
    calls = [
        (np.matmul, (a, b), (Shard(0), Shard(0))),
        (np.matmul, (a, b), (Shard(1), Shard(0))),
        (np.matmul, (a, b), (Shard(0), Shard(1))),
        (np.matmul, (a, b[:, 0]), (Shard(0), Shard(0))),
    ]
    with sizes(SMALL):
        expected = [alone(call, values) for call, values, _ in calls]

        def program(group):
            mesh = DeviceMesh(group, (ranks,))
            with distarray.config.override(reproducible=True, replicate_below=0):
                for (call, values, way), wanted in zip(calls, expected, strict=True):
                    pairs = zip(values, way, strict=True)
                    operands = [distribute(v, mesh, [p], src=None) for v, p in pairs]
                    assert bits(np.array(call(*operands))) == bits(wanted)

        world.run(ranks, program)


def test_no_error_but_numpys(world, ranks):
    """Rows that fill up a tile make no floating-point error of their own."""
    a, b = np.ones((7, 9)), np.ones((9, 5))
    a[6], b[0] = 1e200, 1e120  # 1e120 does not overflow beside ones
    a[6, 0] = 1.0

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distribute(a, mesh, [Shard(0)], src=None)
        with distarray.config.override(reproducible=True), np.errstate(all="raise"):
            return np.array(x @ b)

    with sizes(SMALL):
        for found in world.run(ranks, program):
            np.testing.assert_allclose(found, a @ b)
