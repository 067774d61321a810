"""NumPy's random numbers by several ranks, beside NumPy's own time for all of them in one process.

    mpiexec -n 2 python benchmarks/random_numbers.py [millions of numbers [repeats [words ...]]]

For each call the way that it takes; NumPy's time on rank 0 while the others sleep; the time in
which each rank draws its share with NumPy, at once, of which nothing could be put together (no
library can be faster on this machine); ours; and how many times as fast as NumPy these two are.
The three alternate, and of each the least time counts, as other programs disturb them. Where
others share the cores, the ratio of processor times tells more: what NumPy computes, and what the
rank computes that computes most, with waiting for messages. That the numbers and the state
afterwards are NumPy's is checked as well.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import distarray.numpy as dnp

COMM = MPI.COMM_WORLD
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


def spent(act: Callable[[], Any]) -> Times:
    """How long a call takes in seconds, and the processor's time."""
    begin, used = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - begin, time.process_time() - used


def together(act: Callable[[], Any]) -> Times:
    """The times of the slowest rank."""
    COMM.Barrier()
    wall, busy = spent(act)
    return COMM.allreduce(wall, MPI.MAX), COMM.allreduce(busy, MPI.MAX)


def alone(act: Callable[[], Any]) -> Times:
    """What rank 0 measures while the others sleep."""
    found = (0.0, 0.0) if COMM.rank else spent(act)
    request = COMM.Ibarrier()
    while not request.Test():
        time.sleep(0.01)
    return COMM.bcast(found)


def state_of(names: dict[str, Any], call: str) -> str:
    """Where the generator of a call stands."""
    source = names[call.partition(".")[0]]
    return repr(getattr(source, "_bit_generator", None).state)


def is_equal(call: str, n: int) -> bool:
    """Whether numbers and states are NumPy's, also those of a second call."""
    code = compile(call, "<call>", "eval")
    theirs, ours = made(np, n), made(dnp, n)
    equal = True
    for _ in range(2):
        found, wanted = eval(code, ours), eval(code, theirs)
        start, stop = found.layout.section(found.mesh.coords)[0]
        equal &= bool(np.array_equal(found.to_local(), wanted[start:stop]))
        equal &= state_of(ours, call) == state_of(theirs, call)
    return bool(COMM.allreduce(equal, MPI.LAND))


def row(call: str, n: int, repeats: int) -> list[Times]:
    """The least times of NumPy, of shares drawn by NumPy, and ours."""
    code = compile(call, "<call>", "eval")
    names = [made(np, n), made(np, n // COMM.size), made(dnp, n)]
    times = []
    for _ in range(repeats):
        ways = (alone, together, together)
        times.append([way(lambda own=own: eval(code, own)) for way, own in zip(ways, names)])
    return [tuple(np.min(own, axis=0)) for own in zip(*times)]


def small() -> str:
    """What 64 numbers take, with NumPy and here."""
    best = [np.inf, np.inf]
    sources = [space.random.default_rng(42) for space in (np, dnp)]
    for _ in range(50):
        for place, rng in enumerate(sources):
            wall, _ = spent(lambda rng=rng: [rng.standard_normal(64) for _ in range(200)])
            best[place] = min(best[place], wall * 5e3)
    return f"64 normals: NumPy {best[0]:.2f} us, ours {best[1]:.2f} us"


def main() -> None:
    given = sys.argv[1:]
    n = int(float(given[0]) * 1e6) if given else 8_000_000
    repeats = int(given[1]) if given[1:] else 9
    if not COMM.rank:
        print(f"{n} numbers, {COMM.size} ranks, NumPy {np.__version__}, best of {repeats}")
        print(f"{'':42s}{'milliseconds':^24s}{'times as fast':^16s}{'processor':^16s}")
        heads = ("NumPy", "shares", "ours", "shares", "ours", "shares", "ours", "goal")
        print(f"{'call':28s}{'way':14s}" + "".join([f"{head:>8s}" for head in heads]))
    for goal, call, way in CALLS:
        if given[2:] and not any(word in call for word in given[2:]):
            continue
        times, equal = np.array(row(call, n, repeats)), is_equal(call, n)
        if not COMM.rank:
            line = f"{call:28s}{way:14s}" + "".join([f"{wall * 1e3:8.1f}" for wall, _ in times])
            ratios = (times[0] / times[1:]).T.ravel()
            line += "".join([f"{ratio:8.2f}" for ratio in (*ratios, goal)])
            print(line + ("" if equal else "  NOT EQUAL"), flush=True)
    text = small()
    if not COMM.rank:
        print(text)


if __name__ == "__main__":
    main()
