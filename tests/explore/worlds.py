"""The names that a program's lines can use, with NumPy's arrays and with distributed ones."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import threading
import warnings
from math import prod
from typing import Any

import numpy
import numpy as np

__all__ = ["called", "laid", "make", "numpy_world", "our_world", "raised", "recorded"]

#: With gaps, and a field in the other byte order.
RECORD = numpy.dtype(
    {"names": ["x", "y"], "formats": ["f8", ">i4"], "offsets": [0, 12], "itemsize": 20}
)
WORDS = ("a", "bc", "", "xyz", "B", "a c")


def make(shape: Any, dtype: Any = "f8", seed: int = 0, order: Any = "C") -> Any:
    """An array of small values, the same for the same seed; numbers are whole."""
    dtype = numpy.dtype(RECORD if dtype == "rec" else dtype)
    rng = numpy.random.default_rng(seed)
    if dtype.names:
        values = numpy.zeros(shape, dtype)
        for position, name in enumerate(dtype.names):
            values[name] = make(shape, dtype[name], seed + position)
    elif dtype.kind in "SU":
        values = numpy.array(WORDS)[rng.integers(0, len(WORDS), shape)].astype(dtype)
    elif dtype.kind in "mM":
        values = numpy.asarray(rng.integers(-9, 10, shape)).astype(dtype)
        values[rng.random(shape) < 0.1] = "NaT"
    elif dtype.kind == "b":
        values = rng.integers(0, 2, shape).astype(bool)
    else:
        values = numpy.asarray(rng.integers(0 if dtype.kind == "u" else -5, 6, shape)).astype(dtype)
        if dtype.kind == "c":
            values = values + (1j * rng.integers(-5, 6, shape)).astype(dtype)
    return numpy.array(values, order=order)


def called(compute: Any) -> list[str]:
    """The kinds of floating-point errors that a function of the program is called for."""
    kinds: set[str] = set()
    with numpy.errstate(all="call", under="ignore", call=lambda kind, flag: kinds.add(kind)):
        compute()
    return sorted(kinds)


def raised(compute: Any) -> str:
    """The kind of the floating-point error that a computation raises; "" if it raises none."""
    try:
        with numpy.errstate(all="raise", under="ignore"):
            compute()
    except FloatingPointError as error:
        return str(error).partition(" encountered")[0]
    return ""


def recorded(compute: Any) -> list[str]:
    """What a program records; ranks that are threads would have one record, and are called."""
    if threading.current_thread() is not threading.main_thread():
        return called(compute)
    with numpy.errstate(all="warn", under="ignore"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compute()
    texts = [str(w.message) for w in said if issubclass(w.category, RuntimeWarning)]
    return sorted({text.partition(" encountered")[0] for text in texts if " encountered" in text})


_TELLING = {"called": called, "raised": raised, "recorded": recorded}


def numpy_world() -> dict[str, Any]:
    """A namespace in which arrays are NumPy's."""

    def lay(values: Any, *placements: Any) -> Any:
        return numpy.array(values)

    names: dict[str, Any] = dict.fromkeys(("R", "P"))
    names |= {"S": lambda dim: None, "kept": saved, "pickled": pickled, **_TELLING}
    return {"np": np, "numpy": numpy, "make": make, "lay": lay, **names}


def our_world(mesh: Any) -> dict[str, Any]:
    """A namespace in which arrays are laid out over a mesh."""
    import distarray.numpy as dnp
    from distarray.layout import Partial, Replicate, Shard

    def lay(values: Any, *placements: Any) -> Any:
        return laid(numpy.array(values), mesh, placements or None)

    names = {"S": Shard, "R": Replicate(), "P": Partial(), **_TELLING}
    names |= {"kept": kept, "pickled": pickled}
    return {"np": dnp, "numpy": numpy, "make": make, "lay": lay, **names}


def pickled(x: Any) -> Any:
    """An array as pickle gives it back."""
    return pickle.loads(pickle.dumps(x))


def saved(x: Any) -> Any:
    """A copy as a checkpoint gives it, of types that NumPy can write."""
    numpy.lib.format.dtype_to_descr(x.dtype)
    return numpy.array(x, order="C")


def kept(x: Any) -> Any:
    """An array saved to a checkpoint and read again."""
    from distarray.checkpoint import load, save

    group = getattr(x, "mesh", None) and x.mesh.group
    if group is None:
        return saved(x)
    place = group.broadcast_object(tempfile.mkdtemp(prefix="explore-") if not group.rank else None)
    try:
        save(f"{place}/checkpoint", {"x": x, "again": x})
        return load(f"{place}/checkpoint")["again"]
    finally:
        group.barrier()
        if not group.rank:
            shutil.rmtree(place, ignore_errors=True)


def laid(values: Any, mesh: Any, placements: Any) -> Any:
    """An array laid out; as contributions that add up to it where a sum is pending."""
    from distarray.array import distribute, from_local
    from distarray.layout import Layout, Partial

    if placements is None or not any(isinstance(p, Partial) for p in placements):
        return distribute(values, mesh, placements, src=None)
    layout = Layout.chunked(values.shape, mesh.shape, placements)
    local = values[tuple([slice(a, b) for a, b in layout.section(mesh.coords)])]
    ranks = prod([mesh.shape[m] for m in layout.partials])
    number = 0
    for m in layout.partials:
        number = number * mesh.shape[m] + mesh.coords[m]
    share = numpy.full_like(local, number)
    if not number:
        with numpy.errstate(over="ignore"):
            share = (local - numpy.asarray(sum(range(ranks))).astype(local.dtype)).astype(
                local.dtype
            )
    return from_local(share, mesh, placements)
