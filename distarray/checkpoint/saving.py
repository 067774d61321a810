"""Saving a state: all of it or nothing, at once or in the background."""

import os
from collections.abc import Sequence
from math import prod
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

from distarray.array import DistArray
from distarray.checkpoint import background
from distarray.checkpoint.background import Saving, Unfinished
from distarray.checkpoint.catalog import is_checkpoint, place_of, step_path, steps
from distarray.checkpoint.chunk_checksums import Written, as_table
from distarray.checkpoint.progress import bar, shows
from distarray.checkpoint.same_state import check_same_state
from distarray.checkpoint.shard_writing import Item, plan_items, shard_of, staged, write_shards
from distarray.checkpoint.tree import Flat, flatten
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agree, agreed
from distarray.io import directories
from distarray.io.atomic_file import discarded_on_error
from distarray.io.file_errors import tried
from distarray.io.file_paths import PathLike
from distarray.io.flushing import Flusher
from distarray.io.rank_zero import on_rank_zero
from distarray.lazy import needs

__all__ = ["save"]


def save(
    path: PathLike,
    state: Any,
    *,
    step: int | None = None,
    asynchronous: bool = False,
    keep: int | None = None,
    mesh: DeviceMesh | None = None,
    progress: bool | None = None,
) -> Saving:
    """Save a state, so that any number of ranks can load it again; collective.

    Parameters
    ----------
    path : str or path-like
        A directory, on a file system that all ranks see. Without `step` it becomes the checkpoint
        and replaces an old one; with `step` the checkpoint is a directory in it, such as
        ``step-00000100``, beside those of other steps. Nothing else is ever overwritten.
    state : dict, list, tuple, DistArray, ...
        Nested dicts (keys are str or int), lists and tuples of DistArrays, NumPy arrays, numbers,
        strings, bytes and None, and of objects for which :func:`register` has been called (torch
        modules and optimizers, by :mod:`distarray.torch`). Values that are not distributed are
        saved once, and must be equal on all ranks.
    step : int, optional
        Number of the step, for :func:`latest` and `keep`.
    asynchronous : bool
        Copy the arrays, return, and write while the program goes on. Errors are raised by the next
        call of `save`, `load` or `latest`, or by ``wait()`` of the result.
    keep : int, optional
        After saving, remove all but this many checkpoints, those of the lowest steps first.
        Needs `step`. Nothing is removed by default.
    mesh : DeviceMesh, optional
        Its ranks save, and call this. By default the mesh of the arrays if they have one in
        common, otherwise the default mesh.
    progress : bool, optional
        Show a progress bar (tqdm) with bytes a second on rank 0. By default if standard error is
        a terminal.

    Returns
    -------
    Saving
        Its ``path`` is the place of the checkpoint; ``wait()`` waits until it is complete.

    Raises
    ------
    TypeError
        If something in the state cannot be saved; before anything is written.
    DivergenceError
        If the ranks do not bring the same state.
    FileExistsError
        If there is something at `path` that is not a checkpoint.
    OSError
        On all ranks, if writing fails on any of them. An old checkpoint is untouched.

    Cost
    ----
    Pending folds are carried out. Nothing else is sent where blocks are cut regularly; otherwise
    each rank receives the few rows between its block and the next boundary of a file. Replicas
    share the writing. Each rank needs 8 MiB beyond its blocks (asynchronous: a copy of them).

    Notes
    -----
    Everything is written into a directory beside the final one, brought to disk (fsync), and
    renamed when all ranks are done. Whenever the job is killed, there is the old checkpoint or the
    whole new one.

    What has been replaced stays, in the directory ``~older`` of the checkpoint, until the next
    save: another job may be loading it. It needs as much room on the disk again.

    Examples
    --------
    >>> import tempfile, numpy, distarray
    >>> x = distarray.distribute(numpy.arange(6.0))
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/run")
    ...     saving = save(path, {"x": x, "time": 2.5}, step=10)
    ...     print(saving.path.name)
    step-00000010
    """
    flat, error = flatten(state)
    if mesh is None:
        mesh = _common_mesh(flat)
    where, wrong = place_of(path)
    place = Path(os.path.realpath(where))
    if mesh.coords is None:
        return Saving(step_path(place, step), mesh)
    background.settle(mesh)
    wrong = wrong or _wrong_arguments(step, keep)
    if wrong is None:  # NumPy's integers are not JSON's
        step, keep = (None if n is None else index(n) for n in (step, keep))
    said = {"path": where, "step": step, "keep": keep}
    said["asynchronous"] = bool(asynchronous)
    check_same_state(mesh.group, said, flat, error or wrong)
    flat.complete()
    items = plan_items(flat.leaves, mesh)
    new = _begin(place, step, keep, flat, items, mesh)
    with discarded_on_error(str(new.directory), str(new.final), mesh.rank == 0):
        if asynchronous:
            found = [shard_of(item) for item in items]
            mine = [shard for shard in found if shard is not None]
            return background.start(new, agreed(mesh.group, lambda: staged(mine)), mesh)
        written: Written = []
        agree(mesh.group, _write(new, items, mesh, progress, written))
        table = as_table(written, new.stored)
        tables = mesh.group.gather_varied(table, 0, "checksums of a checkpoint")
        on_rank_zero(mesh.group, lambda: new.commit(tables or []))
    return Saving(new.final, mesh)


def _common_mesh(flat: Flat) -> DeviceMesh:
    meshes = {leaf.value.mesh for leaf in flat.leaves if isinstance(leaf.value, DistArray)}
    meshes.update(value.mesh for _, _, value in flat.items)
    return meshes.pop() if len(meshes) == 1 else default_mesh()


def _wrong_arguments(step: SupportsIndex | None, keep: SupportsIndex | None) -> Exception | None:
    """The error of a wrong step or a wrong number of checkpoints to keep."""
    try:
        if step is not None and not 0 <= index(step) < 10**18:
            return ValueError(f"checkpoint.save: step is not negative, unlike {step}")
        if keep is not None and index(keep) < 1:
            return ValueError(f"checkpoint.save: keep at least one checkpoint, not {keep}")
    except TypeError as error:
        return TypeError(f"checkpoint.save: step and keep are integers ({error})")
    if keep is not None and step is None:
        return ValueError("checkpoint.save: keep= needs step=; without steps there is but one")
    return None


def _begin(
    path: Path,
    step: int | None,
    keep: int | None,
    flat: Flat,
    items: Sequence[Item],
    mesh: DeviceMesh,
) -> Unfinished:
    """Make the directory to write in, on rank 0, for all ranks."""
    final = step_path(path, step)

    def make() -> Path:
        needs("google_crc32c")  # now, so that it is not missing in the background
        _check_target(path, final)
        return directories.begin(final)

    directory = on_rank_zero(mesh.group, make)
    stored = [item.stored for item in items]
    return Unfinished(directory, final, step, keep, flat.node, stored)


def _check_target(path: Path, final: Path) -> None:
    """Refuse to write over anything that is not a checkpoint."""
    directories.recover(final)
    if final != path and is_checkpoint(path):
        raise FileExistsError(
            f"{path} is itself a checkpoint; give another directory for those of steps"
        )
    if not os.path.lexists(final) or is_checkpoint(final):
        return
    if final.is_dir() and not os.listdir(final):
        return
    known = steps(final) if final.is_dir() else []
    what = f"holds checkpoints of {len(known)} steps; say step=" if known else "is no checkpoint"
    raise FileExistsError(f"{final} exists and {what}; nothing has been written")


def _write(
    new: Unfinished,
    items: Sequence[Item],
    mesh: DeviceMesh,
    progress: bool | None,
    written: Written,
) -> Exception | None:
    """Write this rank's files; returns the error, if there is one.

    Their chunks are added to `written`. After an error the rank goes on sending the others what
    they lack.
    """
    failure: Exception | None = None
    total = sum(bytes_of(item) for item in items)
    left = iter(items)
    try:
        if mesh.rank == 0:
            new.make_room()
        shown = shows(mesh, progress)
        with (
            bar(f"saving {new.final.name}", total, mesh, shown) as done,
            Flusher(new.directory) as flusher,
        ):
            for item in left:
                shard = shard_of(item)
                if shard is not None and failure is None:
                    failure = tried(write_shards, new.directory, [shard], flusher, written, done)
            if failure is None:
                failure = tried(new.describe, flusher, mesh.rank, mesh.size())
    except Exception as caught:
        failure = failure or caught
    for item in left:  # not yet reached: otherwise a later call would receive what others are sent
        shard_of(item)
    return failure


def bytes_of(item: Item) -> int:
    """Bytes of an array that this rank writes."""
    return prod(item.writing.local_shape(item.mesh.coords)) * item.stored.dtype.itemsize
