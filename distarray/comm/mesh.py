"""Device mesh: an n-d grid of ranks with named dimensions, over a communicator."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from distarray.comm import devices
from distarray.comm.current_mesh import defaults, entered, left, preferred_mesh
from distarray.comm.group import Group
from distarray.comm.mesh_definition import (
    Definition,
    check_device,
    checked_names,
    compare,
    definition,
    fiber,
)
from distarray.comm.outside import OutsideGroup
from distarray.comm.roots import root_group, world_group
from distarray.comm.threads import current_world
from distarray.comm.tune import use_own_gpu
from distarray.config import config, in_force
from distarray.errors import DivergenceError, MeshError
from distarray.layout.showing import mesh_html
from distarray.lazy import needs
from distarray.plan.exchange import coords_of
from distarray.typing import Array, DTypeLike

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["DeviceMesh", "default_mesh", "init_device_mesh"]

#: Prefix that users write before the functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray."

#: Meshes made of COMM_NULL, which belong to no group.
_outside_meshes: dict[Definition, "DeviceMesh"] = {}


class DeviceMesh:
    """Grid of ranks with n dimensions; one object for equal arguments on one communicator.

    Making a mesh is collective over its ranks. On other ranks `coords` is None, and operations on
    the mesh send nothing and wait for no rank. Inside ``with mesh:`` new arrays are on the mesh.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or Group, optional
        The ranks of the grid; by default all ranks of the job. ``MPI.COMM_NULL`` makes a mesh that
        this rank does not belong to.
    shape : int or sequence of int
        Length of each mesh dimension; the product is the number of ranks.
    mesh_dim_names : sequence of str, optional
        One name for each mesh dimension.
    device_type : {"cpu", "cuda"}, optional
        Kind of the blocks: NumPy or CuPy arrays. `config.device` by default.
    ranks : array of int, optional
        The ranks of `comm` to take, in row-major order of the grid; by default all, in order.

    Attributes
    ----------
    shape, mesh_dim_names, device_type
        The arguments of the constructor; names are None if there are none.
    coords : tuple of int or None
        This rank's mesh coordinate; None outside of the mesh.
    rank : int
        This rank's number in row-major order; -1 outside of the mesh.
    ranks : tuple of int
        The members as ranks of the communicator the mesh was made on.

    Raises
    ------
    MeshError
        If shape, names, ranks and communicator do not fit together; on every rank.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> mesh = DeviceMesh(MPI.COMM_SELF, (1, 1), ("dp", "tp"))
    >>> mesh["tp"].shape, mesh.coords
    ((1,), (0, 0))
    """

    __slots__ = (
        "__weakref__",
        "_group",
        "_hash",
        "_root",
        "_subgroups",
        "_xp",
        "coords",
        "device_type",
        "mesh_dim_names",
        "ndim",
        "rank",
        "ranks",
        "shape",
    )

    shape: tuple[int, ...]
    ndim: int
    mesh_dim_names: tuple[str, ...] | None
    device_type: str
    coords: tuple[int, ...] | None
    rank: int
    ranks: tuple[int, ...]
    _root: Group | None
    _group: Group | None
    _subgroups: dict[tuple[int, ...], Group]
    _hash: int
    _xp: Any

    def __new__(
        cls,
        comm: "MPI.Intracomm | Group | None" = None,
        shape: int | Sequence[int] | None = None,
        mesh_dim_names: Sequence[str] | None = None,
        *,
        device_type: str | None = None,
        ranks: ArrayLike | None = None,
    ) -> "DeviceMesh":
        """Return the interned mesh, or make it: see the class."""
        device_type = config.device if device_type is None else device_type
        root = root_group(comm)
        wanted: Definition | MeshError
        try:
            wanted = definition(root, shape, mesh_dim_names, device_type, ranks)
        except MeshError as error:
            wanted = error
        if ranks is None and root is not None:
            compare(root, wanted)  # all of its ranks make the mesh
        if isinstance(wanted, MeshError):
            raise wanted
        store = _outside_meshes if root is None else root.meshes
        known = store.get(wanted)
        if known is not None:
            return known
        mesh = _interned(root, wanted)
        if mesh.coords is not None and ranks is not None:
            try:
                compare(mesh.group, wanted)
            except DivergenceError:
                store.pop(wanted)
                raise
        return mesh

    # -- questions ----------------------------------------------------------------------------

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Return the number of ranks, of the whole mesh or along one dimension."""
        return len(self.ranks) if mesh_dim is None else self.shape[self.mesh_dim(mesh_dim)]

    def mesh_dim(self, key: int | str) -> int:
        """Return the number of a mesh dimension given by name or (possibly negative) number."""
        if isinstance(key, str):
            if self.mesh_dim_names is None or key not in self.mesh_dim_names:
                raise MeshError(f"{self!r} has no dimension {key!r}{self._names_hint()}")
            return self.mesh_dim_names.index(key)
        dim = int(key)
        if not -self.ndim <= dim < self.ndim:
            raise MeshError(f"{self!r} has {self.ndim} dimension(s); {dim} is out of range")
        return dim % self.ndim

    @property
    def xp(self) -> Any:
        """The array module of the blocks: NumPy, or CuPy for "cuda"."""
        if self._xp is None:
            self._xp = np if self.device_type == "cpu" else needs("cupy", "cuda12")
            if self.device_type != "cpu":
                use_own_gpu(self._xp)
        return self._xp

    @property
    def device(self) -> str:
        """Device of this rank's blocks: "cpu" or "cuda:N"."""
        return "cpu" if self.device_type == "cpu" else f"cuda:{self.xp.cuda.Device().id}"

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a rank of the mesh, numbered in row-major order."""
        if not 0 <= rank < len(self.ranks):
            raise MeshError(f"{self!r} has ranks 0 to {len(self.ranks) - 1}, not {rank}")
        return coords_of(rank, self.shape)

    # -- arrays on the mesh's devices ---------------------------------------------------------

    def asarray(self, x: ArrayLike, dtype: DTypeLike | None = None) -> Array:
        """Return an array-like as an array on this rank's device, without a copy if it is one."""
        block: Array = self.xp.asarray(x, dtype)
        return block if block.ndim else devices.signed(block, x)

    def to_host(self, block: Array) -> Array:
        """Return a block as a NumPy array or scalar: itself, or copied from the device."""
        return cast("Any", block).get() if devices.on_device(block) else block

    def scalar(self, block: Array | np.generic) -> Any:
        """Return the 0-d result of an operation as NumPy does: a scalar, on the host.

        CuPy would return a 0-d array on the device, which can be changed in place. Each operation
        on it, ``if`` and ``float`` would wait for the device.
        """
        return block if isinstance(block, np.generic) else devices.scalar(self.to_host(block))

    # -- groups of ranks ----------------------------------------------------------------------

    @property
    def group(self) -> Group:
        """Group of all ranks of the mesh, in row-major order; made at the first use."""
        if self._group is None:
            self._group = self._group_over(self.ranks)
        return self._group

    def subgroup(self, mesh_dims: Iterable[int | str]) -> Group:
        """Return the group of the ranks that differ from this rank only along some mesh dimensions.

        Parameters
        ----------
        mesh_dims : sequence of int or str
            The dimensions; the group's order is row-major in the order of this argument.

        Returns
        -------
        Group
            Cached; making it is collective over its ranks.
        """
        dims = mesh_dims if isinstance(mesh_dims, tuple) else tuple(mesh_dims)
        found = self._subgroups.get(dims)  # type: ignore[arg-type]
        if found is None:
            numbers = self._distinct_dims(dims)
            found = self._subgroups.get(numbers)
            if found is None:
                found = self._group_over(self._fiber(numbers))
                found = self._subgroups.setdefault(numbers, found)
        return found

    def comm(self, mesh_dim: int | str | None = None) -> Any:
        """Return the mpi4py communicator along one mesh dimension, or of the whole mesh.

        The library owns it: use it for collectives, but do not free it. It is COMM_NULL outside of
        the mesh.
        """
        dims = tuple(range(self.ndim)) if mesh_dim is None else (self.mesh_dim(mesh_dim),)
        group = self.subgroup(dims)
        if isinstance(group, OutsideGroup):
            from mpi4py import MPI

            return MPI.COMM_NULL
        if not hasattr(group, "comm"):
            kind = "of one process" if self.size() == 1 else "made of threads"
            raise MeshError(f"this mesh is {kind} and has no MPI communicator")
        return group.comm

    # -- meshes made of this one --------------------------------------------------------------

    def __getitem__(self, names: str | tuple[str, ...]) -> "DeviceMesh":
        """Return the sub-mesh along named dimensions that has this rank: ``mesh["dp", "tp"]``."""
        keys = names if isinstance(names, tuple) else (names,)
        if not keys or not all(isinstance(key, str) for key in keys):
            raise MeshError(f"a mesh is indexed by the names of its dimensions, not {names!r}")
        dims = self._distinct_dims(keys)
        shape = tuple(self.shape[dim] for dim in dims)
        return self._relative(shape, keys, self._fiber(dims))

    def flatten(self, name: str | None = None) -> "DeviceMesh":
        """Return a 1-d mesh of the same ranks; its default name joins the names with ``_``."""
        if name is None and self.mesh_dim_names is not None:
            name = "_".join(self.mesh_dim_names)
        names = checked_names(None if name is None else (name,), (self.size(),))
        return self._relative((self.size(),), names, self.ranks)

    def on(self, device_type: str) -> "DeviceMesh":
        """Return the same grid of ranks with blocks on another kind of device."""
        check_device(device_type)
        return _interned(self._root, (self.shape, self.mesh_dim_names, self.ranks, device_type))

    def joined(self, other: "DeviceMesh") -> tuple[Group | None, tuple[int, ...], tuple[int, ...]]:
        """Return a group over the ranks of two meshes, and the numbers of both meshes' ranks in it.

        The group is None on a rank of neither mesh. Collective over both meshes at its first call.

        Raises
        ------
        MeshError
            If the meshes were made on different communicators.
        """
        if self._root is None and other._root is None:
            return None, (), ()
        root = self._root if self._root is not None else other._root
        if root is not other._root or root is not self._root or root is None:
            raise MeshError(
                f"{self!r} and {other!r} were made on different communicators; make both on one, "
                "with ranks=[...] to take a part of it"
            )
        union = tuple(sorted({*self.ranks, *other.ranks}))
        place = {rank: number for number, rank in enumerate(union)}
        mine = tuple([place[rank] for rank in self.ranks])
        theirs = tuple([place[rank] for rank in other.ranks])
        return root.subset(union), mine, theirs

    def _relative(
        self, shape: tuple[int, ...], names: tuple[str, ...] | None, ranks: tuple[int, ...]
    ) -> "DeviceMesh":
        return _interned(self._root, (shape, names, ranks, self.device_type))

    def _distinct_dims(self, keys: Iterable[int | str]) -> tuple[int, ...]:
        keys = tuple(keys)
        dims = tuple(self.mesh_dim(key) for key in keys)
        if len(set(dims)) < len(dims):
            raise MeshError(f"mesh dimensions {keys} of {self!r} are not distinct")
        return dims

    def _fiber(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks along `dims` through this rank, or on outside ranks the first corner."""
        if dims == tuple(range(self.ndim)):
            return self.ranks
        return fiber(self.ranks, self.shape, self.coords or (0,) * self.ndim, dims)

    def _group_over(self, ranks: tuple[int, ...]) -> Group:
        if self._root is None or self.coords is None:
            return OutsideGroup(len(ranks))
        return cast("Group", self._root.subset(ranks))

    def __enter__(self) -> "DeviceMesh":
        """Make this the mesh of new arrays: ``with mesh: x = np.zeros(...)``."""
        entered(self)
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        left()

    # -- identity -----------------------------------------------------------------------------

    def _identity(self) -> tuple[object, ...]:
        members, place = self.ranks, None
        if self._root is not None:
            world = self._root.world_ranks
            members = tuple(world[rank] for rank in self.ranks)
            place = self._root.place
        return self.shape, self.mesh_dim_names, self.device_type, members, place

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self._hash == other._hash and self._identity() == other._identity()

    def __hash__(self) -> int:
        return self._hash

    def __copy__(self) -> "DeviceMesh":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "DeviceMesh":
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "a DeviceMesh lives in one MPI job and cannot be pickled; "
            "store its shape and mesh_dim_names and call init_device_mesh with them"
        )

    def _names_hint(self) -> str:
        return "" if self.mesh_dim_names else "; it was made without mesh_dim_names"

    def __repr__(self) -> str:
        names = self.mesh_dim_names or ("",) * self.ndim
        pairs = zip(names, self.shape, strict=True)
        inner = ", ".join([f"{name}={length}".removeprefix("=") for name, length in pairs])
        return f"DeviceMesh({self.device_type!r}, ({inner}))"

    def _repr_html_(self) -> str:
        return mesh_html(self.shape, self.mesh_dim_names, self.device_type, self.coords)


def init_device_mesh(
    device_type: str,
    mesh_shape: int | Sequence[int],
    mesh_dim_names: Sequence[str] | None = None,
    comm: "MPI.Intracomm | Group | None" = None,
) -> DeviceMesh:
    """Make a :class:`DeviceMesh`, with the name and argument order of PyTorch's function.

    Parameters
    ----------
    device_type : {"cpu", "cuda"}
        Device of the blocks.
    mesh_shape : int or sequence of int
        Length of each mesh dimension.
    mesh_dim_names : sequence of str, optional
        Names of the mesh dimensions.
    comm : mpi4py.MPI.Intracomm or Group, optional
        COMM_WORLD by default.

    Examples
    --------
    >>> init_device_mesh("cpu", (1, 1), ("dp", "tp"), comm=MPI.COMM_SELF)  # doctest: +SKIP
    DeviceMesh('cpu', (dp=1, tp=1))
    """
    return DeviceMesh(comm, mesh_shape, mesh_dim_names, device_type=device_type)


def default_mesh() -> DeviceMesh:
    """Return the mesh of new arrays: of a ``with mesh:`` block, else the 1-d mesh over all ranks.

    Examples
    --------
    >>> import distarray
    >>> mesh = distarray.default_mesh()
    >>> mesh.shape == (mesh.size(),), 0 <= mesh.rank < mesh.size()
    (True, True)
    """
    chosen = preferred_mesh()
    if chosen is not None:
        return chosen
    world = current_world()
    if world is not None:
        return _line(world)
    found = defaults.get(in_force().device)
    if found is None:
        # In a job of one rank, several threads may need the mesh first: all get one mesh.
        found = defaults.setdefault(config.device, _line(world_group()))
    return found


def _line(group: Group) -> DeviceMesh:
    """Return the 1-d mesh of all ranks of a group; it needs no comparison between ranks."""
    return _interned(group, ((group.size,), None, tuple(range(group.size)), config.device))


def _interned(root: Group | None, wanted: Definition) -> DeviceMesh:
    """Return the interned mesh of this definition; no communication."""
    store = _outside_meshes if root is None else root.meshes
    found = store.get(wanted)
    if found is not None:
        return found
    shape, names, ranks, device_type = wanted
    mesh = object.__new__(DeviceMesh)
    mesh.shape, mesh.ndim, mesh.mesh_dim_names = shape, len(shape), names
    mesh.device_type, mesh.ranks = device_type, ranks
    inside = root is not None and root.rank in ranks
    mesh.rank = ranks.index(root.rank) if inside and root is not None else -1
    mesh.coords = mesh.coords_of(mesh.rank) if inside else None
    mesh._root, mesh._group, mesh._subgroups, mesh._xp = root, None, {}, None
    mesh._hash = hash((shape, names, device_type, None if root is None else root.place))
    return store.setdefault(wanted, mesh)  # another thread's, if that was faster
