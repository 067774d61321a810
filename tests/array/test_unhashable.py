"""Objects whose type cannot be hashed are taken where others with the same methods are."""

import numpy as np
import pytest

import distarray.numpy
from distarray.array.unhashable import made_again
from distarray.comm import default_mesh
from distarray.config import config


class Meta(type):
    def __eq__(cls, other):
        return cls is other

    __hash__ = None


class Usual:
    """What an object does."""

    note = "a note"

    def __array__(self, dtype=None, copy=None):
        return np.array(2.5)

    def __float__(self):
        return 2.5

    def __index__(self):
        return 1


class Odd(Usual, metaclass=Meta):
    pass


CALLS = {
    "operator": lambda np, x, y: x - y,
    "reflected": lambda np, x, y: y * x,
    "in place": lambda np, x, y: x.__iadd__(y),
    "power": lambda np, x, y: x**y,
    "reflected power": lambda np, x, y: y**x,
    "power in place": lambda np, x, y: x.__ipow__(y),
    "divmod": lambda np, x, y: divmod(x, y)[1],
    "comparison": lambda np, x, y: x < y,
    "equal": lambda np, x, y: x == y,
    "contained": lambda np, x, y: y in x,
    "matmul": lambda np, x, y: x @ y,
    "item": lambda np, x, y: x[y],
    "items": lambda np, x, y: x[y, 0],
    "set": lambda np, x, y: x.__setitem__(y, 7.0),
    "ufunc": lambda np, x, y: np.add(x, y),
    "out": lambda np, x, y: np.maximum(x, y, out=x),
    "named": lambda np, x, y: np.sum(x, axis=y),
    "method": lambda np, x, y: x.sum(y),
    "put": lambda np, x, y: x.put(0, y),
    "clip": lambda np, x, y: np.clip(x, 0, y),
    "in a list": lambda np, x, y: np.select([x > 1], [y]),
    "where": lambda np, x, y: np.where(x > 1, x, y),
    "shape": lambda np, x, y: np.zeros(y),
    "filled": lambda np, x, y: np.full(3, y),
    "array": lambda np, x, y: np.asarray(y),
    "data type": lambda np, x, y: x.astype(y),
}


@pytest.mark.host
@pytest.mark.parametrize("below", [None, 0])
@pytest.mark.parametrize("call", CALLS)
def test_calls(call, below):
    def outcome(module, x, y):
        try:
            found = CALLS[call](module, x, y)
        except Exception as error:
            return type(error), str(error).split(" object at ")[0].rpartition(".")[2]
        found = x if found is None else found
        return found if isinstance(found, bool) else np.asarray(found).tolist()

    if default_mesh().size() != 1:
        return
    settings = {} if below is None else {"replicate_below": below}
    with config.override(**settings):
        module, found = distarray.numpy, []
        for kind in (Usual, Odd):
            x = module.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
            found.append(outcome(module, x, kind()))
    usual, odd = map(str, found)
    assert odd == usual.replace("Usual", "Odd")
    numpys = outcome(np, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), Usual())
    assert type(found[0]) is type(numpys)
    assert isinstance(numpys, tuple) or found[0] == numpys


def test_nothing_is_made_again_otherwise():
    calls = []
    assert made_again(calls.append, (1, [2, (Usual(),)], {"a": 3}), {"b": Usual()}) is None
    assert not calls


def test_a_stand_in():
    odd = Odd()
    given, named = made_again(lambda *args, **named: (args, named), ([1, odd],), {"y": odd})[0]
    (one, found), other = given[0], named["y"]
    assert one == 1 and type(found).__name__ == "Odd"
    assert float(found) == 2.5 and np.asarray(other) == 2.5 and found.note == "a note"
    assert not hasattr(found, "__add__")
