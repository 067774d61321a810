"""Programs that write to one memory through several arrays: what NumPy gives, on all ranks.

Each runs with nothing replicated on few elements, and with the default settings on so many that
operations are put off.
"""

import copy
import pickle

import numpy as np
import pytest

import distarray
import distarray.numpy
from distarray.config import config

#: A GPU holds no records. Aliases written in turn are told of.
pytestmark = [
    pytest.mark.host,
    pytest.mark.filterwarnings("ignore:this line needs elements"),
]

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def raised(call, *args):
    try:
        return call(*args)
    except (ValueError, AttributeError) as error:
        return type(error).__name__


@program
def a_state_vector_seen_as_a_grid(np, n):
    y = np.zeros(n)
    d = y.reshape(4, -1)
    d[1:-1, 1:-1] = 1
    y += 1
    d[3] -= y.reshape(4, -1)[1]
    return y, d


@program
def a_right_hand_side(np, n):
    def rhs(y):
        f = np.zeros_like(y)
        g, u = f.reshape(4, -1), y.reshape(4, -1)
        g[1:-1, 1:-1] = u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1]
        return f

    y = np.arange(n) % 17 / 16
    for _ in range(3):
        k = rhs(y)
        y = y + 0.25 * (k + rhs(y + 0.5 * k))
    return (y,)


@program
def in_place_on_overlapping_aliases(np, n):
    x = np.arange(n) * 1.0
    x[1:] += x.reshape(4, -1).reshape(-1)[:-1]
    q, r = x.reshape(4, -1), x.reshape(-1, 4)
    np.add(q[1:], q[:-1], out=q[1:])
    r[...] = q.reshape(-1, 4)[::-1]
    np.multiply(q.T.copy(), 2, out=x.reshape(-1, 4))
    x[::2] -= 1
    np.copyto(x[1:], x[:-1])
    np.copyto(q[1:], q[:-1])
    x[5:] = x[:-5]
    return x, q, r


@program
def a_square_and_its_transpose(np, n):
    side = int((n * 1.0) ** 0.5) // 2 * 2
    x = np.arange(side * side) * 1.0
    q = x.reshape(side, side)
    q += q.T
    x[:] = q.T.ravel()
    q[...] = x[::-1].reshape(side, side)
    np.einsum("ii->i", q)[...] = -1
    return x, q, np.diagonal(q)


@program
def views_of_views_in_loops(np, n):
    x = np.arange(n) * 1.0
    q, r = x.reshape(4, -1), x.reshape(-1, 12)
    for _ in range(40):
        q = q.T
        r = r.reshape(-1).reshape(-1, 12)[:]
    for _ in range(30):
        q = q[:, ::-1].T.T[:, :]
    q[0] = 9
    x *= 2
    r[1] = 7
    for _ in range(70):
        r = r[1:] if len(r) > 2 else r
    r[...] = -1
    return x, q, r


@program
def functions_that_write(np, n):
    x = np.arange(n) % 97 * 1.0
    q, s = x.reshape(4, -1), np.zeros(n // 4)
    np.sum(q, axis=0, out=s)
    np.sum(q, axis=1, out=x[:4])
    np.clip(q, 3, 40, out=q)
    np.sqrt(x, out=x)
    np.copyto(q[1:], 0)
    np.put(q, [1, 2], 99)
    np.place(q, q > 50, -4)
    np.putmask(x, x < 0, 8)
    np.fill_diagonal(q, 77)
    q.flat[5] = 4
    q.flat[7:9] = 3
    np.add.at(q, (np.array([0, 1]), np.array([1, 2])), 5)
    np.add.at(x, [3, 3], 1)
    return x, q, s


@program
def sorted_in_place(np, n):
    x = np.arange(n)[::-1] * 7 % 101
    q = x.reshape(4, -1)
    np.cumsum(q, axis=1, out=q)
    q.sort(axis=0)
    x *= -1
    x.sort()
    generator = np.random.default_rng(3)
    generator.shuffle(q)
    generator.shuffle(x)
    return x, q


@program
def masks_and_lists_of_places(np, n):
    x = np.arange(n) * 1.0
    q = x.reshape(4, -1)
    q[q > n // 2] = 0
    x[x < 5] = -1
    q[[0, 2]] = 9
    q[np.ix_([1], [2, 3])] = 8
    q[:, [1]] += 1
    return x, q


@program
def rows_unpacked(np, n):
    y = np.zeros((4, n // 4))
    rho, mx, my, e = y
    rho[...] = 1
    e += 2
    y.reshape(-1)[n // 3] = 5
    for row in y:
        row *= 2
    a, b, c = y.reshape(-1).reshape(3, -1)
    b[:] = 7
    return y, rho, mx, my, e, a, b, c


@program
def one_element_at_a_time(np, n):
    x = np.arange(n) * 1.0
    q = x.reshape(4, -1)
    for i in range(30):
        q[i % 4, i % 15] = x[i] + 1
        x[n - 1 - i] = q[1, 3]
    for place, value in np.ndenumerate(q[:, :9]):
        if value % 7 == 0:
            q[place] = -1
    return x, q


@program
def a_new_shape_in_place(np, n):
    y = np.zeros(n)
    z = y.reshape(-1, 4)
    y.shape = (4, n // 4)
    y[1] = 2
    z[0] = 1
    told = [raised(setattr, y.T, "shape", n), raised(setattr, y, "shape", (7, 7))]
    y.shape = (n // 4, 4)
    y[3] = 8
    return y, z, told


@program
def another_type_in_place(np, n):
    y = np.zeros(n)
    z = y.reshape(4, -1)
    v = y.view("i8")
    v[3] = 1
    w = y.view("f4")
    w[n + 1] = 2
    c = y.view("c16").reshape(2, -1)
    c.imag[1] = 3
    return y, z, v, w, c


@program
def records_and_their_fields(np, n):
    r = np.zeros(n, [("a", float), ("b", int)])
    q = r["a"].reshape(4, -1)
    q[0] = 1
    r["b"].reshape(-1, 4)[2] = 3
    r["a"][n // 2] = 8
    s = r.reshape(4, -1)
    s["a"][1, 2] = 5
    s[["a"]][2] = (7,)
    return r["a"], r["b"], q, s["b"]


@program
def complex_parts(np, n):
    x = np.zeros(n, complex)
    q = x.reshape(4, -1)
    q.real[1] = 3
    x.imag[::2] = 1
    x.view(float).reshape(-1, 2)[3] = 9
    return x, q, q.imag


@program
def windows_see_writes(np, n):
    x = np.zeros(n)
    w, q = np.lib.stride_tricks.sliding_window_view(x, 3), x.reshape(4, -1)
    seen = []
    for write in (x, q, x[::3], q.T[2:]):
        write[n // 4 - 3 if write.shape[0] > 4 else 2] += 1
        seen += [w.max(1), float(w.sum())]
    x += 1
    return seen, w[n // 2 - 1 : n // 2 + 2], x


@program
def windows_are_written_to(np, n):
    x = np.arange(n) * 1.0
    w = np.lib.stride_tricks.sliding_window_view(x, 5, writeable=True)
    w[n // 3 - 2] = -1
    w[n // 3 - 1, 2] = 4
    w[n // 2 : n // 2 + 2, 1] = [7, 8]
    w[:, 0] *= 2
    v = np.lib.stride_tricks.as_strided(x, (n // 3 - 1, 4), (24, 8))
    v[3:, 1] += 1
    return x, w, v


@program
def windows_of_each_step(np, n):
    x, total = np.arange(n) * 1.0, 0.0
    for i in range(12):
        w = np.lib.stride_tricks.sliding_window_view(x, 3)
        x[i * n // 12] = i
        total += float(w.max())
    return x, total


@program
def the_base_is_deleted(np, n):
    x = np.arange(n) * 1.0
    q = x[::-1].reshape(4, -1)
    del x
    q[1] = 3
    r = q[::2][:, ::2]
    p = q.reshape(-1, 4)
    del q
    r[...] = 0
    return r, p, p.base


@program
def a_long_chain_of_views(np, n):
    x = y = np.arange(n + 1400) * 1.0
    for _ in range(1400):
        y = y[1:]
    z = y.reshape(4, -1)
    z[1] = -1
    return x, y, y.strides, np.shares_memory(x, z), np.shares_memory(x[:1400], z)


@program
def resized(np, n):
    x = np.arange(n) * 1.0
    q = x.reshape(4, -1)
    told = [raised(x.resize, n + 1), raised(q.resize, (5, n))]
    del q
    y = x.copy()
    y.resize(n + 10, refcheck=False)
    return x, y, told


@program
def flags_of_one_alias(np, n):
    x = np.arange(n) * 1.0
    q, told = x.reshape(4, -1), []
    q.setflags(write=False)
    x[3] = 100
    told += [raised(q.__setitem__, 0, 1), x.flags.writeable, q[:, 1:].flags.writeable]
    q.setflags(write=True)
    q[0] = 1
    x.flags.writeable = False
    q[1] = 7
    w = x.reshape(4, -1)
    told += [raised(w.__setitem__, 0, 8), raised(setattr, w.flags, "writeable", True)]
    x.flags.writeable = True
    return x, q, w, told


@program
def copied_and_pickled(np, n):
    x = np.arange(n) * 1.0
    q = x.reshape(4, -1)
    q[0] = 5
    c, d = copy.deepcopy((x, q))
    e, p = copy.copy(q), pickle.loads(pickle.dumps(q))
    for array in (c, d, e):
        array[1] = 9
    x[n // 2] = 1
    return x, q, c, d, e, p


@program
def an_error_in_the_middle(np, n):
    x = np.arange(n) * 1.0
    q = x.reshape(4, -1)
    told = [raised(np.add, q, np.ones(3), q), raised(q.__setitem__, 1, np.ones(7))]
    told += [raised(np.sum, q, 0, None, np.zeros(2))]
    x[2] = 50
    return x, q, told


def few(function):
    """Programs that take one element at a time run on few elements alone."""
    PROGRAMS[function.__name__] = function
    FEW.add(function.__name__)
    return function


FEW = set()


@few
def nditer_writes(np, n):
    x = np.arange(n) * 1.0
    q, y = x.reshape(4, -1), np.zeros(n)
    with np.nditer(x, op_flags=["readwrite"]) as steps:
        for e in steps:
            e[...] = 2 * e
    sums = []
    with np.nditer(q, op_flags=["readwrite"], flags=["multi_index"]) as steps:
        for e in steps:
            e[...] += steps.multi_index[0]
            sums.append(float(x.sum()))
            e[...] -= 1
            sums.append(float(x.sum()))
    with np.nditer(q, op_flags=["readwrite"], flags=["external_loop", "buffered"]) as steps:
        for part in steps:
            part[...] = -part
    with np.nditer([x, y], op_flags=[["readonly"], ["writeonly"]]) as steps:
        for a, b in steps:
            b[...] = a * 3
    steps = np.nditer(y, op_flags=["readwrite"])
    while not steps.finished:
        steps[0] = steps[0] + 1
        steps.iternext()
    x[3] = 4
    for part in (q[1], q[:, 3], x[::7]):
        with np.nditer(part, op_flags=["readwrite"]) as steps:
            for a in steps:
                a[...] = a * 3
    return x, q, y, sums


def test_views_of_views_in_loops_keep_short_chains(world, ranks):
    def run(group):
        x = distarray.numpy.zeros((7, 6 * group.size))
        y = x.T
        for _ in range(41):
            y = y.T.reshape(-1, 3).reshape(x.shape)[::-1].T[:, ::-1]
        y[0] = 1
        assert not y.layout.is_whole or group.size == 1
        assert group.size == 1 or y._storage.depth < 64
        return x[:, 0].full().tolist()

    with config.override(replicate_below=0):
        assert all(found == [1] * 7 for found in world.run(ranks, run))


def elements(value):
    if isinstance(value, distarray.DistArray):
        return value.full().tolist()
    if isinstance(value, (list, tuple)):
        return [elements(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.filterwarnings("ignore:pickling gathers")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_what_numpy_prints(world, name):
    for count, below in ((60, 0), (240_060, config.replicate_below)):
        if name in FEW and count > 60:
            continue
        wanted = elements(PROGRAMS[name](np, count))

        def run(group, count=count, below=below, wanted=wanted):
            with config.override(replicate_below=below):
                found = elements(PROGRAMS[name](distarray.numpy, count))
            for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
                assert one == other, f"item {number}"

        for ranks in world.ranks:
            world.run(ranks, run)


@pytest.mark.counts(lambda ranks: ranks == 4)
def test_a_broadcast_of_a_row_that_one_rank_has(world, ranks):
    """Its elements go to all ranks, and later writes to the row are seen."""

    def program(group):
        with distarray.DeviceMesh(group, (2, 2)):
            places = [distarray.Shard(0), distarray.Shard(1)]
            x = distarray.distribute(np.ones((1, 1)), placements=places)
            wide = distarray.numpy.broadcast_to(x[0], 2)
            shared = distarray.numpy.shares_memory(x, wide)
            x[0] = 5
            return shared, wide.full().tolist()

    assert world.run(ranks, program) == [(True, [5, 5])] * 4
