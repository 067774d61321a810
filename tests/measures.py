"""The house in figures: ``python -m tests.measures`` prints them, tests/test_house.py holds them.

Read from the source alone: files and lines by room, decisions a function takes, parameters that
have no type, loops of imports. An import counts wherever it stands: at the top of a file, inside a
function, or as the name of a module in a string.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tests import english

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "distarray"
FILES = sorted(PACKAGE.rglob("*.py"))

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: What a function decides on, besides `and`, `or` and the conditions of comprehensions.
_BRANCHES = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case,
)  # fmt: skip
#: Annotations that say nothing.
_UNTYPED = frozenset({"", "Any", "object"})


def name(path: Path) -> str:
    """A file's name in the repository."""
    return str(path.relative_to(ROOT))


def room(path: Path) -> str:
    """The room that a file is in."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "the roof and the cellar"


@lru_cache(maxsize=1)
def trees() -> dict[Path, ast.Module]:
    """Every file of the package, read."""
    return {path: ast.parse(path.read_text()) for path in FILES}


def functions() -> Iterator[tuple[Path, Function]]:
    """Every function and method, those inside others too."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield path, node


# -- decisions -----------------------------------------------------------------------------------


def decisions(function: Function) -> int:
    """The ways through a function's own code: one, and one more for each decision."""
    return 1 + sum([_decisions(node) for node in _own(function)])


def _decisions(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return len(node.ifs)
    return int(isinstance(node, _BRANCHES))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef):
            yield child
            yield from _own(child)


def undecided(most: int) -> list[str]:
    """The functions that decide more than so often, the worst first."""
    found = [
        (decisions(node), f"{name(path)}:{node.lineno} {node.name}") for path, node in functions()
    ]
    return [f"{count} {where}" for count, where in sorted(found, reverse=True) if count > most]


# -- types ---------------------------------------------------------------------------------------


def untyped() -> dict[str, tuple[int, int]]:
    """For each room how many parameters have no type, or one that says nothing, and of how many."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    nothing = {path: _UNTYPED | _aliases(tree) for path, tree in trees().items()}
    for path, node in functions():
        for parameter in _parameters(node.args):
            count = found[room(path)]
            said = ast.unparse(parameter.annotation) if parameter.annotation else ""
            count[0] += said in nothing[path]
            count[1] += 1
    return {where: (count[0], count[1]) for where, count in sorted(found.items())}


def _aliases(tree: ast.Module) -> frozenset[str]:
    """Names that a file gives to `Any`."""
    given = [node for node in tree.body if isinstance(node, ast.Assign)]
    return frozenset(
        [ast.unparse(node.targets[0]) for node in given if ast.unparse(node.value) == "Any"]
    )


def _parameters(given: ast.arguments) -> Iterator[ast.arg]:
    for parameter in (
        *given.posonlyargs,
        *given.args,
        *given.kwonlyargs,
        given.vararg,
        given.kwarg,
    ):
        if parameter is None or (parameter.arg in ("self", "cls") and not parameter.annotation):
            continue
        yield parameter


# -- imports -------------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    """The name of the module in a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports() -> dict[str, set[str]]:
    """For each module those that it imports, wherever and however it says so."""
    known = {module_of(path) for path in FILES}
    return {
        module_of(path): _imported(tree, known) - {module_of(path)}
        for path, tree in trees().items()
    }


def _imported(tree: ast.AST, known: set[str]) -> set[str]:
    found: set[str] = set()
    for node in _running(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update([one if one in known else node.module for one in full])
        elif isinstance(node, ast.Import):
            found.update([alias.name for alias in node.names])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return (found & known) - {PACKAGE.name}  # which every module imports, and which imports none


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """What is there when the program runs: not what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _running(node)


def loops() -> list[list[str]]:
    """The sets of modules that import one another, the largest first (Tarjan's algorithm)."""
    edges = imports()
    places: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        places[module] = lowest[module] = len(places)
        stack.append(module)
        for other in edges[module]:
            if other not in places:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == places[module]:
            start = stack.index(module)
            found.append(sorted(stack[start:]))
            del stack[start:]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for module in edges:
            if module not in places:
                visit(module)
    finally:
        sys.setrecursionlimit(limit)
    return sorted([loop for loop in found if len(loop) > 1], key=len, reverse=True)


# -- the table -----------------------------------------------------------------------------------


def main() -> None:
    """Print the figures."""
    lines: dict[str, list[int]] = defaultdict(list)
    for path in FILES:
        lines[room(path)].append(len(path.read_text().splitlines()))
    types = untyped()
    print("room                     files  lines  longest  untyped parameters")
    for where, counts in sorted(lines.items()):
        bare, all_ = types.get(where, (0, 0))
        print(
            f"{where:24} {len(counts):5} {sum(counts):6} {max(counts):8}  "
            f"{bare} of {all_} ({100 * bare / max(1, all_):.0f} %)"
        )
    print(f"in all {len(FILES)} files, {sum([sum(counts) for counts in lines.values()])} lines")
    print("\nfunctions that decide more than 12 times:", *undecided(12), sep="\n  ")
    print(
        "\nloops of imports:", *[f"{len(loop)}: {' '.join(loop)}" for loop in loops()], sep="\n  "
    )
    print("\nEnglish of docstrings and comments:")
    english.table()


if __name__ == "__main__":
    main()
