"""Outputs of a cell: rank 0 sends its text and pictures to the kernel; other ranks send nothing.

Text, displays and results travel as one kind of message each with a mark, so that the kernel shows
them in the order in which the cell has made them.
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

#: The key in a message's metadata that says what it is.
MARK = "distarray"
#: Seconds for which text is collected before it is sent.
_PAUSE = 0.05
_real_sleep = time.sleep
_real_clock = time.monotonic
#: The content of a message by MIME type, or its metadata.
Data: TypeAlias = dict[str, Any]
_nothing: Callable[..., None] = lambda *args, **kwargs: None  # noqa: E731 (in place of several)


class Text(io.TextIOBase):
    """A stream of the program that is published piece by piece."""

    encoding = "utf-8"

    def __init__(self, name: str, publish: Callable[..., None]) -> None:
        self.name = name
        self._publish = publish
        self._pieces: list[str] = []
        self._lock = threading.RLock()
        self._sent = 0.0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, text: str) -> int:
        """Write text; a line that comes some time after the last one is sent at once."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            self._pieces.append(text)
            if "\n" in text and _real_clock() - self._sent > _PAUSE:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Send what has been written."""
        with self._lock:
            text, self._pieces = "".join(self._pieces), []
            if text:
                self._sent = _real_clock()
                self._publish({"text/plain": text}, {MARK: {"kind": self.name}})


def install(shell: Shell, rank: int) -> None:
    """Let rank 0 publish what this shell shows, or nobody if this is another rank.

    The other ranks compute what is to be displayed, which may take all of them, and drop it.
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
    if rank == 0:  # without a thread, outputs come at the end of their cell
        thread_start.try_start(threading.Thread(target=_flush_for_ever, args=(flush,), daemon=True))


def _null() -> io.TextIOBase:
    return open(os.devnull, "w", encoding="utf-8")


def _flush_for_ever(flush: Callable[[], None]) -> None:
    while True:
        _real_sleep(_PAUSE)
        with contextlib.suppress(Exception):  # the interpreter is ending
            flush()
