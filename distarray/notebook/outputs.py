"""Outputs of a cell: rank 0 sends its text and pictures to the kernel; other ranks send nothing.

Text, displays and results are messages of one kind, each with a mark. So the kernel shows them in
the order in which the cell has made them.
"""

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from distarray.comm import thread_start
from distarray.notebook.shapes import Shell

__all__ = ["MARK", "install"]

#: Key in a message's metadata that identifies the kind of its content.
MARK = "distarray"
#: Seconds for which text is collected before it is sent.
_PAUSE = 0.05
_real_sleep = time.sleep
_real_clock = time.monotonic
#: Content of a message by MIME type, or its metadata.
Data: TypeAlias = dict[str, Any]
_nothing: Callable[..., None] = lambda *args, **kwargs: None  # noqa: E731 (in place of several)


class Text(io.TextIOBase):
    """Stream of the program that is published in pieces."""

    encoding = "utf-8"

    def __init__(self, name: str, publish: Callable[..., None]) -> None:
        self.name = name
        self._publish = publish
        self._pieces: list[str] = []
        self._lock = threading.RLock()
        self._sent = 0.0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write text; a line is sent at once if none was sent within the last `_PAUSE` seconds."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            self._pieces.append(text)
            if "\n" in text and _real_clock() - self._sent > _PAUSE:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Send the text written so far."""
        with self._lock:
            text, self._pieces = "".join(self._pieces), []
            if text:
                self._sent = _real_clock()
                self._publish({"text/plain": text}, {MARK: {"kind": self.name}})


def install(shell: Shell, rank: int) -> None:
    """Make rank 0 publish the outputs of this shell; on other ranks drop them.

    The other ranks compute the outputs, too, because that may require all ranks.
    """
    pub, hook = shell.display_pub, shell.displayhook
    send = pub.publish if rank == 0 else _nothing
    streams = [Text(name, send) if rank == 0 else _null() for name in ("stdout", "stderr")]
    sys.stdout, sys.stderr = streams

    def flush() -> None:
        for stream in streams:
            stream.flush()

    def publish(data: Data, metadata: Data | None = None, **how: Data | bool | None) -> None:
        flush()
        mark = {"kind": "display", "transient": how.get("transient"), "update": how.get("update")}
        send(data, {**(metadata or {}), MARK: mark})

    def clear_output(wait: bool = False) -> None:
        flush()
        send({}, {MARK: {"kind": "clear", "wait": wait}})

    def write_format_data(data: Data, metadata: Data | None = None) -> None:
        flush()
        send(data, {**(metadata or {}), MARK: {"kind": "result"}})

    pub.publish, pub.clear_output = publish, clear_output
    hook.write_format_data = write_format_data
    hook.start_displayhook = hook.write_output_prompt = hook.finish_displayhook = _nothing
    if rank == 0:  # without a thread, outputs are sent at the end of their cell
        thread_start.try_start(threading.Thread(target=_flush_for_ever, args=(flush,), daemon=True))


def _null() -> io.TextIOBase:
    return open(os.devnull, "w", encoding="utf-8")


def _flush_for_ever(flush: Callable[[], None]) -> None:
    while True:
        _real_sleep(_PAUSE)
        with contextlib.suppress(Exception):  # the interpreter is ending
            flush()
