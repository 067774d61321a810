"""Checkpoints in a directory, and the description (catalog) of each. Functions run on one rank."""

import errno
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from distarray.checkpoint.chunk_checksums import Checksums, checksum
from distarray.checkpoint.tree import Node
from distarray.checkpoint.zarr_metadata import Json, Stored, array_json, parse_array
from distarray.errors import CheckpointError
from distarray.io import directories
from distarray.io.file_paths import PathLike, absolute_path, local_path
from distarray.io.flushing import Flusher

__all__ = [
    "OLDER",
    "ROOT",
    "Catalog",
    "directories_of",
    "find",
    "is_checkpoint",
    "make_directories",
    "members_of",
    "parse_catalog",
    "place_of",
    "read_catalog",
    "read_head",
    "read_plain",
    "sealed",
    "step_directories",
    "step_path",
    "steps",
    "write_catalog",
]

ROOT = "zarr.json"
#: Subdirectory of a checkpoint with the checkpoint that it has replaced. No array has this name,
#: since keys with a tilde are quoted.
OLDER = "~older"
_PREFIX = "step-"
_STEP = re.compile(rf"{_PREFIX}\d{{8,18}}")
#: Maximum number of listings of a directory that other jobs change at the same time.
_LOOKS = 5
_KEY = "distarray"
_FORMAT = 1
_LARGEST = 1 << 30
_NAME = re.compile(r"[A-Za-z0-9._%~-]+")
_GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
_GROUP_TEXT = json.dumps(_GROUP)
#: Beginning of a description, before the digits of its checksum.
_HEAD = f'{{"attributes": {{"{_KEY}": {{"crc32c": "'
#: Placeholder for the digits while the checksum is computed.
_OPEN = "0" * 8


class Catalog(NamedTuple):
    """Description of a checkpoint.

    Attributes
    ----------
    path : Path
        The checkpoint's directory.
    step : int or None
    node : dict
        The description of the state.
    arrays : dict of str to Stored
    checksums : mapping or None
    head : bytes
        First bytes of the description, with its checksum; they identify the description.
    """

    path: Path
    step: int | None
    node: Node
    arrays: dict[str, Stored]
    checksums: Checksums
    head: bytes


def place_of(path: PathLike) -> tuple[str, Exception | None]:
    """Return the absolute path, equal on all nodes since links are not resolved; and the error."""
    try:
        text = local_path(path)
        if "://" in text:
            raise ValueError(
                f"a checkpoint is a directory of a file system, and {text} is a URL; save it to a "
                "path, and copy it from there"
            )
        return absolute_path(text), None
    except (TypeError, ValueError) as error:
        return "", error


def step_path(path: Path, step: int | None) -> Path:
    """Return the directory of a step's checkpoint."""
    return path if step is None else path / f"{_PREFIX}{step:08d}"


def is_checkpoint(path: Path) -> bool:
    """Return True if a path is a checkpoint; it is complete, since only then it gets its name."""
    try:
        return read_plain(path / ROOT, most=len(_HEAD)) == _HEAD.encode()
    except (OSError, CheckpointError):
        return False


def steps(path: Path) -> list[int]:
    """List the steps that have checkpoints, ascending."""
    found: list[int] = []
    for _ in range(_LOOKS):
        try:
            places = step_directories(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = sorted(int(place.name[len(_PREFIX) :]) for place in places if is_checkpoint(place))
        if all(map(os.path.lexists, places)):
            break  # otherwise a save has removed a step; its own step may not have been listed
    return found


def step_directories(path: Path) -> list[Path]:
    """List the subdirectories that have names of steps."""
    return [path / name for name in os.listdir(path) if _STEP.fullmatch(name)]


def find(path: Path, step: int | None = None) -> Path:
    """Find the checkpoint at a path: the path itself, the given step's, or the last step's.

    Raises
    ------
    FileNotFoundError
        If there is no checkpoint; the error lists other steps.
    """
    if step is not None:
        directories.recover(step_path(path, step))
        if not os.path.lexists(step_path(path, step)):
            have = ", ".join(map(str, steps(path)[-5:])) or "none"
            raise FileNotFoundError(f"no checkpoint of step {step} in {path} (the last: {have})")
        return step_path(path, step)
    for _ in range(_LOOKS):  # at any time another job may exchange names in two steps
        directories.recover(path)
        directories.recover_all(path)
        if os.path.lexists(path / ROOT):
            return path
        known = steps(path)
        if known:
            return step_path(path, known[-1])
    if not os.path.lexists(path):
        raise FileNotFoundError(f"no checkpoint: {path} does not exist")
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is a file, not a checkpoint, which is a directory; pickles and files of "
            "torch.save are never loaded, since loading them runs code that they name"
        )
    raise CheckpointError(f"{path} is not a checkpoint, and has none of any step")


def make_directories(
    root: Path, arrays: Sequence[Stored], flusher: Flusher, rank: int = 0, ranks: int = 1
) -> None:
    """Make the directories of arrays, with Zarr's metadata.

    Each rank makes the directories of some arrays, and rank 0 those of groups.
    """
    made = {""}
    for number, stored in enumerate(arrays):
        parts = stored.name.split("/")
        for end in range(1, len(parts)):
            group = "/".join(parts[:end])
            if rank == 0 and group not in made:
                made.add(group)
                _make(f"{root}/{group}", _GROUP_TEXT, flusher)
        if number % ranks == rank:
            _make(f"{root}/{stored.name}", _array_text(stored), flusher)


def _make(directory: str, text: str, flusher: Flusher) -> None:
    """Make a directory, unless another rank has made it, and write its metadata."""
    os.makedirs(directory, exist_ok=True)
    handle = os.open(
        f"{directory}/{ROOT}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
    )
    try:
        data = text.encode()
        while data:  # not by a file object: under the runner only rank 0's file objects write
            data = data[os.write(handle, data) :]
    except BaseException:
        os.close(handle)
        raise
    flusher.put(handle)


@lru_cache(maxsize=8192)
def _array_text(stored: Stored) -> str:
    """Return the metadata of an array; cached, since programs save the same arrays repeatedly."""
    return json.dumps(array_json(stored))


def directories_of(root: Path, arrays: Iterable[Stored]) -> set[Path]:
    """Return a checkpoint's directory and all its subdirectories."""
    found = {root}
    for stored in arrays:
        parts = stored.name.split("/")
        found.update(root.joinpath(*parts[:end]) for end in range(1, len(parts) + 1))
    return found


def write_catalog(
    root: Path,
    step: int | None,
    node: Node,
    arrays: Sequence[Stored],
    checksums: Mapping[str, str],
) -> None:
    """Write the description of a checkpoint; it is the last file that is written."""
    members = members_of(arrays)
    about = {
        "format": _FORMAT,
        "step": step,
        "id": os.urandom(8).hex(),  # distinguishes two saves of one state in one second
        "saved": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "state": node,
        "chunks": checksums,
    }
    listed = ", ".join(f"{json.dumps(name)}: {text}" for name, text in members.items())
    data = (
        f'{_HEAD}{_OPEN}", {json.dumps(about)[1:]}}}, "zarr_format": 3, "node_type": "group", '
        '"consolidated_metadata": {"kind": "inline", "must_understand": false, '
        f'"metadata": {{{listed}}}}}}}'
    ).encode()
    with open(root / ROOT, "xb") as file:
        file.write(sealed(data))
        file.flush()
        os.fsync(file.fileno())


def members_of(arrays: Iterable[Stored]) -> dict[str, str]:
    """Return Zarr's metadata of the arrays and of their groups, by name."""
    members: dict[str, str] = {}
    for stored in arrays:
        parts = stored.name.split("/")
        for end in range(1, len(parts)):
            members.setdefault("/".join(parts[:end]), _GROUP_TEXT)
        members[stored.name] = _array_text(stored)
    return members


def sealed(data: bytes) -> bytes:
    """Insert the checksum into a description; the checksum does not cover its own digits."""
    start, stop = len(_HEAD), len(_HEAD) + len(_OPEN)
    blank = data[:start] + _OPEN.encode() + data[stop:]
    return data[:start] + f"{checksum(blank):08x}".encode() + data[stop:]


def read_catalog(path: Path) -> bytes:
    """Read the description of a checkpoint, as bytes of the file."""
    return read_plain(path / ROOT)


def read_head(path: Path, name: str = "", root: int | None = None) -> bytes:
    """Read the first bytes, which identify a description; parameters as for `read_plain`."""
    return read_plain(path, name, root, len(_HEAD) + len(_OPEN))


def parse_catalog(path: Path, data: bytes) -> Catalog:
    """Parse the description of a checkpoint; check it as far as possible without other files.

    Raises
    ------
    CheckpointError
        If it is not a checkpoint, is damaged, or contains an entry that no save writes.
    """
    whole = _parsed(path / ROOT, data)
    try:
        about = whole["attributes"][_KEY]
        arrays = whole["consolidated_metadata"]["metadata"]
        version, node, step = (about[key] for key in ("format", "state", "step"))
    except (KeyError, TypeError):
        raise CheckpointError(
            f"{path} is not a checkpoint: its {ROOT} is not one that distarray.checkpoint.save "
            "writes (distarray.io.read reads arrays of any Zarr store)"
        ) from None
    if version != _FORMAT:
        raise CheckpointError(f"{path} has format {version!r}; this version reads {_FORMAT}")
    if not data.startswith(_HEAD.encode()) or sealed(data) != data:
        raise CheckpointError(
            f"{path / ROOT}: the description is not the one that was saved (its checksum "
            "differs); the file is damaged"
        )
    if step is not None and type(step) is not int:
        raise CheckpointError(f"{path} claims the step {step!r}")
    sums = about.get("chunks")
    if sums is not None and not isinstance(sums, dict):
        raise CheckpointError(f"{path / ROOT}: the list of chunks is malformed")
    head = data[: len(_HEAD) + len(_OPEN)]
    return Catalog(path, step, node, _arrays(path, arrays), sums, head)


def _arrays(path: Path, arrays: Json) -> dict[str, Stored]:
    if not isinstance(arrays, dict):
        raise CheckpointError(f"{path / ROOT}: the list of arrays is malformed")
    found = {}
    for name, metadata in arrays.items():
        parts = name.split("/")
        if not all(_NAME.fullmatch(part) and part.strip(".") for part in parts) or ROOT in parts:
            raise CheckpointError(f"{path / ROOT}: {name[:200]!r} is not a name that save gives")
        if metadata != _GROUP:
            found[name] = parse_array(name, metadata)
    return found


def read_plain(path: Path, name: str = "", root: int | None = None, most: int = _LARGEST) -> bytes:
    """Read an ordinary file of reasonable size, or its first bytes.

    Parameters
    ----------
    path : Path
        The file.
    name, root : str and int, optional
        The file's name relative to an open directory, and the descriptor of the directory. If they
        are given, `path` is only used in error texts.
    most : int
        Maximum number of bytes to read.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(name or path, flags, dir_fd=root)
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} is not a checkpoint: it has no {path.name}") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CheckpointError(f"{path} is a symbolic link, which no save makes") from None
        raise
    with open(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise CheckpointError(f"{path} is no ordinary file, or larger than any save makes it")
        return file.read(most)


def _parsed(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
