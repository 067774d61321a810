"""Zarr stores in directories: what in them leads out of them, or is passed over, and why."""

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

#: Files of metadata: those behind links count as absent, so that other arrays can be read.
_METADATA = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs"})
#: Names of files and directories of chunks, in version 3 and in version 2.
_CHUNK = re.compile(r"c|c[./]\d.*|\d+(\.\d+)*")


class OwnDirectory:
    """Tells which keys of a store lead out of its directory.

    Parameters
    ----------
    root : str
        The directory; may be a link itself.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known = {""}  # directories that are no links

    def fault(self, key: str) -> str:
        """Why something in the store is not read; empty if it may be, or does not exist."""
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
        """Raise if a file is not to be read."""
        fault = self.fault(key)
        if fault:
            raise OtherFileError(f"{self._root}: {key!r} {fault}")

    def hides(self, key: str) -> bool:
        """Whether metadata count as absent; raises for other files that are not to be read."""
        parent, _, name = key.rpartition("/")
        if parent and name in _METADATA:
            return bool(self.fault(key))
        self.check(key)
        return False


def led_elsewhere(own: OwnDirectory, members: Iterable[str]) -> dict[str, str]:
    """The arrays and groups, of which metadata may be told elsewhere, that lead out of a store."""
    faults = {name: own.fault(name) for name in members}
    return {name: fault for name, fault in faults.items() if fault}


def passed_over(
    root: str, groups: Iterable[str], members: Container[str], own: OwnDirectory | None
) -> dict[str, str]:
    """Directories of a store with chunks or metadata that Zarr passes over, and why."""
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
    """Why an array is passed over that is, or is described, behind a link; empty if it is not."""
    marks = ("", *(f"/{mark}" for mark in ZARR_MARKS))
    return "" if own is None else next(filter(None, (own.fault(name + m) for m in marks)), "")


def _is_stored(place: str) -> bool:
    """Whether a directory has chunks in it, or metadata."""
    return is_zarr(place) or any(_CHUNK.fullmatch(name) for name in os.listdir(place))


def own_store(path: str) -> Any:
    """The store of a directory for Zarr, for reading."""
    return _kind()(Path(path), read_only=True)


@cache
def _kind() -> Any:
    """The class of such stores; Zarr is imported on first use."""
    local: Any = needs("zarr.storage", "io").LocalStore

    class OwnStore(local):  # type: ignore[misc]
        """A directory whose files are read unless they are links, or behind links."""

        def __init__(self, root: Path, *, read_only: bool = False) -> None:
            super().__init__(root, read_only=read_only)
            self.own = OwnDirectory(str(root))

        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            """The content of a file, None if there is none."""
            return None if self.own.hides(key) else await super().get(key, *args, **kwargs)

        def get_sync(self, key: str, *args: Any, **kwargs: Any) -> Any:
            """As `get`."""
            return None if self.own.hides(key) else super().get_sync(key, *args, **kwargs)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
            """Parts of files."""
            ranges = list(key_ranges)
            for key, _ in ranges:
                self.own.check(key)
            return await super().get_partial_values(prototype, ranges)

        async def exists(self, key: str) -> bool:
            """Whether there is a file."""
            return not self.own.fault(key) and bool(await super().exists(key))

    return OwnStore
