"""Methods and attributes of an ndarray that name a function, against NumPy's, on cut arrays."""

import numpy as np
import pytest

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Shard
from distarray.testing import assert_matches

TABLE = np.random.default_rng(5).permutation(24).reshape(6, 4) - 3.0


def changed(x, change):
    """The array after a change in place, which gives None."""
    assert change(x) is None
    return x


CALLS = {
    "prod": lambda x: x.prod(0),
    "all": lambda x: x.all(axis=1),
    "any": lambda x: x.any(),
    "std": lambda x: x.std(ddof=1),
    "var": lambda x: x.var(0, keepdims=True),
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(0),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(1),
    "trace": lambda x: x.trace(1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "diagonal": lambda x: x.diagonal(-1),
    "mT": lambda x: x.mT,
    "take": lambda x: x.take([5, 0, 0], axis=0),
    "put": lambda x: changed(x, lambda x: x.put([0, 23, 7], [9, 8, 7])),
    "nonzero": lambda x: x.nonzero(),
    "compress": lambda x: x.compress(np.arange(6) % 2 == 0, axis=0),
    "choose": lambda x: (x > 0).choose([x, -x]),
    "argsort": lambda x: x.argsort(0, stable=True),
    "sort": lambda x: changed(x, lambda x: x.sort(axis=0)),
    "argpartition": lambda x: x.argpartition(3, axis=0)[3],
    "partition": lambda x: changed(x, lambda x: x.partition(3, axis=0))[3],
    "searchsorted": lambda x: x.cumsum().searchsorted([3.0, 60.0]),
    "repeat": lambda x: x.repeat(2, axis=0),
    "clip": lambda x: x.clip(0, 9),
    "round": lambda x: (x / 3).round(1),
    "conj": lambda x: (x * 1j).conj(),
    "conjugate of what is real": lambda x: x.conjugate(),
    "real": lambda x: (x * (1 + 2j)).real,
    "into imag": lambda x: changed(x * 1j, lambda z: setattr(z, "imag", 5)),
    "dot": lambda x: x.dot(np.arange(4.0)),
    "fill": lambda x: changed(x, lambda x: x.fill(2)),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "transpose": lambda x: x.transpose(1, 0),
    "tolist": lambda x: x.tolist(),
    "tobytes": lambda x: x.tobytes(),
    "byteswap": lambda x: x.byteswap(),
    "view": lambda x: x.view("i8"),
}


@pytest.mark.parametrize("name", CALLS)
def test_methods(world, name):
    ranks = world.ranks[min(2, len(world.ranks) - 1)]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for dim in (0, 1):
            x = distarray.distribute(TABLE.copy(), mesh, [Shard(dim)], src=None)
            found, wanted = CALLS[name](x), CALLS[name](TABLE.copy())
            if isinstance(wanted, (list, bytes)):
                assert found == wanted
            else:
                pairs = (
                    zip(found, wanted, strict=True) if type(wanted) is tuple else [(found, wanted)]
                )
                for ours, theirs in pairs:
                    assert_matches(ours, theirs, exact=False)

    world.run(ranks, program)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "hypot"])
def test_out_of_cut_arrays_warns_of_nothing(world, ranks, name):
    """NumPy deprecates a third argument of maximum and minimum that is no keyword."""
    ufunc, values = getattr(np, name), np.linspace(-1, 1, 40_000)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distarray.distribute(values, mesh, [Shard(0)])
        ufunc(x, -x, out=x)
        assert_matches(x, ufunc(values, -values))

    world.run(ranks, program)
