"""solve, inv, det, slogdet, cholesky, powers and tensors: as NumPy, at once and in blocks."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import DeviceMesh, Replicate, Shard, distribute, trace
from distarray.engines.factoring import small
from distarray.ops.linalg import square
from distarray.testing import assert_matches

from .matrices import SIDES, blocked, placed, positive, rounding, run, well

LA = np.linalg
DTYPES = ("f8", "c16", "f4", "i4", "F")

CALLS = {
    "inv": (LA.inv, well),
    "det": (LA.det, well),
    "slogdet": (LA.slogdet, well),
    "cholesky": (LA.cholesky, positive),
    "upper": (lambda a: LA.cholesky(a, upper=True), positive),
    "squared": (lambda a: LA.matrix_power(a, 2), well),
    "power": (lambda a: LA.matrix_power(a, -3), well),
    "none": (lambda a: LA.matrix_power(a, 0), well),
}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=12)
@given(data=st.data())
def test_one_matrix(world, name, large, data):
    call, make = CALLS[name]
    dtype = data.draw(st.sampled_from(DTYPES))
    a = make(data.draw(st.sampled_from([n for n in SIDES if n < 20])), dtype)
    expected = call(a)

    def check(x):
        assert_matches(call(x), expected, exact=False, **rounding(dtype))
        assert_matches(x, a)

    run(world, data.draw(placed(world, a.shape)), [a], check, large)


@pytest.mark.parametrize("large", [False, True])
@settings(max_examples=20)
@given(data=st.data())
def test_solve(world, large, data):
    n = data.draw(st.sampled_from(SIDES))
    dtypes = data.draw(st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)))
    shape = data.draw(st.sampled_from([(n,), (n, 1), (n, 3), (n, 0), (n, 11)]))
    a = well(n, dtypes[0])
    b = np.resize(np.arange(1, 8), shape).astype(dtypes[1])
    expected = LA.solve(a, b)

    def check(x, y):
        assert_matches(LA.solve(x, y), expected, exact=False, **rounding(expected.dtype))
        assert_matches(y, b)

    run(world, data.draw(placed(world, a.shape, b.shape)), [a, b], check, large)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=6)
@given(data=st.data())
def test_stacks(world, name, large, data):
    """Cut along any dimension; of more matrices than there are ranks, of fewer, and of none."""
    call, make = CALLS[name]
    stack = data.draw(st.sampled_from([(7,), (2,), (2, 4), (0,), (3, 0), (1,)]))
    a = make(data.draw(st.sampled_from([0, 1, 3, 6])), "f8", stack=stack)
    expected = call(a)

    def check(x):
        assert_matches(call(x), expected, exact=False, **rounding("f8"))

    run(world, data.draw(placed(world, a.shape)), [a], check, large)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((5, 4, 4), (4,)),
        ((5, 4, 4), (4, 2)),
        ((4, 4), (5, 4, 2)),
        ((2, 4, 4), (1, 4, 2)),
        ((2, 1, 4, 4), (3, 4, 2)),
        ((0, 4, 4), (4,)),
    ],
)
@settings(max_examples=4)
@given(data=st.data())
def test_stacks_of_systems(world, first, second, large, data):
    a = well(first[-1], stack=first[:-2])
    b = np.arange(float(np.prod(second))).reshape(second)
    expected = LA.solve(a, b)

    def check(x, y):
        assert_matches(LA.solve(x, y), expected, exact=False, **rounding("f8"))

    run(world, data.draw(placed(world, first, second)), [a, b], check, large)


SINGULAR = np.roll(np.diag([1.0, 2, 4, 8, 16, 0]), 1, axis=0) + np.diag([1.0, 0, 0, 0, 0, 0])
INDEFINITE = np.diag([1.0, 2, 3, 4, -5, 6])


SINGULAR_CALLS = [
    (LA.inv, SINGULAR),
    (LA.inv, np.zeros((3, 3))),
    (LA.inv, np.stack([np.eye(6)] * 6 + [SINGULAR])),
    (lambda a: LA.solve(a, a), SINGULAR),
    (lambda a: LA.solve(a, a[0]), SINGULAR),
    (lambda a: LA.matrix_power(a, -1), SINGULAR),
]
INDEFINITE_CALLS = [
    (LA.cholesky, INDEFINITE),
    (LA.cholesky, np.stack([np.eye(6)] * 6 + [INDEFINITE])),
]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("Singular matrix", SINGULAR_CALLS),
        ("Matrix is not positive definite", INDEFINITE_CALLS),
    ],
)
def test_errors_of_the_elements_are_every_ranks(world, ranks, words, calls, large):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for call, values in calls:
            x = distribute(values, mesh, [Shard(0)], src=None)
            with pytest.raises(LA.LinAlgError, match=words):
                call(values)
            with pytest.raises(LA.LinAlgError, match=words):
                call(x)
            float(x.sum())  # the ranks are in step

    with blocked() if large else nullcontext():
        world.run(ranks, program)


def test_determinant_of_a_singular_matrix(world, ranks):
    def program(group):
        x = distribute(SINGULAR, DeviceMesh(group, (group.size,)), [Shard(1)], src=None)
        assert_matches(LA.det(x), np.float64(0))
        assert_matches(LA.slogdet(x), (np.float64(0), np.float64(-np.inf)))

    with blocked():
        world.run(ranks, program)


BAD_CALLS = [
    lambda a, b: LA.inv(a[:2]),
    lambda a, b: LA.inv(a[0]),
    lambda a, b: LA.inv(a.astype("f2")),
    lambda a, b: LA.det(a[:2]),
    lambda a, b: LA.slogdet(a[:, :2]),
    lambda a, b: LA.cholesky(a[0]),
    lambda a, b: LA.cholesky(a[:2]),
    lambda a, b: LA.solve(a, b[:2]),
    lambda a, b: LA.solve(a[:2], b),
    lambda a, b: LA.solve(a, b[:2, 0]),
    lambda a, b: LA.solve(a, b[0, 0]),
    lambda a, b: LA.matrix_power(a[:2], 2),
    lambda a, b: LA.matrix_power(a, 1.5),
    lambda a, b: LA.tensorinv(a, ind=0),
    LA.tensorsolve,
]


def test_bad_input(world, ranks):
    a, b = well(4), np.ones((4, 2))

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x, y = [distribute(v, mesh, [Shard(0)], src=None) for v in (a, b)]
        for call in BAD_CALLS:
            with pytest.raises(Exception) as wanted:
                call(a, b)
            with pytest.raises(wanted.type) as found:
                call(x, y)
            if "gufunc" not in str(wanted.value):
                assert str(found.value) == str(wanted.value)

    world.run(ranks, program)


@pytest.mark.parametrize("large", [False, True])
@settings(max_examples=6)
@given(data=st.data())
def test_tensors(world, large, data):
    a = well(12).reshape(4, 3, 2, 6)
    b = np.arange(12.0).reshape(4, 3)
    inverse, solution = LA.tensorinv(a, ind=2), LA.tensorsolve(a, b)
    close = {"exact": False, **rounding("f8")}

    def check(x, y):
        assert_matches(LA.tensorinv(x, ind=2), inverse, **close)
        assert_matches(LA.tensorsolve(x, y), solution, **close)

    run(world, data.draw(placed(world, a.shape, b.shape)), [a, b], check, large)


def test_axes_of_tensorsolve(world, ranks):
    a, b = well(12).reshape(2, 4, 3, 6), np.arange(12.0).reshape(4, 3)
    expected = LA.tensorsolve(a, b, axes=(0,))

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        assert_matches(LA.tensorsolve(x, b, axes=(0,)), expected, exact=False, **rounding("f8"))

    world.run(ranks, program)


OUTSIDE = {
    **{name: call for name, (call, _) in CALLS.items()},
    "solve": lambda x: LA.solve(x, x[:, :2]),
    "solve many": lambda x: LA.solve(x, x),
    "vector": lambda x: LA.solve(x, x[0]),
    "eigh": lambda x: LA.eigh(x)[0],
    "eigenvectors": lambda x: np.abs(LA.eigh(x)[1]),
    "eigvalsh": LA.eigvalsh,
}


@pytest.mark.parametrize("large", [False, True])
def test_a_rank_outside_of_the_mesh_takes_no_part(world, large):
    ranks = world.ranks[-1]
    if ranks == 1:
        pytest.skip("needs a second rank, to leave it out of the mesh")
    a = positive(6)

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(1, ranks))
        for placement in (Shard(0), Replicate()):
            x = distribute(a, mesh, [placement], src=None)
            for call in OUTSIDE.values():
                assert_matches(call(x), call(a), exact=False, rtol=1e-6, atol=1e-6)

    with blocked() if large else nullcontext():
        world.run(ranks, program)


def test_not_a_number(world, ranks):
    """What NumPy makes of it is no error, and none here."""
    a = well(7)
    a[3, 2] = np.nan

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        assert np.isnan(LA.det(x))
        assert np.isnan(LA.inv(x)).any()
        assert np.isnan(LA.solve(x, a[0])).any()

    with blocked(), np.errstate(all="ignore"):
        world.run(ranks, program)


def test_ill_conditioned_matrices_are_treated_backward_stably(world, ranks):
    n = 24
    a = 1 / (np.arange(n)[:, None] + np.arange(n) + 1.0)
    b = a.sum(axis=1)
    basis = LA.qr(well(n))[0]
    spread = (basis * 10.0 ** -np.linspace(0, 13, n)) @ basis.T
    spread = (spread + spread.T) / 2

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, [Shard(0)], src=None)
        for sides in (b, np.stack([b] * 6, axis=1)):
            found = LA.solve(x, sides).full()
            residual = np.abs(a @ found - sides).max()
            assert residual < 1e-13 * np.abs(found).max() * np.abs(a).sum(axis=1).max()
        y = distribute(spread, mesh, [Shard(0)], src=None)
        factor = LA.cholesky(y).full()
        assert np.abs(factor @ factor.T - spread).max() < 1e-14

    with blocked():
        world.run(ranks, program)


def test_where_results_lie_and_that_all_ranks_have_the_same_bits(world, ranks):
    a, b = well(17), np.arange(17.0)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, [Shard(1)], src=None)
        if ranks == 1:
            return  # all is at once
        assert LA.inv(x).layout is x.layout
        assert LA.cholesky(x @ x.T).layout is (x @ x.T).layout
        whole = distribute(a, mesh, [Replicate()], src=None)
        y = distribute(b, mesh, [Shard(0)], src=None)
        assert LA.solve(whole, y).layout is y.layout
        results = [LA.inv(whole), LA.solve(x, b), LA.det(x), LA.slogdet(x)[1]]
        assert all(r.layout.is_replicated for r in results[:2])
        texts = group.allgather_object([np.asarray(r).tobytes() for r in results])
        assert all(text == texts[0] for text in texts)

    with blocked():
        world.run(ranks, program)


def test_nothing_is_gathered(world, ranks):
    """A rank sends its share of the matrix once, and each panel is broadcast once."""
    n = 48
    a, b, s = well(n), np.arange(float(n)), positive(n)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x, y, z = [distribute(v, mesh, [Shard(0)], src=None) for v in (a, b, s)]
        traces = []
        for call in (lambda: LA.solve(x, y), lambda: LA.cholesky(z), lambda: LA.inv(x)):
            with trace() as t:
                call()
            kinds = {"exchange": 0, "broadcast": 0}
            for event in t.events:
                kinds[event.kind] = kinds.get(event.kind, 0) + event.bytes
            traces.append(kinds)
        return traces

    with blocked():
        found = world.run(ranks, program)
    share = 8 * n * n / ranks
    if ranks > 1:
        for solve, cholesky, inverse in found:
            assert solve["exchange"] <= share * 1.3
            assert cholesky["exchange"] <= share  # the factor stays where its panels pass by
            assert inverse["exchange"] <= 2 * share * 1.3
            assert solve.get("allgather", 0) <= 8 * n
            for kinds, passes in ((solve, 1), (cholesky, 1), (inverse, 2)):
                assert kinds["broadcast"] <= passes * 0.75 * share * (1 + ranks / 8) + 4000


def test_a_few_matrices_are_not_gathered(world, ranks, monkeypatch):
    """Fewer than there are ranks: some are idle, and none has all."""
    monkeypatch.setattr(small, "SMALL_BYTES", 64)
    a = well(5, stack=(2,))

    def program(group):
        x = distribute(a, DeviceMesh(group, (group.size,)), [Shard(1)], src=None)
        for call in (LA.inv, LA.eigvals, LA.eigvalsh, lambda y: LA.solve(y, y)):
            result = call(x)
            close = {"rtol": 1e-9, "atol": 1e-9}
            assert_matches(result, call(a), exact=False, **close)
            if group.size > 1:
                assert result.placements == (Shard(0),)

    world.run(ranks, program)


def test_small_matrices_are_not_dealt_out(world, ranks):
    assert square.BLOCKED_FROM > 500

    def program(group):
        x = distribute(well(40), DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
        with trace() as t:
            LA.inv(x)
        assert {event.kind for event in t.events} <= {"exchange", "allreduce"}

    world.run(ranks, program)
