"""Saving a state: all of it or nothing, at once or behind the program's back."""

import operator
import os
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from distarray.array import DistArray
from distarray.checkpoint import background
from distarray.checkpoint.background import Aside, Saving
from distarray.checkpoint.catalog import is_checkpoint, place_of, step_path, steps
from distarray.checkpoint.progress import bar, shows
from distarray.checkpoint.same_state import check_alike
from distarray.checkpoint.shard_writing import Item, plan_items, shard_of, staged, write_shards
from distarray.checkpoint.tree import Flat, flatten
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agree, agreed
from distarray.io import directories
from distarray.io.atomic_file import named, on_first
from distarray.io.flushing import Flusher
from distarray.lazy import needs

__all__ = ["save"]


def save(
    path: str | os.PathLike[str],
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
        and replaces one that is there; with `step` the checkpoint is a directory in it, such as
        ``step-00000100``, beside those of other steps. Nothing else is ever overwritten.
    state : dict, list, tuple, DistArray, ...
        Nested dicts (keys are str or int), lists and tuples of DistArrays, NumPy arrays, numbers,
        strings, bytes and None, and of objects for which :func:`register` has been called (torch
        modules and optimizers, by :mod:`distarray.torch`). What is not distributed is saved once,
        and must be equal on all ranks.
    step : int, optional
        Number of the step, for :func:`latest` and `keep`.
    asynchronous : bool
        Copy the arrays, return, and write while the program goes on. What goes wrong is raised by
        the next call of `save`, `load` or `latest`, or by ``wait()`` of what is returned.
    keep : int, optional
        After saving, remove all but this many checkpoints, those of the lowest steps first.
        Needs `step`. Nothing is removed by default.
    mesh : DeviceMesh, optional
        Whose ranks save, and call this. By default the mesh of the arrays if they have one in
        common, otherwise the default mesh.
    progress : bool, optional
        Show a progress bar (tqdm) with bytes a second on rank 0. By default if standard error is
        a terminal.

    Returns
    -------
    Saving
        Its ``path`` is where the checkpoint is, or will be; ``wait()`` waits for it.

    Raises
    ------
    TypeError
        If something in the state cannot be saved; before anything is written.
    DivergenceError
        If the ranks do not bring the same state.
    FileExistsError
        If there is something at `path` that is not a checkpoint.
    OSError
        If writing fails on any rank, on all ranks. What was there before is untouched.

    Cost
    ----
    Pending folds are carried out. Nothing else is sent where blocks are cut regularly; otherwise
    each rank receives the few rows between its block and the next boundary of a file. Replicas
    share the writing. Each rank needs 8 MiB beyond its blocks (asynchronous: a copy of them).

    Notes
    -----
    Everything is written into a directory beside the final one, brought to disk (fsync), and
    renamed when all ranks are done. Whenever the job is killed, the old checkpoint is there
    whole, or the new one is.

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
        step, keep = (None if n is None else operator.index(n) for n in (step, keep))
    said = {"path": where, "step": step, "keep": keep}
    said["asynchronous"] = bool(asynchronous)
    check_alike(mesh.group, said, flat, error or wrong)
    flat.complete()
    items = plan_items(flat.leaves, mesh)
    aside = _begin(place, step, keep, flat, items, mesh)
    try:
        if asynchronous:
            found = [shard_of(item) for item in items]
            mine = [shard for shard in found if shard is not None]
            return background.start(aside, agreed(mesh.group, lambda: staged(mine)), mesh)
        agree(mesh.group, _write(aside, items, mesh, progress))
        on_first(mesh.group, aside.commit)
    except BaseException as error:
        if mesh.rank == 0:
            directories.discard(aside.directory)
        known = named(error, str(aside.directory), str(aside.final))
        if known is error:
            raise
        raise known from None
    return Saving(aside.final, mesh)


def _common_mesh(flat: Flat) -> DeviceMesh:
    meshes = {leaf.value.mesh for leaf in flat.leaves if isinstance(leaf.value, DistArray)}
    meshes.update(value.mesh for _, _, value in flat.items)
    return meshes.pop() if len(meshes) == 1 else default_mesh()


def _wrong_arguments(step: Any, keep: Any) -> Exception | None:
    """What is wrong with numbers that the caller has given."""
    try:
        if step is not None and not 0 <= operator.index(step) < 10**18:
            return ValueError(f"checkpoint.save: step is not negative, unlike {step}")
        if keep is not None and operator.index(keep) < 1:
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
) -> Aside:
    """Make the directory to write in, on rank 0; the same one for all ranks."""
    final = step_path(path, step)

    def make() -> Path:
        needs("google_crc32c")  # rather now than behind the program's back
        _check_target(path, final)
        return directories.begin(final)

    directory = on_first(mesh.group, make)
    stored = [item.stored for item in items]
    return Aside(directory, final, step, keep, flat.node, stored)


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
    aside: Aside, items: Sequence[Item], mesh: DeviceMesh, progress: bool | None
) -> Exception | None:
    """Write this rank's files; what went wrong.

    After a failure the rank goes on giving the others what they lack.
    """
    failure: Exception | None = None
    total = sum(bytes_of(item) for item in items)
    left = iter(items)
    try:
        shown = shows(mesh, progress)
        with (
            bar(f"saving {aside.final.name}", total, mesh, shown) as tell,
            Flusher(aside.directory) as flusher,
        ):
            for item in left:
                shard = shard_of(item)
                if shard is not None and failure is None:
                    failure = _failure(write_shards, aside.directory, [shard], flusher, tell)
            if failure is None:
                failure = _failure(aside.describe, flusher, mesh.rank, mesh.size())
    except Exception as caught:
        failure = failure or caught
    for item in left:  # it has not come so far: what others are sent would meet a later call
        shard_of(item)
    return failure


def _failure(function: Any, *args: Any) -> Exception | None:
    try:
        function(*args)
    except Exception as caught:
        return caught
    return None


def bytes_of(item: Item) -> int:
    """Bytes that this rank writes of an array."""
    return prod(item.writing.local_shape(item.mesh.coords)) * item.stored.dtype.itemsize
