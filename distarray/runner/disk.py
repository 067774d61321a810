"""File system calls besides ``open``: rank 0 executes them, and every rank gets its result.

Rank 0 makes the changes of the program and of libraries that it calls (``os.mkdir``, ``os.remove``,
``shutil.copy``, a command that the program runs), and all ranks get the result or the exception.
Rank 0 also executes queries (``os.stat`` and so ``os.path.exists``, ``os.listdir``, ``glob``):
another rank might already see a later change of rank 0's, and take another branch. Calls that a
rank makes independently (such as in threads) are left alone, but on the other ranks they do not
remove or rename files that only rank 0 has written. Rank 0 chooses the names of temporary files and
directories.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, ParamSpec

from distarray.runner import temporary
from distarray.runner.caller import Caller, caller
from distarray.runner.paths import File, Paths, absolute
from distarray.runner.standing import put_in_place

__all__ = ["Disk"]

#: os functions that change one path, and os functions with a source and a target path.
CHANGES = ("chmod", "chown", "mkdir", "mkfifo", "remove", "rmdir", "truncate", "unlink", "utime")
MOVES = ("link", "rename", "replace", "symlink")
#: os functions that query a path.
QUESTIONS = ("access", "listdir", "lstat", "readlink", "stat", "statvfs")
#: Functions that are executed as a whole; the last path argument is the one changed.
SHUTIL_AT_ONE = ("chown", "make_archive", "rmtree", "unpack_archive")
SHUTIL_TO_ANOTHER = (
    "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "move",
)  # fmt: skip
COMMANDS = ("call", "check_call", "check_output", "getoutput", "getstatusoutput", "run")

#: Sets in which os lists the functions that take certain arguments.
_SUPPORTS: tuple[set[Any], ...] = (
    os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks,
)  # fmt: skip
_TOGETHER = (Caller.PROGRAM, Caller.LIBRARY)
P = ParamSpec("P")
Function = Callable[..., Any]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Disk:
    """Replacements of the functions above, on one rank of the job."""

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
        temporary.install(self.paths)

    def _replace(
        self, module: ModuleType, names: tuple[str, ...], method: Function, *rest: int
    ) -> None:
        for name in names:
            real = getattr(module, name, None)
            if real is None:
                continue
            put_in_place(module, name, _called(method, real, *rest))
            for supporting in _SUPPORTS:
                if real in supporting:
                    supporting.add(getattr(module, name))

    def on_root(
        self, act: Callable[[], Any], who: Caller = Caller.PROGRAM, path: str | None = None
    ) -> Any:
        """Call `act` on rank 0; return its result, or raise its exception, on all ranks."""

        def alone() -> Any:
            with self.paths.alone():
                return act()

        return self.paths.ask_about(path, who, alone)

    def change(
        self, real: Callable[P, Any], target: int, /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """Change a path (argument number `target`), or make it from another path."""
        path = self._path(args, kwargs, target)
        who = caller(3)
        if path is None or self.paths.busy:
            return real(*args, **kwargs)
        if who is Caller.MACHINERY or self.paths.is_private(path, who):
            return real(*args, **kwargs)
        if who in _TOGETHER:
            self.paths.meet_readers(path, _source(args), below=target == 1)
            self.paths.note_written(path)
            return self.on_root(lambda: real(*args, **kwargs), who, path)
        return self._change_by_itself(real, path, args, kwargs)

    def _change_by_itself(self, real: Function, path: str, args: Args, kwargs: Kwargs) -> Any:
        """Change a path on this rank; all but rank 0 skip files that only rank 0 has written."""
        source = absolute(args[0]) if args else path
        if source not in self.paths.written:
            return real(*args, **kwargs)
        self.paths.note_written(path)
        return real(*args, **kwargs) if self.paths.is_root else None

    def ask(self, real: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Query a path."""
        path = self._path(args, kwargs, 0)
        if path is None or self.paths.busy:
            return real(*args, **kwargs)
        who = caller(3)
        if who not in _TOGETHER or self.paths.is_private(path, who):
            return real(*args, **kwargs)
        return self.on_root(lambda: real(*args, **kwargs), who, path)

    def scan(self, real: Function, /, path: File | None = None) -> Any:
        """Return the directory entries that rank 0 sees, as ``os.scandir``."""
        where = self._path((path,), {}, 0)
        who = caller(3)
        if where is None or self.paths.busy or who not in _TOGETHER:
            return real(path)
        if self.paths.is_private(where, who):
            return real(path)
        return Entries(self.on_root(lambda: [Entry.of(entry) for entry in real(path)], who, where))

    def whole(
        self, real: Callable[P, Any], target: int, /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """Execute a function of `shutil` as one action of rank 0."""
        path, who = self._path(args, kwargs, target), caller(3)
        if who is Caller.FINALIZER and not (self.paths.busy or self.paths.is_root):
            return None  # rank 0 removes it, when its own object ends
        if self.paths.busy or who not in _TOGETHER:
            return real(*args, **kwargs)
        if path is not None and self.paths.is_private(path, who):
            return real(*args, **kwargs)
        self.paths.meet_readers(path, _source(args), below=True)
        return self.on_root(lambda: real(*args, **kwargs), who, path)

    def command(self, real: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run a command on rank 0, which the program waits for."""
        if self.paths.busy or caller(3) is not Caller.PROGRAM:
            return real(*args, **kwargs)
        return self.on_root(lambda: real(*args, **kwargs))

    def _path(self, args: Args, kwargs: Mapping[str, Any], target: int) -> str | None:
        """Return the path of a call; None if the call uses descriptors."""
        if any(kwargs.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
            return None
        names = ("dst", "path") if target else ("path", "src", "base_name")
        named = next((kwargs[name] for name in names if name in kwargs), ".")
        given = args[target] if len(args) > target else named
        return absolute("." if given is None else given)


def _source(args: Args) -> str | None:
    """Return the path from which a function copies or moves."""
    return absolute(args[0]) if args else None


def _called(method: Function, real: Callable[P, Any], *rest: int) -> Callable[P, Any]:
    def function(*args: P.args, **kwargs: P.kwargs) -> Any:
        return method(real, *rest, *args, **kwargs)

    return function


@dataclass(frozen=True)
class Entry:
    """Entry of a directory that can be sent; otherwise as `os.DirEntry`."""

    name: Any
    path: Any
    kinds: tuple[bool, bool, bool, bool, bool]
    number: int
    stats: tuple[os.stat_result | None, os.stat_result | None]

    @classmethod
    def of(cls, entry: "os.DirEntry[Any]") -> "Entry":
        """Make an entry, with all the properties that can be queried."""
        follow, keep = {"follow_symlinks": True}, {"follow_symlinks": False}
        kinds = (
            entry.is_symlink(),
            entry.is_dir(**keep), entry.is_dir(**follow),
            entry.is_file(**keep), entry.is_file(**follow),
        )  # fmt: skip
        stats = (_stat(entry, False), _stat(entry, True))
        return cls(entry.name, entry.path, kinds, entry.inode(), stats)

    def is_symlink(self) -> bool:
        """Return True if the entry is a symbolic link."""
        return self.kinds[0]

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return True if the entry is a directory."""
        return self.kinds[1 + follow_symlinks]

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return True if the entry is a regular file."""
        return self.kinds[3 + follow_symlinks]

    def inode(self) -> int:
        """Return the inode number."""
        return self.number

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the status at the time of the scan."""
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
    """Result of ``os.scandir``: an iterator and a context manager."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Drop the remaining entries."""
        self._entries = iter(())
