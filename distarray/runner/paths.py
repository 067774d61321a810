"""Paths: those shared by the job, those of one rank, and those that have been written."""

import os
import re
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from distarray.runner.answers import Answers, Talk
from distarray.runner.caller import Caller
from distarray.runner.step import in_step

__all__ = ["File", "Path", "Paths", "absolute"]

#: Path as ``open`` takes it, and a path or a descriptor.
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
File = Path | int

#: Path in a directory to which all ranks write their own files, before it is renamed
#: (`distarray.io.directories`). Libraries write there from threads, whose caller is not visible.
_ASIDE = re.compile(r"/\.[^/]+\.partial(/|$)")


#: Process numbers, identifiers and similar text, which differ between ranks.
_NUMBER = re.compile(r"[0-9a-f]{8,}|[0-9]{3,}")


def absolute(path: File) -> str | None:
    """Return a path as an absolute string; None for a descriptor or an invalid path."""
    if isinstance(path, int):
        return None
    try:
        return os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return None


class Paths:
    """Record of the files that the job accesses; the same on every rank."""

    def __init__(self, talk: Talk, answers: Answers) -> None:
        self.talk = talk
        self.ask = answers.ask
        self.is_root = talk.rank == 0
        #: Paths that the job has opened for writing, and those opened for reading since the ranks
        #: last synchronized; other ranks may not yet have read the latter.
        self.written: set[str] = set()
        self.read: set[str] = set()
        #: Number of `alone` blocks that this rank is in.
        self.busy = 0
        self._writers: dict[str, list[weakref.ref[Any]]] = {}
        self._caches = _cache_directories()
        os.register_at_fork(after_in_child=self.leave)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Enter a block whose file accesses concern this rank alone."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    def leave(self) -> None:
        """Make all file accesses private in a forked child, which is not a rank."""
        self.busy = 1 << 30

    def is_private(self, path: str, who: Caller) -> bool:
        """Return True if every rank accesses a path for itself, as if it ran alone."""
        if path.startswith(("/dev/", "/proc/", "/sys/")) or _ASIDE.search(path):
            return True
        return who is not Caller.PROGRAM and self._is_cache(path)

    def ask_about(self, path: str | None, who: Caller, act: Callable[[], Any]) -> Any:
        """Return rank 0's result of `act` on all ranks, or raise its exception.

        The program makes its queries in one order on all ranks. A library may make more queries on
        one rank, because its caches differ. So the path distinguishes its queries; numbers in names
        are masked, since they may be specific to a process.
        """
        if who is Caller.PROGRAM or path is None:
            return self.ask(act)
        return self.ask(act, _NUMBER.sub("#", path))

    def settle(self, path: str) -> None:
        """Wait until rank 0 has written all data that the program has written to a path so far."""
        if in_step():
            self.flush(path)
            self.ask(lambda: None)

    def meet_readers(self, *paths: str | None, below: bool = False) -> None:
        """Wait for all ranks before rank 0 changes a path that they may be about to read."""
        if not self.read or not in_step():
            return
        found = any(path in self.read for path in paths)
        if below:
            found = any(_below(read, path) for path in paths if path for read in self.read)
        if found:
            self.read.clear()
            self.talk.barrier()

    def flush(self, path: str) -> None:
        """Flush this rank's open files for a path."""
        for reference in self._writers.get(path, ()):
            file = reference()
            if file is not None and not file.closed:
                file.flush()

    def note_writer(self, path: str, file: IO[Any]) -> IO[Any]:
        """Record an open file, to flush it before the path is read."""
        alive = [r for r in self._writers.get(path, ()) if (f := r()) is not None and not f.closed]
        self._writers[path] = [*alive, weakref.ref(file)]
        return file

    def note_written(self, path: str) -> None:
        """Record that the job writes a path."""
        self.written.add(path)

    def _is_cache(self, path: str) -> bool:
        """Return True if a library keeps files here between runs, and locks and checks them."""
        if "/__pycache__/" in path or "/site-packages/" in path:
            return True
        here = os.getcwd()
        return any(_below(path, cache) and not _below(path, here) for cache in self._caches)


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _cache_directories() -> list[str]:
    """Return the user's dot directories, caches named by the environment, and the installation."""
    home = os.path.expanduser("~")
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR")
    named = [os.path.abspath(os.environ[name]) for name in names if os.environ.get(name)]
    dots = [os.path.join(home, name) for name in (".cache", ".config", ".local", ".matplotlib")]
    matplotlib = os.path.join(tempfile.gettempdir(), "matplotlib")
    return [*named, *dots, sys.prefix, matplotlib]
