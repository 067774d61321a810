"""The walls of the house: what a room may load, how long a file may be, what has a docstring."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "distarray"
FILES = sorted(PACKAGE.rglob("*.py"))
FILE_LINES = 500
BODY_LINES = 40

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def room_exists(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def loaded_after(statement: str, *suspects: str) -> str:
    """Which of the suspects are in sys.modules after a statement, in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*(m for m in {suspects!r} if m in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("room", ["layout", "plan", "errors", "config"])
def test_the_lower_floors_know_no_mpi_and_no_torch(room):
    if not room_exists(f"distarray.{room}"):
        pytest.skip("not built")
    assert loaded_after(f"import distarray.{room}", "mpi4py", "torch", "cupy") == ""


@pytest.mark.parametrize("module", ["distarray", "distarray.numpy"])
def test_importing_starts_no_mpi(module):
    if not room_exists(module):
        pytest.skip("not built")
    assert loaded_after(f"import {module}", "mpi4py.MPI", "torch", "cupy") == ""


@pytest.mark.parametrize(
    "statement",
    [
        "from distarray import distribute",
        "import distarray.numpy",
        "from distarray.io import read",
        "from distarray.checkpoint import load",
        "from distarray.torch import from_torch",
    ],
)
def test_whoever_can_make_an_array_has_its_operations(statement: str) -> None:
    if "torch" in statement:
        pytest.importorskip("torch", reason="the extra torch is not installed")
    rooms = ("distarray.ops", "distarray.io.rows")
    assert loaded_after(statement, *rooms) == " ".join(rooms)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_readable(path):
    lines = len(path.read_text().splitlines())
    assert lines <= FILE_LINES, f"{lines} lines; split it along what it talks about"


def definitions(tree: ast.AST) -> Iterator[Definition]:
    """Functions, methods and classes, except those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield node
        if isinstance(node, ast.ClassDef | ast.If | ast.Try | ast.With):
            yield from definitions(node)


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, without the docstring."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return (node.end_lineno or first.lineno) - first.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_stay_short(path):
    tree = ast.parse(path.read_text())
    functions = (f for f in definitions(tree) if not isinstance(f, ast.ClassDef))
    long = {f"{f.name} (line {f.lineno})": body_lines(f) for f in functions}
    assert not {name: n for name, n in long.items() if n > BODY_LINES}


def is_overload(node: Definition) -> bool:
    return any(
        "overload" in ast.unparse(d) or ".setter" in ast.unparse(d) for d in node.decorator_list
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_everything_public_says_what_it_is(path):
    tree = ast.parse(path.read_text())
    private = any(part.startswith("_") and part != "__init__.py" for part in path.parts[-2:])
    silent = [
        f"{node.name} (line {node.lineno})"
        for node in definitions(tree)
        if not (node.name.startswith("_") or private or is_overload(node))
        and ast.get_docstring(node) is None
    ]
    assert ast.get_docstring(tree), "a module says in one line what lives in it"
    assert not silent


@pytest.mark.parametrize("room", ["checkpoint", "io", "torch"])
def test_no_public_name_is_also_a_module(room: str) -> None:
    """Whichever is imported first would hide the other."""
    package = importlib.import_module(f"distarray.{room}")
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)
