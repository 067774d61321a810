"""Operations that are put off: programs of them give what NumPy gives, whoever touches them."""

import re
import warnings
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import get_ident

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard
from distarray.array import deferred, tiled, waiting
from distarray.array.leaves import held
from tests.waiting import everything_waits, messages_come_late, nothing_is_watched

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.fixture(autouse=True)
def all_waits(monkeypatch):
    everything_waits(monkeypatch.setattr)
    messages_come_late(monkeypatch.setattr)
    with nothing_is_watched():
        yield


NAMES = ("a", "b", "c", "d")
STATEMENTS = (
    "{v} = {x} {op} {y}",
    "{v} = {x} {op} {y} {op2} {z}",
    "{v} = ({x} {op} {k}) {op2} np.{unary}({y})",
    "{v} = {k} {op} {x}",
    "{v} = np.{unary}({x})",
    "{v} = np.{binary}({x}, {y} {op} {k})",
    "{v} = np.where({x} > {y}, {x}, {z})",
    "{v} = np.clip({x}, -{k}, {k})",
    "{v} = ({x} {op} {y}).astype('{kind}')",
    "{v} = {x} ** 2",
    "{v} = -{x} + {y}",
    "{v} = {x}",
    "{v} = {x}.copy()",
    "{v} = {x}[::-1]",
    "{x} {op}= {y}",
    "{x} {op}= {k}",
    "{x} {op}= {x} {op2} {y}",
    "{x}[{key}] = {k}",
    "{x}[{key}] {op}= {k}",
    "{x}[{key}] = {y}[{key}] {op} {k}",
    "w = {x}[{key}]; w {op}= {k}",
    "w = {x}[{key}]; {x} {op}= {y}; w[...] = {k}",
    "np.{binary}({x}, {y}, out={z})",
    "np.add({x}, {k}, out={z}, where={y} > 0)",
    "np.copyto({x}, {y})",
    "{x}[1:] = {y}[:-1] {op} {z}[1:]",
    "{x}[1:-1] = 0.5 * ({x}[:-2] {op} {x}[2:])",
    "{x}[1:-1] {op}= ({x}[:-2] {op2} {y}[2:])",
    "{x}[:-1] {op}= {x}[1:]",
    "{x}[1:] = {x}[:-1]",
    "{x}[:-1] = {y}[1:]",
    "{x}[...] = {y} {op} {z}",
    "{x}[::2] = {y}[::2] {op} {k}",
    "w = {x}[1:]; {x} = w {op} {y}[:-1]; w[0] = 3; {x} = {z}",
    "g = {x}[1:]; h = g {op} {k}; {x}[key] = {y}[key]; {x}[1:] = h".replace("[key]", "[{key}]"),
    "g = {x}[2:]; g {op}= {k}",
    "w = {x}.reshape(-1); {v} = {y} {op} {k}; w[1:] {op2}= {k}",
    "w = {x}.reshape(-1)[2:]; {x} {op}= {y}; found.append(element(w))",
    "w = {x}.T; {v} = (w {op} {y}.T).T; w[0] {op}= {k}",
    "w = {x}.T[::-1]; {v} = w.T {op} {y}[:, ::-1] if w.ndim == 2 else w {op} {y}",
    "w = {x}[..., None]; {v} = ({y}[..., None] {op} w)[..., 0]",
    "w = np.expand_dims({x}, 0); {x} {op}= {k}; w[0, 1:] = {y}[1:]",
    "w = {x}.real; w {op}= {y}; {v} = {x} {op2} {k}",
    "g[...] = g {op} {k} if len(g) == len({x}) - 2 else 0",
    "{v} = {x} {op} row",
    "{v} = row {op} {x} {op2} {y}",
    "{x} {op}= row",
    "{x}[{key}] = row {op} {k}",
    "np.{binary}({x}, row, out={z})",
    "{v} = np.where(row > {k}, {x}, {y})",
    "e = local({x})",
    "e {op}= {k}",
    "local({x})[...] = {k}",
    "found.append(({x} {op} {y}).max())",
    "found.append(({x} > {y}).any())",
    "found.append(total({x} {op} {y}))",
    "found.append(total({x}))",
    "found.append(element({x}))",
    "{v} = twice({x} {op} {y})",
    "del {x}; {x} = {y} {op} {k}",
    "f = {x} {op} {y}",
    "{v} = f",
)
BLANKS = {
    "v": NAMES, "x": NAMES, "y": NAMES, "z": NAMES,
    "op": ("+", "-", "*"), "op2": ("+", "*", "/"),
    "k": ("2", "0.5", "np.float32(1.5)", "True", "3"),
    "unary": ("sqrt", "exp", "abs", "sign", "square", "isnan", "negative", "logical_not"),
    "binary": ("maximum", "hypot", "less", "add", "logical_and"),
    "kind": ("f8", "f4", "i4", "?"),
    "key": ("1:", ":-1", "::2", "...", "0"),
}  # fmt: skip


@st.composite
def programs(draw):
    """Lines that hold for NumPy's arrays and for distributed ones."""
    lines = []
    for _ in range(draw(st.integers(1, 14))):
        blanks = {name: draw(st.sampled_from(words)) for name, words in BLANKS.items()}
        lines.append(draw(st.sampled_from(STATEMENTS)).format(**blanks))
    return lines


def run(lines, names):
    """Execute lines; what they find, and the types of their errors."""
    errors = []
    for line in lines:
        try:
            exec(line, names)
        except (TypeError, ValueError, NameError, IndexError) as error:
            errors.append(type(error))
        else:
            errors.append(None)
    return errors


def names_of(namespace, arrays, alone):
    """What a program finds at its beginning."""

    def local(x):
        return x.to_local() if isinstance(x, distarray.DistArray) else x

    return {
        "np": namespace, "found": [], **arrays,
        "local": local,
        "total": lambda x: x.sum() if alone or x.dtype.kind != "f" else None,
        "element": lambda x: x[0, 0] if x.ndim == 2 else x[0],
        "twice": lambda x: x + x,
    }  # fmt: skip


@settings(max_examples=60)
@given(data=st.data())
def test_programs(world, ranks, data):
    shape = data.draw(st.sampled_from([(7,), (5, 3), (1, 4), (700,), (61, 13)]))
    kinds = data.draw(st.tuples(*[st.sampled_from(["f8", "f4", "i4", "f8"])] * len(NAMES)))
    tile = data.draw(st.sampled_from([128, 1 << 14]))
    lines = data.draw(programs())
    numbers = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = {n: (numbers.normal(size=shape) * 4).astype(k) for n, k in zip(NAMES, kinds)}
    values["row"] = (numbers.normal(size=shape[-1]) * 4).astype(kinds[0])
    plain = names_of(np, {n: v.copy() for n, v in values.items()}, ranks == 1)
    expected = run(lines, plain)
    places = [Shard(0), Shard(0), Shard(len(shape) - 1), Replicate()]
    dims = data.draw(st.sampled_from([(ranks,), (ranks,), (1, ranks), (ranks // 2, 2)]))
    dims = dims if np.prod(dims) == ranks else (ranks,)
    layouts = {n: data.draw(st.tuples(*[st.sampled_from(places)] * len(dims))) for n in NAMES}
    layouts["row"] = (Replicate(),) * len(dims)

    def program(group):
        mesh = DeviceMesh(group, dims)
        arrays = {n: distarray.distribute(v.copy(), mesh, layouts[n]) for n, v in values.items()}
        ours = names_of(dnp, arrays, ranks == 1)
        assert run(lines, ours) == expected
        for name in (*NAMES, "f"):
            if name in plain:
                found, wanted = ours[name].full(), plain[name]
                assert found.dtype == wanted.dtype
                np.testing.assert_array_equal(found, wanted, name)
        np.testing.assert_equal(ours["found"], plain["found"])

    with tile_of(tile):
        world.run(ranks, program)


@contextmanager
def tile_of(extent):
    """Tiles of so many elements."""
    before = tiled.FEWEST, tiled.MOST
    tiled.FEWEST = tiled.MOST = extent
    tiled._kept.clear()
    try:
        yield
    finally:
        tiled.FEWEST, tiled.MOST = before
        tiled._kept.clear()


def fewest(world):
    """One rank if there may be one, for a test that counts what its process does."""
    return min(world.ranks)


def cut(group, values):
    return distarray.distribute(values.copy(), DeviceMesh(group, (group.size,)), [Shard(0)])


def test_nothing_runs_before_somebody_asks(world, ranks):
    values = np.linspace(1.0, 2.0, 13)

    def program(group):
        x = cut(group, values)
        y = np.sqrt(x + 1.0) * x
        assert y.waits and x.waits
        assert (y.dtype, y.shape, y.nbytes, y.itemsize) == (values.dtype, (13,), 104, 8)
        assert isinstance(y, distarray.DistArray)
        np.testing.assert_array_equal(y.full(), np.sqrt(values + 1.0) * values)
        assert not y.waits

    world.run(ranks, program)


def test_alike_operations_run_once(world, monkeypatch):
    called = []

    def counted(number, steps, outs):
        called.append(len(number))
        return plain(number, steps, outs)

    plain = tiled._places
    monkeypatch.setattr(tiled, "_places", counted)

    def program(group):
        x = cut(group, np.arange(5.0 * group.size))
        first = x * 2.0
        (np.sqrt(x) + np.sqrt(x) * first).full()

    world.run(fewest(world), program)
    assert called == [4]  # one square root, and `first` is kept in the same pass


@pytest.mark.parametrize("name", ["off", "errstate", "reference", "memoryview", "view"])
def test_what_is_done_at_once(world, name):
    def program(group):
        x = cut(group, np.arange(5.0 * group.size))
        kept = None
        if name == "reference":
            kept = x.to_local()
        elif name == "memoryview":
            kept = memoryview(x.to_local())
        elif name == "view":
            kept = x[1:]
        with (
            distarray.config.override(fuse="off" if name == "off" else "on"),
            np.errstate(divide="ignore" if name == "errstate" else "warn"),
        ):
            assert not (x + 1.0).waits
        del kept
        assert (x + 1.0).waits

    world.run(fewest(world), program)


def test_warnings_are_numpys_and_name_the_line(world):
    values = np.array([0.0, 1.0, -1.0])

    def said_of(x):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            y = 1.0 / x
            z = np.log(x) + y
            getattr(z, "full", z.copy)()
        return [(str(one.message), one.lineno, one.filename) for one in said]

    wanted = said_of(values)
    assert len({line for _, line, _ in wanted}) == 2
    assert world.run(
        fewest(world), lambda group: said_of(cut(group, np.tile(values, group.size)))
    ) == [wanted]


def test_operands_that_nobody_else_has_do_not_pile_up(world, monkeypatch):
    monkeypatch.setattr(waiting, "MOST_KEPT", 100)

    def program(group):
        results = [cut(group, np.full(9 * group.size, float(n))) + 1.0 for n in range(40)]
        assert sum(x.waits for x in results) < 12
        np.testing.assert_array_equal([x.full()[0] for x in results], np.arange(1.0, 41.0))

    world.run(fewest(world), program)


def test_many_operations_run_in_parts(world):
    def program(group):
        x = y = cut(group, np.ones(4 * group.size))
        for _ in range(3 * deferred.MOST):
            y = y + x
        assert held(y).size <= deferred.MOST
        np.testing.assert_array_equal(y.full(), np.full(4 * group.size, 1.0 + 3 * deferred.MOST))

    world.run(fewest(world), program)


def test_threads_ask_for_one_array(world):
    def program(group):
        x = cut(group, np.arange(1000.0))
        with ThreadPoolExecutor(4) as pool:
            for _ in range(50):
                y = np.sqrt(x * 2.0 + 1.0)
                found = list(pool.map(lambda _, y=y: y.to_local().sum(), range(4)))
                assert len(set(found)) == 1

    world.run(fewest(world), program)


@pytest.mark.parametrize("placements", [(Shard(0),), (Shard(1),), (Shard(0), Shard(1))], ids=str)
def test_a_stencil_sends_what_it_sends_at_once(world, ranks, placements):
    values = np.random.default_rng(1).random((23, 17))

    def sweeps(u):
        for _ in range(3):
            u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
            u[2:] -= 0.5 * u[:-2]

    expected = values.copy()
    sweeps(expected)

    def program(group):
        dims = (ranks,) if len(placements) == 1 else (ranks // 2 or 1, min(ranks, 2))
        if np.prod(dims) != ranks:
            return
        counts = []
        for fuse in ("on", "off"):
            u = distarray.distribute(values.copy(), DeviceMesh(group, dims), placements)
            with distarray.config.override(fuse=fuse), distarray.trace() as sent:
                sweeps(u)
            counts.append([(event.kind, event.bytes, event.messages) for event in sent.events])
            np.testing.assert_array_equal(u.full(), expected)
        assert counts[0] == counts[1]

    with tile_of(64):
        world.run(ranks, program)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dim", [0, 1])
def test_borders_come_while_the_inner_tiles_are_computed(world, dim, in_place, monkeypatch):
    ranks = max(world.ranks)
    values = np.random.default_rng(1).random((101, 97))
    lower, inner, upper = [(slice(None),) * dim + (key,) for key in np.s_[:-2, 1:-1, 2:]]
    expected = values.copy()
    expected[inner] = values[lower] + values[upper]
    told = defaultdict(list)

    def tell(what):
        told[get_ident()].append(what)

    def noting(method):
        def run(self, key, extents):
            tell("tile")
            return method(self, key, extents)

        return run

    messages_come_late(monkeypatch.setattr, tell)
    monkeypatch.setattr(tiled.Tiles, "_run", noting(tiled.Tiles._run))

    def program(group):
        u = distarray.distribute(values.copy(), DeviceMesh(group, (ranks,)), [Shard(dim)])
        told[get_ident()].clear()
        if in_place:
            u[inner] = u[lower] + u[upper]
        else:
            found = u[lower] + u[upper]
            found.to_local()
        order = "".join([what[0] for what in told[get_ident()]])
        assert ranks == 1 or re.fullmatch("b+t+a+t+", order)
        if not in_place:
            u[inner] = found
        np.testing.assert_array_equal(u.full(), expected)

    with tile_of(64):
        world.run(ranks, program)


def test_programs_see_one_class(world, ranks):
    def program(group):
        x = cut(group, np.arange(9.0))
        kept = x.to_local()
        y = cut(group, np.arange(9.0)) + 1.0
        if 9 // group.size:
            assert (type(x), type(y)) == (distarray.DistArray, dnp.ndarray)
        for one, other in ((x, y), (y, x), (y, y)):
            kinds = [type(one), type(other), distarray.DistArray, dnp.ndarray]
            assert all(a == b and hash(a) == hash(b) for a in kinds for b in kinds)
            assert not any(a != b for a in kinds for b in kinds)
            assert list not in kinds
            assert isinstance(one, type(other))
            assert issubclass(type(one), type(other))
            assert not isinstance(3, type(one))
            assert type(one).__name__ == "DistArray"
        del kept

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize(
    ("widths", "elements"), [([], 16), ([8], 16), ([8, 8], 16), ([8] * 3, 8), ([16] * 4, 4)]
)
def test_tiles_are_as_large_as_results_between_operations_allow(widths, elements, monkeypatch):
    for name, value in {"FEWEST": 4, "MOST": 16, "ROOM": 256}.items():
        monkeypatch.setattr(tiled, name, value)
    assert tiled._size_of([np.dtype(f"V{width}") for width in widths]) == elements
