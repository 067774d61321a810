"""The ledger: what stands behind each of NumPy's dispatchable functions and ufuncs.

Every one is in exactly one class: *implemented*, when its row is in the registry, or *falls back*,
for the reason given here. What falls back gathers its operands, computes, and distributes the
result, within the limits of `config.fallback` and `config.fallback_limit`.
"""

import importlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.char
import numpy.fft
import numpy.lib.recfunctions
import numpy.strings
from numpy.testing import overrides

import distarray.ops  # noqa: F401 (registers the rows)
from distarray.array import FUNCTIONS

__all__ = ["Entry", "REASONS", "dispatchable", "entries"]

Function = Callable[..., object]

#: Reason -> names of the functions that fall back for it, each with its module.
REASONS: dict[str, str] = {
    "Structured arrays are taken apart by fields, one field at a time: x['name'].": """
        numpy.lib.recfunctions.append_fields numpy.lib.recfunctions.apply_along_fields
        numpy.lib.recfunctions.assign_fields_by_name numpy.lib.recfunctions.drop_fields
        numpy.lib.recfunctions.find_duplicates numpy.lib.recfunctions.join_by
        numpy.lib.recfunctions.merge_arrays numpy.lib.recfunctions.rec_append_fields
        numpy.lib.recfunctions.rec_drop_fields numpy.lib.recfunctions.rec_join
        numpy.lib.recfunctions.recursive_fill_fields numpy.lib.recfunctions.rename_fields
        numpy.lib.recfunctions.repack_fields numpy.lib.recfunctions.require_fields
        numpy.lib.recfunctions.stack_arrays numpy.lib.recfunctions.structured_to_unstructured
        numpy.lib.recfunctions.unstructured_to_structured
    """,
}


class Entry(NamedTuple):
    """What stands behind one function of NumPy's.

    Attributes
    ----------
    name : str
        With its module.
    implementation : callable or None
        The function of ours that is called.
    reason : str or None
        Why it falls back.
    """

    name: str
    implementation: Function | None
    reason: str | None


def dispatchable() -> dict[str, Function]:
    """The functions that NumPy hands to an array's type to carry out, by their names."""
    found = {}
    for function in overrides.get_overridable_numpy_array_functions():
        module, name = function.__module__, function.__name__
        public = getattr(importlib.import_module(module), name, None) is function
        if public and not name.startswith("_"):
            found[f"{module}.{name}"] = function
    return dict(sorted(found.items()))


def ufuncs() -> dict[str, np.ufunc]:
    """NumPy's ufuncs by their names."""
    named = {f"numpy.{name}": value for name, value in vars(np).items()}
    found = {name: value for name, value in named.items() if isinstance(value, np.ufunc)}
    return dict(sorted(found.items()))


def entries() -> list[Entry]:
    """The ledger of the dispatchable functions, in the order of their names."""
    importlib.import_module("distarray.io.numpy_functions")  # rows of the room beside this
    reasons = {name: reason for reason, names in REASONS.items() for name in names.split()}
    ledger = []
    for name, function in dispatchable().items():
        row = FUNCTIONS.get(function)
        ledger.append(Entry(name, None if row is None else row.function, reasons.get(name)))
    return ledger
