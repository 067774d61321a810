"""Iteration sees what the loop writes, however it is written."""

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard


def _set_real(x, n):
    x.real = n


#: What a loop may do to the array that it goes over, or to an older view of it; `n` counts.
WRITES = {
    "item": lambda x, view, n: x.__setitem__(slice(n, None, 3), -n),
    "element": lambda x, view, n: x.__setitem__(n + 1, -n),
    "end": lambda x, view, n: view.__setitem__(-1, -n),
    "positions": lambda x, view, n: x.__setitem__([n + 1, 10], -n),
    "mask": lambda x, view, n: x.__setitem__(x > 20, n),
    "view": lambda x, view, n: view.__setitem__(slice(None), n),
    "operator": lambda x, view, n: x.__iadd__(1),
    "operator on arrays": lambda x, view, n: x.__iadd__(x),
    "operator on a view": lambda x, view, n: view.__imul__(2),
    "power": lambda x, view, n: x.__ipow__(2),
    "power of arrays": lambda x, view, n: x.__ipow__(x % 3),
    "out": lambda x, view, n: np.add(x, n, out=x),
    "reduction": lambda x, view, n: np.cumsum(x, out=x),
    "at": lambda x, view, n: np.add.at(x, [n, 5], 7),
    "copyto": lambda x, view, n: np.copyto(x, n),
    "put": lambda x, view, n: np.put(x, [n + 1], 7),
    "place": lambda x, view, n: np.place(x, x > 3, [n]),
    "putmask": lambda x, view, n: np.putmask(x, x > 3, n),
    "fill": lambda x, view, n: x.fill(n),
    "sort": lambda x, view, n: view[::-1].sort(),
    "partition": lambda x, view, n: view[::-1].partition(3),
    "byteswap": lambda x, view, n: x.byteswap(inplace=True),
    "flat": lambda x, view, n: x.flat.__setitem__(n + 1, 9),
    "real": lambda x, view, n: _set_real(x, n),
    "clip": lambda x, view, n: x.clip(n, None, out=x),
}


@pytest.mark.parametrize("placement", [Shard(0), Replicate()], ids=str)
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_seen(world, ranks, name, flat, placement):
    values = np.arange(11.0)

    def loop(x):
        view, found = x[2:], []
        for n, element in enumerate(x.flat if flat else x):
            found.append(element)
            if n in (0, 1, 4):
                WRITES[name](x, view, n)
        return np.array(found), np.array(x)

    expected = loop(values.copy())

    def program(group):
        x = distarray.distribute(values.copy(), DeviceMesh(group, (group.size,)), [placement])
        for ours, numpys in zip(loop(x), expected, strict=True):
            np.testing.assert_array_equal(ours, numpys)

    world.run(ranks, program)


@pytest.mark.parametrize("name", ["random", "shuffle", "legacy"])
def test_draws_are_seen(world, ranks, name):
    def loop(lib, x):
        rng, old = lib.random.default_rng(3), lib.random.RandomState(3)
        found = []
        for n, element in enumerate(x):
            found.append(element)
            if n in (0, 3) and name == "random":
                rng.random(out=x)
            elif n in (0, 3):
                (rng if name == "shuffle" else old).shuffle(x)
        return np.array(found)

    expected = loop(np, np.arange(9.0))

    def program(group):
        x = distarray.distribute(np.arange(9.0), DeviceMesh(group, (group.size,)), [Shard(0)])
        np.testing.assert_array_equal(loop(dnp, x), expected)

    world.run(ranks, program)


def test_turned_arrays(world, ranks):
    """The flattened array is a copy here; what is written to the array is seen all the same."""
    values = np.arange(12.0).reshape(4, 3)

    def loop(x):
        found = []
        for n, element in enumerate(x.T.flat):
            found.append(element)
            x[n % 4] += 10 * n
        return np.array(found)

    expected = loop(values.copy())

    def program(group):
        x = distarray.distribute(values.copy(), DeviceMesh(group, (group.size,)), [Shard(0)])
        np.testing.assert_array_equal(loop(x), expected)

    world.run(ranks, program)


def test_what_nobody_writes_to_is_fetched_once(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(99.0), DeviceMesh(group, (group.size,)), [Shard(0)])
        with distarray.trace() as sent:
            total = 0.0
            for element in x:
                total += element * np.sqrt(element)
        assert len(sent.events) <= 1
        np.testing.assert_allclose(total, (np.arange(99.0) ** 1.5).sum())

    world.run(ranks, program)
