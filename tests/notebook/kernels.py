"""A real Jupyter kernel for a test: what a cell shows, and how long it takes."""

from __future__ import annotations

import contextlib
import queue
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.launcher import environment

#: Seconds for a cell, the start of ranks included, on a machine that other tests share.
PATIENCE = 90.0


@dataclass
class Shown:
    """What a cell has shown."""

    out: str = ""
    err: str = ""
    #: The names of errors, and the last one's traceback.
    errors: list[str] = field(default_factory=list)
    traceback: str = ""
    #: Results and displays, as data by type, and their numbers.
    results: list[dict[str, Any]] = field(default_factory=list)
    displays: list[dict[str, Any]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The only result as text."""
        (result,) = self.results
        return result["text/plain"]

    def take(self, kind: str, content: dict[str, Any]) -> None:
        """Take a message of the kernel's."""
        if kind == "stream" and content["name"] == "stdout":
            self.out += content["text"]
        elif kind == "stream":
            self.err += content["text"]
        elif kind == "error":
            self.errors.append(content["ename"])
            self.traceback = "\n".join(content["traceback"])
        elif kind == "execute_result":
            self.results.append(content["data"])
            self.counts.append(content["execution_count"])
        elif kind == "display_data":
            self.displays.append(content["data"])


class Kernel:
    """A kernel and the ranks that it starts."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client

    def run(self, source: str, interrupt_after: float | None = None) -> Shown:
        """Execute a cell; it is interrupted when it has run for some seconds."""
        shown, began = Shown(), time.monotonic()
        asked = self.client.execute(source)
        while time.monotonic() - began < PATIENCE:
            if interrupt_after is not None and time.monotonic() - began > interrupt_after:
                self.manager.interrupt_kernel()
                interrupt_after = None
            with contextlib.suppress(queue.Empty):
                message = self.client.get_iopub_msg(timeout=0.1)
                if message["parent_header"].get("msg_id") != asked:
                    continue
                content = message["content"]
                if message["msg_type"] == "status" and content["execution_state"] == "idle":
                    shown.seconds = time.monotonic() - began
                    return shown
                shown.take(message["msg_type"], content)
        raise TimeoutError(f"{source!r} has shown {shown} within {PATIENCE} s")

    def complete(self, text: str) -> list[str]:
        """The completions at the end of a text; a busy machine may be too slow at first."""
        found: list[str] = []
        until = time.monotonic() + PATIENCE
        while not found and time.monotonic() < until:
            reply = self.client.complete(text, reply=True, timeout=PATIENCE)
            found = reply["content"]["matches"]
        return found


def settings(home: Path, **more: str) -> dict[str, str]:
    """The environment of a kernel that keeps its files in a directory."""
    places = {
        name: str(home / name.lower())
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR")
    }
    return environment(PYTHONWARNINGS="", MPLCONFIGDIR=str(home / "mpl"), **places, **more)


@contextlib.contextmanager
def a_kernel(home: Path, **more: str) -> Iterator[Kernel]:
    """A kernel in a directory, with our extension."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel(cwd=str(home), env=settings(home, **more))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        kernel = Kernel(manager, client)
        assert not kernel.run("%load_ext distarray").errors
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
