"""``python -m benchmarks.notebook [ranks [times]]``: how long a notebook waits for its first cell.

Each time a kernel is started anew, and asked for cells of its own, for ``%load_ext distarray``, for
a cell that starts the ranks, for cells that find them, and for other ranks. What the kernel itself
takes to start is not counted: Jupyter takes that anyway, as it does the time of plain cells. Of
later cells it is also told how much of their time is not the ranks' own, by rank 0's clock.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from jupyter_client.manager import KernelManager

FIRST = "import numpy as np\nx = np.arange(300_000.0)\nprint(x.sum())"
TIMED = """
from time import perf_counter
def timed():
    began = perf_counter()
    total = float((2 * x).sum())
    return perf_counter() - began
"""
LATER, TOOK = "took = timed()", "print(took)"
REPEATS = 20
PATIENCE = 120.0


def executed(client, source: str) -> tuple[float, str]:
    """The time until a cell has been executed, and what it has printed."""
    printed = ""
    began = time.perf_counter()
    asked = client.execute(source)
    while True:
        message = client.get_iopub_msg(timeout=PATIENCE)
        if message["parent_header"].get("msg_id") != asked:
            continue
        if message["msg_type"] == "error":
            raise RuntimeError("\n".join(message["content"]["traceback"]))
        printed += message["content"].get("text", "")
        if message["content"].get("execution_state") == "idle":
            return time.perf_counter() - began, printed


def seconds(client, source: str) -> float:
    """The time until a cell has been executed."""
    return executed(client, source)[0]


def later_cell(client) -> tuple[float, float]:
    """The time that a later cell takes, and how much of it is not rank 0's own."""
    taken = seconds(client, LATER)
    return taken, taken - float(executed(client, TOOK)[1])


def measured(home: Path, ranks: int) -> Iterator[tuple[str, float]]:
    """The phases of one kernel, and the seconds that they take."""
    places = ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR")
    own = {name: str(home / name.lower()) for name in places}
    manager = KernelManager()
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel(cwd=home, env={**os.environ, **own, "DISTARRAY_RANKS": str(ranks)})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield "plain cells", median([seconds(client, "None") for _ in range(REPEATS)])
        yield "load the extension", seconds(client, "%load_ext distarray")
        yield "first cell", seconds(client, FIRST)
        seconds(client, TIMED)
        taken, beyond = zip(*[later_cell(client) for _ in range(REPEATS)], strict=True)
        yield "later cells", median(taken)
        yield "beyond the ranks'", median(beyond)
        yield "other ranks", seconds(client, "%distarray restart")
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def main() -> None:
    ranks, times = [int(word) for word in (sys.argv[1:] + ["4", "5"][len(sys.argv) - 1 :])]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(times):
            for name, taken in measured(Path(home), ranks):
                found.setdefault(name, []).append(taken)
    print(f"{ranks} ranks on {os.cpu_count()} cores, {times} kernels: seconds, least and median")
    for name, several in found.items():
        print(f"{name:20} {min(several):8.3f} {median(several):8.3f}")


if __name__ == "__main__":
    main()
