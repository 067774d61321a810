"""From which size on it pays to cut arrays: ``mpiexec -n 2 python -m benchmarks.cutting``.

Each row is an operation, each column a size in KiB. A figure is the time with operands cut along
their first dimension, over the time with operands that every rank has whole: below 1, cutting pays.
Operations without a message gain from the first sizes on, those with one lose up to the last.
`config.replicate_below` is between: for lines, of which few operations send, lower than for arrays
of more dimensions, of which most do.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import distarray
import distarray.numpy as dnp
from distarray import Replicate, Shard

COMM = MPI.COMM_WORLD
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
#: Seconds that an operation is run for with each layout.
ENOUGH = 0.2


def _rows(x: Any) -> Any:
    return x.reshape(64, -1)


ROWS: dict[str, Callable[[Any], Any]] = {
    "x + y": lambda x: x + x,
    "exp": np.exp,
    "x += 1": lambda x: x.__iadd__(1.0),
    "x[1:] - x[:-1]": lambda x: x[1:] - x[:-1],
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: _rows(x).sum(axis=0).full(),
    "sum of rows": lambda x: _rows(x).sum(axis=1),
    "cumsum": lambda x: x.cumsum(),
    "matrix @ vector": lambda x: _rows(x) @ np.ones(x.size // 64),
    "vector @ matrix": lambda x: np.ones(64) @ _rows(x),
    "matrix @ its transposed": lambda x: _rows(x) @ _rows(x).T,
    "x[7]": lambda x: x[7],
    "a row": lambda x: _rows(x)[7].full(),
    "a row written": lambda x: _rows(x).__setitem__(7, 1.0),
    "sort": np.sort,
    "x[x > 0.5]": lambda x: x[x > 0.5],
    "where": lambda x: np.where(x > 0.5, x, 0.0),
}


def _finish(value: Any) -> None:
    if isinstance(value, distarray.DistArray):
        value.to_local()


def seconds(act: Callable[[Any], Any], x: Any) -> float:
    """The slowest rank's least time."""
    found: list[float] = []
    begin = time.perf_counter()
    while COMM.allreduce(time.perf_counter() - begin, MPI.MIN) < ENOUGH:
        start = time.perf_counter()
        for _ in range(4):
            _finish(act(x))
        found.append((time.perf_counter() - start) / 4)
    return float(COMM.allreduce(min(found), MPI.MAX))


def main() -> None:
    mesh = distarray.default_mesh()
    if not mesh.rank:
        print(f"{'':24}" + "".join([f"{size:>8}" for size in SIZES]))
    for name, act in ROWS.items():
        line = f"{name:24}"
        for size in SIZES:
            values = np.random.default_rng(0).random(size << 7)
            cut, whole = (
                dnp.array(distarray.distribute(values, mesh, (p,), src=None), copy=True)
                for p in (Shard(0), Replicate())
            )
            ratios = [seconds(act, cut) / seconds(act, whole) for _ in range(3)]
            line += f"{sorted(ratios)[1]:8.2f}"
        if not mesh.rank:
            print(line, flush=True)


if __name__ == "__main__":
    main()
