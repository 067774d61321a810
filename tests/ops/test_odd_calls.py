"""Calls that NumPy's own tests make, compared with NumPy: values, data types and error texts."""

import io
import operator
from fractions import Fraction

import numpy as np
import numpy._core._umath_tests as umt
import numpy.lib.recfunctions as rfn
import pytest

import distarray as da
import distarray.numpy as dnp
from distarray.config import config

pytestmark = pytest.mark.host  # many of the data types are the host's

RECORDS = np.array([(1, 9.0), (5, 8.0)], [("x", int), ("w", float)])


def grid(m):
    return m.arange(24.0).reshape(6, 4)


def numbers(m):
    return m.array([0, 1, 1])


def by_name(m):
    target = m.zeros(2, [("w", float), ("x", int)])
    rfn.assign_fields_by_name(target, m.array(RECORDS))
    return target


def filled(m):
    target = m.zeros(3, RECORDS.dtype)
    rfn.recursive_fill_fields(m.array(RECORDS), target)
    return target


def conjugated(m):
    out = m.zeros((6, 4), complex)
    assert (grid(m) + 1j).conj(out) is out
    return out


class Maker:
    """A class that names functions of NumPy's: those in C do not become its methods."""

    def __init__(self, m):
        type(self).array, type(self).zeros = m.array, m.zeros


class Answering:
    """A program's class that gives an array of the module it computes with."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


class Derived(np.ndarray):
    """A program's own kind of array."""


def holding_itself(m):
    cell = m.array(0, dtype=object)
    cell[()] = cell
    shown = repr(cell)
    cell[()] = 1
    return shown, cell.item()


def kept_array(m):
    cells = m.zeros(2, dtype=object)
    cells[0] = m.array(1.5)
    return str(cells[0]), cells[0].ndim


def alike(m, name, **named):
    found = getattr(m, name)(np.ones((2, 3)).view(Derived), **named)
    return isinstance(found, Derived), *found.shape


def assigned_answer(m):
    x = m.zeros((3, 4))
    x[1:] = Answering(m.arange(4.0))
    x[0, 0] = Answering(m.array(7.0))
    x[[0, 2], 1] = Answering(m.array([8, 9]))
    return x


def of_dates(m):
    dates = m.array(["2020-01-01", "2021-02-03"], "M8[D]")
    return np.ndarray((2,), "M8[D]", dates)


def order_of_objects(m):
    file = io.BytesIO()
    m.save(file, m.asfortranarray(m.array([[1, 2], [3, 4]], dtype=object)))
    file.seek(0)
    return np.load(file, allow_pickle=True).flags.fnc


class First:
    """An operand whose own operators answer, beside NumPy's arrays."""

    __array_priority__ = 1000

    def __matmul__(self, other):
        return 7

    __rmatmul__ = __pow__ = __rpow__ = __divmod__ = __rdivmod__ = __matmul__


class Ranked:
    """An operand that NumPy's arrays let answer for its rank alone."""

    __array_priority__ = 100

    def __radd__(self, other):
        return "the other's"


class Overriding:
    """What takes ufuncs that are to write to it."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=(None,)):
        return out[0] is self or ufunc.__name__


def flat(key, value=None):
    def call(m):
        x = m.arange(9).reshape(3, 3)
        if value is None:
            return x.flat[key]
        x.flat[key] = value
        return x

    return call


def real_part(m, value):
    x = m.ones(2, complex)
    with np.testing.suppress_warnings() as quiet:
        quiet.filter(np.exceptions.ComplexWarning)
        x.real = value
    return x


PARTS = (1j, [1j, 2], np.ones(2) * 1j, "1", 2.5, [True, False])


def cube_products(m, axes):
    cube = m.arange(27.0).reshape(3, 3, 3)
    return m.vecdot(cube, cube + 10, axes=axes, keepdims=True)


AXES = ([0, 2], [0, 2, 2], [0, 2, 0], [2, 0], [0, 0])
FLAT_KEYS = (True, False, [True, 1], [True, True], [1.0, 2.0], 1.0, "a", None, (1, 2))
SERIES = (
    *("chebyshev.chebval", "hermite.hermval", "hermite_e.hermeval", "laguerre.lagval"),
    *("legendre.legval", "polynomial.polyval", "polynomial.polyvalfromroots"),
)


def series(name, *args, **kwargs):
    """The values of two series at six points, by a function of numpy.polynomial's."""
    module, name = name.split(".")
    function = getattr(getattr(np.polynomial, module), name)
    return lambda m: function(m.arange(6.0), *args, **kwargs)


COEFFICIENTS = np.arange(12.0).reshape(2, 6)
CALLS = {
    **{name: series(name, COEFFICIENTS) for name in SERIES},
    "series by pairs": series("polynomial.polyval", c=COEFFICIENTS, tensor=False),
    "series on a grid": lambda m: np.polynomial.chebyshev.chebgrid2d(
        m.arange(3.0), m.arange(5.0), np.ones((2, 2))
    ),
    **{f"flat[{key!r}]": flat(key) for key in (*FLAT_KEYS, 9, -10)},
    **{f"flat[{key!r}] = 5": flat(key, 5) for key in FLAT_KEYS},
    **{
        f"where={name}": lambda m, where=where: np.add(m.arange(4.0), 1, where=where, out=m.ones(4))
        for name, where in {
            "bytearray": bytearray(b"\1\0\1\1"),
            "memoryview": memoryview(b"\1\0\1\1"),
            "integers": Answering(np.array([1, 0, 1, 1])),
            "truths": Answering(np.array([True, False, True, True])),
            "a list": [1, 0, 1, 1],
            "a number": 1,
        }.items()
    },
    "a matrix * a row": lambda m: np.matrix([[1, 2, 3, 4]]) * m.arange(4.0),
    "a matrix * columns": lambda m: np.matrix([[1, 2, 3, 4]]) * m.arange(8.0).reshape(4, 2),
    "a column * a row": lambda m: np.matrix([[1], [2]]) * m.arange(4.0),
    "= too deep a list": lambda m: m.arange(3.0).__setitem__(slice(None), [[1, 2, 3]]),
    "= two lists": lambda m: m.arange(3.0).__setitem__(slice(None), [[1, 2, 3], [1, 2, 3]]),
    "flat: dimensions": lambda m: m.ones((1,) * 33).flat,
    "a function in a class": lambda m: Maker(m).array([1, 2]) + Maker(m).zeros(2),
    "sum: keepdims by position": lambda m: grid(m).sum(0, None, None, True),
    "mean: keepdims by position": lambda m: grid(m).mean(0, None, None, True),
    "max: keepdims by position": lambda m: grid(m).max(1, None, True, 20.0),
    "std: keepdims by position": lambda m: grid(m).std(None, None, None, 1, True),
    "any: dtype": lambda m: grid(m).any(1, dtype=object),
    "all: dtype": lambda m: grid(m).all(0, dtype=int, keepdims=True),
    "matmul: the other first": lambda m: m.ones(3) @ First(),
    "power: the other first": lambda m: m.arange(3) ** First(),
    "divmod: the other first": lambda m: divmod(m.ones(3), First()),
    "+=: the other first": lambda m: operator.iadd(m.ones(3), Ranked()),
    "sum: into an object": lambda m: m.sum(m.arange(5.0), out=np.array(0, dtype=object)),
    "concatenate: a generator": lambda m: m.concatenate(m.arange(3) for _ in range(2)),
    "out: the other's": lambda m: m.sin(m.ones(3), out=Overriding()),
    "percentile: out": lambda m: m.percentile(grid(m), 50, None, m.zeros((2, 1))),
    "quantile: out": lambda m: m.quantile(grid(m), [0.25, 0.5], 0, m.zeros((3, 2, 4))),
    "from_dlpack: dates": lambda m: m.from_dlpack(m.zeros(3, "M8[s]")),
    "from_dlpack: swapped": lambda m: m.from_dlpack(m.ones(3, ">i8")),
    **{f"real = {value!r}": lambda m, v=value: real_part(m, v) for value in PARTS},
    "array: in a record": lambda m: m.array([(1, m.arange(3))], [("a", int), ("b", "u2", 3)])["b"],
    **{f"vecdot: {axes}": lambda m, axes=axes: cube_products(m, axes) for axes in AXES},
    "vecdot: axis": lambda m: m.vecdot(grid(m), grid(m), axis=0, keepdims=True),
    "a function whose dimensions may be missing": lambda m: umt.matmul(grid(m), m.arange(4.0)),
    "strides": lambda m: (grid(m) if m is np else grid(m).redistribute())[::2, 1:].strides,
    "matmul: with what takes ufuncs": lambda m: m.matmul(grid(m), Overriding()),
    "array: copy": lambda m: m.array([1, 2], copy="always"),
    "array: ragged, numbers": lambda m: m.array([grid(m)[0], [1, 2]]).shape,
    "zeros: small arrays": lambda m: m.zeros(2, "(2,4)i4"),
    "full: small arrays": lambda m: m.full((6, 1), 3, dtype="4f8"),
    "resize: refcheck": lambda m: m.ones(3).resize(2, refcheck="no"),
    "text of any length, added up": lambda m: m.add.accumulate(m.array(["a", "b"], dtype="T")),
    "text of any length, resized": lambda m: m.resize(m.array(["a", "b"], dtype="T"), 3),
    "choose: shapes": lambda m: m.choose(numbers(m), [m.arange(3), m.arange(4)]),
    "choose: method": lambda m: numbers(m).choose([m.arange(3), m.arange(4)]),
    "choose: choices one by one": lambda m: numbers(m).choose(m.arange(3), m.arange(3) + 9),
    "choose: mode": lambda m: (numbers(m) * 7).choose(m.arange(3), m.arange(3) + 9, mode="clip"),
    "cross": lambda m: m.cross(m.ones((6, 3)), m.ones((5, 3))),
    "histogramdd: weights": lambda m: m.histogramdd(grid(m), bins=2, weights=m.ones(5)),
    "histogramdd: endless": lambda m: m.histogramdd(grid(m)[:, :1], 2, [[0.0, np.inf]])[0],
    "histogramdd: nan": lambda m: m.histogramdd(grid(m)[:, :1] * np.nan, 2)[0],
    "isposinf": lambda m: m.isposinf(grid(m), m.zeros((3, 4), bool)),
    "isneginf": lambda m: m.isneginf(grid(m), out=m.zeros((3, 4), bool)),
    "add: out": lambda m: m.add(grid(m), grid(m), out=m.zeros((3, 4))),
    "conj: out": conjugated,
    "conj: out of another shape": lambda m: (grid(m) + 1j).conj(m.zeros((6, 3), complex)),
    "conj: objects": lambda m: m.array([1 - 1j, 2, 3.0], object).conj(),
    "conj: text": lambda m: m.array(["a", "b"]).conj(),
    "searchsorted: sorter": lambda m: m.searchsorted(m.arange(5), 0, sorter=[-1, 0, 1, 2, 3]),
    "zeros: class": lambda m: m.zeros(3, np.dtypes.StrDType),
    "ones: class": lambda m: m.ones(3, np.dtypes.BytesDType),
    "full: class": lambda m: m.full(3, 12, np.dtypes.StrDType),
    "astype: class": lambda m: m.array([1, 22, 3]).astype(np.dtypes.StrDType),
    "astype: class of numbers": lambda m: m.array([1, 22, 3]).astype(np.dtypes.Float32DType),
    "arange: dates": lambda m: m.arange(3, dtype="M8[s]"),
    "arange: dates, two ends": lambda m: m.arange(0, 3, dtype="M8[s]"),
    "indices: text": lambda m: m.indices((3, 2), dtype="U3"),
    "indices: truths": lambda m: m.indices((3, 2), dtype=bool),
    "indices: objects": lambda m: m.indices((3, 2), dtype=object),
    "fromfunction: truths": lambda m: m.fromfunction(lambda i, j: i, (3, 2), dtype=bool),
    "fromfunction: objects": lambda m: m.fromfunction(lambda i, j: i, (3, 2), dtype=object),
    "itself as an element": holding_itself,
    "an array as an element": kept_array,
    "answers in lists": lambda m: m.array([Answering(grid(m)), Answering(grid(m) + 1)]),
    "answers in deeper lists": lambda m: m.asarray([[Answering(numbers(m))], [numbers(m)]]),
    "an answer assigned": assigned_answer,
    "an answer beside an array": lambda m: m.maximum(numbers(m), Answering(numbers(m) * 2)),
    "an answer joined": lambda m: m.concatenate([Answering(numbers(m)), numbers(m)]),
    "answers stacked": lambda m: m.stack([Answering(numbers(m)), numbers(m)]),
    "no answer": lambda m: m.array([numbers(m), [1, 2]]),
    "ones like a subclass": lambda m: alike(m, "ones_like"),
    "zeros like a subclass": lambda m: alike(m, "zeros_like", dtype=int),
    "no more a subclass": lambda m: alike(m, "empty_like", subok=False),
    "full like a subclass": lambda m: m.full_like(np.ones(3).view(Derived), 2.0),
    "an ellipsis in out": lambda m: m.negative(grid(m), out=(...,)),
    "no ufunc": lambda m: grid(m).__array_ufunc__(1, "__call__"),
    "more than there is": lambda m: m.empty(2**64),
    "more bytes than there are": lambda m: m.zeros((2**32, 2**32), "i1"),
    "more indices than there are": lambda m: m.ones((3,) * 5)[m.ix_(*[m.zeros(7132, int)] * 5)],
    "objects in Fortran order": order_of_objects,
    "a quantile of fractions": lambda m: m.quantile([Fraction(i, 2) for i in range(8)], [0.25, 1]),
    "texts with methods": lambda m: m.char.array(m.array(["Σ b", "c "])).strip().upper(),
    "texts of a view": lambda m: m.char.asarray(m.array([["ab", "c"]]).T) + "x",
    "records": lambda m: m.rec.array(m.array(RECORDS)).w * 2,
    "records of texts": lambda m: m.rec.array(m.array(["ab", "c"])),
    "fields by name": by_name,
    "fields filled": filled,
    "genfromtxt": lambda m: m.genfromtxt(
        io.StringIO("1,2.5,x\n3,4.5,y\n"), delimiter=",", dtype=[int, float, "U3"]
    ),
    "the bytes of dates": of_dates,
}


def outcome(call, m):
    try:
        found = call(m)
    except Exception as error:
        return type(error), str(error)
    whole = np.asarray(found)
    return whole.dtype, whole.tolist()


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy(world, name):
    wanted = outcome(CALLS[name], np)

    def program(group):
        with config.override(replicate_below=0, fallback="allow"):
            return outcome(CALLS[name], dnp)

    for ranks in world.ranks:
        for found in world.run(ranks, program):
            assert found == wanted


def test_masks_stay(world):
    """What a function of NumPy's gives with a mask has it still."""

    def program(group):
        with config.override(replicate_below=0, fallback="allow"):
            return rfn.stack_arrays((dnp.array(RECORDS), dnp.array(RECORDS[["x"]].copy())))

    wanted = rfn.stack_arrays((RECORDS, RECORDS[["x"]].copy()))
    for ranks in world.ranks:
        for found in world.run(ranks, program):
            assert found.mask.tolist() == wanted.mask.tolist()


def test_archive(world, tmp_path_factory):
    """The file under an archive is there until it is closed."""

    def program(group):
        path = None
        if group.rank == 0:
            path = tmp_path_factory.mktemp("archive") / "a.npz"
            np.savez(path, a=np.arange(5.0))
        path = group.broadcast_object(path, 0)
        archive = da.numpy.load(path)
        opened = archive.fid is not None and archive.zip.namelist() == ["a.npy"]
        archive.close()
        return opened, archive.fid, archive.zip, repr(archive)

    for ranks in world.ranks:
        for opened, fid, zipped, shown in world.run(ranks, program):
            assert (opened, fid, zipped) == (True, None, None)
            assert shown.endswith("a.npz' with keys: a")
