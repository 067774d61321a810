"""Functions that are decorated with `fuse`: one pass on the host, one kernel on a device."""

import numpy as np
import pytest

from distarray import fuse, trace
from distarray.array import DistArray, distribute
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches

N = 5
FUNCTIONS = {
    "arithmetic": lambda x, y: (x + y) * (x - y) / (1.0 + x * x) - 2.0 * y,
    "functions": lambda x, y: np.sqrt(np.abs(x)) + np.exp(-y) * np.maximum(x, 0.5),
    "a choice": lambda x, y: np.where(x > y, x, 2.0 * y),
    "bounds": lambda x, y: np.clip(x, -0.5, 0.5) + y**2,
    "two results": lambda x, y: (x + y, np.less(x, y)),
    "a number": lambda x, y: x * 0.5 + y,
    "an operand": lambda x, y: x,
    "a fold": lambda x, y: x - y.max(axis=0),
    "a shape": lambda x, y: x * len(y),
    "a question": lambda x, y: x if x[0, 0] > 0 else y,
    "in place": lambda x, y: np.add(x, y, out=y),
    "a part": lambda x, y: x[1:] + y[:-1],
}
#: Those that are no elementwise expressions, and run on a device as they are.
PLAIN = ["an operand", "a fold", "a shape", "a question", "in place", "a part"]


def operands(kind="f8"):
    rng = np.random.default_rng(2)
    return [rng.normal(size=(N, 4)).astype(kind) for _ in range(2)]


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()], ids=str)
@pytest.mark.parametrize("kind", ["f8", "f4"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results(world, ranks, name, kind, placement):
    wanted = FUNCTIONS[name](*operands(kind))

    def program(group):
        mesh = DeviceMesh(group)
        given = [distribute(x, mesh, [placement], src=None) for x in operands(kind)]
        found = fuse(FUNCTIONS[name])(*given)
        parts = found if isinstance(found, tuple) else (found,)
        whole = wanted if isinstance(wanted, tuple) else (wanted,)
        for part, expected in zip(parts, whole, strict=True):
            assert_matches(part, expected, rtol=1e-5 if kind == "f4" else 1e-12)
            assert type(part) is DistArray

    world.run(ranks, program)


def test_numbers_may_change(world, ranks):
    """A kernel is made once for the types, whole numbers excepted."""

    def program(group):
        x = distribute(operands()[0], DeviceMesh(group), [Shard(0)], src=None)
        scaled = fuse(lambda x, a, n: a * x**n)
        for a, n in [(2.0, 2), (3.0, 2), (3.0, 3), (np.float32(2), 2), (2, 1), (True, 1)]:
            assert_matches(scaled(x, a, n), a * operands()[0] ** n)

    world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks == 1)
def test_one_kernel(world, ranks, monkeypatch):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    calls, fused = [], cupy.fuse

    def counted(function):
        kernel = fused(function)
        return lambda *args: (calls.append(function), kernel(*args))[1]

    monkeypatch.setattr(cupy, "fuse", counted)

    def program(group):
        mesh = DeviceMesh(group)
        given = [distribute(x, mesh, [Shard(0)], src=None) for x in operands()]
        other = distribute(operands()[0], mesh, [Shard(1)], src=None)
        made = {}
        for name in FUNCTIONS:
            calls.clear()
            fuse(FUNCTIONS[name])(*given)
            made[name] = len(calls)
        calls.clear()
        fuse(FUNCTIONS["arithmetic"])(given[0], other)
        return made, len(calls)

    for made, moved in world.run(ranks, program):
        assert made == {name: int(name not in PLAIN) for name in FUNCTIONS}
        assert moved == 0


@pytest.mark.host
@pytest.mark.counts(lambda ranks: ranks == 1)
def test_smaller_blocks_are_put_off_in_it(world, ranks):
    """From 1 MiB on, also where nothing else is, and nothing is left when it returns."""
    seen = []

    def formula(x):
        y = (x + 1.0) * 2.0
        seen.append(y.waits)
        return y - x

    def program(group):
        x = distribute(np.arange((1 << 17) * group.size * 1.0), DeviceMesh(group), [Shard(0)])
        with config.override(fuse="off"), trace() as messages:
            found = fuse(formula)(x)
            plain = formula(x)
        assert not messages.events
        return type(found), found.block.tobytes() == plain.block.tobytes()

    assert world.run(ranks, program) == [(DistArray, True)]
    assert seen == [True, False]


def test_what_it_looks_like():
    @fuse
    def named(x):
        """Twice."""
        return 2 * x

    assert named.__name__ == "named" and named.__doc__ == "Twice."
    assert named(3) == 6 and named(np.arange(3)).tolist() == [0, 2, 4]
    with pytest.raises(TypeError):
        named()
