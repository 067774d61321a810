"""Every example in the manual and the docstrings is run, and gives what is shown.

Under ``--mpi`` they run on every rank in step, so an example has to hold on any number of ranks.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from distarray.comm import run_threads

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.rst"))
PROGRAMS = sorted((DOCS / "examples").glob("*.py"))
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "distarray").rglob("*.py"))
    if ">>> " in path.read_text()
]
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run(test: doctest.DocTest) -> None:
    report = io.StringIO()
    with np.errstate(), patch.dict(os.environ):  # distarray.torch.start sets variables
        outcome = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.write)
    leave_process_group()
    assert not outcome.failed, report.getvalue()


def leave_process_group() -> None:
    """Of torch.distributed, for which the next test may have other ranks."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def needed(name: str) -> None:
    """Skip what shows torch where there is none."""
    if "torch" in name or "dtensor" in name:
        pytest.importorskip("torch")


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page):
    needed(page.stem)
    run(doctest.DocTestParser().get_doctest(page.read_text(), {}, page.name, str(page), 0))


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    needed(name)
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if test.examples:
            run(test)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program(path):
    """A program of the manual prints what the page says it prints, on 4 ranks."""
    code = compile(path.read_text(), str(path), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_threads(4, lambda group: exec(code, {"__name__": "__main__"}))
    expected = path.with_suffix(".out")
    if os.environ.get("DISTARRAY_WRITE_OUTPUT"):
        expected.write_text(printed.getvalue())
    assert printed.getvalue() == expected.read_text()
