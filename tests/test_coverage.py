"""The counts of what is implemented, composed and falls back."""

import runpy
import sys

import numpy as np
import pytest

from distarray.array import FUNCTIONS
from distarray.comm import default_mesh
from distarray.coverage import CLASSES, counts, entries, is_composed, summary
from distarray.runner.main import parse

#: How many functions of numpy, linalg, fft and random may fall back.
MOST_FALLBACKS = 15


def test_counts_cover_the_ledger():
    found = counts()
    assert set(found) == {"main", "linalg", "fft", "random", "other"}
    assert sum([found[s].total() for s in found if s != "random"]) == len(entries())
    assert all(set(found[space]) <= set(CLASSES) for space in found)


def test_few_functions_fall_back():
    falling = {space: found["falls back"] for space, found in counts().items() if space != "other"}
    assert sum(falling.values()) <= MOST_FALLBACKS, falling


def test_composed_is_what_touches_no_block():
    composed = (np.trapezoid, np.unwrap, np.apply_over_axes, np.linalg.outer)
    implemented = (np.sum, np.concatenate, np.cumsum, np.apply_along_axis, np.take)
    assert all(is_composed(FUNCTIONS[function].function) for function in composed)
    assert not any(is_composed(FUNCTIONS[function].function) for function in implemented)


def test_command_line(world, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["distarray", "--coverage"])
    runpy.run_module("distarray", run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.strip() == (summary() if default_mesh().rank == 0 else "")  # rank 0 alone
    for name in CLASSES:
        assert name in summary().splitlines()[0]


def test_command_line_without_the_library(world, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["distarray", "--array-api"])
    monkeypatch.setitem(sys.modules, "array_api_strict", None)
    with pytest.raises(SystemExit):
        runpy.run_module("distarray", run_name="__main__")
    said = "distarray: this needs array_api_strict, which is not installed: pip install "
    assert capsys.readouterr().err.startswith(said if default_mesh().rank == 0 else "")


def test_reports_take_no_arguments():
    with pytest.raises(ValueError, match="--coverage takes no arguments"):
        parse(["--coverage", "script.py"])
