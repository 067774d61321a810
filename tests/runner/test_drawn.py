"""Programs drawn at random that use threads, processes, chance and libraries; see `drawn`.

``python -m tests.runner.drawn`` draws new ones.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.runner.drawn import STEPS, drawn, wrong

LIBRARIES = ("scipy", "pandas", "sklearn", "PIL", "networkx", "joblib")


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, LIBRARIES)), reason="they use libraries of the extra test"
)
@pytest.mark.parametrize(("seed", "ranks"), [(1, 3), (4, 2)])
def test_print_what_numpy_prints(seed: int, ranks: int, tmp_path: Path) -> None:
    assert wrong(seed, ranks, tmp_path) == ""


def test_every_step_is_drawn() -> None:
    steps = [step for kind in STEPS.values() for step in kind]
    texts = "".join(map(drawn, range(150)))
    for step in steps:
        first = step.strip().splitlines()[-1].partition("{")[0].strip()
        assert first in texts


def test_what_is_compared_can_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that prints its number of ranks is told apart."""
    text = "import sys\nprint('distarray' in sys.modules)\n"
    monkeypatch.setattr(sys.modules["tests.runner.drawn"], "drawn", lambda _: text)
    assert "and not\nFalse" in wrong(7, 2, tmp_path)
