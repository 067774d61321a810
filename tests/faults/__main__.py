"""Plant faults and print what came of each; the exit status is 1 if one was not held.

``python -m tests.faults [WORD ...]`` plants those whose names contain one of the words; ``--quick``
those of ``make test`` alone, ``--list`` prints the names.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults.planting import collect, plant


def main() -> int:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    faults = [
        fault
        for fault in collect()
        if (fault.quick or not asked.quick)
        and (not asked.words or any(word in fault.name for word in asked.words))
    ]
    verdicts = []
    for fault in faults:
        if asked.list:
            print(fault.name)
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            outcome = plant(fault, Path(directory))
        verdicts.append(outcome.verdict)
        print(f"{outcome.verdict:<9}{outcome.seconds:6.1f} s  {fault.name}", flush=True)
        if outcome.said:
            print("\n".join(f"    {line}" for line in outcome.said.splitlines()), flush=True)
    if not asked.list:
        counted = {verdict: verdicts.count(verdict) for verdict in ("held", "FAILED", "not here")}
        print(", ".join(f"{count} {verdict}" for verdict, count in counted.items()))
    return int("FAILED" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
