"""Every function with odd arguments: on three ranks as on one, a value or an exception.

Where one rank has everything, NumPy's own functions do the work on blocks; what they refuse there
must not be taken where the elements are cut, and the other way round.
"""

import contextlib

import numpy as np
import pytest

import distarray as da
import distarray.numpy  # the operations
from distarray.array.registry import FUNCTIONS
from distarray.comm import run_threads
from distarray.config import config

#: What is no function of arrays, what writes or reads files, what shows, and what makes as many
#: elements as 99 bins in four dimensions have.
LEFT_OUT = frozenset(
    ["array2string", "array_repr", "array_str", "histogramdd", "memmap", "save", "savetxt"]
    + ["savez", "savez_compressed", "tofile", "dump", "resize"]
)
#: What NumPy leaves open: elements of new memory, the order within parts, places in what is not
#: sorted.
OPEN = frozenset([np.empty_like, np.partition, np.argpartition, np.searchsorted])
OPEN |= {da.DistArray.partition}
ODD = {
    "None": None,
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "'a'": "a",
    "[]": [],
    "[1.0, 0.0]": [1.0, 0.0],
    "True": True,
    "(0, 0)": (0, 0),
    "99": 99,
    "1j": 1j,
    "-10.5": -10.5,
    "zeros((2, 0))": np.zeros((2, 0)),
    "[[1, 2]]": [[1, 2]],
}
OPERANDS = {
    "floats": np.array([[3.0, 1.0, 2.0, 5.0], [0.0, -1.0, 4.0, 4.0], [2.0, 2.0, 7.0, 6.0]]),
    "integers": np.array([3, 1, 2, 5, 1, 0, 4]),
    "truths": np.array([True, False, True, True]),
}
FEW = [(), *[(odd,) for odd in ODD.values()], *[([0, 1], 1, odd) for odd in list(ODD.values())[:6]]]
CALLS = [
    *[(name, arguments) for name in OPERANDS for arguments in FEW],
    *[("floats", (0, odd)) for odd in ODD.values()],
]
PARTS = 8


def calls():
    """The calls of each function; on a device few: what goes wrong there does for nearly all."""
    return CALLS if config.device == "cpu" else CALLS[::4]


def functions():
    """The functions that are served, in the order of their names."""
    found = [f for f in FUNCTIONS if "random" not in (getattr(f, "__module__", None) or "")]
    named = {f"{f.__module__}.{f.__name__}": f for f in found if hasattr(f, "__name__")}
    return {n: f for n, f in sorted(named.items()) if f.__name__ not in LEFT_OUT}


def results(ranks, function):
    """What each rank gets from each call, and what has become of the operand."""

    def program(group):
        found = []
        mesh = da.default_mesh()
        with config.override(replicate_below=0, fallback="allow"), np.errstate(all="ignore"):
            for name, arguments in calls():
                x = da.distribute(OPERANDS[name].copy(), mesh, [da.Shard(0)], src=None)
                try:
                    result = whole(function(x, *arguments))
                except Exception as error:
                    result = error
                found.append((result, x.full()))
        return found

    return run_threads(ranks, program, timeout=30)


def whole(value):
    """A result with all its elements."""
    if isinstance(value, da.DistArray):
        return np.array(value.full())
    return [whole(part) for part in value] if isinstance(value, (tuple, list)) else value


def alike(one, other):
    """Whether results are the same: values to rounding, exceptions of related types."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return isinstance(one, type(other)) or isinstance(other, type(one))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if not isinstance(one, (np.ndarray, np.generic)):
        return type(one) is type(other)
    one, other = np.asarray(one), np.asarray(other)
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    with contextlib.suppress(TypeError):
        return np.allclose(one, other, equal_nan=True)
    return bool((one == other).all())


def differences(name, function):
    """Words for each call that goes otherwise on three ranks than on one."""
    (alone,) = results(1, function)
    together = results(3, function)
    for number, (operand, arguments) in enumerate(calls()):
        result, left = alone[number]
        if function in OPEN or isinstance(result, SystemError):  # the latter is a fault of NumPy's
            continue
        for rank, found in enumerate(together):
            same = alike(result, found[number][0]) and alike(left, found[number][1])
            if not same:
                call = f"{name}({', '.join([operand, *map(repr, arguments)])})"
                yield f"{call}: {result!r}; on rank {rank} of 3: {found[number][0]!r}"
                break


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_three_ranks_do_as_one(part):
    found = []
    for name, function in list(functions().items())[part::PARTS]:
        found += differences(name.rpartition(".")[2], function)
    assert not found, "\n".join(found)


#: What is true or false, of which NumPy's ufuncs take only Python's own and integers.
TRUTHS = [True, np.True_, np.False_, 2, 1.0, "", "a", None, [1], np.int64(1), np.array(True)]
TRUTHS += [np.array(1), np.array([True, False])]


REDUCTIONS = (
    *("all", "any", "argmax", "argmin", "average", "count_nonzero", "max", "mean", "median", "min"),
    *("nanargmax", "nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nanstd", "nansum"),
    *("nanvar", "prod", "ptp", "std", "sum", "var"),
)
#: What takes them, with an axis or without.
KEEPING = {
    **{name: getattr(np, name) for name in REDUCTIONS},
    "quantile": lambda x, *axis, **how: np.quantile(x, 0.5, *axis, **how),
    "nanpercentile": lambda x, *axis, **how: np.nanpercentile(x, 50, *axis, **how),
    "norm": lambda x, *axis, **how: np.linalg.norm(x, None, *axis, **how),
    "a method": lambda x, *axis, **how: x.mean(*axis, **how),
    "a fold": lambda x, axis=0, **how: np.subtract.reduce(x, axis, **how),
}


@pytest.mark.filterwarnings("ignore")
def test_keepdims_is_what_numpy_takes():
    values = OPERANDS["floats"]
    cases = [(name, axis, keeps) for name in KEEPING for axis in ((), (0,)) for keeps in TRUTHS]

    def program(group):
        x = da.distribute(values.copy(), None, [da.Shard(0)], src=None)
        with config.override(replicate_below=0), np.errstate(all="ignore"):
            return [kept(KEEPING[name], x, *axis, keepdims=k) for name, axis, k in cases]

    wanted = [kept(KEEPING[name], values, *axis, keepdims=k) for name, axis, k in cases]
    for ranks in (1, 3):
        for found in run_threads(ranks, program, timeout=60):
            for case, one, other in zip(cases, wanted, found, strict=True):
                assert alike(one, other), (case, one, other)


def kept(function, *args, **how):
    try:
        return whole(function(*args, **how))
    except Exception as error:
        return error
