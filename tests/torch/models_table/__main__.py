"""The command line: train models in parallel, and say which agree with one process.

::

    python -m tests.torch.models_table --ranks 2,4 --out verdicts.jsonl
    python -m tests.torch.models_table --models Llama T5 --ways 'tensor*' sharded

It needs transformers (the extra ``models``) and downloads nothing: models are tiny and start with
random weights. Five steps of AdamW are made by the ranks, and by each rank for itself; losses,
parameters and buffers are compared. What generates is compared token by token. The verdicts:

right     the ranks have what one process has (of dropout: what the same program has on one rank, or
          one process that draws for each part of the batch as its rank does)
gathered  the same, and operands were gathered for an operator without a rule
refused   all ranks get an exception
wrong     something else comes out, on one rank at least
parted    only some of the ranks get an exception
hang      a rank did not come back within ``--patience`` seconds
died      a process ended

A batch norm takes the statistics of its rank's rows: one process then runs part after part, too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.torch.models_table.ways import names
from tests.torch.models_table.zoo import MODELS
from tests.torch.opinfo import jobs
from tests.torch.opinfo.variants import Unit

BAD = ("died", "hang", "parted", "wrong")


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch.models_table")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, even ones")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--ways", nargs="*", default=["*"], help="ways by name or pattern")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for one verdict")
    parser.add_argument("--out", type=Path, help="a file for all verdicts, as lines of JSON")
    return parser.parse_args(argv)


def chosen(options: argparse.Namespace) -> list[Unit]:
    """The units that the command line asks for."""
    return [
        Unit(model, way)
        for model in options.models
        for way in names(model)
        if any(fnmatchcase(way, pattern) for pattern in options.ways)
    ]


def table(entries: list[dict[str, Any]]) -> list[str]:
    """A row for each way, a column for each model, and below it why something is not right."""
    models = list(dict.fromkeys(entry["variant"] for entry in entries))
    ways = list(dict.fromkeys(entry["form"] for entry in entries))
    came: dict[tuple[str, str], dict[int, str]] = {}
    for entry in entries:
        came.setdefault((entry["form"], entry["variant"]), {})[entry["ranks"]] = entry["verdict"]
    lines = ["".join([f"{'':22}", *[f"{model:>10}" for model in models]])]
    for way in ways:
        cells = [_cell(came.get((way, model), {})) for model in models]
        lines.append("".join([f"{way:22}", *[f"{cell:>10}" for cell in cells]]))
    return lines


def _cell(verdicts: dict[int, str]) -> str:
    """What came on all numbers of ranks: the worst."""
    order = (*BAD, "refused", "gathered", "right")
    return min(verdicts.values(), key=order.index, default="-")


def reasons(entries: list[dict[str, Any]]) -> list[str]:
    """Why each unit that is not right is not."""
    return [
        f"{e['verdict']:8} {e['variant']} {e['form']} on {e['ranks']}: {e['reason']}"
        for e in entries
        if e["verdict"] not in ("right", "gathered")
    ]


def main() -> int:
    """Run, and print; the exit status says whether nothing is wrong, parted, hanging or dead."""
    options = parsed()
    entries = jobs.run_on_all(
        chosen(options),
        options.ranks,
        options.out,
        "tests.torch.models_table.worker",
        samples=1,
        patience=options.patience,
        planted={},
    )
    print("\n".join([*reasons(entries), "", *table(entries)]))
    return os.EX_OK if not any(entry["verdict"] in BAD for entry in entries) else 1


if __name__ == "__main__":
    sys.exit(main())
