"""One rank of one library: takes orders from the driver, and sleeps between them.

``python -m benchmarks.worker LIBRARY PORT``; the orders are pairs (name, arguments).
"""

import os
import socket
import sys
import timeit
import traceback
import tracemalloc
from time import perf_counter
from typing import Any

import numpy

from benchmarks.cases import CASES, Case
from benchmarks.libraries import STARTS, Library, done
from benchmarks.line import Line

__all__ = ["Bench"]


class Bench:
    """The orders, carried out on one rank; the driver sends each to all ranks of the job."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._names: dict[str, Any] = {}
        self._case: Case | None = None
        self._calls = 0

    def setup(self, case: Case, tiny: bool = False) -> None:
        """Make a case's arrays, and forget those of the one before."""
        self.end()
        self._case = None
        self._names.clear()
        sizes = case.tiny if tiny else case.sizes
        self._names.update(self._library.names, **sizes, p=self._library.ranks, numpy=numpy)
        self._names["done"] = done
        self._names["rng"] = numpy.random.default_rng(5)
        exec(case.setup, self._names)
        self._case = case

    def time(self, statement: str, inner: int, repeat: int) -> list[float]:
        """Seconds a call, `repeat` times; each the mean of `inner` calls after a barrier."""
        timer = timeit.Timer(f"done({statement})", timer=perf_counter, globals=self._names)
        seconds = []
        for _ in range(repeat):
            self.prepare()
            self._library.barrier()
            seconds.append(timer.timeit(inner) / inner)
        return seconds

    def prepare(self) -> None:
        """What comes before a repetition."""
        self._calls += 1
        self._names["i"] = self._calls
        assert self._case is not None
        exec(self._case.before, self._names)

    def end(self) -> None:
        """Let a case come to its end: what it has begun goes on until then."""
        if self._case is not None:
            exec(self._case.after, self._names)

    def messages(self, statement: str) -> tuple[int, int]:
        """Messages and bytes that this rank of distarray sends in one call."""
        from distarray import trace

        self.prepare()
        with trace() as book:
            exec(f"done({statement})", self._names)
        return book.messages, book.bytes

    def peak(self, statement: str) -> int:
        """Bytes of NumPy arrays in being at once during a call, beyond those before it."""
        self.prepare()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            exec(f"done({statement})", self._names)
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()


def serve(line: Line, bench: Bench) -> None:
    """Carry out orders until the driver hangs up; an error is an answer."""
    cases = {case.name: case for case in CASES}
    while True:
        try:
            order, arguments = line.receive()
        except EOFError:
            bench.end()
            return
        if order == "setup":
            arguments = [cases[arguments[0]]]
        try:
            line.send([True, getattr(bench, order)(*arguments)])
        except Exception:
            line.send([False, traceback.format_exc()])


def main() -> None:
    """Start the library and report to the driver."""
    name, port = sys.argv[1], int(sys.argv[2])
    library = STARTS[name]()
    line = Line(socket.create_connection(("127.0.0.1", port)))
    line.send({"key": os.environ["BENCHMARKS_KEY"], "rank": library.rank})
    try:
        serve(line, Bench(library))
    finally:
        line.close()


if __name__ == "__main__":
    main()
