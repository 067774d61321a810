"""The faults that are planted in a moment; ``make faults`` plants all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.planting import Fault, collect, plant

QUICK = [fault for fault in collect() if fault.quick]


@pytest.mark.usefixtures("mpiexec")
@pytest.mark.parametrize("fault", QUICK, ids=[fault.name for fault in QUICK])
def test_held(fault: Fault, tmp_path: Path) -> None:
    """What must come of the fault comes of it."""
    outcome = plant(fault, tmp_path)
    if outcome.verdict == "not here":
        pytest.skip(outcome.said)
    assert outcome.verdict == "held", outcome.said
