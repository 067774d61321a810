"""Ways of moving sections between ranks, compared: what `Group.exchange` is built on.

    mpiexec -n 2 python benchmarks/exchange_methods.py [MiB]

Each rank holds an equal part of a float64 array and gives every other rank its share of another
cut. Times are the slowest rank's, in milliseconds, median and minimum; the rank's own part is
copied by NumPy in all methods. "copy" is a plain NumPy copy of the block, for scale.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from mpi4py import MPI

from distarray.comm import datatypes
from distarray.comm.datatypes import message, message_parts, strided_datatype

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
REPEATS = 15
Views = dict[int, np.ndarray]
datatypes.PACK_BELOW = 0  # derived datatypes for all views: the comparison decides where to pack


def typed(sends: Views, receives: Views) -> None:
    """Non-blocking messages with derived datatypes, straight from and into the blocks."""
    requests = [COMM.Irecv(spec(view), peer, 1) for peer, view in receives.items()]
    requests += [COMM.Isend(spec(view), peer, 1) for peer, view in sends.items()]
    MPI.Request.Waitall(requests)


def packed(sends: Views, receives: Views) -> None:
    """Non-blocking messages, packed and unpacked by NumPy."""
    landing = {peer: np.empty(view.shape) for peer, view in receives.items()}
    requests = [COMM.Irecv(block, peer, 2) for peer, block in landing.items()]
    parcels = [np.ascontiguousarray(view) for view in sends.values()]
    requests += [COMM.Isend(p, peer, 2) for p, peer in zip(parcels, sends, strict=True)]
    MPI.Request.Waitall(requests)
    for peer, view in receives.items():
        view[...] = landing[peer]


def half_packed(sends: Views, receives: Views) -> None:
    """Packed by NumPy on the sending side, received with derived datatypes."""
    requests = [COMM.Irecv(spec(view), peer, 3) for peer, view in receives.items()]
    parcels = [np.ascontiguousarray(view) for view in sends.values()]
    requests += [COMM.Isend(p, peer, 3) for p, peer in zip(parcels, sends, strict=True)]
    MPI.Request.Waitall(requests)


def alltoallw(sends: Views, receives: Views) -> None:
    """One collective with derived datatypes."""
    COMM.Alltoallw(relative(sends), relative(receives))


def alltoallv(sends: Views, receives: Views) -> None:
    """One collective on packed buffers."""
    outgoing = np.concatenate([view.ravel() for view in sends.values()])
    incoming = np.empty(sum(view.size for view in receives.values()))
    counts = [
        [part[peer].size if peer in part else 0 for peer in range(SIZE)]
        for part in (sends, receives)
    ]
    COMM.Alltoallv((outgoing, counts[0]), (incoming, counts[1]))
    start = 0
    for view in receives.values():
        view[...] = incoming[start : start + view.size].reshape(view.shape)
        start += view.size


def spec(view: np.ndarray) -> object:
    """A message that is never packed."""
    if view.flags.c_contiguous:
        return message(view)
    corner = view[(slice(0, 1),) * view.ndim].reshape(-1)
    return corner, 1, strided_datatype(view)


def relative(views: Views) -> list[object]:
    """The block, counts, byte displacements and types for Alltoallw."""
    counts, displacements, types = [0] * SIZE, [0] * SIZE, [MPI.DOUBLE] * SIZE
    block = next(iter(views.values()))
    block = block if block.base is None else block.base
    for peer, view in views.items():
        if view.flags.c_contiguous:
            _, counts[peer], types[peer] = message_parts(view)
        else:
            counts[peer], types[peer] = 1, strided_datatype(view)
        displacements[peer] = address(view) - address(block)
    return [block, counts, displacements, types]


def address(view: np.ndarray) -> int:
    """Where the first element lies."""
    return view.__array_interface__["data"][0]


METHODS = [typed, packed, half_packed, alltoallw, alltoallv]


def cases(n: int) -> Iterator[tuple[str, np.ndarray, Views, np.ndarray, Views]]:
    """Name, source block, what goes to whom, target block, what comes from whom."""
    m = n // SIZE
    rows, columns = np.random.default_rng(RANK).random((m, n)), np.empty((n, m))
    yield (
        "rows to columns",
        rows,
        {p: rows[:, p * m : (p + 1) * m] for p in range(SIZE)},
        columns,
        {p: columns[p * m : (p + 1) * m] for p in range(SIZE)},
    )
    back = np.empty((m, n))
    yield (
        "columns to rows",
        columns,
        {p: columns[p * m : (p + 1) * m] for p in range(SIZE)},
        back,
        {p: back[:, p * m : (p + 1) * m] for p in range(SIZE)},
    )
    for width in (1, 8, 128, 512):
        thin = n * m // (width * SIZE)
        narrow = np.random.default_rng(RANK).random((thin, width * SIZE))
        tall = np.empty((thin * SIZE, width))
        yield (
            f"runs of {width}",
            narrow,
            {p: narrow[:, p * width : (p + 1) * width] for p in range(SIZE)},
            tall,
            {p: tall[p * thin : (p + 1) * thin] for p in range(SIZE)},
        )
    edge = rows[:1]
    halo = np.empty((2, n))
    up, down = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    yield "one row to a neighbour", rows, {up: edge}, halo, {down: halo[:1]}
    side = np.empty((m, 1))
    yield "one column to a neighbour", rows, {up: rows[:, :1]}, side, {down: side}


def measure(move: Callable[[], None], repeats: int = REPEATS) -> tuple[float, float]:
    """Median and minimum seconds of the slowest rank."""
    times = []
    for _ in range(repeats):
        COMM.Barrier()
        start = time.perf_counter()
        move()
        times.append(COMM.allreduce(time.perf_counter() - start, MPI.MAX))
    return statistics.median(times), min(times)


def main() -> None:
    """Print one table."""
    mib = float(sys.argv[1]) if len(sys.argv) > 1 else 32
    n = int((mib * 2**20 / 8) ** 0.5) // (16 * SIZE) * (16 * SIZE)
    say(f"{MPI.Get_library_version().splitlines()[0].strip()}, {SIZE} ranks, {n} x {n} float64, "
        f"{n * n * 8 / 2**20:.1f} MiB in all; ms, median (minimum)")  # fmt: skip
    say(f"{'':<27}{'copy':>16}" + "".join(f"{method.__name__:>16}" for method in METHODS))
    for name, source, sends, target, receives in cases(n):
        line = f"{name:<27}" + shown(*measure(lambda source=source: source.copy()))
        own_out, own_in = sends.pop(RANK, None), receives.pop(RANK, None)
        want = None
        for method in METHODS:

            def move(method=method, sends=sends, receives=receives, out=own_out, into=own_in):
                if into is not None:
                    into[...] = out
                method(sends, receives)

            target.fill(-1)
            move()
            want = target.copy() if want is None else want
            if not np.array_equal(target, want):
                raise SystemExit(f"{method.__name__} moved {name} wrongly")
            line += shown(*measure(move))
        say(line)


def shown(median: float, least: float) -> str:
    """Milliseconds."""
    return f"{f'{median * 1e3:.3f} ({least * 1e3:.3f})':>16}"


def say(text: str) -> None:
    """Print once."""
    if RANK == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
