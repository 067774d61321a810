"""Statements of a program's files: the mapping from lines to statements."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from threading import Lock

from distarray.comm.user_lines import source
from distarray.profiling.measured import Line

__all__ = ["line_of", "text_of"]

#: Maximum lines of a file that is parsed; longer files are not hand-written, and go line by line.
_MOST_LINES = 20_000
#: Python 3.11 counts the depth of all trees that any thread is building, together.
_one_at_a_time = Lock()


@lru_cache(maxsize=65536)
def line_of(path: str, number: int) -> Line:
    """Return the statement that contains a line; the same object for all of its lines."""
    first = _starts(path).get(number, number)
    return Line(path, number) if first == number else line_of(path, first)


def text_of(line: Line) -> str:
    """Return a statement's first line, without indentation; empty if the file is unreadable."""
    lines = source(line.path)
    return lines[line.number - 1].strip() if 0 < line.number <= len(lines) else ""


@lru_cache(maxsize=256)
def _starts(path: str) -> dict[int, int]:
    """Map each continuation line of a statement of several lines to its first line."""
    lines = source(path)
    if not lines or len(lines) > _MOST_LINES:
        return {}
    try:
        with _one_at_a_time:
            tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, SystemError):
        return {}  # Python 3.11 raises SystemError if other threads build trees at the same time
    found: dict[int, int] = {}
    for first, last in _spans(tree):
        for number in range(first + 1, last + 1):
            found[number] = first
    return found


def _spans(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield first and last line of each statement, outer ones first; of blocks only the head."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            inside = getattr(node, "body", None) or getattr(node, "cases", None)
            last = node.end_lineno or node.lineno
            if inside:
                begins = getattr(inside[0], "lineno", None) or inside[0].pattern.lineno
                last = max(node.lineno, begins - 1)
            yield node.lineno, last
