"""The history of measurements on this machine, and what has become slower since.

Times on busy machines say little, so what is compared is the time in parts of NumPy's in the same
run, where NumPy was measured. It counts as slower if it is by more than both runs' spread.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.run import Measurement

__all__ = ["append", "entry", "slower"]

#: Earlier runs that a run is compared with.
RUNS = 5
#: What makes a machine another one.
_SAME = ("machine", "processor", "cores", "python", "numpy")


def entry(machine: dict[str, Any], found: Sequence["Measurement"]) -> dict[str, Any]:
    """A run, for the file: the machine, and time and spread of each of our measurements.

    The time is in parts of NumPy's, or in seconds (`against` says which); the spread is half of
    what lies between the quartiles, in parts of the median.
    """
    numpys = {m.case: m.median for m in found if (m.library, m.ranks) == ("numpy", 1)}
    cases = {}
    for m in found:
        if m.library == "distarray":
            base = numpys.get(m.case)
            cases[f"{m.case} on {m.ranks}"] = {
                "time": m.median / (base or 1.0),
                "against": "numpy" if base else "seconds",
                "spread": _spread(m.seconds),
            }
    return {"machine": machine, "cases": cases}


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle


def append(path: Path, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Add a run to the file; the earlier ones on such a machine, oldest first."""
    lines = path.read_text().splitlines() if path.exists() else []
    earlier = [json.loads(line) for line in lines]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")
    return [one for one in earlier if _kind(one) == _kind(run)]


def _kind(run: dict[str, Any]) -> list[Any]:
    return [run["machine"].get(name) for name in _SAME]


def slower(run: dict[str, Any], earlier: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each case that takes longer than in the last runs, by more than the spread."""
    lines = []
    for name, now in run["cases"].items():
        before = [one for one in earlier if _is_alike(one["cases"].get(name), now)][-RUNS:]
        if not before:
            continue
        times = [one["cases"][name]["time"] for one in before]
        usual = median(times)
        spread = max(now["spread"], *[one["cases"][name]["spread"] for one in before])
        spread = max(spread, (max(times) - min(times)) / usual)
        if now["time"] > usual * (1 + spread):
            since = before[-1]["machine"].get("commit", "")
            factor = now["time"] / usual
            lines.append(f"SLOWER    {name}: {factor:.2f}x since {since}, spread {spread:.0%}")
    return lines


def _is_alike(case: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    return case is not None and case["against"] == now["against"]
