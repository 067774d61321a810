"""Commands that run beside the program: rank 0 starts them, and all ranks get its results.

A command that the program waits for (``subprocess.run``) is one action of rank 0 (see `disk`). This
module has ``subprocess.Popen`` and ``os.popen``, for commands that exchange data with the program.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import GenericAlias, TracebackType
from typing import IO, Any

from distarray.runner.answers import Answers
from distarray.runner.imports import belongs_to_program, replace
from distarray.runner.standing import put_in_place
from distarray.runner.step import in_step

__all__ = ["install"]

_real_popen = os.popen


class Stream:
    """One end of rank 0's pipe to a command."""

    def __init__(self, answers: Answers, real: IO[Any] | None) -> None:
        self._answers = answers
        self._real: Any = real
        self.closed = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ("flush", "read", "readline", "readlines", "write", "writelines"):
            raise AttributeError(f"a pipe of rank 0's to a command has no {name}")
        return partial(self._do, name)

    def _do(self, name: str, *args: Any) -> Any:
        return self._answers.ask(lambda: getattr(self._real, name)(*args))

    def close(self) -> Any:
        """Close the pipe."""
        self.closed = True
        return self._do("close")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.readline, self.readline(0))  # up to an empty line, of text or of bytes

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class Popen:
    """Command of the program that rank 0 runs, as ``subprocess.Popen``."""

    __class_getitem__: Any = classmethod(GenericAlias)
    answers: Answers

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Start a command; code not in step, and a child process, starts one of its own."""
        if in_step():
            return super().__new__(cls)
        return subprocess.Popen(*args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._real: Any = None
        self.pid, self.args, ends = self.answers.ask(lambda: self._start(args, kwargs))
        self.returncode: int | None = None
        streams = [getattr(self._real, name, None) for name in ("stdin", "stdout", "stderr")]
        self.stdin, self.stdout, self.stderr = [
            Stream(self.answers, stream) if there else None
            for stream, there in zip(streams, ends, strict=True)
        ]

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, Any, list[bool]]:
        given = [_own(value) for value in args]
        real = self._real = subprocess.Popen(
            *given, **{name: _own(value) for name, value in kwargs.items()}
        )
        ends = (real.stdin, real.stdout, real.stderr)
        return real.pid, real.args, [end is not None for end in ends]

    def _do(self, name: str, *args: Any) -> Any:
        def act() -> Any:
            try:
                return getattr(self._real, name)(*args), self._real.returncode
            finally:
                self.returncode = self._real.returncode

        result, self.returncode = self.answers.ask(act)
        return result

    def poll(self) -> Any:
        """Check if the command has ended."""
        return self._do("poll")

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the command to end."""
        return self._do("wait", timeout)

    def communicate(self, input: str | bytes | None = None, timeout: float | None = None) -> Any:
        """Send input, read to the end, and wait."""
        return self._do("communicate", input, timeout)

    def send_signal(self, signal: int) -> None:
        """Send a signal to the command."""
        self._do("send_signal", signal)

    def terminate(self) -> None:
        """Send SIGTERM to the command."""
        self._do("terminate")

    def kill(self) -> None:
        """Send SIGKILL to the command."""
        self._do("kill")

    def __enter__(self) -> "Popen":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._do("__exit__", kind, None, None)


def _own(value: Any) -> Any:
    """Return an argument as rank 0's command takes it."""
    return value._real if isinstance(value, Stream) else value


def install(answers: Answers) -> None:
    """Make rank 0 start the program's commands."""

    def popen(cmd: str, mode: str = "r", buffering: int = -1) -> Any:
        if not belongs_to_program(sys._getframe(1)) or not in_step():
            return _real_popen(cmd, mode, buffering)
        stream = Stream(answers, None)

        def start() -> None:
            stream._real = _real_popen(cmd, mode, buffering)

        answers.ask(start)
        return stream

    Popen.answers = answers
    replace(subprocess, Popen=Popen)
    put_in_place(os, "popen", popen)
