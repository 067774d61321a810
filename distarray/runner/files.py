"""``open``: rank 0 writes, and the other ranks write into a sink that behaves the same.

Every rank reads by itself. For a path that the job has written, all ranks first wait until rank 0
has written it. Opening for writing, by the program or by a library that it calls, is collective:
rank 0 opens the file when no rank still reads the old content, and all ranks get its exception if
there is one. For threads, and functions that a rank calls independently, nothing is sent.
"""

import builtins
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Any

from distarray.runner.caller import Caller, caller
from distarray.runner.paths import File, Path, Paths, absolute
from distarray.runner.sink import open_sink, scratch_descriptor

__all__ = ["FILES", "Files"]

_real_open: Any = builtins.open
_real_os_open = os.open
_RealFileIO = io.FileIO
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Flag of files without a name, of which each rank has its own.
_NAMELESS: int = getattr(os, "O_TMPFILE", -1)
_TOGETHER = (Caller.PROGRAM, Caller.LIBRARY)


class Files:
    """Replacements of ``open`` and ``os.open``, on one rank of the job."""

    def __init__(self) -> None:
        self._paths: Paths | None = None

    def install(self) -> None:
        """Replace ``open`` and `io.FileIO`, also where a module has its own names for them.

        Call it before NumPy is imported, which keeps ``open`` in tables. Until `start`, nothing
        changes.
        """
        if "numpy" in sys.modules:
            raise RuntimeError("NumPy was imported before `open` was replaced")
        os.open = self.os_open
        for name, module in list(sys.modules.items()):
            names = getattr(module, "__dict__", {})
            if name != "_io" and not name.startswith("distarray."):
                for alias, value in list(names.items()):
                    if value is _real_open:
                        names[alias] = self.open
                    elif value is _RealFileIO:
                        names[alias] = FileIO

    def start(self, paths: Paths) -> None:
        """From now on, let only rank 0 write."""
        self._paths = paths

    @property
    def paths(self) -> Paths:
        """Record of the job's files."""
        if self._paths is None:
            raise RuntimeError("the runner has not started")
        return self._paths

    @property
    def _alone(self) -> bool:
        return self._paths is None or self._paths.busy > 0

    def open(
        self,
        file: File,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> Any:
        """Open file and return a stream (see `io.open`); only rank 0's writing reaches the disk."""
        rest = (buffering, encoding, errors, newline)
        path = None if self._alone else absolute(file)
        if path is None or opener is not None or not isinstance(mode, str):
            return _real_open(file, mode, *rest, closefd, opener)
        who = caller()
        if who is Caller.MACHINERY or self.paths.is_private(path, who):
            return _real_open(file, mode, *rest, closefd)
        if not set(mode) & set("wax+"):
            self._before_reading(path)
            return _real_open(file, mode, *rest, closefd)
        if who in _TOGETHER:
            return self._open_together(who, path, file, mode, rest)
        return self._open_quietly(path, file, mode, rest)

    def os_open(
        self, path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        """Open a file for low level I/O (see `os.open`); only rank 0's writing reaches the disk."""
        where = None if self._alone else absolute(path)
        if where is None or dir_fd is not None or flags & _NAMELESS == _NAMELESS:
            return _real_os_open(path, flags, mode, dir_fd=dir_fd)
        who = caller()
        if who is Caller.MACHINERY or self.paths.is_private(where, who):
            return _real_os_open(path, flags, mode)
        if not flags & _WRITING:
            self._before_reading(where)
            return _real_os_open(path, flags, mode)
        return self._os_open_to_write(who, where, path, flags, mode)

    def _os_open_to_write(self, who: Caller, where: str, path: Path, flags: int, mode: int) -> int:
        def act() -> tuple[int, int]:
            descriptor = _real_os_open(path, flags, mode)
            return descriptor, os.fstat(descriptor).st_size

        descriptor, size = -1, 0
        if who in _TOGETHER:
            descriptor, size = self._root_first(who, where, act)
        elif self.paths.is_root:
            descriptor = _real_os_open(path, flags, mode)
        self.paths.note_written(where)
        copied = flags & os.O_RDWR and size and who in _TOGETHER
        if not self.paths.is_root:
            with self.paths.alone():
                descriptor = scratch_descriptor(flags, where if copied else None)
            if size and not copied:
                os.truncate(descriptor, size)
        if copied:
            self.paths.talk.barrier()  # rank 0 must not change the file before all have a copy
        return descriptor

    def _before_reading(self, path: str) -> None:
        if path in self.paths.written:
            self.paths.settle(path)
        self.paths.read.add(path)

    def _root_first(
        self, who: Caller, path: str, act: Callable[[], tuple[Any, int]]
    ) -> tuple[Any, int]:
        """Let rank 0 open when no rank still reads the path; all ranks get its exception.

        `act` returns the opened object and the length of the file; only the length is shared.
        """
        self.paths.meet_readers(path)
        opened: Any = None

        def open_it() -> int:
            nonlocal opened
            opened, size = act()
            return int(size)

        size = self.paths.ask_about(path, who, open_it)
        return opened, size

    def _open_together(
        self, who: Caller, path: str, file: File, mode: str, rest: tuple[Any, ...]
    ) -> Any:
        """Open for writing on all ranks together."""

        def act() -> tuple[Any, int]:
            opened = _real_open(file, mode, *rest)
            return opened, os.fstat(opened.fileno()).st_size

        self.paths.flush(path)
        opened, size = self._root_first(who, path, act)
        self.paths.note_written(path)
        if not self.paths.is_root:
            opened = self._sink(path, file, mode, rest, size)
        if "+" in mode and not set(mode) & set("wx"):
            self.paths.talk.barrier()  # rank 0 must not change the file before all have a copy
        return self.paths.note_writer(path, opened)

    def _open_quietly(self, path: str, file: File, mode: str, rest: tuple[Any, ...]) -> Any:
        """Open for writing on this rank independently; nothing is sent."""
        if self.paths.is_root:
            opened = _real_open(file, mode, *rest)
        else:
            with self.paths.alone():
                _check_writable(path, mode)
                size = os.path.getsize(path) if "a" in mode and os.path.exists(path) else 0
            opened = self._sink(path, file, mode, rest, size)
        self.paths.note_written(path)
        return self.paths.note_writer(path, opened)

    def _sink(self, path: str, file: File, mode: str, rest: tuple[Any, ...], size: int) -> Any:
        """Open the file that ranks other than 0 write into."""
        if "+" not in mode:
            return open_sink(file, mode, size, *rest)
        copy_of = None if set(mode) & set("wx") else path
        with self.paths.alone():
            return _real_open(
                file, mode, *rest, opener=lambda _, flags: scratch_descriptor(flags, copy_of)
            )


#: The `Files` of this process.
FILES = Files()


class _AnyFileIO(type):
    """Metaclass for `FileIO`: objects of the C type, which ``open`` uses, are instances as well."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is FileIO:
            return isinstance(instance, _RealFileIO)
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls is FileIO:
            return issubclass(subclass, _RealFileIO)
        return super().__subclasscheck__(subclass)


class FileIO(_RealFileIO, metaclass=_AnyFileIO):  # type: ignore[metaclass]
    """Open a file without a buffer (see `io.FileIO`); only rank 0's writing reaches the disk."""

    def __init__(
        self, file: File, mode: str = "r", closefd: bool = True, opener: Any = None
    ) -> None:
        if opener is None and not isinstance(file, int):
            opener = _open_raw
        super().__init__(file, mode, closefd, opener)


FileIO.__module__, FileIO.__qualname__ = "_io", "FileIO"


def _open_raw(path: str, flags: int) -> int:
    return FILES.os_open(path, flags, 0o666)


def _check_writable(path: str, mode: str) -> None:
    """Raise the error that opening a path for writing would raise, without opening it."""
    parent = os.path.dirname(path)
    code = 0
    if os.path.isdir(path):
        code = errno.EISDIR
    elif not os.path.isdir(parent):
        code = errno.ENOENT
    elif os.path.exists(path) and "x" not in mode:
        code = 0 if os.access(path, os.W_OK) else errno.EACCES
    elif "r" in mode:
        code = errno.ENOENT
    elif not os.access(parent, os.W_OK):
        code = errno.EACCES
    if code:
        raise OSError(code, os.strerror(code), path)
