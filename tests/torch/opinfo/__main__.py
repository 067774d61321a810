"""The command line: judge variants on several numbers of ranks, print the counts and the worst.

::

    python -m tests.torch.opinfo --ranks 2,3,4 --out verdicts.jsonl
    python -m tests.torch.opinfo --only 'fft.*' linalg.qr --gradients
    python -m tests.torch.opinfo --most-used

A variant of an operator is run on a few of its samples, every tensor of which is laid out over the
ranks in up to five ways (``layouts.WAYS``). What plain torch makes of the sample is compared with
what the ranks have together, in values, shape, data type and `requires_grad`. The verdicts:

right       every case is right
gathered    every case is right, in one at least operands were gathered (a PerformanceWarning)
part        some cases are right, and in others all ranks get an exception
refused     all ranks get an exception in every case
wrong       in one case at least the result is another one, on one rank at least
parted      only some of the ranks get an exception
hang        a rank did not come back within ``--patience`` seconds
died        a process ended
no tensor   the variant makes tensors from numbers: there is nothing to lay out
left out    plain torch gives another result each time, or takes none of the samples in this form

A method, in place and ``out=`` are judged apart from the function, and so are gradients.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.torch.opinfo import jobs
from tests.torch.opinfo.variants import FORMS, Unit, all_units, most_used

VERDICTS = ("right", "gathered", "part", "refused", "wrong", "parted", "hang", "died")
#: Verdicts on what does not count.
BESIDE = ("no tensor", "left out")
#: What must not happen, the worst first.
BAD = ("died", "hang", "parted", "wrong")


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch.opinfo")
    parser.add_argument("--ranks", default="2,3", help="numbers of ranks")
    parser.add_argument("--only", nargs="*", default=[], help="variants by name or pattern")
    parser.add_argument("--most-used", action="store_true", help="those in most_used.txt alone")
    parser.add_argument("--forms", default=",".join(FORMS), help="how operators are called")
    parser.add_argument("--gradients", action="store_true", help="gradients instead of results")
    parser.add_argument("--samples", type=int, default=4, help="samples of each variant")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds for one verdict")
    parser.add_argument("--worst", type=int, default=30, help="refused variants that are listed")
    parser.add_argument("--out", type=Path, help="a file for all verdicts, as lines of JSON")
    parser.add_argument(
        "--planted", nargs="*", default=[], metavar="NAME=FAULT", help="faults to find (faults.py)"
    )
    return parser.parse_args(argv)


def chosen(options: argparse.Namespace) -> list[Unit]:
    """The units that the command line asks for."""
    units = all_units(("gradient",) if options.gradients else tuple(options.forms.split(",")))
    if options.most_used:
        names = set(most_used())
        units = [unit for unit in units if unit.name in names]
    if options.only:
        units = [u for u in units if any(fnmatchcase(u.name, name) for name in options.only)]
    return units


def table(entries: list[dict[str, Any]]) -> list[str]:
    """The counts of verdicts, for each form and number of ranks."""
    counts: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for entry in entries:
        counts[entry["form"], entry["ranks"]][entry["verdict"]] += 1
    heads = " ".join(f"{verdict:>9}" for verdict in (*VERDICTS, *BESIDE))
    lines = [f"{'form':8} ranks judged {heads}"]
    for (form, ranks), found in counts.items():
        numbers = " ".join(f"{found[verdict]:9}" for verdict in (*VERDICTS, *BESIDE))
        judged = sum(found[verdict] for verdict in VERDICTS)
        lines.append(f"{form:8} {ranks:5} {judged:6} {numbers}")
    return lines


def worst(entries: list[dict[str, Any]], most: int) -> list[str]:
    """All that is bad, and some of what is refused; what is alike on several ranks once."""
    lines: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for entry in entries:
        key = (entry["verdict"], entry["form"], entry["variant"])
        lines[key].append(entry["ranks"])
    reasons = {(e["verdict"], e["form"], e["variant"]): e for e in reversed(entries)}
    found = []
    for verdict in (*BAD, "part", "refused"):
        group = [key for key in lines if key[0] == verdict]
        shown = group if verdict in BAD else group[:most]
        for key in shown:
            entry = reasons[key]
            ranks = ",".join(map(str, lines[key]))
            where = f" [{entry['where']}]" if entry.get("where") else ""
            found.append(f"{verdict:8} {key[1]:8} {key[2]} on {ranks}: {entry['reason']}{where}")
        if len(group) > len(shown):
            found.append(f"{verdict:8} ... and {len(group) - len(shown)} more")
    return found


def without_gather(entries: list[dict[str, Any]]) -> list[str]:
    """Of the most used operators those that are right and gather nothing, for each rank count."""
    lines = []
    for ranks in dict.fromkeys(entry["ranks"] for entry in entries):
        found = [
            e for e in entries if e["ranks"] == ranks and e["form"] in ("function", "gradient")
        ]
        right = sum(entry["verdict"] == "right" for entry in found)
        lines.append(f"most used, {ranks} ranks: {right} of {len(found)} right without a gather")
    return lines


def main() -> int:
    """Judge, and print; the exit status says whether nothing is wrong, parted, hanging or dead."""
    options = parsed()
    entries = jobs.run_on_all(
        chosen(options),
        options.ranks,
        options.out,
        samples=options.samples,
        patience=options.patience,
        planted=dict(words.split("=") for words in options.planted),
    )
    print("\n".join([*worst(entries, options.worst), "", *table(entries)]))
    if options.most_used:
        print("\n".join(without_gather(entries)))
    return os.EX_OK if not any(entry["verdict"] in BAD for entry in entries) else 1


if __name__ == "__main__":
    sys.exit(main())
