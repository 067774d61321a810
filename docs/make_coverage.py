"""Write docs/coverage.rst: which functions of NumPy's are distributed, from the ledger."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from distarray.ops.ledger import Entry, entries, ufuncs

PAGE = Path(__file__).with_name("coverage.rst")

HEAD = """\
Coverage
========

What becomes of NumPy's functions when they are handed a ``DistArray``. This page is written by
``docs/make_coverage.py`` from the registry that dispatch uses, and ``tests/test_ledger.py`` holds
the two to NumPy's own list of functions that can be overridden.

- **Distributed**: {implemented} functions. Each rank computes on its own part; the docstring
  states the messages.
- **All {ufuncs} ufuncs**, called as functions and by their methods ``reduce``, ``accumulate``,
  ``reduceat``, ``outer`` and ``at``.
- **Falls back**: {fallbacks} functions. The operands are gathered on every rank, NumPy computes,
  and the result is distributed again, with one ``PerformanceWarning`` for each function, as long
  as the operands are below ``config.fallback_limit``. Above it, and with
  ``config.fallback = "error"``, the call raises and says what it would have moved.
"""


def summary(entry: Entry) -> str:
    """First line of the docstring of the implementation, without the reference to NumPy's."""
    text = inspect.getdoc(entry.implementation) or ""
    first = text.split("\n")[0].split("; see :")[0].rstrip(".")
    return re.sub(r":func:`(\w+)`", r"``\1``", first)


def title(text: str) -> list[str]:
    """A section's title."""
    return [text, "-" * len(text), ""]


def listed(names: Iterable[str]) -> list[str]:
    """Names, one after the other."""
    return [", ".join([f"``{name}``" for name in names]), ""]


def page() -> str:
    """The whole page."""
    ledger = entries()
    done = [entry for entry in ledger if entry.implementation]
    lists = defaultdict(list)
    for entry in ledger:
        if entry.reason and not entry.implementation:
            lists[entry.reason].append(entry.name)
    head = HEAD.format(
        implemented=len(done), ufuncs=len(ufuncs()), fallbacks=len(ledger) - len(done)
    )
    lines = [head, *title("Distributed"), ".. list-table::", "   :widths: auto", ""]
    for entry in done:
        lines += [f"   * - ``{entry.name}``", f"     - {summary(entry)}"]
    lines += ["", *title("Ufuncs"), *listed(ufuncs())]
    lines += title("Falls back")
    for reason, names in lists.items():
        lines += [f"**{reason}**", "", *listed(names)]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
