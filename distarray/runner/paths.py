"""Paths: those that the job shares, those of a rank's own, and those that have been written."""

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

#: A path as ``open`` takes it, and a path or a descriptor.
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
File = Path | int

#: A path in a directory to which all ranks write files of their own, before it is renamed
#: (`distarray.io.directories`). Libraries write there from threads, whose caller is not visible.
_ASIDE = re.compile(r"/\.[^/]+\.partial(/|$)")


#: Process numbers, identifiers and the like, which differ between ranks.
_NUMBER = re.compile(r"[0-9a-f]{8,}|[0-9]{3,}")


def absolute(path: File) -> str | None:
    """A path as an absolute string; None for a descriptor, and for what is no path."""
    if isinstance(path, int):
        return None
    try:
        return os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return None


class Paths:
    """The job's record of the files that it touches; the same on every rank."""

    def __init__(self, talk: Talk, answers: Answers) -> None:
        self.talk = talk
        self.ask = answers.ask
        self.is_root = talk.rank == 0
        #: Paths that the job has opened for writing, and those that it has opened for reading since
        #: the ranks last met; other ranks may still have to read these.
        self.written: set[str] = set()
        self.read: set[str] = set()
        #: The number of `alone` blocks that this rank is in.
        self.busy = 0
        self._writers: dict[str, list[weakref.ref[Any]]] = {}
        self._caches = _cache_directories()
        os.register_at_fork(after_in_child=self.leave)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A block whose file accesses concern this rank alone."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    def leave(self) -> None:
        """In a forked child, which is no rank: all its file accesses are its own."""
        self.busy = 1 << 30

    def is_private(self, path: str, who: Caller) -> bool:
        """Whether every rank touches a path for itself, as if it ran alone."""
        if path.startswith(("/dev/", "/proc/", "/sys/")) or _ASIDE.search(path):
            return True
        return who is not Caller.PROGRAM and self._is_cache(path)

    def ask_about(self, path: str | None, who: Caller, act: Callable[[], Any]) -> Any:
        """The result of `act` on rank 0, or its exception.

        The program asks in one order on all ranks. A library may have asked more on a rank, whose
        caches are others, so that its questions are told apart by their paths; names may contain
        numbers that are a process's own.
        """
        if who is Caller.PROGRAM or path is None:
            return self.ask(act)
        return self.ask(act, _NUMBER.sub("#", path))

    def settle(self, path: str) -> None:
        """Wait until rank 0 has written all that the program has written to a path so far."""
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
        """Flush this rank's open files on a path."""
        for reference in self._writers.get(path, ()):
            file = reference()
            if file is not None and not file.closed:
                file.flush()

    def note_writer(self, path: str, file: IO[Any]) -> IO[Any]:
        """Remember an open file, to flush it before someone reads the path."""
        alive = [r for r in self._writers.get(path, ()) if (f := r()) is not None and not f.closed]
        self._writers[path] = [*alive, weakref.ref(file)]
        return file

    def note_written(self, path: str) -> None:
        """Remember that the job writes a path."""
        self.written.add(path)

    def _is_cache(self, path: str) -> bool:
        """Whether a library keeps files here between runs, which it locks and checks itself."""
        if "/__pycache__/" in path or "/site-packages/" in path:
            return True
        here = os.getcwd()
        return any(_below(path, cache) and not _below(path, here) for cache in self._caches)


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _cache_directories() -> list[str]:
    """The user's dot directories, the caches that the environment names, the installation."""
    home = os.path.expanduser("~")
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR")
    named = [os.path.abspath(os.environ[name]) for name in names if os.environ.get(name)]
    dots = [os.path.join(home, name) for name in (".cache", ".config", ".local", ".matplotlib")]
    matplotlib = os.path.join(tempfile.gettempdir(), "matplotlib")
    return [*named, *dots, sys.prefix, matplotlib]
