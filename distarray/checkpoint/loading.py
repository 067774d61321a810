"""Loading of a state on any number of ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.creation import as_distarray, placed_layout
from distarray.array.ladder import passed
from distarray.array.sharing import writing
from distarray.checkpoint import background
from distarray.checkpoint.catalog import Catalog
from distarray.checkpoint.chunk_files import ChunkFiles
from distarray.checkpoint.chunk_reader import Wanted
from distarray.checkpoint.generations import of_one_generation
from distarray.checkpoint.held_checkpoint import HeldCheckpoint
from distarray.checkpoint.integrity import check_files
from distarray.checkpoint.matching import Fresh, Match
from distarray.checkpoint.progress import bar, shows
from distarray.checkpoint.reading import read_arrays
from distarray.checkpoint.same_state import check_same_text
from distarray.checkpoint.tree import flatten
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agree, agreed
from distarray.comm.files import landing
from distarray.io.file_paths import PathLike
from distarray.layout import Layout, Replicate, Shard
from distarray.typing import Array, Placements, Shape

__all__ = ["load"]

#: Placements: one for all arrays, by name pattern, or from a function of name and shape.
ManyPlacements: TypeAlias = (
    "Placements | Mapping[str, Placements] | Callable[[str, Shape], Placements | None]"
)
_SHARD = re.compile(r"Shard\((\d{1,3})\)")


def load(
    path: PathLike,
    into: Any = None,
    mesh: DeviceMesh | None = None,
    placements: ManyPlacements | None = None,
    *,
    step: int | None = None,
    progress: bool | None = None,
) -> Any:
    """Load a state that was saved on any number of ranks; collective.

    Parameters
    ----------
    path : str or path-like
        A checkpoint, or a directory with checkpoints of steps, of which the last is loaded.
    into : dict, list, tuple, DistArray, ..., optional
        A state with the structure of the saved state, or with some of its keys only. Its arrays, on
        any mesh with any placements, are filled in place. Its numbers are replaced, and its torch
        modules and optimizers are restored. Where `into` has None, a new object is made.
    mesh : DeviceMesh, optional
        The mesh of new arrays, whose ranks all call this function. By default the mesh of the
        arrays of `into` if they have the same mesh, otherwise the default mesh.
    placements : sequence of Placement, mapping or callable, optional
        Placements of new arrays: the same for all arrays; or a mapping of name patterns to
        placements, ``{"model/*": [Shard(0)]}``, of which the first match is used; or a function
        ``placements(name, shape)``. By default an array gets its placements at the time of the
        save, if the mesh has the same number of dimensions, and otherwise those of
        :func:`distarray.distribute`.
    step : int, optional
        The step to load instead of the last one.
    progress : bool, optional
        As for :func:`save`.

    Returns
    -------
    object
        The state: `into`, or a new state, in which an object with an adapter is represented by the
        adapter's state.

    Raises
    ------
    FileNotFoundError
        If there is no checkpoint.
    CheckpointError
        On all ranks, if the checkpoint is damaged, foreign or hostile, or does not fit `into`. The
        error names the array and the file. Errors that are found without reading the data (sizes
        of files, names, shapes, types) are raised before `into` is changed.

    Notes
    -----
    All loaded values are of one save, also while another job saves to the same path: if files have
    been removed in the meantime, loading starts again with the new checkpoint.

    Cost
    ----
    Each chunk of the arrays is read once, by one rank, and verified. Other ranks that need elements
    of it copy them from memory that the ranks of a node share, or receive them in messages if the
    ranks are not all on one node. In addition to its blocks a rank needs at most 32 MiB.

    Examples
    --------
    >>> import tempfile, distarray
    >>> state = {"x": distarray.numpy.arange(6.0), "time": 2.5}
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/run")
    ...     saving = distarray.checkpoint.save(path, state)
    ...     state = load(path, placements=[distarray.Shard(0)])
    >>> state["x"].placements, float(state["x"].sum()), state["time"]
    ((Shard(0),), 15.0, 2.5)
    """
    if mesh is None:
        mesh = _mesh_of(into)
    if mesh.coords is None:
        return into
    home = mesh  # a name that is never None, for the function below
    passed.number += 1  # the arrays of `into` are written to
    background.settle(mesh)

    def act(catalog: Catalog) -> Any:
        return _loaded(catalog, into, home, placements, progress)

    return of_one_generation(mesh.group, path, step, "checkpoint.load", act)


def _loaded(
    catalog: Catalog,
    into: Any,
    mesh: DeviceMesh,
    placements: ManyPlacements | None,
    progress: bool | None,
) -> Any:
    """Load the state that a catalog describes; collective."""
    group = mesh.group
    match = Match(catalog.arrays, lambda whole, kind: _item(whole, kind, mesh))
    result = agreed(group, lambda: match.value(catalog.node, into, "state"))
    with ExitStack() as stack:
        stack.enter_context(writing(*[target.value for target in match.targets]))

        def hold() -> HeldCheckpoint:
            held = stack.enter_context(HeldCheckpoint(catalog))
            check_files(held, _needed(catalog, match), group)
            return held

        held = agreed(group, hold)
        arrays, shown = agreed(
            group, lambda: (_Loading(catalog, match, mesh, placements), shows(mesh, progress))
        )
        check_same_text(group, arrays.described, "what is loaded")
        agree(group, arrays.read(held, shown))
        arrays.assemble()
    return agreed(group, result)


def _mesh_of(into: Any) -> DeviceMesh:
    """Return the mesh of a state's arrays if they have the same mesh; else the default mesh."""
    if into is None:
        return default_mesh()
    flat, _ = flatten(into)
    meshes = {leaf.value.mesh for leaf in flat.leaves if isinstance(leaf.value, DistArray)}
    meshes.update(value.mesh for _, _, value in flat.items)
    return meshes.pop() if len(meshes) == 1 else default_mesh()


def _item(whole: Array, kind: str, mesh: DeviceMesh) -> Any:
    """Convert a saved array without dimensions to an object of the saved kind."""
    if kind == "DistArray":
        return as_distarray(whole, mesh)
    return whole[()] if kind == "scalar" else whole


def _needed(catalog: Catalog, match: Match) -> list[Stored]:
    names = dict.fromkeys([*(target.name for target in match.targets), *match.fresh])
    return [catalog.arrays[name] for name in names]


class _Loading:
    """Arrays to be loaded, with memory for this rank's blocks."""

    def __init__(
        self,
        catalog: Catalog,
        match: Match,
        mesh: DeviceMesh,
        placements: ManyPlacements | None,
    ) -> None:
        self._catalog, self._match, self._mesh = catalog, match, mesh
        #: Arrays to load, by mesh.
        self._wanted: dict[DeviceMesh, list[Wanted]] = {}
        #: Functions that make arrays of the blocks after the blocks have been filled.
        self._after: list[Callable[[], object]] = []
        for target in match.targets:
            self._into(catalog.arrays[target.name], target.value)
        for fresh in match.fresh.values():
            self._make(catalog.arrays[fresh.name], fresh, placements)
        self.described = "\n".join(
            f"{wanted.stored.name} {wanted.layout} on {on.ranks}"
            for on, some in self._wanted.items()
            for wanted in some
        )

    def _want(self, mesh: DeviceMesh, wanted: Wanted) -> None:
        self._wanted.setdefault(mesh, []).append(wanted)

    def _into(self, stored: Stored, value: DistArray | Array) -> None:
        """Add an existing array that is filled."""
        if not isinstance(value, DistArray):
            layout = Layout.replicated(stored.shape, self._mesh.shape)
            self._want(self._mesh, Wanted(stored, layout, value))
        elif value.mesh.device_type == "cpu":
            self._want(value.mesh, Wanted(stored, value.layout, value.to_local()))
        else:
            device, mesh = value.to_local(), value.mesh
            block: Array = np.empty(device.shape, stored.dtype)
            self._want(mesh, Wanted(stored, value.layout, block))
            self._after.append(lambda: device.__setitem__(..., mesh.asarray(block)))

    def _make(self, stored: Stored, fresh: Fresh, placements: ManyPlacements | None) -> None:
        """Add a new array, and allocate its block."""
        mesh = self._mesh
        layout = Layout.replicated(stored.shape, mesh.shape)
        if fresh.kind == "DistArray":
            chosen = _placements(fresh, stored, mesh, placements)
            layout = placed_layout(stored.shape, stored.dtype, mesh, chosen)
        try:
            block = landing(layout.local_shape(mesh.coords), stored.dtype)
        except (MemoryError, ValueError) as error:
            raise MemoryError(
                f"array {stored.name!r} of {stored.nbytes} bytes does not fit: {error}"
            ) from None
        self._want(mesh, Wanted(stored, layout, block))
        made = self._match.made  # `keep` must not refer to self: a cycle would keep blocks alive

        def keep() -> None:
            array = fresh.kind == "ndarray"
            made[fresh.name] = block if array else wrap(mesh.asarray(block), layout, mesh)

        self._after.append(keep)

    def read(self, held: HeldCheckpoint, shown: bool) -> Exception | None:
        """Fill the blocks of this rank; return its exception or None."""
        total = sum(
            prod(w.layout.local_shape(on.coords)) * w.stored.dtype.itemsize
            for on, some in self._wanted.items()
            for w in some
        )
        error = None
        words = f"loading {self._catalog.path.name}"
        with (
            bar(words, total, self._mesh, shown) as progress,
            ChunkFiles(held) as files,
        ):
            for mesh, wanted in self._wanted.items():
                if mesh.coords is not None:
                    found = read_arrays(files, wanted, mesh, progress)
                    error = error or found
        return error

    def assemble(self) -> None:
        """Make arrays of the filled blocks."""
        for step in self._after:
            step()


def _placements(
    fresh: Fresh, stored: Stored, mesh: DeviceMesh, placements: ManyPlacements | None
) -> Placements | None:
    """Return a new array's placements: the caller's, else the saved ones, else None (default)."""
    if isinstance(placements, Mapping):
        patterns = [p for p in placements if fnmatchcase(fresh.name, p)]
        said = placements[patterns[0]] if patterns else None
    elif callable(placements):
        said = placements(fresh.name, stored.shape)
    else:
        said = placements
    if said is not None or len(fresh.placements) != len(mesh.shape):
        return said
    dims = [_SHARD.fullmatch(str(word)) for word in fresh.placements]
    if any(found and int(found[1]) >= len(stored.shape) for found in dims):
        return None
    return [Shard(int(found[1])) if found else Replicate() for found in dims]
