"""NumPy's random numbers by several ranks, beside NumPy's own time for all of them in one process.

    mpiexec -n 2 python benchmarks/random_numbers.py [millions of numbers]

For each call the way that it takes, NumPy's time, ours (the slowest rank's), and how many times as
fast ours is: least times of several, as other programs disturb both. NumPy's is measured on rank 0
while the others sleep. Where other programs share the cores, the ratio of processor times tells
more: what NumPy computes, and what the rank computes that computes most, with waiting for messages.
That the numbers and the state afterwards are NumPy's is checked as well.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import distarray.numpy as dnp

COMM = MPI.COMM_WORLD
REPEATS = 7
#: What is to be reached on two ranks, the call, and the way that it takes.
CALLS: list[tuple[float, str, str]] = [
    (1.8, "rng.random(n)", "advance"),
    (1.8, "rng.uniform(-1.0, 2.0, n)", "advance"),
    (1.7, "rng.standard_normal(n)", "cut and join"),
    (1.7, "rng.normal(1.0, 2.0, n)", "cut and join"),
    (1.7, "rng.exponential(2.0, n)", "cut and join"),
    (1.7, "rng.integers(0, 1000, n)", "cut and join"),
    (1.6, "rng.gamma(2.5, 1.0, n)", "cut and join"),
    (1.6, "rng.poisson(4.0, n)", "cut and join"),
    (1.3, "state.rand(n)", "advance"),
    (1.0, "state.randn(n)", "cut and join"),
    (0.95, "rng.gamma(shapes)", "in turns"),
    (0.95, "slow.standard_normal(n)", "in turns"),
    (1.0, "rng.permutation(n)", "swaps"),
]


def made(space: Any, n: int) -> dict[str, Any]:
    """The names in a call."""
    return {
        "n": n,
        "rng": space.random.default_rng(42),
        "state": space.random.RandomState(42),
        "slow": space.random.Generator(space.random.SFC64(42)),
        "shapes": 1.0 + space.arange(n) % 7,
    }


Times = tuple[float, float]


def least(act: Callable[[], Any], together: bool) -> Times:
    """The least time of several, in seconds, and processor time; of the slowest rank."""
    walls, busy = [], []
    for _ in range(REPEATS):
        if together:
            COMM.Barrier()
        begin, used = time.perf_counter(), time.process_time()
        act()
        found = (time.perf_counter() - begin, time.process_time() - used)
        if together:
            found = tuple(COMM.allreduce(spent, MPI.MAX) for spent in found)
        walls.append(found[0])
        busy.append(found[1])
    return min(walls), min(busy)


def alone(act: Callable[[], Times]) -> Times:
    """What rank 0 measures while the others sleep."""
    found = act() if not COMM.rank else (0.0, 0.0)
    request = COMM.Ibarrier()
    while not request.Test():
        time.sleep(0.01)
    return COMM.bcast(found)


def state_of(names: dict[str, Any], call: str) -> str:
    """Where the generator of a call stands."""
    source = names[call.partition(".")[0]]
    return repr(getattr(source, "_bit_generator", None).state)


def row(call: str, n: int) -> tuple[Times, Times, bool]:
    """NumPy's time, ours, and whether numbers and states are equal."""
    code = compile(call, "<call>", "eval")
    theirs, ours = made(np, n), made(dnp, n)
    equal = True
    for _ in range(2):
        found, wanted = eval(code, ours), eval(code, theirs)
        start, stop = found.layout.section(found.mesh.coords)[0]
        equal &= bool(np.array_equal(found.to_local(), wanted[start:stop]))
        equal &= state_of(ours, call) == state_of(theirs, call)
        del found, wanted
    plain = alone(lambda: least(lambda: eval(code, theirs), False))
    return plain, least(lambda: eval(code, ours), True), bool(COMM.allreduce(equal, MPI.LAND))


def small() -> str:
    """What 64 numbers take more than NumPy's."""
    times = []
    for space in (np, dnp):
        rng = space.random.default_rng(42)
        best = 1.0
        for _ in range(50):
            begin = time.perf_counter()
            for _ in range(200):
                rng.standard_normal(64)
            best = min(best, (time.perf_counter() - begin) / 200)
        times.append(best * 1e6)
    return f"64 normals: NumPy {times[0]:.2f} us, ours {times[1]:.2f} us"


def main() -> None:
    n = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 8_000_000
    if not COMM.rank:
        print(f"{n} numbers, {COMM.size} ranks, NumPy {np.__version__}")
        heads = "".join([f"{head:>10s}" for head in ("NumPy ms", "ours ms")])
        print(f"{'call':28s}{'way':14s}{heads}{'ratio':>7s}{'busy':>7s}{'goal':>6s}")
    for goal, call, way in CALLS:
        plain, ours, equal = row(call, n)
        if not COMM.rank:
            line = f"{call:28s}{way:14s}{plain[0] * 1e3:10.1f}{ours[0] * 1e3:10.1f}"
            ratios = [theirs / own for theirs, own in zip(plain, ours, strict=True)]
            line += f"{ratios[0]:7.2f}{ratios[1]:7.2f}{goal:6.2f}"
            print(line + ("" if equal else "  NOT EQUAL"), flush=True)
    text = small()
    if not COMM.rank:
        print(text)


if __name__ == "__main__":
    main()
