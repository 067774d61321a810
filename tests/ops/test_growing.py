"""What small replicated operands broadcast to is cut where it is large, without a message."""

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import Replicate, distribute
from distarray.array import default_layout
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.testing import assert_matches
from tests.waiting import everything_waits

#: Bytes from which lines are cut here; arrays of more dimensions are from four times as many.
LIMIT = 1000
N = 37
X, Y = np.cos(np.arange(N)), np.linspace(0.5, 2.0, N)

#: Calls with two replicated lines, whose results are large.
CALLS = {
    "operator": lambda np, x, y: x[:, None] - y,
    "reflected": lambda np, x, y: Y[:, None] / x,
    "by an array of numpy": lambda np, x, y: x[:, None] * Y,
    "by a list": lambda np, x, y: np.add(x[:, None], Y.tolist()),
    "chain": lambda np, x, y: np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2 + 1),
    "three dimensions": lambda np, x, y: x[:, None, None] + y[:, None] * np.arange(3.0),
    "few rows": lambda np, x, y: np.arange(1.0, 3.0)[:, None, None] * x[:, None] * y,
    "hypot": lambda np, x, y: np.hypot(x[:, None], y),
    "without out": lambda np, x, y: np.add(x[:, None], y, out=None),
    "without outs": lambda np, x, y: np.add(x[:, None], y, out=(None,)),
    "dtype": lambda np, x, y: np.multiply(x[:, None], y, dtype="c16"),
    "casting": lambda np, x, y: np.add(x[:, None], y, dtype="f4", casting="same_kind"),
    "mixed types": lambda np, x, y: np.arange(N, dtype="i2")[:, None] * x.astype("f4"),
    "integers": lambda np, x, y: np.arange(N)[:, None] * np.arange(N) % 7,
    "powers": lambda np, x, y: np.arange(N)[:, None] ** (np.arange(N) % 3),
    "several outputs": lambda np, x, y: np.divmod(x[:, None], y),
    "one of several outputs": lambda np, x, y: np.divmod(x[:, None], y)[1],
    "comparison": lambda np, x, y: (x[:, None] > y)[None] & (np.arange(3.0) < 1)[:, None, None],
    "outer": lambda np, x, y: np.subtract.outer(x, y),
    "outer of a ufunc": lambda np, x, y: np.maximum.outer(x, y),
    "where": lambda np, x, y: np.where((x > 0)[:, None], x, y),
    "where with a number": lambda np, x, y: np.where((x > 0)[:, None], x, 2),
    "select": lambda np, x, y: np.select([(x > 0)[:, None], y > 1], [x, y[:, None]], -1.0),
    "choose": lambda np, x, y: np.choose((x > 0).astype(int)[:, None], [x, y]),
    "clip": lambda np, x, y: np.clip(x[:, None], -y, y),
    "isclose": lambda np, x, y: np.isclose(x[:, None, None], x[:, None] + np.arange(3) * 0),
    "open grid": lambda np, x, y: sum(np.ix_(np.arange(N), np.arange(N))),
    "polynomial": lambda np, x, y: np.polyval(np.arange(3.0), x[:, None] + y),
    "indices": lambda np, x, y: (np.arange(N)[:, None] + np.arange(N)) % N,
    "repeated rows": lambda np, x, y: np.repeat(x[None], N, axis=0),
    "repeated columns": lambda np, x, y: np.repeat(x[:, None], N, axis=1),
    "powers of a line": lambda np, x, y: np.vander(x, N),
}


def meshes(group):
    """A line of the ranks and, if there are four, a square."""
    return [DeviceMesh(group, shape) for shape in {(group.size,), *_squares(group.size)}]


def _squares(ranks):
    return [(2, ranks // 2)] if ranks in (4, 6) else []


def lines(mesh):
    """The two lines, whole on every rank."""
    return [distribute(v, mesh, [Replicate()] * len(mesh.shape), src=None) for v in (X, Y)]


def check(found, wanted):
    """Whether results are NumPy's, and each rank has its part of the default layout."""
    layout = default_layout(wanted.shape, wanted.itemsize, found.mesh)
    assert found.layout is layout
    assert not layout.is_replicated
    local = layout.local_shape(found.mesh.coords)
    assert found.to_local().nbytes == wanted.itemsize * np.prod(local, dtype=int)


def call_everywhere(group, call, wanted):
    """Make a call on each mesh, in which nothing may be sent."""
    with config.override(replicate_below=LIMIT):
        for mesh in meshes(group):
            with mesh:
                with distarray.forbid_communication():
                    found = call(dnp, *lines(mesh))
                each = found if isinstance(found, tuple) else (found,)
                for part, value in zip(each, wanted, strict=True):
                    check(part, value)
                    assert_matches(part, value)


@pytest.mark.parametrize("name", CALLS)
def test_large_results_are_cut_as_new_arrays_are(world, ranks, name):
    wanted = CALLS[name](np, X, Y)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    world.run(ranks, lambda group: call_everywhere(group, CALLS[name], wanted))


@pytest.mark.host
@pytest.mark.parametrize("name", ["operator", "reflected", "chain", "dtype", "where", "integers"])
def test_operations_that_wait(world, ranks, name, monkeypatch):
    everything_waits(monkeypatch.setattr)
    wanted = (CALLS[name](np, X, Y),)
    world.run(ranks, lambda group: call_everywhere(group, CALLS[name], wanted))


def test_a_mask_takes_part(world, ranks):
    mask = X > 0

    def program(group):
        with config.override(replicate_below=LIMIT):
            for mesh in meshes(group):
                x, y = lines(mesh)
                with distarray.forbid_communication():
                    found = np.add(x[:, None], y, where=distribute(mask, mesh, src=None))
                    chosen = np.where(mask, found, 0)
                assert_matches(chosen, np.where(mask, X[:, None] + Y, 0))
                check(found, X[:, None] + Y)

    world.run(ranks, program)


def test_at_the_size_from_which_new_arrays_are_cut(world, ranks):
    first = int(np.sqrt(config.settings.cut_from[1] // 8)) + 1

    def program(group):
        mesh = DeviceMesh(group)
        with mesh, distarray.forbid_communication():
            for n in (first - 2, first):
                x = dnp.arange(n)
                for found in (x[:, None] + x, np.where(x[:, None] > 3, x, 1), x[:, None] * x):
                    assert found.layout is dnp.zeros((n, n)).layout
                    assert found.layout.is_replicated == (n < first)

    world.run(ranks, program)


#: Calls whose results stay on every rank: small ones, and as large as an operand.
KEPT = {
    "small": lambda x, y, large: x[:8, None] + y[:8],
    "few bytes": lambda x, y, large: x[:, None] > y,
    "as large as an operand": lambda x, y, large: large + x,
    "of a column": lambda x, y, large: np.hypot(large, y[:, None]),
    "where of a large one": lambda x, y, large: np.where(large > 0, x, y[:, None]),
    "larger elements": lambda x, y, large: x * large * 1j,
    "fewer bytes than an operand": lambda x, y, large: np.isclose(large, y[:3, None, None]),
    "in place": lambda x, y, large: large.__iadd__(x[:, None] * y[:1]),
    "into an array": lambda x, y, large: np.subtract(x[:, None], y, out=large),
    "into one of two": lambda x, y, large: np.divmod(x[:, None], y, out=(large, None))[1],
    "choose into": lambda x, y, large: np.choose((x > 0).astype(int)[:, None], [x, y], large),
    "clip into": lambda x, y, large: np.clip(x[:, None], -y, y, out=large),
    "objects": lambda x, y, large: x.astype(object)[:, None] + y,
}
#: Calls into arrays of NumPy, which every rank has.
INTO_NUMPY = {
    "ufunc": lambda x, y, out: np.subtract(x[:, None], y, out=out),
    "masked": lambda x, y, out: np.subtract(x[:, None], y, out=out, where=x > 0),
    "clip": lambda x, y, out: np.clip(x[:, None], -y, y, out=out),
    "choose": lambda x, y, out: np.choose((x > 0).astype(int)[:, None], [x, y], out),
}


@pytest.mark.parametrize("name", KEPT)
def test_small_results_and_targets_stay(world, ranks, name):
    wanted = KEPT[name](X, Y, np.ones((N, N)))

    def program(group):
        mesh = DeviceMesh(group)
        with config.override(replicate_below=LIMIT):
            x, y = lines(mesh)
            large = distribute(np.ones((N, N)), mesh, [Replicate()], src=None)
            with distarray.trace() as sent:
                found = KEPT[name](x, y, large)
            assert found.layout.is_replicated
            assert not sent.bytes or name == "objects"  # errors of which are agreed on
            np.testing.assert_array_equal(found.full(), wanted)

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize("name", INTO_NUMPY)
def test_what_goes_into_arrays_of_numpy_is_not_sent(world, ranks, name):
    wanted = INTO_NUMPY[name](X, Y, np.ones((N, N)))

    def program(group):
        out = np.ones((N, N))
        with config.override(replicate_below=LIMIT):
            x, y = lines(DeviceMesh(group))
            with distarray.forbid_communication():
                assert INTO_NUMPY[name](x, y, out) is out
        np.testing.assert_array_equal(out, wanted)

    world.run(ranks, program)


def test_a_rank_outside_of_the_mesh(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, ranks=range(max(1, group.size - 1)))
        with config.override(replicate_below=LIMIT):
            x = distribute(X, mesh, [Replicate()], src=None)
            with distarray.forbid_communication():
                found = x[:, None] - x
        assert found.mesh is mesh
        assert not found.layout.is_replicated
        if mesh.coords is not None:
            assert_matches(found, X[:, None] - X)

    world.run(ranks, program)


# -- what follows --------------------------------------------------------------------------------


def _zeroed(np, x, y):
    d = x[:, None] - y
    d[d > 0.5] = 0
    return d


def _filled(np, x, y):
    d = abs(x[:, None] - x)
    np.fill_diagonal(d, 9.0)
    return d.argmin(axis=1)


def _by_a_mask(np, x, y):
    d = x[:, None] - x
    d[np.eye(N, dtype=bool)] = 1.0
    return 1 / d


def _forces(np, x, y):
    d = np.stack([x, y], 1)
    d = d[:, None] - d
    r = np.linalg.norm(d, axis=-1)
    np.fill_diagonal(r, 1.0)
    return (d / (r**3)[..., None]).sum(axis=1)


#: What programs do with a large result, and the most bytes that a rank sends for it.
NEXT = {
    "sums of rows": (lambda np, x, y: ((x[:, None] - y) ** 2).sum(axis=1), 0),
    "sums of columns": (lambda np, x, y: (x[:, None] - y).sum(axis=0), 8 * N),
    "norms": (lambda np, x, y: np.linalg.norm(np.stack([x, y], 1)[:, None] - 1.0, axis=-1), 0),
    "times a vector": (lambda np, x, y: (x[:, None] - y) @ y, 0),
    "elements of a mask": (_zeroed, 0),
    "diagonal": (_filled, 0),
    "mask of the diagonal": (_by_a_mask, 0),
    "forces": (_forces, 0),
    "order of rows": (lambda np, x, y: np.argsort(x[:, None] * y, axis=1, kind="stable"), 0),
    "a row": (lambda np, x, y: (x[:, None] - y)[3], 8 * N),
    "joined": (lambda np, x, y: np.concatenate([x[:, None] - y, x[:, None] + y], axis=1), 0),
    "exponentials": (lambda np, x, y: np.exp(1j * (x[:, None] * y)) @ y, 0),
}


@pytest.mark.parametrize("name", NEXT)
def test_what_follows_sends_little(world, ranks, name):
    call, most = NEXT[name]
    wanted = call(np, X, Y)

    def program(group):
        with config.override(replicate_below=LIMIT), DeviceMesh(group) as mesh:
            x, y = lines(mesh)
            with distarray.trace() as sent:
                found = call(dnp, x, y)
            assert_matches(found, wanted, exact=wanted.dtype.kind in "bi")
            return sent.bytes

    for sent in world.run(ranks, program):
        assert sent <= most * (ranks > 1)


def test_errors_are_those_of_all_ranks(world, ranks):
    """A number that only one rank computes with raises on all of them."""
    last, count = np.ones(N), np.arange(N)
    last[-1] = 1e300
    calls = [
        lambda x: x[:, None] * x,
        lambda x: np.multiply(x[:, None], x, dtype=float),
        lambda x: np.outer(x, x),
        lambda x: x[:, None] @ x[None],
    ]

    def program(group):
        mesh = DeviceMesh(group)
        with config.override(replicate_below=LIMIT):
            x, i = (distribute(v, mesh, [Replicate()], src=None) for v in (last, count))
            for call in calls:
                with np.errstate(over="raise"), pytest.raises(FloatingPointError):
                    call(x)
            with pytest.raises(ValueError, match="invalid entry in coordinates array"):
                np.ravel_multi_index((i[:, None], i), (N - 1, N))
            assert float((x[:, None] * 0 + i).sum()) == N * N * (N - 1) / 2

    world.run(ranks, program)


def test_what_is_explained(world, ranks):
    def program(group):
        with config.override(replicate_below=LIMIT), DeviceMesh(group) as mesh:
            x, y = lines(mesh)
            plan = distarray.explain(np.subtract, x[:, None], y)
            assert plan.result is (x[:, None] - y).layout
            assert not plan.steps

    world.run(ranks, program)
