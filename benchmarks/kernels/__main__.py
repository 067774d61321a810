"""Every kernel's time beside NumPy's in one process.

    mpiexec -n 2 python -m benchmarks.kernels [name ...]

NumPy's time is measured on rank 0 while the others sleep; ours is that of the slowest rank. Both
are the least of several, as other programs disturb, and take turns. That the results are equal, up
to rounding, is checked as well.
"""

import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

import distarray.numpy as dnp
from benchmarks.kernels import KERNELS, Kernel

COMM = MPI.COMM_WORLD
#: Seconds a kernel is run for with each library, and how often at least.
ENOUGH, LEAST = 0.3, 3


def done(result: Any) -> None:
    """Let what was put off be done. No block is asked for: programs that do so keep nothing."""
    for x in result if isinstance(result, tuple) else (result,):
        if hasattr(x, "settle"):
            x.settle()


def seconds(kernel: Kernel, library: Any) -> float:
    """One run of a kernel; its inputs are made before."""
    given = kernel.prepared(library)
    begin = time.perf_counter()
    done(kernel.function(library, *given))
    return time.perf_counter() - begin


def alone(act: Callable[[], float]) -> float:
    """What rank 0 measures while the others sleep."""
    found = act() if not COMM.rank else 0.0
    request = COMM.Ibarrier()
    while not request.Test():
        time.sleep(0.002)
    return float(COMM.bcast(found))


def together(act: Callable[[], float]) -> float:
    """What the slowest rank measures."""
    COMM.Barrier()
    return float(COMM.allreduce(act(), MPI.MAX))


def times(kernel: Kernel) -> tuple[float, float]:
    """The least times of NumPy and of ours, in seconds."""
    theirs: list[float] = []
    ours: list[float] = []
    while len(ours) < LEAST or sum(ours) + sum(theirs) < 2 * ENOUGH:
        theirs.append(alone(lambda: seconds(kernel, np)))
        ours.append(together(lambda: seconds(kernel, dnp)))
        if sum(ours) > 10 * ENOUGH:
            break
    return min(theirs), min(ours)


def results(found: Any) -> list[Any]:
    """A result, or its parts, as NumPy's arrays."""
    parts = found if isinstance(found, tuple) else (found,)
    return [part.full() if hasattr(part, "full") else np.asarray(part) for part in parts]


def equal(kernel: Kernel) -> bool:
    """Whether ours gives what NumPy gives."""
    wanted = results(kernel.function(np, *kernel.prepared(np)))
    found = results(kernel.function(dnp, *kernel.prepared(dnp)))
    same = all(np.allclose(a, b, equal_nan=True) for a, b in zip(found, wanted, strict=True))
    return bool(COMM.allreduce(same, MPI.LAND))


def main() -> None:
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or list(KERNELS)
    ratios = []
    if not COMM.rank:
        print(f"{COMM.size} ranks, NumPy {np.__version__}")
        print(f"{'kernel':24s}{'NumPy ms':>10s}{'ours ms':>10s}{'ours/NumPy':>12s}")
    for name in names:
        same = equal(KERNELS[name])
        plain, ours = times(KERNELS[name])
        ratios.append(ours / plain)
        if not COMM.rank:
            line = f"{name:24s}{plain * 1e3:10.3f}{ours * 1e3:10.3f}{ratios[-1]:12.2f}"
            print(line + ("" if same else "  NOT EQUAL"), flush=True)
    if not COMM.rank:
        print(f"median {median(ratios):.2f}, worst {max(ratios):.2f}, of {len(ratios)} kernels")


if __name__ == "__main__":
    main()
