"""Contractions against NumPy: every function, over meshes, layouts, dtypes and extents."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import DeviceMesh, Shard, distribute
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes

DTYPES = ("f8", "i8", "i4", "c16", "?", "f4", "u1")
KINDS = ("plain", "view", "transposed", "ragged", "partial")


def extent(draw):
    """A length that is sometimes 0, sometimes 1, mostly uneven."""
    return draw(st.sampled_from([0, 1, 2, 3, 5, 7, 9]))


def ready(draw, world):
    """A rank count and a mesh shape."""
    ranks = draw(st.sampled_from(world.ranks), label="ranks")
    return ranks, draw(mesh_shapes(ranks), label="mesh")


def laid_out(draw, mesh_shape, shape, dtypes=DTYPES):
    """Values of a shape and one way to lay them out; small integers, so that sums are exact."""
    values = draw(array_values(shape=shape, dtypes=dtypes), label=f"values {shape}")
    return values, draw(recipes(shape, mesh_shape, values.dtype, KINDS), label="recipe")


def check(world, ranks, mesh_shape, operands, call):
    """Assert that a call on distributed operands gives what it gives on NumPy's, and changes none.

    Some operands stay NumPy's: they count as replicated.
    """
    values = [v for v, _ in operands]
    expected = call(*values)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        given = [v if r is None else r.build(v, mesh) for v, r in operands]
        result = call(*given)
        unchanged = [x.full() if r is not None else x for x, (_, r) in zip(given, operands)]
        # Sums of small integers are exact; only the sign of a zero depends on the order.
        assert_matches(result, expected, exact=False, rtol=0, atol=0)
        for found, value in zip(unchanged, values, strict=True):
            np.testing.assert_array_equal(found, value)

    world.run(ranks, program)


# -- matmul and the other generalized ufuncs -------------------------------------------------------


@settings(max_examples=60)
@given(data=st.data())
def test_matmul(world, data):
    ranks, mesh_shape = ready(data.draw, world)
    n, k, m = (extent(data.draw) for _ in range(3))
    stacks = data.draw(
        st.sampled_from(
            [((), ()), ((), ()), ((2,), (2,)), ((3,), ()), ((2, 1), (3,)), ((1,), (4,))]
        )
    )
    first = (*stacks[0], n, k) if stacks[0] or data.draw(st.booleans()) else (k,)
    second = (*stacks[1], k, m) if stacks[1] or data.draw(st.booleans()) else (k,)
    operands = [laid_out(data.draw, mesh_shape, shape) for shape in (first, second)]
    check(world, ranks, mesh_shape, operands, np.matmul)


@settings(max_examples=20)
@given(data=st.data())
def test_operator_with_numpy_operands(world, data):
    ranks, mesh_shape = ready(data.draw, world)
    n, k, m = (extent(data.draw) for _ in range(3))
    a, b = (laid_out(data.draw, mesh_shape, shape) for shape in ((n, k), (k, m)))
    for operands in ([a, (b[0], None)], [(a[0], None), b]):
        check(world, ranks, mesh_shape, operands, lambda x, y: x @ y)


@pytest.mark.parametrize("name", ["vecdot", "matvec", "vecmat"])
@settings(max_examples=40)
@given(data=st.data())
def test_vector_ufuncs(world, name, data):
    ranks, mesh_shape = ready(data.draw, world)
    n, k, s = (extent(data.draw) for _ in range(3))
    core = {"vecdot": ((k,), (k,)), "matvec": ((n, k), (k,)), "vecmat": ((k,), (k, n))}[name]
    stacks = data.draw(st.sampled_from([((), ()), ((s,), (s,)), ((s,), ()), ((1,), (s,))]))
    operands = [
        laid_out(data.draw, mesh_shape, (*stack, *dims)) for stack, dims in zip(stacks, core)
    ]
    check(world, ranks, mesh_shape, operands, getattr(np, name))


def test_products_of_bools_are_bools(world, ranks):
    """On any device; the conjugate of a bool would be an int8."""
    a = np.arange(30).reshape(5, 6) % 4 == 0

    def program(group):
        x = distribute(a, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_matches(np.vecmat(x[:, 0], x), np.vecmat(a[:, 0], a))
        assert_matches(np.matvec(x, x[0]), np.matvec(a, a[0]))
        assert_matches(np.vecdot(x, x), np.vecdot(a, a))

    world.run(ranks, program)


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (lambda a, b: np.matmul(a, b, axes=[(0, 1), (1, 0), (0, 1)]), ((4, 3), (2, 3))),
        (lambda a, b: np.matmul(a, b, axes=[(0, 2), (0, -1), (2, 0)]), ((4, 5, 3), (3, 5, 2))),
        (lambda a, b: np.matmul(a, b, axes=[(1, 0), 0, 0]), ((3, 5), (3,))),
        (lambda a, b: np.vecdot(a, b, axis=0), ((5, 3), (5, 3))),
        (lambda a, b: np.vecdot(a, b, axis=0, keepdims=True), ((5, 3), (5, 3))),
        (lambda a, b: np.vecdot(a, b, keepdims=True), ((5, 3), (5, 3))),
        (lambda a, b: np.vecdot(a, b, axes=[0, 1]), ((5, 3), (3, 5))),
        (lambda a, b: np.linalg.vecdot(a, b, axis=0), ((5, 3), (5, 3))),
        (np.linalg.matmul, ((5, 3), (3, 2))),
        (lambda a, b: np.matmul(a, b, dtype="f4"), ((5, 3), (3, 2))),
        (lambda a, b: np.matmul(a, b, dtype="c16", order="F"), ((5, 3), (3, 2))),
        (lambda a, b: np.matmul(a, b, signature="dd->d"), ((5, 3), (3, 2))),
    ],
)
@settings(max_examples=12)
@given(data=st.data())
def test_keywords_of_ufuncs(world, call, shapes, data):
    ranks, mesh_shape = ready(data.draw, world)
    operands = [laid_out(data.draw, mesh_shape, shape, ("f8",)) for shape in shapes]
    check(world, ranks, mesh_shape, operands, call)


# -- dot and its relatives ---------------------------------------------------------------------


@pytest.mark.parametrize("function", [np.dot, np.inner])
@settings(max_examples=40)
@given(data=st.data())
def test_dot_and_inner(world, function, data):
    ranks, mesh_shape = ready(data.draw, world)
    k = extent(data.draw)
    first = (*[extent(data.draw) for _ in range(data.draw(st.integers(0, 2)))], k)
    rest = [extent(data.draw) for _ in range(data.draw(st.integers(0, 2)))]
    last = (*rest, k) if function is np.inner or not rest else (*rest[:-1], k, rest[-1])
    shapes = [data.draw(st.sampled_from([shape] * 6 + [()])) for shape in (first, last)]
    operands = [laid_out(data.draw, mesh_shape, shape) for shape in shapes]
    check(world, ranks, mesh_shape, operands, function)


@settings(max_examples=40)
@given(data=st.data())
def test_tensordot(world, data):
    ranks, mesh_shape = ready(data.draw, world)
    shared = [extent(data.draw) for _ in range(data.draw(st.integers(0, 2)))]
    sides = []
    for _ in range(2):
        own = [extent(data.draw) for _ in range(data.draw(st.integers(0, 2 - len(shared) // 2)))]
        order = data.draw(st.permutations(range(len(own) + len(shared))))
        shape = [(*own, *shared)[p] for p in order]
        sides.append((tuple(shape), [order.index(len(own) + i) for i in range(len(shared))]))
    operands = [laid_out(data.draw, mesh_shape, shape) for shape, _ in sides]
    axes = (sides[0][1], sides[1][1])
    check(world, ranks, mesh_shape, operands, lambda a, b: np.tensordot(a, b, axes))


@settings(max_examples=40)
@given(data=st.data())
def test_vdot(world, data):
    ranks, mesh_shape = ready(data.draw, world)
    shape = tuple([extent(data.draw) for _ in range(data.draw(st.integers(0, 2)))])
    other = data.draw(st.sampled_from([shape, shape[::-1], (int(np.prod(shape)),)]))
    operands = [
        laid_out(data.draw, mesh_shape, s, ("f8", "c16", "i4", "?")) for s in (shape, other)
    ]
    check(world, ranks, mesh_shape, operands, np.vdot)


@pytest.mark.parametrize("function", [np.outer, np.kron])
@settings(max_examples=40)
@given(data=st.data())
def test_outer_and_kron(world, function, data):
    ranks, mesh_shape = ready(data.draw, world)
    most = 2 if function is np.outer else 3
    sides = st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=most).map(tuple)
    operands = [laid_out(data.draw, mesh_shape, data.draw(sides)) for _ in range(2)]
    check(world, ranks, mesh_shape, operands, function)


@settings(max_examples=40)
@given(data=st.data())
def test_trace(world, data):
    ranks, mesh_shape = ready(data.draw, world)
    shape = tuple([extent(data.draw) for _ in range(data.draw(st.integers(2, 3)))])
    axes = data.draw(st.permutations(range(-len(shape), 0)))[:2]
    offset = data.draw(st.integers(-4, 4))
    operands = [laid_out(data.draw, mesh_shape, shape)]
    check(world, ranks, mesh_shape, operands, lambda a: np.trace(a, offset, *axes))


def test_names_of_linalg(world, ranks):
    a, b = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(4, 2)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x, y = (distribute(v, mesh, [Shard(0)], src=None) for v in (a, b))
        assert_matches(np.linalg.outer(x[0], y[:, 1]), np.linalg.outer(a[0], b[:, 1]))
        assert_matches(np.linalg.tensordot(x, y, axes=1), np.linalg.tensordot(a, b, axes=1))
        assert_matches(np.linalg.trace(x, offset=1), np.linalg.trace(a, offset=1))
        assert_matches(np.linalg.trace(x, dtype="i4"), np.linalg.trace(a, dtype="i4"))
        assert_matches(np.linalg.matrix_transpose(x), a.T)
        assert_matches(np.dot(x[1], y[:, 0]), np.dot(a[1], b[:, 0]))

    world.run(ranks, program)


# -- einsum ------------------------------------------------------------------------------------

SUBSCRIPTS = [
    "ij,jk", "ij,jk->ki", "ij,kj->ik", "ij,ij", "ij,ij->ij", "ij,ij->i", "i,j", "i,j->ji", "i,i",
    "ij->ji", "ij->i", "ij->", "ij", "ji", "ii", "ii->i", "iij->j", "iji->ji", "iii->i", "iijj->ij",
    "ii,i->i", "ii,ij->j", "ij,j->i", "bij,bjk->bik", "bij,bjk->ik", "bij,bij->b", "ij,k->i",
    "i,j->", "ijk,jk->i", "ijk,kj->i", "ijk,ljk->il", "a...,...a->...", "...ij,...jk->...ik",
    "...i,...i", "i...->...i", "...,...", "...ij->...ji", "i...,j", "ij,jk,kl", "ij,jk,kl->il",
    "i,j,k->kji", "ij,ij,ij->j", "i,ij,j", "ij,ik,il->jkl", "ijk,ijl,m->klm", "i,i,i,i->i", "->",
    ",->", ",i", "Ab,bA->", "ij, jk -> ik",
]  # fmt: skip


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
@settings(max_examples=6)
@given(data=st.data())
def test_einsum(world, subscripts, data):
    ranks, mesh_shape = ready(data.draw, world)
    lengths = {}
    operands = []
    for term in subscripts.replace(" ", "").split("->")[0].split(","):
        shape = []
        head, dots, tail = term.partition("...")
        for letter in (*head, *("XY"[data.draw(st.integers(0, 2)) :] if dots else ""), *tail):
            length = lengths.setdefault(letter, data.draw(st.sampled_from([0, 1, 2, 3, 4, 5])))
            stretch = term.count(letter) == 1 and data.draw(st.integers(0, 7)) == 0
            shape.append(1 if stretch else length)
        operands.append(laid_out(data.draw, mesh_shape, tuple(shape)))
    check(world, ranks, mesh_shape, operands, lambda *a: np.einsum(subscripts, *a))


@pytest.mark.parametrize(
    "optimize", [True, "optimal", ["einsum_path", (0, 1, 2)], ["einsum_path", (1, 2), (0, 1)]]
)
@settings(max_examples=10)
@given(data=st.data())
def test_einsum_in_any_order(world, optimize, data):
    ranks, mesh_shape = ready(data.draw, world)
    shapes = [(3, 4), (4, 2), (2, 5)]
    operands = [laid_out(data.draw, mesh_shape, shape, ("f8", "i8")) for shape in shapes]
    call = lambda *a: np.einsum("ij,jk,kl->li", *a, optimize=optimize)  # noqa: E731
    check(world, ranks, mesh_shape, operands, call)


@settings(max_examples=30)
@given(data=st.data())
def test_einsum_by_lists(world, data):
    ranks, mesh_shape = ready(data.draw, world)
    operands = [laid_out(data.draw, mesh_shape, shape) for shape in ((3, 4), (4, 2))]
    check(world, ranks, mesh_shape, operands, lambda a, b: np.einsum(a, [7, 1], b, [1, 3]))
    check(world, ranks, mesh_shape, operands, lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]))
    check(
        world, ranks, mesh_shape, operands[:1], lambda a: np.einsum(a, [0, Ellipsis], [Ellipsis, 0])
    )


def test_einsum_path_needs_no_values(world, ranks):
    values = [np.ones(shape) for shape in ((3, 4), (4, 200), (200, 5))]

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        arrays = [distribute(v, mesh, [Shard(0)], src=None) for v in values]
        return np.einsum_path("ij,jk,kl->il", *arrays, optimize="optimal")

    for found in world.run(ranks, program):
        assert found == np.einsum_path("ij,jk,kl->il", *values, optimize="optimal")


def test_einsum_without_a_sum_is_a_view(world, ranks):
    values = np.arange(35.0).reshape(5, 7)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(values, mesh, [Shard(0)], src=None)
        np.einsum("ij->ji", x)[1:3] = 0
        np.einsum("ii->i", x[:, :5])[...] = -1
        return x.full()

    expected = values.copy()
    np.einsum("ij->ji", expected)[1:3] = 0
    np.einsum("ii->i", expected[:, :5])[...] = -1
    for found in world.run(ranks, program):
        np.testing.assert_array_equal(found, expected)


PRODUCTS = {
    "dot": np.dot,
    "matmul": lambda a, b, out: np.matmul(a[None], b[None], out=out),
    "einsum": lambda a, b, out: np.einsum("...,...->...", a, b, out=out),
    "multiply": np.multiply,
}


@pytest.mark.parametrize("char", "fdFDl")
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_numbers_into_out(world, ranks, name, char):
    product = PRODUCTS[name]
    expected = np.empty((), char)
    answer = product(np.asarray(3, char), np.asarray(5, char), out=expected)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        operands = [distribute(np.asarray(v, char), mesh) for v in (3, 5)]
        out = distribute(np.empty((), char), mesh)
        given = product(*operands, out=out)
        return out.full(), isinstance(given, np.generic), given is out

    same = answer is expected
    for found, is_number, is_out in world.run(ranks, program):
        assert found == expected
        assert (is_number, is_out) == (isinstance(answer, np.generic), same)


@given(data=st.data())
def test_a_diagonal_of_a_turned_matrix_is_written_or_refuses(world, data):
    ranks, mesh_shape = ready(data.draw, world)
    extent = data.draw(st.sampled_from([1, 2, 5, 7]))
    turned = data.draw(st.sampled_from([(), (0,), (1,), (0, 1)]))
    placed = [data.draw(st.sampled_from([Shard(0), Shard(1)])) for _ in mesh_shape]
    values = np.arange(1.0 * extent**2).reshape(extent, extent)
    expected = values.copy()
    np.einsum("ii->i", np.flip(expected, turned))[...] = -1

    def program(group):
        x = distribute(values.copy(), DeviceMesh(group, mesh_shape), placed, src=None)
        diagonal = np.einsum("ii->i", np.flip(x, turned))
        found = diagonal.full()
        try:
            diagonal[...] = -1
        except ValueError:
            return found, None
        return found, x.full()

    for found, written in world.run(ranks, program):
        np.testing.assert_array_equal(found, np.flip(values, turned).diagonal())
        if written is not None:
            np.testing.assert_array_equal(written, expected)
