"""What the manual's build makes of the code: links of the coverage table, inventories, figures."""

import importlib
import sys
import zlib
from pathlib import Path

import pytest

from distarray.coverage import class_of, entries

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture
def docs(monkeypatch, own_processes):
    """A function that imports one of the modules of the manual's build."""
    monkeypatch.syspath_prepend(str(DOCS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in ("make_coverage", "make_inventories"):
        if name not in before:
            sys.modules.pop(name, None)


def test_every_row_of_the_coverage_table_leads_to_a_page(docs):
    made = docs("make_coverage")
    text, pages = made.coverage(), made.pages()
    functions = {line.split()[-1] for page in pages.values() for line in page.splitlines() if line}
    rows = [entry for entry in entries() if class_of(entry.implementation) != "falls back"]
    ours = 0
    for entry in rows:
        link = made.linked(entry)
        assert f"   * - {link}\n" in text
        name = made.target(entry)
        if name is None:
            assert link == f":func:`{entry.name}`", "NumPy's own page"
        else:
            assert name in functions
            module, _, function = name.rpartition(".")
            assert callable(getattr(importlib.import_module(module), function))
            ours += 1
    assert ours > 0.8 * len(rows)


def test_without_a_network_references_go_by_what_is_installed(docs, tmp_path):
    mapping = docs("make_inventories").mapping(tmp_path)
    assert set(mapping) == {"numpy", "python"}
    found = {}
    for name, (place, (theirs, own)) in mapping.items():
        assert place.startswith("https://")
        assert theirs is None, "the manual's own inventory comes first"
        data = Path(own).read_bytes()
        head, _, rest = data.partition(b"using zlib.\n")
        assert head.startswith(b"# Sphinx inventory version 2\n")
        found[name] = zlib.decompress(rest).decode().splitlines()
    assert "numpy.sort py:function 1 reference/generated/numpy.sort.html#$ -" in found["numpy"]
    assert "ValueError py:exception 1 library/exceptions.html#$ -" in found["python"]
    assert "dict py:class 1 library/stdtypes.html#$ -" in found["python"]


def test_figures_are_measured_or_not_there():
    """What the performance page includes names its machine, if it shows anything."""
    place = DOCS / "performance"
    text = (place / "figures.inc").read_text()
    pictures = sorted(path.name for path in place.glob("*.svg"))
    assert all(f"/performance/{name}" in text for name in pictures)
    assert bool(pictures) == (place / "benchmarks.jsonl").exists()
    assert ("Measured at commit" in text) == bool(pictures)
