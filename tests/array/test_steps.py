"""Operations that are run together in C: NumPy's bits and errors, and what is left to Python."""

import numpy as np
import pytest

from distarray.array import speedups, tiled
from distarray.array.operations import acting
from distarray.array.speedups import compiled

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(not speedups.is_built, reason="built without a compiler"),
    pytest.mark.skipif(speedups.is_built and speedups.used is None, reason="switched off"),
]

STEPS = {
    "arithmetic": [(np.add, 0, 1), (np.multiply, -1, 2), (np.subtract, 3, 0), (np.add, 4, 4)],
    "errors": [(np.divide, 0, 1), (np.sqrt, 0), (np.multiply, 2, 3), (np.exp, 4), (np.add, 5, -1)],
    "truth": [(np.less, 0, 1), (np.logical_and, 2, 2), (np.add, 2, 3), (np.logical_not, 4)],
    "three": [(np.hypot, 0, 1), (np.negative, 2), (np.maximum, 3, -2), (np.minimum, 4, -1)],
}
#: Shapes, and how blocks are laid out: in line, with steps, rows of a wider array, broadcast.
LAID = {
    "in line": ((70_001,), lambda x: x),
    "in rows": ((7, 1500), lambda x: x),
    "with steps": ((40, 900), lambda x: np.repeat(x, 2, axis=1)[:, ::2]),
    "backwards": ((5, 1024), lambda x: x[:, ::-1].copy()[:, ::-1]),
    "inner": ((3, 4, 1100), lambda x: np.pad(x, 1)[1:-1, 1:-1, 1:-1]),
    "broadcast": ((6, 2050), lambda x: np.broadcast_to(x[:1], x.shape)),
    "short lines": ((900, 3), lambda x: np.pad(x, 1)[1:-1, 1:-1]),
}


def run_tiles(monkeypatch, steps, blocks, out, in_c):
    with monkeypatch.context() as patch:
        if not in_c:
            patch.setattr(tiled, "compiled", lambda *_: None)
        tiles = tiled.Tiles(blocks, [2.0, 0.25], steps, {len(steps) - 1: out})
    assert (tiles._compiled is not None) == in_c
    tiles.run()
    return tiles.finished()


@pytest.mark.parametrize("laid", LAID)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("code", ["f8", "f4"])
def test_steps_have_numpys_bits_and_errors(monkeypatch, name, laid, code):
    shape, lay = LAID[laid]
    rng = np.random.default_rng(3)
    blocks = [lay(rng.normal(size=shape).round(1).astype(code)) for _ in range(2)]
    types = [x.dtype for x in blocks]
    steps = []
    for function, *operands in STEPS[name]:
        kinds = [np.empty(0, types[x]) if x >= 0 else 1.0 for x in operands]
        types.append(function(*kinds).dtype)
        steps.append(tiled.Step(function, tuple(operands), types[-1]))
    outs = [np.zeros(shape, types[-1]) for _ in range(2)]
    with np.errstate(all="ignore"):
        found, wanted = (
            run_tiles(monkeypatch, steps, blocks, out, in_c)
            for out, in_c in zip(outs, (True, False), strict=True)
        )
    assert found == wanted
    assert bool(found) == (name == "errors")
    assert outs[0].tobytes() == outs[1].tobytes()


def test_steps_that_are_not_for_c(monkeypatch):
    """Other types than the loops', functions of Python's, and results that overlap what is read."""
    x = np.arange(5000.0)
    f8, step = np.dtype("f8"), tiled.Step
    others = [
        ([x, x.astype("f4")], step(np.add, (0, 1), f8), np.empty(5000)),
        ([x, x], step(acting(np.clip), (0, -1, -2), f8), np.empty(5000)),
        ([x[1:], x[1:]], step(np.add, (0, 1), f8), x[:-1]),
        ([x.astype(">f8")] * 2, step(np.add, (0, 1), f8), np.empty(5000)),
    ]
    for blocks, only, out in others:
        run_tiles(monkeypatch, [only], blocks, out, False)
    x = np.arange(5000.0)
    y = x.copy()
    run_tiles(monkeypatch, [step(np.add, (0, 1), f8), step(np.add, (0, 2), f8)], [y, x], y, True)
    assert y.tobytes() == (3 * x).tobytes()


def test_steps_that_are_wrong():
    steps_of = speedups.used.Steps
    loop = compiled._loop(np.add, (np.dtype("f8"),) * 2, np.dtype("f8"))[0]
    for wrong in [
        ((("no capsule", (0, 1, 2)),), (), (-1, -1, -1), ()),
        (((loop, (0, 1, 9)),), (), (-1, -1, -1), ()),
        (((loop, (0, -1, 2)),), (), (-1, -1, -1), ()),
        (((loop, (0, -1, 1)),), (1.0,), (-1, -1), ()),
        (((loop, (0, 1, 2)),), (), (-1, -1, 3), ()),
        (((loop, (0,) * 6),), (), (-1,), ()),
    ]:
        with pytest.raises((TypeError, ValueError, IndexError)):
            steps_of(*wrong)
    steps = steps_of(((loop, (0, 0, 1)),), (), (-1, -1), ())
    x = np.ones(4)
    for values in [[x], (x, x), [x, None], [x, np.ones(3)], [np.array(1.0)] * 2, ["a", x]]:
        with pytest.raises((TypeError, ValueError)):
            steps.run(values)
    assert steps.run([np.ones((0, 4))] * 2) == []
