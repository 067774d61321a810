"""The file system besides ``open``: rank 0 asks and acts, and every rank gets its answer.

What the program does to the file system (``os.mkdir``, ``os.remove``, ``shutil.copy``, a command it
runs) is done by rank 0 with the outcome, an exception included, shared. What it asks (``os.stat``
and so ``os.path.exists``, ``os.listdir``, ``glob``) rank 0 answers for all: another rank might
already see what rank 0 did later in the program, and take another branch. Libraries are left
alone, except that on the other ranks they cannot remove or rename what these have not written.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from distarray.runner.caller import Caller, caller
from distarray.runner.paths import Paths, absolute
from distarray.runner.standing import put_in_place

__all__ = ["Disk"]

#: os functions that change what is at one path, and those that go from one path to another.
CHANGES = ("chmod", "chown", "mkdir", "mkfifo", "remove", "rmdir", "truncate", "unlink", "utime")
MOVES = ("link", "rename", "replace", "symlink")
#: os functions that ask.
QUESTIONS = ("access", "listdir", "lstat", "readlink", "stat", "statvfs")
#: Whole jobs, with what they do inside; the last argument that is a path says where.
SHUTIL_AT_ONE = ("chown", "make_archive", "rmtree", "unpack_archive")
SHUTIL_TO_ANOTHER = (
    "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "move",
)  # fmt: skip
COMMANDS = ("call", "check_call", "check_output", "getoutput", "getstatusoutput", "run")

#: os says by membership which functions take what.
_SUPPORTS: tuple[set[Any], ...] = (
    os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks,
)  # fmt: skip
_ALONE = (Caller.MACHINERY, Caller.TEMPORARY)
Function = Callable[..., Any]


class Disk:
    """Stands in for the functions above on one rank of the job."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    def install(self) -> None:
        """Replace the functions in ``os``, ``shutil`` and ``subprocess``."""
        self._replace(os, CHANGES, self.change, 0)
        self._replace(os, MOVES, self.change, 1)
        self._replace(os, QUESTIONS, self.ask)
        self._replace(os, ("scandir",), self.scan)
        self._replace(os, ("system",), self.command)
        self._replace(shutil, SHUTIL_AT_ONE, self.whole, 0)
        self._replace(shutil, SHUTIL_TO_ANOTHER, self.whole, 1)
        self._replace(subprocess, COMMANDS, self.command)

    def _replace(
        self, module: ModuleType, names: tuple[str, ...], method: Function, *rest: Any
    ) -> None:
        for name in names:
            real = getattr(module, name, None)
            if real is None:
                continue
            put_in_place(module, name, _called(method, real, *rest))
            for supporting in _SUPPORTS:
                if real in supporting:
                    supporting.add(getattr(module, name))

    def on_root(self, act: Callable[[], Any]) -> Any:
        """Rank 0 does it; its result or exception is everybody's."""

        def alone() -> Any:
            with self.paths.alone():
                return act()

        return self.paths.ask(alone)

    def change(self, real: Function, target: int, /, *args: Any, **kwargs: Any) -> Any:
        """Change a path (argument number `target`), or make it from another."""
        path = self._path(args, kwargs, target)
        who = caller(3)
        if path is None or self.paths.busy:
            return real(*args, **kwargs)
        if who is Caller.TEMPORARY and real.__name__ == "mkdir":
            real(*args, **kwargs)
            self.paths.private.add(path)
            return None
        if who in _ALONE or self.paths.is_private(path, who):
            return real(*args, **kwargs)
        if who is Caller.PROGRAM:
            self.paths.meet_readers(path, absolute(args[0]) if args else None, below=target == 1)
            return self.on_root(lambda: real(*args, **kwargs))
        return self._change_by_library(real, path, args, kwargs)

    def _change_by_library(self, real: Function, path: str, args: Any, kwargs: Any) -> Any:
        """On the other ranks, what rank 0 alone has written is not there to be changed."""
        source = absolute(args[0]) if args else path
        if source not in self.paths.written:
            return real(*args, **kwargs)
        self.paths.note_written(path)
        return real(*args, **kwargs) if self.paths.is_root else None

    def ask(self, real: Function, /, *args: Any, **kwargs: Any) -> Any:
        """Ask about a path."""
        path = self._path(args, kwargs, 0)
        if path is None or self.paths.busy:
            return real(*args, **kwargs)
        who = caller(3)
        if who in _ALONE or self.paths.is_private(path, who):
            return real(*args, **kwargs)
        if who is Caller.PROGRAM:
            return self.on_root(lambda: real(*args, **kwargs))
        if path in self.paths.written:
            self.paths.settle(path)
        return real(*args, **kwargs)

    def scan(self, real: Function, /, path: Any = None) -> Any:
        """``os.scandir``: the entries as rank 0 sees them."""
        where = self._path((path,), {}, 0)
        if where is None or self.paths.busy or caller(3) is not Caller.PROGRAM:
            return real(path)
        if self.paths.is_private(where, Caller.PROGRAM):
            return real(path)
        return Entries(self.on_root(lambda: [Entry.of(entry) for entry in real(path)]))

    def whole(self, real: Function, target: int, /, *args: Any, **kwargs: Any) -> Any:
        """A function of `shutil`, as one act of rank 0."""
        path = self._path(args, kwargs, target)
        if self.paths.busy or caller(3) is not Caller.PROGRAM:
            return real(*args, **kwargs)
        if path is not None and self.paths.is_private(path, Caller.PROGRAM):
            return real(*args, **kwargs)
        self.paths.meet_readers(path, absolute(args[0]) if args else None, below=True)
        return self.on_root(lambda: real(*args, **kwargs))

    def command(self, real: Function, /, *args: Any, **kwargs: Any) -> Any:
        """A command that the program runs and waits for; or something else that is done once."""
        if self.paths.busy or caller(3) is not Caller.PROGRAM:
            return real(*args, **kwargs)
        return self.on_root(lambda: real(*args, **kwargs))

    def _path(self, args: Any, kwargs: Any, target: int) -> str | None:
        """The path that a call is about; None if it goes by descriptors."""
        if any(kwargs.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
            return None
        names = ("dst", "path") if target else ("path", "src", "base_name")
        named = next((kwargs[name] for name in names if name in kwargs), ".")
        given = args[target] if len(args) > target else named
        return absolute("." if given is None else given)


def _called(method: Function, real: Function, *rest: Any) -> Function:
    def function(*args: Any, **kwargs: Any) -> Any:
        return method(real, *rest, *args, **kwargs)

    return function


@dataclass(frozen=True)
class Entry:
    """One entry of a directory, as `os.DirEntry` describes it, that can be sent."""

    name: Any
    path: Any
    kinds: tuple[bool, bool, bool, bool, bool]
    number: int
    stats: tuple[os.stat_result | None, os.stat_result | None]

    @classmethod
    def of(cls, entry: "os.DirEntry[Any]") -> "Entry":
        """What is to be known about an entry."""
        follow, keep = {"follow_symlinks": True}, {"follow_symlinks": False}
        kinds = (
            entry.is_symlink(),
            entry.is_dir(**keep), entry.is_dir(**follow),
            entry.is_file(**keep), entry.is_file(**follow),
        )  # fmt: skip
        stats = (_stat(entry, False), _stat(entry, True))
        return cls(entry.name, entry.path, kinds, entry.inode(), stats)

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self.kinds[0]

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""
        return self.kinds[1 + follow_symlinks]

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        return self.kinds[3 + follow_symlinks]

    def inode(self) -> int:
        """Its inode number."""
        return self.number

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Its status, as of the scan."""
        result = self.stats[follow_symlinks]
        if result is None:
            raise FileNotFoundError(2, os.strerror(2), self.path)
        return result

    def __fspath__(self) -> Any:
        return self.path


def _stat(entry: "os.DirEntry[Any]", follow_symlinks: bool) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=follow_symlinks)
    except OSError:
        return None


class Entries(Iterator[Entry]):
    """What ``os.scandir`` returns: an iterator and a context manager."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the rest."""
        self._entries = iter(())
