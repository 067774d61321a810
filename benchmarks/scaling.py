"""How messages grow with the number of ranks: ``python -m benchmarks.scaling [names]``.

Each row is an operation on arrays with as many elements per rank on any number of ranks, run on
thread ranks. Counted is what the busiest rank sends point to point, in how many collectives it
takes part, and the bytes that it receives from collectives that gather, which grow with the number
of ranks. A collective of a few bytes takes O(log P) messages inside of MPI.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

import distarray
import distarray.numpy as dnp
from distarray import DistArray, Replicate, Shard

__all__ = ["ROWS", "Counts", "counted", "growth", "main"]

#: Elements per rank.
EACH = 512
RANKS = (4, 16, 64, 256)
#: What gives every rank something of each other one.
_GATHERING = ("allgather", "allgather_object", "allgather_varied", "alltoall_counts")


def _columns(x: DistArray) -> DistArray:
    return x.reshape(-1, 16)


ROWS: dict[str, Callable[[Any], Any]] = {
    "x + y": lambda x: x + x[::-1][::-1],
    "x[1:] - x[:-1]": lambda x: (x[1:] - x[:-1]).to_local(),
    "x[5]": lambda x: x[5],
    "x[100:-100] = 1": lambda x: x.__setitem__(slice(100, -100), 1.0),
    "x[::-1].copy()": lambda x: x[::-1].copy(),
    "x[x > 0.5]": lambda x: x[x > 0.5],
    "x[positions]": lambda x: x[dnp.arange(0, x.size, 7)],
    "x[positions] = 1": lambda x: x.__setitem__(dnp.arange(0, x.size, 7), 1.0),
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: _columns(x).sum(axis=0),
    "argmax": lambda x: x.argmax(),
    "std": lambda x: x.std(),
    "cumsum": lambda x: x.cumsum(),
    "sort": np.sort,
    "argsort": np.argsort,
    "unique": np.unique,
    "median": np.median,
    "quantiles": lambda x: np.quantile(x, [0.1, 0.5, 0.9]),
    "histogram": lambda x: np.histogram(x, 20),
    "searchsorted": lambda x: np.searchsorted(dnp.linspace(0, 1, x.size), x),
    "nonzero": lambda x: np.nonzero(x > 0.5),
    "roll": lambda x: np.roll(x, 3),
    "concatenate": lambda x: np.concatenate([x, x]),
    "repeat": lambda x: np.repeat(x, 2),
    "reshape": lambda x: x.reshape(16, -1),
    "x @ x": lambda x: x @ x,
    "matrix @ vector": lambda x: _columns(x) @ dnp.ones(16),
    "matrix.T @ matrix": lambda x: _columns(x).T @ _columns(x),
    "matrix + matrix.T": lambda x: _square(x) + _square(x).T,
    "fft": np.fft.fft,
    "rows to columns": lambda x: _square(x).redistribute(placements=[Shard(1)]),
    "to every rank": lambda x: x.redistribute(placements=[Replicate()]),
    "interp": lambda x: np.interp(x, dnp.linspace(0, 1, x.size), x),
    "random": lambda x: dnp.random.default_rng(3).standard_normal(x.size),
}


def _square(x: DistArray) -> DistArray:
    side = int(x.size**0.5)
    return x[: side * side].reshape(side, side)


@dataclass
class Counts:
    """What the busiest rank does.

    Attributes
    ----------
    messages : int
        Point-to-point messages that it sends.
    collectives : int
        Collectives that it takes part in.
    gathered : int
        Bytes that it receives from those that gather.
    bytes : int
        Bytes that it sends.
    """

    messages: int
    collectives: int
    gathered: int
    bytes: int


def counted(row: Callable[[Any], Any], ranks: int) -> Counts:
    """Run an operation on thread ranks, and count."""

    def program(group: Any) -> tuple[int, int, int, int]:
        with distarray.config.override(replicate_below=1):
            values = np.random.default_rng(5).random(EACH * ranks)
            x = distarray.distribute(values, placements=[Shard(0)], src=None)
            with distarray.trace() as sent:
                row(x)
        each = [e for e in sent.events if e.kind == "exchange"]
        gathered = sum(e.bytes for e in sent.events if e.kind in _GATHERING) * group.size
        messages = sum(e.messages for e in each)
        return messages, len(sent.events) - len(each), gathered, sent.bytes

    return Counts(*np.max(distarray.comm.run_threads(ranks, program), axis=0).tolist())


def growth(ranks: Sequence[int], found: Sequence[int]) -> str:
    """How a count grows: "O(1)", "O(log P)", "O(P)" or between them, by its last steps."""
    first, last = max(found[-2], 1), max(found[-1], 1)
    power = log2(last / first) / log2(ranks[-1] / ranks[-2])
    logarithmic = log2(log2(ranks[-1]) / log2(ranks[-2])) / log2(ranks[-1] / ranks[-2])
    if power <= 0.05:
        return "O(1)"
    if power <= logarithmic * 1.2:
        return "O(log P)"
    return "O(P)" if power > 0.9 else f"O(P^{power:.1f})"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of rows' names; all by default")
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    chosen = parser.parse_args(argv)
    ranks = [int(text) for text in chosen.ranks.split(",")]
    head = "".join(f"{count:>22}" for count in ranks)
    print(f"{'messages+collectives, gathered':<32}{head}   grow")
    for name, row in ROWS.items():
        if chosen.names and not any(part in name for part in chosen.names):
            continue
        found = [counted(row, count) for count in ranks]
        cells = "".join(
            f"{f'{c.messages}+{c.collectives}':>12}{_size(c.gathered):>10}" for c in found
        )
        rates = [
            growth(ranks, [c.messages for c in found]),
            growth(ranks, [c.collectives for c in found]),
            growth(ranks, [c.gathered for c in found]),
        ]
        print(f"{name:<32}{cells}   {', '.join(rates)}", flush=True)


def _size(count: int) -> str:
    return f"{count} B" if count < 1 << 14 else f"{count >> 10} KiB"


if __name__ == "__main__":
    main()
