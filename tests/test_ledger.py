"""Every function of NumPy's that dispatches is in exactly one class, under NumPy's signature."""

import inspect

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray.array import FUNCTIONS, UFUNC_METHODS
from distarray.array.registry import Row
from distarray.coverage import REASONS, dispatchable, entries, ufuncs

LEDGER = entries()
#: Keywords of ours that NumPy's creation functions do not have.
OURS = {"mesh", "placements"}
#: Functions in C whose signature NumPy does not tell, or tells in a shorter form than it takes.
UNTOLD = {"numpy.arange", "numpy.fromstring", "numpy.where"}


@pytest.mark.parametrize("entry", LEDGER, ids=lambda entry: entry.name)
def test_each_function_is_in_one_class(entry):
    classes = (entry.implementation is not None) + (entry.reason is not None)
    assert classes == 1, "implemented and listed as falling back" if classes else "in no class"


def test_reasons_name_functions_that_exist_once():
    listed = [name for names in REASONS.values() for name in names.split()]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(dispatchable())


@pytest.mark.parametrize(
    "entry", [entry for entry in LEDGER if entry.implementation], ids=lambda entry: entry.name
)
def test_signatures_are_numpys(entry):
    if entry.name in UNTOLD:
        return
    wanted = inspect.signature(dispatchable()[entry.name]).parameters
    found = inspect.signature(entry.implementation).parameters
    found = {name: p for name, p in found.items() if name not in OURS}
    assert list(found) == list(wanted)
    for name, parameter in wanted.items():
        assert found[name].kind is parameter.kind, name
        if name == "ndmax":  # NumPy shows 0, and takes as many dimensions as it allows
            continue
        assert _same_default(found[name].default, parameter.default), name


def _same_default(found, wanted):
    if found is wanted or wanted is np._NoValue:
        return True
    return type(found) is type(wanted) and (found == wanted or found != found)


@pytest.mark.parametrize("method", ["__call__", "reduce", "accumulate", "reduceat", "outer", "at"])
def test_every_method_of_ufuncs_is_there(method):
    assert method in UFUNC_METHODS


def test_all_ufuncs_are_known():
    assert len(ufuncs()) > 100


def traits(row: Row) -> str:
    """The traits that a row declares, in words."""
    said = [name for name in ("at", "like", "lists", "settles", "computes") if getattr(row, name)]
    if row.through:
        said.append("through=" + "+".join(sorted([fold.name for fold in row.through])))
    said.append(f"objects={row.objects.name}")
    if row.alone is not None:
        said.append(type(row.alone).__name__)
    return " ".join(said)


def test_traits():
    """What the ladder knows of each operation; ``pytest -s -k test_traits`` shows the table."""
    table = {key: traits(row) for key, row in [*FUNCTIONS.items(), *UFUNC_METHODS.items()]}
    print(*sorted([f"{named(key):36} {words}" for key, words in table.items()]), sep="\n")
    assert table[np.broadcast_to] == "at objects=NUMPY"
    assert table[np.sum] == "at computes through=SUM objects=NUMPY"
    assert table[np.sort] == "computes objects=GATHER"
    assert table[np.roll] == "at objects=NUMPY Alone"
    assert table[np.zeros] == "like objects=ENGINE"
    assert table[np.arange] == "like computes objects=ENGINE MadeAlone"
    assert table["reduce"] == "settles computes objects=ENGINE"


def named(key):
    home = getattr(key, "__module__", "") or ""
    return key if isinstance(key, str) else f"{home}.{getattr(key, '__qualname__', key)}"
