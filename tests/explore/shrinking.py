"""The smallest program that still goes wrong, found by leaving out and simplifying."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.explore.program import Failure, Program

__all__ = ["shrunk"]

#: Lines that make something else than an array.
_PLAIN = re.compile(
    r"v\d+ = (?:np|np\.lib(?:\.\w+)?|numpy|R|P|S|lay|make|\(\)|S\(.*\)|-?\d+)$"
    r"|lay\((?!make|v|numpy)|[(, ](?:np|numpy|S|lay|make)[,)]|np\("
)
Runner = Callable[[Program], Failure | None]


def shrunk(
    program: Program, failure: Failure, run: Runner, most: int = 2000
) -> tuple[Program, Failure]:
    """A program as small as can be found that fails in the same kind of way, and how it fails.

    Parameters
    ----------
    program : Program
        One that fails.
    failure : Failure
        How it does.
    run : callable
        Runs a program.
    most : int
        How many programs are run at most.
    """
    program = program.with_lines(program.lines[: failure.line + 1])
    while most:
        for simpler in _simpler(program):
            if not most:
                break
            most -= 1
            found = run(simpler)
            if found is not None and found.kind == failure.kind:
                program, failure = simpler.with_lines(simpler.lines[: found.line + 1]), found
                break
        else:
            break
    return program, failure


def _simpler(program: Program) -> Iterator[Program]:
    """Programs that are simpler by one step, the boldest steps first."""
    lines = program.lines
    length = len(lines) // 2
    while length:
        for start in range(len(lines) - length, -1, -1):
            yield program.with_lines(lines[:start] + lines[start + length :])
        length //= 2
    for ranks in range(1, program.ranks):
        yield replace(program, ranks=ranks, mesh=(ranks,) if len(program.mesh) == 1 else (1, ranks))
    if len(program.mesh) > 1:
        flat = tuple([line.replace(", R)", ")") for line in lines])
        yield replace(program, mesh=(program.ranks,), lines=flat)
    if program.replicate_below != 1 << 18:
        yield replace(program, replicate_below=1 << 18)
    for number in range(len(lines) - 1, -1, -1):
        for line in _simpler_lines(lines[number]):
            yield program.with_lines((*lines[:number], line, *lines[number + 1 :]))


def _simpler_lines(line: str) -> Iterator[str]:
    tree = ast.parse(line)
    count = sum([1 for _ in ast.walk(tree)])
    before = ast.unparse(tree)
    for number in range(count):
        node = _nth(tree, number)
        for position in range(len(list(_edits(node)))):
            changed = copy.deepcopy(tree)
            edit = list(_edits(_nth(changed, number)))[position]
            found = edit()
            if found is not None:
                changed = _Exchange(_nth(changed, number), found).visit(changed)
            try:
                after = ast.unparse(ast.fix_missing_locations(changed))
                ast.parse(after)
            except (SyntaxError, ValueError, AttributeError):
                continue
            if _cost(after) < _cost(before) and not _PLAIN.search(after):
                yield after


def _cost(text: str) -> tuple[int, int, str]:
    digits = sum([int(c) for c in text if c.isdigit()])
    return len(text), digits, text


def _nth(tree: ast.AST, number: int) -> ast.AST:
    for position, node in enumerate(ast.walk(tree)):
        if position == number:
            return node
    raise IndexError(number)


class _Exchange(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _edits(node: ast.AST) -> Iterator[Callable[[], ast.AST | None]]:
    """Ways to make a node simpler: each changes it in place, or gives what takes its place."""
    if isinstance(node, ast.Call):
        made = isinstance(node.func, ast.Name)  # lay, make and S take what is no array
        for arg in node.args[: 0 if made and node.func.id != "lay" else 1 if made else None]:
            yield lambda arg=arg: arg
        for position in range(len(node.keywords)):
            yield lambda position=position: node.keywords.pop(position) and None
        for position in range(len(node.args)):
            yield lambda position=position: node.args.pop(position) and None
        if isinstance(node.func, ast.Attribute):
            yield lambda: node.func.value
    elif isinstance(node, ast.BinOp):
        yield lambda: node.left
        yield lambda: node.right
    elif isinstance(node, ast.Compare):
        yield lambda: node.left
    elif isinstance(node, ast.UnaryOp):
        yield lambda: node.operand
    elif isinstance(node, (ast.Subscript, ast.Attribute)):
        yield lambda: node.value
    elif isinstance(node, (ast.Tuple, ast.List)):
        for position in range(len(node.elts)):
            yield lambda position=position: node.elts.pop(position) and None
        for element in node.elts:
            yield lambda element=element: element
    elif isinstance(node, ast.Slice):
        for name in ("lower", "upper", "step"):
            if getattr(node, name) is not None:
                yield lambda name=name: setattr(node, name, None)
    elif isinstance(node, ast.Constant):
        yield from _smaller(node)


def _smaller(node: ast.Constant) -> Iterator[Callable[[], ast.AST]]:
    value = node.value
    if type(value) is int:
        for other in dict.fromkeys((0, 1, value // 2, value - 1)):
            if other < value:
                yield lambda other=other: ast.Constant(other)
    elif isinstance(value, (float, complex)):
        yield lambda: ast.Constant(1)
