"""Figures about the English of the package: its docstrings and comments, read from the source.

``python -m tests.measures`` prints them, tests/test_house.py holds them; ``python -m tests.english
PATH ...`` lists the places in files and folders.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "distarray"

#: Words with which no summary begins.
_OPENINGS = re.compile(r"(what|whether)\b|as :\w+:", re.IGNORECASE)
_WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)
#: Words that take the place of a term of the field.
_METAPHORS = re.compile(
    r"\b(lies?|lay|lying|stands?|standing|stood|tells?|told|telling|says?|said|saying"
    r"|(hand(s|ed|ing)?|given?|gives) out|doors?|rungs?)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_DIRECTIVE = re.compile(r"#:?\s*(type:|noqa|fmt:|pragma|mypy:|ruff:|!)")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Text(NamedTuple):
    """A docstring, or the comments of consecutive lines."""

    path: Path
    line: int
    text: str
    is_docstring: bool


class Figures(NamedTuple):
    """The counts of one room.

    Attributes
    ----------
    words : int
        Words of docstrings and comments.
    openings : int
        Summaries that begin with "What", "Whether" or "As :func:".
    what, metaphors : int
        Occurrences of these words.
    """

    words: int
    openings: int
    what: int
    metaphors: int


def texts(path: Path) -> Iterator[Text]:
    """Yield the docstrings and comments of a file."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node)):
            yield Text(path, node.body[0].lineno, docstring, True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
            yield Text(path, token.start[0], token.string.lstrip("#: "), False)


def figures(path: Path) -> Figures:
    """Count the words of a file, and those to be avoided."""
    words = openings = what = metaphors = 0
    for text in texts(path):
        words += len(_WORD.findall(text.text))
        openings += text.is_docstring and bool(_OPENINGS.match(text.text))
        what += len(_WHAT.findall(text.text))
        metaphors += len(_METAPHORS.findall(text.text))
    return Figures(words, openings, what, metaphors)


def by_room() -> dict[str, Figures]:
    """Add up the figures of the files of each room, and of all."""
    found: dict[str, Figures] = defaultdict(lambda: Figures(0, 0, 0, 0))
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        own = figures(path)
        for room in (parts[0] if len(parts) > 1 else "the roof and the cellar", "in all"):
            found[room] = Figures(*map(sum, zip(found[room], own, strict=True)))
    return dict(sorted(found.items(), key=lambda item: (item[0] == "in all", item[0])))


def places(path: Path) -> Iterator[str]:
    """Yield the lines of a file that the figures count against it."""
    for text in texts(path):
        reasons = [text.is_docstring and _OPENINGS.match(text.text), _WHAT.search(text.text)]
        reasons.append(_METAPHORS.search(text.text))
        found = sorted({match.group() for match in reasons if match})
        if found:
            first = text.text.splitlines()[0]
            yield f"{path}:{text.line}: {', '.join(found)}: {first}"


def table() -> None:
    """Print the figures by room."""
    print("room                       words  openings  what  metaphors (per 1,000 words)")
    for room, own in by_room().items():
        what, metaphors = [1000 * count / max(1, own.words) for count in (own.what, own.metaphors)]
        print(f"{room:24} {own.words:7} {own.openings:9} {what:5.2f} {metaphors:10.2f}")


def main() -> None:
    """List the places in files and folders that are given; the table without any."""
    given = [Path(argument) for argument in sys.argv[1:]]
    for path in given:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            print(*places(file), sep="\n")
    if not given:
        table()


if __name__ == "__main__":
    main()
