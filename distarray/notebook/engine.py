"""``python -m distarray.notebook.engine``: an engine of ipyparallel that is a rank.

The engine imports the modules of a rank and starts MPI before it registers, while the kernel waits
for the controller. An engine ends with the kernel that has started it, however the kernel ends.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from distarray.notebook.shapes import Argument

__all__ = ["KERNEL", "call", "main", "prepare"]

#: Environment variable with the process number of the kernel.
KERNEL = "DISTARRAY_KERNEL"
#: Seconds between two checks whether the kernel's process exists.
_PAUSE = 2.0


def end_with_kernel() -> None:
    """End this process when the kernel's process has ended, if it runs on the same node."""
    kernel = os.environ.get(KERNEL, "")
    began = _began(kernel)
    if not began:
        return

    def watch(sleep: Callable[[float], None] = time.sleep) -> None:
        while _began(kernel) == began:
            sleep(_PAUSE)
        os.kill(os.getpid(), signal.SIGTERM)  # a controller ends its own processes by it, too
        sleep(_PAUSE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _began(process: str) -> str:
    """Return the start time of a process; empty if it has ended, or never existed."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]


def call(name: str, *args: Argument) -> Any:
    """Call a function of `cells` by its name; the kernel does not import `cells` itself."""
    return getattr(prepare(), name)(*args)


def prepare() -> Any:
    """Return the module `cells`, imported after the functions that the runner replaces first.

    Raises
    ------
    RuntimeError
        If NumPy was imported on this engine before.
    """
    if "distarray.notebook.cells" not in sys.modules:
        from distarray.runner.files import FILES

        FILES.install()  # before NumPy is imported, which keeps references to `open`
        import_module("distarray.ops.random")  # imported here, faster than later in a program
    return import_module("distarray.notebook.cells")


def main() -> None:
    """Run an engine, or with ``controller`` as the first argument the controller."""
    end_with_kernel()
    if sys.argv[1:2] == ["controller"]:
        del sys.argv[1]
        from ipyparallel.controller.app import main as run
    else:
        prepare()
        from distarray.comm.mesh import default_mesh

        default_mesh()
        from ipyparallel.engine.app import main as run
    run()


if __name__ == "__main__":
    main()
