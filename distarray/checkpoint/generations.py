"""Generations of a checkpoint: a replaced checkpoint is kept until the next save.

If a job loads a checkpoint while another job saves to the same path, it continues to read the files
of the old checkpoint. Therefore a replaced checkpoint is kept in a subdirectory of its successor.
With ``keep=1``, the checkpoint of the previous step is kept there as well. A load that takes longer
than two saves finds that files are missing, and starts again with the new checkpoint.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from distarray.checkpoint.catalog import (
    OLDER,
    ROOT,
    Catalog,
    find,
    parse_catalog,
    place_of,
    read_catalog,
    read_head,
    step_directories,
    step_path,
    steps,
)
from distarray.comm.agree import agreed
from distarray.comm.group import Group
from distarray.errors import CheckpointError
from distarray.io import directories
from distarray.io.file_paths import PathLike
from distarray.io.rank_zero import on_rank_zero

__all__ = ["make_room", "of_one_generation", "retire"]

T = TypeVar("T")
#: Seconds since the last save after which an old generation is removed when the next save begins.
#: Earlier it is removed when the next save is complete, since loads may still read it.
_GRACE = 600.0
#: Maximum number of attempts to load a checkpoint that is being replaced.
_ATTEMPTS = 50
#: Maximum number of attempts to read the description of a checkpoint that has been found.
_LOOKS = 3


def of_one_generation(
    group: Group, given: PathLike, step: int | None, call: str, act: Callable[[Catalog], T]
) -> T:
    """Call a function with a checkpoint's catalog, so that all files are of one save; collective.

    Parameters
    ----------
    group : Group
    given, step : path-like, int or None
        The path of the checkpoint, and the step.
    call : str
        The caller's name for error texts.
    act : callable
        Collective function of the catalog that raises the same errors on all ranks. It is called
        again if it fails and another save has replaced the checkpoint in the meantime.

    Cost
    ----
    A small broadcast of the description and two allreduces of an integer.
    """
    place, wrong = place_of(given)
    said = f"{call}: {place}, step={step}"
    for _ in range(_ATTEMPTS):
        path, data = on_rank_zero(group, lambda: _found(place, step), said, wrong)
        catalog = agreed(group, lambda: parse_catalog(path, data))  # noqa: B023 (called at once)
        try:
            return act(catalog)
        except (CheckpointError, OSError) as error:
            failure = error
        if on_rank_zero(group, lambda: _is_current(place, step, catalog)):  # noqa: B023 (likewise)
            raise failure
    raise CheckpointError(
        f"{path} has been replaced {_ATTEMPTS} times while it was loaded; save less often, or to "
        "step=..., with keep=2 or more"
    )


def _found(place: str, step: int | None) -> tuple[Path, bytes]:
    """Find the checkpoint at a path; return its directory and its description."""
    for _ in range(_LOOKS - 1):
        path = find(Path(os.path.realpath(place)), step)
        with suppress(CheckpointError, FileNotFoundError):  # it may just have been removed
            return path, read_catalog(path)
    path = find(Path(os.path.realpath(place)), step)
    return path, read_catalog(path)


def _is_current(place: str, step: int | None, catalog: Catalog) -> bool:
    """Return True if a catalog still describes the checkpoint at a path."""
    try:
        path = find(Path(os.path.realpath(place)), step)
        return path == catalog.path and read_head(path / ROOT) == catalog.head
    except (OSError, CheckpointError):
        return False  # the next attempt raises the error


def make_room(final: Path, step: int | None, needed: int) -> None:
    """Remove old generations if no load needs them any more, or if the disk is too full.

    Parameters
    ----------
    final : Path
        The checkpoint that is about to be written.
    step : int or None
    needed : int
        Number of bytes that will be written.
    """
    with suppress(OSError):
        for holder in _holders(final, step):
            file_system = os.statvfs(holder)
            short = file_system.f_bavail * file_system.f_frsize < needed
            if short or time.time() - os.lstat(holder / ROOT).st_mtime > _GRACE:
                directories.remove(holder / OLDER, final)


def retire(final: Path, step: int | None, keep: int | None) -> None:
    """Remove the old generations of earlier saves, and all but `keep` of the steps.

    Parameters
    ----------
    final : Path
        The checkpoint that has just been saved.
    step, keep : int or None
    """
    for holder in _holders(final, step):
        if holder != final:
            directories.remove(holder / OLDER, final)
    if keep is None:
        return
    others = [other for other in steps(final.parent) if other != step]
    gone = others[: max(0, len(others) + 1 - keep)]
    if keep == 1 and gone:
        directories.keep(step_path(final.parent, gone.pop()), final / OLDER)
    for other in gone:
        directories.remove(step_path(final.parent, other))
    directories.flush(final.parent)


def _holders(final: Path, step: int | None) -> list[Path]:
    """List the checkpoints at a path whose directories contain an old generation."""
    found = [final] if step is None else step_directories(final.parent)
    return [path for path in found if os.path.lexists(path / OLDER)]
