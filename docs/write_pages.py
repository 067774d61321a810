"""The parts of the manual that are read off the code when it is built."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from shutil import rmtree

from make_coverage import coverage, pages
from make_operators import operators
from sphinx.pycode import ModuleAnalyzer

from distarray.config import Settings

__all__ = ["settings", "table", "write"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], widths: str = "auto") -> str:
    """An RST table."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (head, *rows):
        lines += [f"   {'* -' if not place else '  -'} {cell}" for place, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Every setting with its environment variable, default and meaning."""
    said = ModuleAnalyzer.for_module("distarray.config").find_attr_docs()
    rows = []
    for setting in [entry for entry in fields(Settings) if entry.init]:
        meaning = " ".join(said["Settings", setting.name]).strip()
        variable = f"``DISTARRAY_{setting.name.upper()}``"
        rows.append((f"``{setting.name}``", variable, f"``{setting.default!r}``", meaning))
    return table(("setting", "environment variable", "default", "meaning"), rows)


def write(directory: Path) -> None:
    """Write what the pages include, in an empty directory: names that are gone leave no page."""
    rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "settings.inc").write_text(settings())
    (directory / "coverage.inc").write_text(coverage())
    (directory / "operations").mkdir()
    for chapter, text in pages().items():
        (directory / "operations" / f"{chapter}.rst").write_text(text)
    (directory / "operators.inc").write_text(operators())
