"""The statements of a program's files: which lines belong together."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from threading import Lock

from distarray.comm.user_lines import source
from distarray.profiling.measured import Line

__all__ = ["line_of", "text_of"]

#: Files larger than this are taken line by line: they are not written by hand.
_MOST_LINES = 20_000
#: Python 3.11 counts the depth of all the trees that are being made together, of other threads too.
_one_at_a_time = Lock()


@lru_cache(maxsize=65536)
def line_of(path: str, number: int) -> Line:
    """The statement that a line of a file belongs to; the same object for all of its lines."""
    first = _starts(path).get(number, number)
    return Line(path, number) if first == number else line_of(path, first)


def text_of(line: Line) -> str:
    """The first line of a statement, without indentation; empty if the file cannot be read."""
    lines = source(line.path)
    return lines[line.number - 1].strip() if 0 < line.number <= len(lines) else ""


@lru_cache(maxsize=256)
def _starts(path: str) -> dict[int, int]:
    """The first line of the statement, for the further lines of those that have several."""
    lines = source(path)
    if not lines or len(lines) > _MOST_LINES:
        return {}
    try:
        with _one_at_a_time:
            tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, SystemError):
        return {}  # Python 3.11 says SystemError if others make trees at the same time
    found: dict[int, int] = {}
    for first, last in _spans(tree):
        for number in range(first + 1, last + 1):
            found[number] = first
    return found


def _spans(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """First and last line of each statement, outer ones first; of blocks only their head."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            inside = getattr(node, "body", None) or getattr(node, "cases", None)
            last = node.end_lineno or node.lineno
            if inside:
                begins = getattr(inside[0], "lineno", None) or inside[0].pattern.lineno
                last = max(node.lineno, begins - 1)
            yield node.lineno, last
