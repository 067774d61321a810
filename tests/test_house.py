"""The walls of the house: what a room may load, how long a file may be, what has a docstring."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests import measures
from tests.measures import FILES, ROOT, name

FILE_LINES = 450
BODY_LINES = 40
#: Ways through a function: one, and one more for each `if`, loop, `and`, `or` and conditional.
DECISIONS = 12
#: Share of parameters without a type, in each room but those that torch's untyped objects pass.
UNTYPED = 0.09
#: Files that may import one another.
LOOP_FILES = 3

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


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
    assert loaded_after(f"import distarray.{room}", "mpi4py", "torch", "cupy") == ""


@pytest.mark.parametrize("module", ["distarray", "distarray.numpy"])
def test_importing_starts_no_mpi(module):
    assert loaded_after(f"import {module}", "mpi4py.MPI", "torch", "cupy") == ""


def test_only_strategies_need_hypothesis():
    assert loaded_after("from distarray.testing import assert_matches", "hypothesis") == ""


def test_without_an_mpi_library_the_error_says_what_to_install():
    code = """if True:
        import sys, traceback
        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name == "mpi4py.MPI":
                    raise RuntimeError("cannot load MPI library")
        sys.meta_path.insert(0, Missing())
        import distarray
        try:
            distarray.default_mesh()
        except RuntimeError as error:
            traceback.print_exception(error)
        """
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert "cannot load MPI library\nmpi4py found no MPI library. pip install" in run.stderr


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
    rooms = ("distarray.ops", "distarray.io.numpy_functions")
    assert loaded_after(statement, *rooms) == " ".join(rooms)


def test_files_stay_readable():
    """A longer file is split along what it talks about."""
    lines = {name(path): len(path.read_text().splitlines()) for path in FILES}
    assert not {path: n for path, n in lines.items() if n > FILE_LINES}


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


def test_functions_stay_short():
    long = [
        f"{name(path)}:{node.lineno} {node.name}: {body_lines(node)}"
        for path, tree in measures.trees().items()
        for node in definitions(tree)
        if not isinstance(node, ast.ClassDef) and body_lines(node) > BODY_LINES
    ]
    assert not long


def is_overload(node: Definition) -> bool:
    return any(
        "overload" in ast.unparse(d) or ".setter" in ast.unparse(d) for d in node.decorator_list
    )


def test_everything_public_says_what_it_is():
    silent = []
    for path, tree in measures.trees().items():
        if not ast.get_docstring(tree):
            silent.append(f"{name(path)}: a module says in one line what lives in it")
        private = any(p.startswith("_") and p != "__init__.py" for p in path.parts[-2:])
        silent += [
            f"{name(path)}:{node.lineno} {node.name}"
            for node in definitions(tree)
            if not (node.name.startswith("_") or private or is_overload(node))
            and ast.get_docstring(node) is None
        ]
    assert not silent


@pytest.mark.parametrize("room", ["checkpoint", "io", "torch"])
def test_no_public_name_is_also_a_module(room: str) -> None:
    """Whichever is imported first would hide the other."""
    package = importlib.import_module(f"distarray.{room}")
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)


def test_no_function_decides_too_much():
    """A longer one is split along the questions that a reader asks."""
    assert not measures.undecided(DECISIONS)


def test_parameters_have_types():
    shares = {room: bare / all_ for room, (bare, all_) in measures.untyped().items() if all_}
    assert not {
        room: share for room, share in shares.items() if share > UNTYPED and room != "torch"
    }


def test_imports_do_not_loop():
    """Wherever an import stands: at the top, in a function, as a module's name in a string."""
    assert not [loop for loop in measures.loops() if len(loop) > LOOP_FILES]


def test_engines_register_no_name_of_numpys():
    """What does is a chapter, and stands in distarray/ops."""
    registering = {"implements", "implements_method", "creates"}
    assert not [
        name(path)
        for path, tree in measures.trees().items()
        if "engines" in path.parts
        and registering & {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    ]
