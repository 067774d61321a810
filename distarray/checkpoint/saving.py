"""Saving of a state: completely or not at all, immediately or in the background."""

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
        A directory, on a file system that all ranks share. Without `step` it becomes the checkpoint
        and replaces an old checkpoint. With `step` the checkpoint is a subdirectory, such as
        ``step-00000100``, next to the checkpoints of other steps. Nothing else is ever overwritten.
    state : dict, list, tuple, DistArray, ...
        Nested dicts (keys are str or int), lists and tuples of DistArrays, NumPy arrays, numbers,
        strings, bytes and None, and of objects whose type has been passed to :func:`register`
        (torch modules and optimizers, by :mod:`distarray.torch`). Values that are not distributed
        are saved once, and must be equal on all ranks.
    step : int, optional
        Number of the step, for :func:`latest` and `keep`.
    asynchronous : bool
        If True, copy the arrays, return, and write while the program continues. Errors are raised
        by the next call of `save`, `load` or `latest`, or by ``wait()`` of the result.
    keep : int, optional
        Number of checkpoints to keep. After saving, the checkpoints of the lowest steps are
        removed. Needs `step`. By default no checkpoint is removed.
    mesh : DeviceMesh, optional
        The mesh whose ranks save and call this function. By default the mesh of the arrays if they
        have the same mesh, otherwise the default mesh.
    progress : bool, optional
        Show a progress bar (tqdm) with bytes per second on rank 0. By default a bar is shown if
        standard error is a terminal.

    Returns
    -------
    Saving
        Object whose ``path`` is the path of the checkpoint; ``wait()`` waits until it is complete.

    Raises
    ------
    TypeError
        If a value of the state cannot be saved; before a file is written.
    DivergenceError
        If the ranks do not pass the same state.
    FileExistsError
        If `path` exists and is not a checkpoint.
    OSError
        On all ranks, if writing fails on one rank. An old checkpoint is unchanged.

    Cost
    ----
    Pending folds are carried out. No other message is sent if blocks are cut regularly. Otherwise
    each rank receives the few rows between its block and the next boundary of a file. Replicas
    share the writing. Each rank needs 8 MiB in addition to its blocks (asynchronous: a copy of
    them).

    Notes
    -----
    All files are written into a temporary directory next to the final directory, brought to disk
    (fsync), and renamed when all ranks are done. Whenever the job is killed, either the old
    checkpoint or the complete new checkpoint exists.

    A replaced checkpoint is kept in the directory ``~older`` of the new checkpoint until the next
    save, since another job may be loading it. It needs its disk space until then.

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
    if wrong is None:  # JSON does not accept NumPy's integers
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
    """Return the error for an invalid `step` or `keep`; None if both are valid."""
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
    """Make the temporary directory, on rank 0, for all ranks."""
    final = step_path(path, step)

    def make() -> Path:
        needs("google_crc32c")  # imported now, so that an error is not raised in the background
        _check_target(path, final)
        return directories.begin(final)

    directory = on_rank_zero(mesh.group, make)
    stored = [item.stored for item in items]
    return Unfinished(directory, final, step, keep, flat.node, stored)


def _check_target(path: Path, final: Path) -> None:
    """Raise if the path exists and is not a checkpoint."""
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
    """Write this rank's files; return its exception or None.

    The written chunks are added to `written`. After an error this rank still sends the elements
    that other ranks need.
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
    for item in left:  # after an error: send the remaining messages, or a later call receives them
        shard_of(item)
    return failure


def bytes_of(item: Item) -> int:
    """Return the number of bytes of an array that this rank writes."""
    return prod(item.writing.local_shape(item.mesh.coords)) * item.stored.dtype.itemsize
