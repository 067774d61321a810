"""Loops that read and write cut arrays piece by piece see what NumPy's see, with few messages."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Shard
from distarray.array import handed_out, mirroring
from distarray.errors import PerformanceWarning
from tests.waiting import everything_is_kept, everything_waits, nothing_is_watched

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
ROWS, COLUMNS = 7, 5


@pytest.fixture(autouse=True)
def operators_are_ours():
    with nothing_is_watched():
        yield


@pytest.fixture
def blocks_unnamed(monkeypatch):
    """As if the program's code, which is the tests', named nothing that hands out blocks."""
    monkeypatch.setattr(mirroring, "names_blocks", lambda: False)


def _exported(x):
    """The block of an array, as a program gets it; all of NumPy's own."""
    return x if isinstance(x, np.ndarray) else getattr(x, "to_" + "local")()


def _swap(x, i, j):
    x[i], x[j] = x[j].copy(), x[i].copy()


def _held_row(state, x, i):
    state["row"] = x[i]


def _write_row(state, x, i):
    state.get("row", x[0])[1:3] = i


def _scale_row(state, x, i):
    row = state.get("row", x[1])
    row *= 3


def _read_row(state, x, i):
    row = state.get("row", x[1])
    return [row.sum(), row[0], (row * 2 + row)[i % COLUMNS], row[1:].copy()[0], float(row[-1])]


def _hold(state, x, i):
    state["block"] = _exported(x)


def _write_held(state, x, i):
    if "block" in state and state["block"].size:
        state["block"] *= 2


def _export(state, x, i):
    block = _exported(x)
    block += 1


def _export_view(state, x, i):
    block = _exported(x[1:])
    block += 1


def _export_row(state, x, i):
    block = _exported(x[i])
    block += 1


#: What programs are made of: functions of what they keep, an array, and a row.
STATEMENTS = {
    "elements": lambda s, x, i: [x[j, j % COLUMNS] for j in range(ROWS)],
    "rows": lambda s, x, i: [x[j] @ np.arange(COLUMNS) for j in range(ROWS)],
    "parts": lambda s, x, i: [np.dot(x[j, 1:i], x[i, 1:i]) for j in range(ROWS)],
    "ufunc": lambda s, x, i: [np.sqrt(x[j] * x[j])[1] for j in range(ROWS)],
    "view elements": lambda s, x, i: [x[1:, ::2][j, 1] for j in range(ROWS - 1)],
    "own view": lambda s, x, i: [s.setdefault("view", x[::-1])[j, 0] for j in range(ROWS)],
    "turned": lambda s, x, i: [s.setdefault("turned", x.T)[0, j] for j in range(ROWS)],
    "write elements": lambda s, x, i: [x.__setitem__((j, i % COLUMNS), j) for j in range(ROWS)],
    "write rows": lambda s, x, i: [x.__setitem__(j, x[i] + j) for j in range(ROWS)],
    "add to rows": lambda s, x, i: [_add(x, j, i) for j in range(ROWS)],
    "recurrence": lambda s, x, i: [x.__setitem__(j, x[j - 1] + x[j]) for j in range(1, ROWS)],
    "overlap": lambda s, x, i: x.__setitem__((slice(1, None), 0), x[:-1, 0]),
    "swap": lambda s, x, i: _swap(x, i, i - 1),
    "write by view": lambda s, x, i: x[2:].__setitem__(i % (ROWS - 2), -1),
    "write turned": lambda s, x, i: x.T[1].__setitem__(i, 8),
    "in place": lambda s, x, i: x.__imul__(2),
    "view in place": lambda s, x, i: x[i:].__iadd__(1),
    "own view in place": lambda s, x, i: s.setdefault("view", x[::-1]).__iadd__(1),
    "out": lambda s, x, i: np.add(x, 1, out=x),
    "out row": lambda s, x, i: np.add(x[i], 1, out=x[i])[0],
    "at": lambda s, x, i: np.add.at(x, ([i, 0], [0, 1]), 5),
    "flat": lambda s, x, i: x.flat.__setitem__(i, 9),
    "mask": lambda s, x, i: x.__setitem__(x > 50, 2),
    "copyto": lambda s, x, i: np.copyto(x[i], i),
    "fill": lambda s, x, i: x[i].fill(4),
    "sort": lambda s, x, i: x[i].sort(),
    "hold a row": _held_row,
    "write a row": _write_row,
    "scale a row": _scale_row,
    "read a row": _read_row,
    "iterate": lambda s, x, i: [_changed(x, row, j) for j, row in enumerate(x)],
    "hold the block": _hold,
    "write to it": _write_held,
    "export": _export,
    "export a view": _export_view,
    "export a row": _export_row,
}


def _add(x, j, i):
    x[j, :i] += x[i, :i]


def _changed(x, row, j):
    x[j, 0] += 1
    return row[0]


def _run(lines, arrays):
    """What the lines of a program find; `arrays` are changed."""
    states = [{} for _ in arrays]
    found = []
    for name, which, row in lines:
        value = STATEMENTS[name](states[which], arrays[which], row)
        if isinstance(value, list):
            found += [np.asarray(item, float) for item in value if item is not None]
    return [*found, *map(np.array, arrays)]


def _inputs():
    rng = np.random.default_rng(5)
    return [rng.integers(0, 9, (ROWS, COLUMNS)).astype(float) for _ in range(2)]


LINES = st.lists(
    st.tuples(st.sampled_from(sorted(STATEMENTS)), st.integers(0, 1), st.integers(0, ROWS - 1)),
    min_size=3,
    max_size=14,
)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "put off"])
@pytest.mark.parametrize("dim", [0, 1])
@given(lines=LINES)
def test_programs(world, ranks, dim, late, lines):
    with pytest.MonkeyPatch.context() as patch:
        everything_is_kept(patch.setattr)
        if late:
            everything_waits(patch.setattr)
        expected = _run(lines, _inputs())

        def program(group):
            mesh = DeviceMesh(group, (group.size,))
            arrays = [dnp.array(distarray.distribute(x, mesh, [Shard(dim)])) for x in _inputs()]
            return _run(lines, arrays)

        for found in world.run(ranks, program):
            for ours, numpys in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours, numpys)


def _cut(group, values, dim=0):
    mesh = DeviceMesh(group, (group.size,))
    return dnp.array(distarray.distribute(values, mesh, [Shard(dim)], src=None))


@pytest.mark.parametrize("dim", [0, 1])
def test_elements_and_rows_are_fetched_once(world, ranks, dim, blocks_unnamed):
    values = np.arange(600.0).reshape(30, 20)

    def program(group):
        x, total = _cut(group, values, dim), 0.0
        with distarray.trace() as sent:
            for _ in range(3):
                for i in range(30):
                    total += x[i, i % 20] + float(x[i, :5] @ np.arange(5.0))
        assert len(sent.events) <= (12 if dim == 0 else 30)
        wanted = sum(values[i, i % 20] + values[i, :5] @ np.arange(5.0) for i in range(30))
        np.testing.assert_allclose(total, 3 * wanted)

    world.run(ranks, program)


def test_what_the_loop_writes_is_not_sent(world, ranks, blocks_unnamed):
    def loop(x, y):
        for i in range(1, 40):
            x[i] = 0.5 * x[i - 1] + y[i, 1]
            y[i] *= 2
            y[i, 0] = x[i]
        return x, y

    def program(group):
        x, y = _cut(group, np.ones(40)), _cut(group, np.ones((40, 3)))
        with distarray.trace() as sent:
            found = loop(x, y)
        assert len(sent.events) <= 20
        for ours, numpys in zip(found, loop(np.ones(40), np.ones((40, 3))), strict=True):
            np.testing.assert_array_equal(ours.full(), numpys)

    world.run(ranks, program)


def test_another_array_may_be_written_to(world, ranks, blocks_unnamed):
    """Where others than this loop's array are computed with, nothing is fetched again."""

    def program(group):
        x, y = _cut(group, np.arange(40.0)), _cut(group, np.ones(40))
        with distarray.trace() as sent:
            for i in range(40):
                y[i] = x[39 - i] + 1
                np.exp(y)
        assert len(sent.events) <= 10
        np.testing.assert_array_equal(y.full(), np.arange(40.0, 0, -1))

    world.run(ranks, program)


def test_nothing_is_kept_beyond_the_limit(world, ranks, blocks_unnamed):
    def program(group):
        x, y = _cut(group, np.arange(50.0)), _cut(group, np.arange(50.0))
        with distarray.config.override(keep=0), distarray.trace() as sent:
            assert [x[i] for i in range(50)] == list(range(50))
        assert len(sent.events) == (50 if group.size > 1 else 0)
        with distarray.config.override(keep=800):  # for two of 400 bytes
            assert [x[i] + y[i] for i in range(50)] == list(range(0, 100, 2))
            if group.size > 1:
                assert x._mirror.elements is not None
                assert y._mirror.elements is not None
            z = _cut(group, np.arange(50.0))
            assert [z[i] + y[i] for i in range(50)] == list(range(0, 100, 2))
            if group.size > 1:
                assert x._mirror.elements is None

    world.run(ranks, program)


def test_programs_that_name_blocks_keep_nothing(world, ranks, monkeypatch):
    """One rank alone may write to its block; the others have no way to know."""

    def program(group):
        x = _cut(group, np.arange(50.0))
        for i in range(50):
            assert x[i] == i
        if group.size > 1:
            assert not x._mirror.holds
        if group.rank == 0:
            x.to_local()[0] = 7
        assert x[0] == 7

    world.run(ranks, program)


def test_names_are_found():
    def plain():
        return np.zeros(3).sum()

    def inner():
        def local(x):
            return x.to_local()

        return local

    assert not any(map(handed_out._has_names, handed_out._codes(plain)))
    assert any(map(handed_out._has_names, handed_out._codes(inner)))
    kind = type("Kind", (), {"method": classmethod(inner), "value": property(plain)})
    assert any(map(handed_out._has_names, handed_out._codes(kind)))


def test_an_array_whose_block_is_held_is_not_kept(world, ranks, blocks_unnamed):
    def program(group):
        values = np.arange(8.0)
        mesh = DeviceMesh(group, (group.size,))
        x = distarray.DistArray.from_local(values, mesh, [Shard(0)])
        for n in range(30):
            values[n % 8] = n
            assert x[n % 8 + 8 * (n % group.size)] == n

    world.run(ranks, program)


def test_excerpts_are_views(world, ranks, blocks_unnamed):
    """They look, and behave, as the views that they stand for."""

    def program(group):
        x = _cut(group, np.arange(60.0).reshape(12, 5))
        for i in range(12):
            assert x[i, 1] == 5 * i + 1
        row = x[3]
        assert type(row) == type(x)  # noqa: E721 (as a program compares them)
        assert isinstance(row, distarray.DistArray)
        assert (row.shape, row.dtype, row.ndim, row.size, len(row)) == ((5,), "f8", 1, 5, 5)
        x[3, 0] = -1
        assert row[0] == -1
        row[1] = -2
        assert x[3, 1] == -2
        other = x[3]
        assert other.mesh is x.mesh
        assert group.size == 1 or other.layout.ats
        whole = x[4] * 1
        assert whole.layout.is_whole
        assert np.shares_memory(x[5].block, x.block) or not x[5].layout.holds(x.mesh.coords)
        with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 5"):
            x[3][5]
        with pytest.raises(ValueError, match="could not broadcast"):
            x[2] = np.ones(3)

    world.run(ranks, program)


def test_what_numpy_writes_before_a_warning_is_raised_is_kept(world, ranks, blocks_unnamed):
    """NumPy has written when a warning that is an error is raised; errors of types come before."""

    def loop(x):
        for i in range(8):
            x[i] += x[i, 1]
        with pytest.raises(RuntimeWarning, match="divide by zero"):
            x[5] /= 0
        row = x[6]
        with pytest.raises(RuntimeWarning, match="overflow"):
            row *= np.float32(3e38)
        with pytest.raises(RuntimeWarning, match="overflow"):
            x[7, 2] = np.float64(1e300)
        with pytest.raises(TypeError, match="Cannot cast ufunc 'add'"):
            x[4] += np.ones(3, complex)
        with pytest.raises(ValueError, match="broadcast"):
            x[4] += np.ones((2, 3))
        return x

    def program(group):
        values = np.arange(24, dtype="f4").reshape(8, 3) + 2
        x = _cut(group, values)
        for i in range(8):
            assert x[i, 0] == values[i, 0]
        loop(x)
        assert group.size == 1 or x._mirror.elements is not None
        np.testing.assert_array_equal(x.full(), loop(values))
        np.testing.assert_array_equal(x[5:].full(), values[5:])

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        world.run(ranks, program)


def test_slow_lines_are_named_once(world, ranks, monkeypatch):
    """A loop that goes on by messages is told of, with its line."""
    monkeypatch.setattr(mirroring, "MANY", 20)

    def program(group):
        x = _cut(group, np.arange(30.0))
        y = _cut(group, np.arange(30.0))
        for i in range(29):
            x[i + 1] += x[i]
            y += 1
        return group.rank

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        world.run(ranks, program)
    told = [w for w in said if issubclass(w.category, PerformanceWarning)]
    assert len(told) == (0 if ranks == 1 else ranks if world.name == "threads" else 1)
    for warning in told:
        assert warning.filename == __file__
        assert "x.full()" in str(warning.message)
