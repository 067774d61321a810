"""out=, keywords and bad input of contractions, as NumPy has them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import DeviceMesh, Replicate, Shard, distribute
from distarray.testing import assert_matches, mesh_shapes, recipes

A, B = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(4, 2)
SQUARE = np.arange(9.0).reshape(3, 3)


def sharded(group, *values, dim=0):
    mesh = DeviceMesh(group, (group.size,))
    return [distribute(v, mesh, [Shard(dim)], src=None) for v in values]


WITH_OUT = [
    (lambda a, b, o: np.matmul(a, b, out=o), (3, 2), "f8"),
    (lambda a, b, o: np.matmul(a, b, out=o), (5, 3, 2), "f8"),
    (np.matmul, (3, 2), "f4"),
    (lambda a, b, o: np.matmul(a, b, o, casting="unsafe"), (3, 2), "i4"),
    (lambda a, b, o: np.matmul(a, b[:, 0], out=o), (3,), "f8"),
    (np.dot, (3, 2), "f8"),
    (lambda a, b, o: np.einsum("ij,jk", a, b, out=o), (3, 2), "f8"),
    (lambda a, b, o: np.einsum("ij,jk->", a, b, out=o), (), "f8"),
    (lambda a, b, o: np.einsum("ij->ji", a, out=o), (4, 3), "f8"),
    (lambda a, b, o: np.einsum("ij,jk", a, b, out=o, casting="same_kind"), (3, 2), "f4"),
    (lambda a, b, o: np.outer(a, b, out=o), (12, 8), "f8"),
    (np.outer, (12, 8), "c16"),
    (lambda a, b, o: np.trace(a, out=o), (), "f8"),
]


@pytest.mark.parametrize(("call", "shape", "dtype"), WITH_OUT)
@settings(max_examples=12)
@given(data=st.data())
def test_out(world, call, shape, dtype, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    kinds = ("plain", "view", "transposed", "ragged")
    placed = [data.draw(recipes(s, mesh_shape, dtype, kinds)) for s in (A.shape, B.shape)]
    kinds = ("plain", "ragged") if call is np.dot else kinds  # it takes no views with gaps
    placed.append(data.draw(recipes(shape, mesh_shape, dtype, kinds)))
    expected = np.full(shape, 7, dtype)
    call(A, B, expected)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        a, b, out = (
            r.build(v, mesh) for r, v in zip(placed, (A, B, np.full(shape, 7, dtype)), strict=True)
        )
        result = call(a, b, out)
        assert result is out
        assert_matches(out, expected)

    world.run(ranks, program)


def test_out_that_is_an_operand(world, ranks):
    def program(group):
        (x,) = sharded(group, SQUARE)
        np.matmul(x, x, out=x)
        assert_matches(x, SQUARE @ SQUARE)
        (y,) = sharded(group, SQUARE)
        np.dot(y, y.T, out=y)
        assert_matches(y, SQUARE @ SQUARE.T)
        (z,) = sharded(group, SQUARE)
        z @= z
        assert_matches(z, SQUARE @ SQUARE)

    world.run(ranks, program)


def test_out_of_numpy(world, ranks):
    """A NumPy array counts as replicated: every rank gets everything."""

    def program(group):
        a, b = sharded(group, A, B)
        for call in (np.matmul, np.dot, lambda *x, out: np.einsum("ij,jk", *x, out=out)):
            out = np.zeros((3, 2))
            assert call(a, b, out=out) is out
            np.testing.assert_array_equal(out, A @ B)

    world.run(ranks, program)


def test_out_of_a_larger_array(world, ranks):
    """Writing into a view of another array changes that array, and nothing beside the view."""

    def program(group):
        a, b, base = sharded(group, A, B, np.zeros((7, 4)))
        np.matmul(a, b, out=base[1:7:2, ::3])
        expected = np.zeros((7, 4))
        expected[1:7:2, ::3] = A @ B
        assert_matches(base, expected)

    world.run(ranks, program)


BAD = [
    lambda a, b: np.matmul(b, b),
    lambda a, b: a @ a,
    lambda a, b: np.matmul(a, 3.0),
    lambda a, b: np.matmul(a[None, None], b[:3]),
    lambda a, b: np.matmul(np.ones((2, 3, 4)), a[None, :, :].repeat(3, 0).reshape(3, 4, 3)),
    lambda a, b: np.matmul(a, b, out=np.empty((4, 2))),
    lambda a, b: np.matmul(a, b, out=np.empty((3, 2), "i4")),
    lambda a, b: np.matmul(a, b, axes=[(0, 1)]),
    lambda a, b: np.matmul(a, b, axis=0),
    lambda a, b: np.matmul(a, b, keepdims=True),
    lambda a, b: np.matmul(a, b, nonsense=True),
    lambda a, b: np.matmul(a, b, dtype="i4"),
    lambda a, b: np.matmul(a, b, where=True),
    np.vecdot,
    lambda a, b: np.vecdot(a, a, axis=2),
    lambda a, b: np.dot(a, a),
    lambda a, b: np.dot(a, b, out=np.empty((3, 2), "f4")),
    lambda a, b: np.dot(a, b, out=np.empty((2, 2))),
    np.inner,
    np.vdot,
    lambda a, b: np.tensordot(a, b, 2),
    lambda a, b: np.tensordot(a, b, ([0], [0])),
    lambda a, b: np.tensordot(a, b, ([1], [5])),
    lambda a, b: np.tensordot(a, b, ([1, 0], [0])),
    np.linalg.outer,
    lambda a, b: np.outer(a, b, out=np.empty((3, 2))),
    lambda a, b: np.outer(a, b, out=np.empty((12, 8), "i4")),
    lambda a, b: np.trace(a[0]),
    lambda a, b: np.trace(a, axis1=0, axis2=0),
    lambda a, b: np.trace(a, axis1=0, axis2=5),
    lambda a, b: np.linalg.matrix_transpose(a[0]),
    lambda a, b: np.einsum("ij,jk", a, a),
    lambda a, b: np.einsum("ij,jk", a),
    lambda a, b: np.einsum("ij", a, b),
    lambda a, b: np.einsum("ij->ik", a),
    lambda a, b: np.einsum("ij->ii", a),
    lambda a, b: np.einsum("i", a),
    lambda a, b: np.einsum("ijk", a),
    lambda a, b: np.einsum("i..j", a),
    lambda a, b: np.einsum("ii", a),
    lambda a, b: np.einsum("i$", a),
    lambda a, b: np.einsum("ij,jk", a, b, out=np.empty((2, 2))),
    lambda a, b: np.einsum("ij,jk", a, b, out=np.empty((3, 2), "f4")),
    lambda a, b: np.einsum("ij,jk", a, b, dtype="i4"),
    lambda a, b: np.einsum("ij,jk", a, b, nonsense=1),
    lambda a, b: np.einsum(a, [0, 1], b, [1, 99]),
    lambda a, b: np.einsum(a, [0, 1], [0, 2]),
    lambda a, b: np.einsum("ij,jk,ik", a, b, A @ B, optimize="nonsense"),
    lambda a, b: np.einsum_path("ij,jk", a, a),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_input(world, number):
    """The same exception type as NumPy's on every rank, mostly with its words; nothing hangs."""
    call = BAD[number]
    try:
        call(A, B)
    except Exception as error:
        wanted = error
    else:
        raise AssertionError("NumPy takes it")

    def program(group):
        a, b = sharded(group, A, B)
        with pytest.raises(type(wanted)) as found:
            call(a, b)
        assert_matches(a @ b, A @ B)  # all ranks are still in step
        return str(found.value)

    ranks = max(r for r in world.ranks if r <= 3) if min(world.ranks) <= 3 else max(world.ranks)
    for text in world.run(ranks, program):
        assert text == str(wanted)


@pytest.mark.counts(lambda ranks: ranks > 1)  # one rank has NumPy's own product
def test_objects_are_refused(world, ranks):
    def program(group):
        (a,) = sharded(group, A)
        for call in (np.matmul, np.dot, lambda x, y: np.einsum("ij,jk", x, y)):
            with pytest.raises(TypeError, match="Python objects"):
                call(a, np.ones((4, 2), object))

    world.run(ranks, program)


def test_strings_are_refused(world, ranks):
    def program(group):
        (a,) = sharded(group, A)
        for call in (np.matmul, np.dot, np.inner, np.vdot, np.outer, np.kron):
            with pytest.raises((TypeError, ValueError)):
                call(a, np.full((4, 2), "x"))

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "f2", "f4", "g", "c8", "G", "?"])
def test_dtypes_are_numpys(world, ranks, dtype):
    """Integers wrap around alike; half precision is summed in single; bool is or of and."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 100, shape).astype(dtype) for shape in ((5, 40), (40, 6)))
    if dtype == "f2":
        a, b = a / 10, b / 10

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, [Shard(1)], src=None)
        y = distribute(b, mesh, [Shard(0)], src=None)
        exact = dtype not in ("f2", "f4", "c8")
        how = {"exact": exact, "rtol": 1e-2 if dtype == "f2" else 1e-5}
        assert_matches(x @ y, a @ b, **how)
        assert_matches(np.dot(x, y), np.dot(a, b), **how)
        assert_matches(np.einsum("ij,jk->ki", x, y), np.einsum("ij,jk->ki", a, b), **how)
        assert_matches(np.vdot(x, x), np.vdot(a, a), **how)
        assert_matches(np.kron(x, y), np.kron(a, b))

    world.run(ranks, program)


def test_mixed_dtypes(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for first in ("i1", "f4", "?"):
            for second in ("u8", "c8", "f2"):
                a, b = A.astype(first), B.astype(second)
                x = distribute(a, mesh, [Shard(1)], src=None)
                y = distribute(b, mesh, [Replicate()], src=None)
                assert_matches(x @ y, a @ b)
                assert_matches(np.einsum("ij,jk", x, y), np.einsum("ij,jk", a, b))
                assert_matches(np.dot(x, 3), np.dot(a, 3))
                assert_matches(np.outer(x, y), np.outer(a, b))

    world.run(ranks, program)


def test_overflow_of_half_precision_is_the_results_alone(world, ranks):
    """Contributions that exceed float16 may have a sum that does not."""
    a = np.full((1, 12), 200, "f2")
    b = np.array([[200]] * 6 + [[-200]] * 6, "f2")

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, [Shard(1)], src=None)
        y = distribute(b, mesh, [Shard(0)], src=None)
        assert_matches(x @ y, a @ b)

    world.run(ranks, program)


def test_nan_and_infinities(world, ranks):
    a, b = A.copy(), B.copy()
    a[0, 1], a[1, 2], b[2, 1] = np.nan, np.inf, -np.inf

    def program(group):
        x, y = sharded(group, a, b)
        with np.errstate(invalid="ignore"):
            assert_matches(x @ y, a @ b)
            assert_matches(np.einsum("ij,jk->", x, y), np.einsum("ij,jk->", a, b))

    with np.errstate(invalid="ignore"):
        world.run(ranks, program)
