"""The stubs of distarray.numpy say what the modules have: their names, and how they are called."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import distarray.numpy as dnp

FOLDER = Path(dnp.__file__).parent
STUBS = sorted(path.stem for path in FOLDER.glob("*.pyi") if path.stem != "__init__")
#: The ufuncs' types, by the numbers of operands and results.
UFUNCS = {(1, 1): "_Unary", (2, 1): "_Binary", (1, 2): "_UnaryPair", (2, 2): "_BinaryPair"}
#: Names that NumPy has, but not in each version, or deprecates: left out of the stub.
LEFT_OUT = {"row_stack", "in1d", "trapz"}
POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
KEYWORD = inspect.Parameter.KEYWORD_ONLY

Signature = list[tuple[str, Any]]


def tree(stub: str) -> ast.Module:
    return ast.parse((FOLDER / f"{stub}.pyi").read_text())


def runtime(stub: str) -> Any:
    """The module whose names a stub types."""
    return dnp if stub.startswith("_") else importlib.import_module(f"distarray.numpy.{stub}")


def written(function: ast.FunctionDef) -> Signature:
    """The parameters in a stub: names and kinds, of which variable ones have stars."""
    given = function.args
    found: Signature = [(each.arg, POSITIONAL) for each in given.posonlyargs]
    found += [(each.arg, EITHER) for each in given.args]
    found += [("*", None)] if given.vararg else []
    found += [(each.arg, KEYWORD) for each in given.kwonlyargs]
    return found + ([("**", None)] if given.kwarg else [])


def actual(function: Any) -> Signature:
    """The same of a function."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(function).parameters.values()
    return [(stars.get(p.kind, p.name), None if p.kind in stars else p.kind) for p in parameters]


def last_overloads(stub: str) -> dict[str, ast.FunctionDef]:
    """The functions of a stub; of overloads the last, which takes all that the others do."""
    return {node.name: node for node in tree(stub).body if isinstance(node, ast.FunctionDef)}


def imported(stub: str) -> Iterator[tuple[str, str, str]]:
    """Module, name, and name here of what a stub imports."""
    for node in tree(stub).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or "", alias.name, alias.asname or alias.name


def test_there_are_stubs():
    assert {"_ufuncs", "_sums", "_shapes", "_items", "_maths", "linalg", "fft"} == set(STUBS)


@pytest.mark.parametrize("stub", [stub for stub in STUBS if stub != "_ufuncs"])
def test_functions_are_called_as_the_stub_says(stub):
    module = runtime(stub)
    typed = {name: written(node) for name, node in last_overloads(stub).items()}
    assert typed == {name: actual(getattr(module, name)) for name in typed}
    required = {
        name: sum(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in
                  inspect.signature(getattr(module, name)).parameters.values())
        for name in typed
    }  # fmt: skip
    for name, node in last_overloads(stub).items():
        given = node.args
        positional = len(given.posonlyargs) + len(given.args) - len(given.defaults)
        assert positional + given.kw_defaults.count(None) == required[name], name


def test_ufuncs_have_the_types_of_their_operands():
    typed = {
        node.target.id: ast.unparse(node.annotation)
        for node in tree("_ufuncs").body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    ufuncs = {name: getattr(dnp, name) for name in typed}
    assert typed == {name: UFUNCS[ufunc.nin, ufunc.nout] for name, ufunc in ufuncs.items()}
    here = {name for name in dnp.__all__ if isinstance(getattr(dnp, name), numpy.ufunc)}
    assert here <= set(typed)


def test_the_stub_lists_the_names_of_the_module():
    (listing,) = [
        node.value for node in tree("__init__").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]  # fmt: skip
    listed = set(ast.literal_eval(listing))
    assert listed - {"__array_namespace_info__"} <= set(dnp.__all__)
    assert set(dnp.__all__) - listed <= LEFT_OUT
    assert {name for _, _, name in imported("__init__")} == listed


@pytest.mark.parametrize("room", ["linalg", "fft"])
def test_the_stubs_of_rooms_have_all_their_names(room):
    typed = {*last_overloads(room), *(name for _, _, name in imported(room))}
    assert set(importlib.import_module(f"distarray.numpy.{room}").__all__) <= typed


def test_what_the_stub_imports_is_what_the_module_has():
    for module, name, here in imported("__init__"):
        if not module.startswith("distarray.numpy"):
            there = getattr(importlib.import_module(module), name)
            assert here == "ndarray" or getattr(dnp, here) is there, here
