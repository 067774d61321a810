"""Datasets of an HDF5 file, found without opening any other file.

HDF5 silently follows links to other files, and silently reads datasets that are stored in other
files. Therefore each link is checked before it is followed, component by component. Each dataset's
creation properties are checked before its shape is read: reading the shape of a virtual dataset
opens its source files.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from distarray.errors import OtherFileError
from distarray.io.ordinary_files import ELSEWHERE, kind_of, named_elsewhere

__all__ = ["HDF5Names"]

#: Maximum number of links in the path of an object; HDF5 itself follows 16.
_MOST_LINKS = 64
#: Maximum number of sources that one pattern of source names may match.
_MOST_SOURCES = 1 << 20
_SCALES = b"DIMENSION_LIST"


class HDF5Names:
    """Names in a file: the datasets that can be read, and the reasons why others are not read.

    Parameters
    ----------
    h5py : module
    file : h5py.File
    external : bool
        True if other files may be read.

    Attributes
    ----------
    kept : dict of str to h5py.Dataset
        Datasets that can be read.
    refused, missing : dict of str to str
        The reason why a dataset is not read, by name; the links to objects that do not exist.
    """

    def __init__(self, h5py: ModuleType, file: Any, external: bool) -> None:
        self.kept: dict[str, Any] = {}
        self.refused: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self._h5py, self._external = h5py, external
        self._root, self._place = file["/"], os.path.dirname(os.path.abspath(file.filename))
        self._groups = {self._root.id}  # a group may contain itself
        #: Reason for refusing a checked dataset, "" if it is accepted; None during the check.
        self._verdicts: dict[Any, str | None] = {}
        self._walk(self._root, "")

    def _walk(self, group: Any, prefix: str) -> None:
        for key in group:
            name = prefix + key
            try:
                item = self._item(group, key)
                if isinstance(item, self._h5py.Dataset):
                    self._check(item)
                    self.kept[name] = item
                    continue
            except OtherFileError as error:
                self.refused[name] = str(error)
                continue
            except (KeyError, OSError, RuntimeError):  # RuntimeError: links in a circle
                if self._is_hard(group, key):
                    raise  # the file is damaged
                self.missing[name] = _dangling(group, key)
                continue
            new = isinstance(item, self._h5py.Group) and item.id not in self._groups
            if new and self._is_hard(group, key):
                self._groups.add(item.id)
                self._walk(item, f"{name}/")

    def _is_hard(self, group: Any, key: str) -> bool:
        """Return True if a link is a hard link: a name of an object in the same file."""
        return bool(group.id.links.get_info(_coded(key)).type == self._h5py.h5l.TYPE_HARD)

    def _item(self, group: Any, key: str, left: int = _MOST_LINKS) -> Any:
        """Return the object that a link refers to."""
        links, kinds = group.id.links, self._h5py.h5l
        kind = links.get_info(_coded(key)).type  # KeyError if there is none
        if kind == kinds.TYPE_HARD:
            return group[key]
        if kind == kinds.TYPE_EXTERNAL:
            filename = os.fsdecode(links.get_val(_coded(key))[0])
            self._elsewhere("leads to", [filename])
            return group[key]
        if kind != kinds.TYPE_SOFT:
            raise OtherFileError(f"is a link of a kind that its author has made up: {ELSEWHERE}")
        path = os.fsdecode(links.get_val(_coded(key)))
        if not self._external:
            return self._at(group, path, left - 1)
        with suppress(KeyError, OSError, RuntimeError):  # OtherFileError is raised: no file
            self._at(group, path, left - 1)
        return group[key]  # h5py resolves absolute paths in other files from the root of that file

    def _at(self, group: Any, path: str, left: int = _MOST_LINKS) -> Any:
        """Return the object at a path; check each component before it is followed."""
        if left < 0:
            raise RuntimeError("links in a circle")
        here = self._root if path.startswith("/") else group
        for part in path.split("/"):
            if part not in ("", "."):
                if not isinstance(here, self._h5py.Group):
                    raise KeyError(path)
                here = self._item(here, part, left)
        return here

    def _elsewhere(self, how: str, files: list[str]) -> None:
        """Raise if other files must not be read, or are no regular files: a pipe would block."""
        if not self._external:
            raise OtherFileError(named_elsewhere(how, files))
        for name in files:
            for place in (os.path.join(self._place, name), name):
                kind = kind_of(place)
                if kind not in ("", "a file"):
                    raise OtherFileError(f"{how} {name!r}, which is {kind} and no HDF5 file")

    def _check(self, dataset: Any) -> None:
        """Raise if a dataset, or a source of a virtual dataset, is stored in other files."""
        key = dataset.id
        if key not in self._verdicts:
            self._verdicts[key] = None
            try:
                self._check_properties(dataset)
                self._verdicts[key] = ""
            except OtherFileError as error:
                self._verdicts[key] = str(error)
        verdict = self._verdicts[key]
        if verdict is None:
            raise OtherFileError("is put together from itself")
        if verdict:
            raise OtherFileError(verdict)

    def _check_properties(self, dataset: Any) -> None:
        properties = dataset.id.get_create_plist()
        count = properties.get_external_count()
        others = [os.fsdecode(properties.get_external(n)[0]) for n in range(count)]
        virtual = properties.get_layout() == self._h5py.h5d.VIRTUAL
        sources = list(_sources(properties)) if virtual else []
        others += [name for name, _ in sources if name != "."]
        if others:
            self._elsewhere("is put together from", others)
        if self._external:
            return
        for _, path in sources:
            self._check_source(path)
        self._check_scales(dataset)

    def _check_source(self, path: str) -> None:
        """Raise if a source in this file, or one that a pattern matches, refers to another file."""
        if "%b" not in path:
            self._check_at({path, path.replace("%%", "%")})
            return
        for number in range(_MOST_SOURCES):
            if not self._check_at({path.replace("%b", str(number)).replace("%%", "%")}):
                return  # HDF5 stops at the first missing number
        raise OtherFileError(
            f"is put together from more than {_MOST_SOURCES} datasets: {ELSEWHERE}"
        )

    def _check_at(self, paths: set[str]) -> bool:
        """Check the datasets at the given paths; return True if one of them exists."""
        found = False
        for path in paths:
            try:
                item = self._at(self._root, path)
            except (KeyError, OSError, RuntimeError):
                continue  # elements of a missing source have the fill value
            found = True
            if isinstance(item, self._h5py.Dataset):
                self._check(item)
        return found

    def _check_scales(self, dataset: Any) -> None:
        """Raise if dimension scales are references that may refer to other files (HDF5 1.12)."""
        h5py = self._h5py
        if not h5py.h5a.exists(dataset.id, _SCALES):
            return
        try:
            kind = h5py.h5a.open(dataset.id, _SCALES).get_type()
            plain = kind.get_super().equal(h5py.h5t.STD_REF_OBJ)
        except (TypeError, ValueError, AttributeError, RuntimeError):
            plain = False
        if not plain:
            raise OtherFileError(f"has scales that may be in other files: {ELSEWHERE}")


def _dangling(group: Any, key: str) -> str:
    """Return the reason why a link to a missing object is not read."""
    value = group.id.links.get_val(_coded(key))
    path = os.fsdecode(value[1] if isinstance(value, tuple) else value)
    return f"is a link to {path!r}, where nothing is to be found"


def _coded(key: str) -> bytes:
    """Encode a link's name to bytes, inverse to h5py's decoding."""
    return key.encode("utf-8", "surrogateescape")


def _sources(properties: Any) -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each source of a virtual dataset."""
    for number in range(properties.get_virtual_count()):
        file, name = (
            properties.get_virtual_filename(number),
            properties.get_virtual_dsetname(number),
        )
        yield _text(file), _text(name)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else os.fsdecode(value)
