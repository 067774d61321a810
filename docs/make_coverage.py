"""The coverage page: which functions of NumPy's are distributed, from the registry itself."""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable

from distarray.coverage import CLASSES, Entry, class_of, counts, entries, ufuncs

__all__ = ["coverage", "pages"]

SPACES = {
    "main": "``numpy``",
    "linalg": "``numpy.linalg``",
    "fft": "``numpy.fft``",
    "random": "methods of ``random.Generator``",
    "other": "``numpy.strings``, ``numpy.char``, ``numpy.lib.*``",
}


def summary(entry: Entry) -> str:
    """First line of the docstring of the implementation, without the reference to NumPy's."""
    lines = (inspect.getdoc(entry.implementation) or "").split("\n")
    if lines[0].startswith(f"{entry.name.rpartition('.')[2]}("):  # the signature, as C has it
        lines = [line for line in lines[1:] if line.strip("- ")] or [""]
    first = lines[0].split("; see :")[0].rstrip(".")
    return re.sub(r":func:`(\w+)`", r"``\1``", first)


def target(entry: Entry) -> str | None:
    """Our function behind one of NumPy's; None where NumPy's own does it."""
    function = entry.implementation
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    if not name.startswith("distarray.ops.") or "<" in name:
        return None
    module = sys.modules.get(name.rpartition(".")[0])
    return name if hasattr(module, name.rpartition(".")[2]) else None


def linked(entry: Entry) -> str:
    """A function's name, as a reference to its page: ours, or NumPy's where that does it."""
    ours = target(entry)
    return f":func:`{entry.name} <{ours}>`" if ours else f":func:`{entry.name}`"


def pages() -> dict[str, str]:
    """Pages of our functions behind NumPy's, by chapter: each function with what it costs."""
    chapters: dict[str, set[str]] = defaultdict(set)
    for entry in entries():
        ours = target(entry)
        if ours:
            chapters[ours.rpartition(".")[0]].add(ours)
    found = {}
    for module, names in sorted(chapters.items()):
        chapter = module.removeprefix("distarray.ops.")
        head = f"{chapter}\n{'=' * len(chapter)}\n"
        found[chapter] = "\n".join([head, *[f".. autofunction:: {n}" for n in sorted(names)], ""])
    return found


def title(text: str) -> list[str]:
    """A section's title."""
    return ["", text, "-" * len(text), ""]


def listed(names: Iterable[str]) -> list[str]:
    """Names, one after the other, as references into NumPy's manual."""
    return [", ".join([f":func:`{name}`" for name in names]), ""]


def numbers() -> list[str]:
    """The counts, as ``python -m distarray --coverage`` prints them."""
    lines = [".. list-table::", "   :header-rows: 1", "", "   * - namespace"]
    lines += [f"     - {name}" for name in CLASSES]
    for space, found in counts().items():
        lines.append(f"   * - {SPACES[space]}")
        lines += [f"     - {found[name]}" for name in CLASSES]
    lines += ["", f"All {len(ufuncs())} ufuncs are distributed, with their methods ``reduce``,"]
    return [*lines, "``accumulate``, ``reduceat``, ``outer`` and ``at``.", ""]


def coverage() -> str:
    """What the page includes: the counts, and each function in its class."""
    classes = defaultdict(list)
    for entry in entries():
        classes[class_of(entry.implementation)].append(entry)
    lines = numbers()
    for name in ("implemented", "composed"):
        lines += [*title(name.capitalize()), ".. list-table::", "   :widths: auto", ""]
        for entry in classes[name]:
            lines += [f"   * - {linked(entry)}", f"     - {summary(entry)}"]
    lines += [*title("Ufuncs"), *listed(ufuncs()), *title("Falls back")]
    reasons = defaultdict(list)
    for entry in classes["falls back"]:
        reasons[entry.reason or ""].append(entry.name)
    for reason, names in reasons.items():
        lines += [f"**{reason}**", "", *listed(names)]
    return "\n".join(lines)
