"""Checks of Zarr stores in directories: links to files outside, and arrays that Zarr skips."""

import os
import re
import stat
from collections.abc import Container, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from distarray.errors import OtherFileError
from distarray.io.file_paths import ZARR_MARKS, is_zarr
from distarray.io.ordinary_files import kind_of_mode, named_elsewhere
from distarray.lazy import needs

__all__ = ["OwnDirectory", "led_elsewhere", "own_store", "passed_over"]

#: Names of metadata files. Metadata behind links count as absent: other arrays can still be read.
_METADATA = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs"})
#: Pattern of names of files and directories of chunks, in version 3 and in version 2.
_CHUNK = re.compile(r"c|c[./]\d.*|\d+(\.\d+)*")


class OwnDirectory:
    """Directory of a store, with checks for keys that refer to files outside of it.

    Parameters
    ----------
    root : str
        The directory; `root` itself may be a symbolic link.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known = {""}  # directories that have been checked and are no links

    def fault(self, key: str) -> str:
        """Return the reason why a key is not read; "" if it may be read, or does not exist."""
        parts = [part for part in key.split("/") if part not in ("", ".")]
        if ".." in parts:
            return named_elsewhere("leads to", [key])
        for end in range(1, len(parts) + 1):
            part = "/".join(parts[:end])
            if part in self._known:
                continue
            try:
                mode = os.lstat(os.path.join(self._root, part)).st_mode
            except (OSError, ValueError):
                return ""
            if stat.S_ISLNK(mode):
                target = os.readlink(os.path.join(self._root, part))
                where = "" if part == key else f"lies in {part!r}, which "
                return named_elsewhere(f"{where}is a symbolic link to", [target])
            if stat.S_ISDIR(mode):
                self._known.add(part)
            elif not stat.S_ISREG(mode):
                return f"is {kind_of_mode(mode)}, where a file is expected"
        return ""

    def check(self, key: str) -> None:
        """Raise if the file of a key must not be read."""
        fault = self.fault(key)
        if fault:
            raise OtherFileError(f"{self._root}: {key!r} {fault}")

    def hides(self, key: str) -> bool:
        """Return True if metadata count as absent; raise for other files that must not be read."""
        parent, _, name = key.rpartition("/")
        if parent and name in _METADATA:
            return bool(self.fault(key))
        self.check(key)
        return False


def led_elsewhere(own: OwnDirectory, members: Iterable[str]) -> dict[str, str]:
    """Return members that refer to files outside, also with consolidated metadata; with reasons."""
    faults = {name: own.fault(name) for name in members}
    return {name: fault for name, fault in faults.items() if fault}


def passed_over(
    root: str, groups: Iterable[str], members: Container[str], own: OwnDirectory | None
) -> dict[str, str]:
    """Return the directories with chunks or metadata that Zarr skips, and the reasons."""
    lost = {}
    for group in groups:
        with os.scandir(os.path.join(root, group)) as entries:
            names = [e.name for e in entries if e.is_dir() and not e.name.startswith((".", "~"))]
        for name in sorted(names):
            full = f"{group}/{name}" if group else name
            if full not in members and _is_stored(os.path.join(root, full)):
                lost[full] = _linked(own, full) or (
                    "has chunks or a description (zarr.json) that is damaged or missing; write it "
                    "again, or read a copy"
                )
    return lost


def _linked(own: OwnDirectory | None, name: str) -> str:
    """Return why an array is skipped if it, or its metadata, is behind a link; "" otherwise."""
    marks = ("", *(f"/{mark}" for mark in ZARR_MARKS))
    return "" if own is None else next(filter(None, (own.fault(name + m) for m in marks)), "")


def _is_stored(place: str) -> bool:
    """Return True if a directory contains chunks or metadata."""
    return is_zarr(place) or any(_CHUNK.fullmatch(name) for name in os.listdir(place))


def own_store(path: str) -> Any:
    """Make a Zarr store object of a directory, for reading."""
    return _kind()(Path(path), read_only=True)


@cache
def _kind() -> Any:
    """Define the class of the store objects; Zarr is imported at the first call."""
    local: Any = needs("zarr.storage", "io").LocalStore

    class OwnStore(local):  # type: ignore[misc]
        """Directory whose files are read unless they are links, or behind links."""

        def __init__(self, root: Path, *, read_only: bool = False) -> None:
            super().__init__(root, read_only=read_only)
            self.own = OwnDirectory(str(root))

        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            """Return the content of a file; None if it does not exist."""
            return None if self.own.hides(key) else await super().get(key, *args, **kwargs)

        def get_sync(self, key: str, *args: Any, **kwargs: Any) -> Any:
            """Return the content of a file, as `get`."""
            return None if self.own.hides(key) else super().get_sync(key, *args, **kwargs)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
            """Return byte ranges of files."""
            ranges = list(key_ranges)
            for key, _ in ranges:
                self.own.check(key)
            return await super().get_partial_values(prototype, ranges)

        async def exists(self, key: str) -> bool:
            """Return True if a file exists and may be read."""
            return not self.own.fault(key) and bool(await super().exists(key))

    return OwnStore
