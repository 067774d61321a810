"""What differs from process to process and must not from rank to rank: order, chance, the clock.

A program that branches on one of these would take different branches on different ranks, and the
ranks would wait for one another for ever.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from distarray.runner.imports import belongs_to_program
from distarray.runner.paths import Talk

__all__ = ["install", "same_order"]

CLOCKS = ("monotonic", "perf_counter", "process_time", "time")


def same_order() -> None:
    """Begin anew with a fixed hash seed, so that sets of strings have one order on all ranks.

    The seed is read when the interpreter starts, so this replaces the process, unless the
    environment has a seed already. To be called before MPI starts.
    """
    seed = os.environ.get("PYTHONHASHSEED", "random")
    if seed == "random" and not sys.flags.ignore_environment and sys.executable:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def install(talk: Talk) -> None:
    """Seed `random` alike, and NumPy's for libraries; let the program read rank 0's clock."""
    import numpy as np  # not before `open` has been replaced, which NumPy keeps in tables

    seed = talk.broadcast_object(os.urandom(32), 0)
    random.seed(seed)
    np.random.seed(np.frombuffer(seed, np.uint32))  # noqa: NPY002 (what libraries draw from)
    process = os.getpid()
    for name in (*CLOCKS, *(f"{name}_ns" for name in CLOCKS)):
        setattr(time, name, _shared(getattr(time, name), talk, process))


def _shared(clock: Callable[[], Any], talk: Talk, process: int) -> Callable[[], Any]:
    """A clock that shows the program rank 0's time; libraries, threads and children their own."""
    main = threading.main_thread()

    def read() -> Any:
        alone = threading.current_thread() is not main or os.getpid() != process
        if alone or not belongs_to_program(sys._getframe(1)):
            return clock()
        return talk.broadcast_object(clock(), 0)

    return update_wrapper(read, clock)
