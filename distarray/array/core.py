"""Distributed array: a block, a layout and a mesh."""

import operator
from collections.abc import Callable, Collection, Hashable, Sequence
from copy import deepcopy
from functools import lru_cache
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Never, SupportsIndex, cast

import numpy as np

from distarray.array import buffer, exporting, movement, printing
from distarray.array.alike import call_into
from distarray.array.base import Base, is_subclass, raw_block, readable
from distarray.array.divergence import verify
from distarray.array.explaining import explained
from distarray.array.handed_out import hand_out
from distarray.array.handing import ordinary
from distarray.array.items import Items
from distarray.array.ladder import at_once, call, call_in_general, call_ufunc
from distarray.array.lending import block_for_caller, lend
from distarray.array.methods import Methods
from distarray.array.operators import Operators, called
from distarray.array.registry import FUNCTIONS
from distarray.array.scalars import Scalars
from distarray.array.speedups import quick
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Layout, Placement
from distarray.plan.explaining import Explanation
from distarray.typing import Args, Array, DTypeLike, Kwargs

__all__ = ["DistArray", "single", "wrap"]

#: The flag that requests a writable buffer.
_WRITABLE = 1
_new = object.__new__


# Scalars first: the == of Operators removes the hash.
class DistArray(Scalars, Items, Operators, Methods):
    """Global array, of which every rank of a mesh holds a block.

    Make one with :func:`distarray.distribute`, :meth:`from_local` or the functions of
    :mod:`distarray.numpy`; it then behaves as a :class:`numpy.ndarray`. Attributes never
    communicate. Methods may communicate, and then every rank of the mesh must call them.

    Attributes
    ----------
    layout : Layout
        The placement of every element.
    mesh : DeviceMesh
        The ranks that hold the array.
    block : array or numpy.generic
        This rank's block as stored; :meth:`to_local` returns it as an array.

    Examples
    --------
    >>> import numpy, distarray
    >>> x = distarray.distribute(numpy.arange(10.0), placements=[distarray.Shard(0)])
    >>> float(np.sum(x * x))
    285.0
    """

    __slots__ = ()

    __array_priority__ = 1000.0

    if TYPE_CHECKING:  # set by `from_blocks`, which makes arrays

        @staticmethod
        def from_local(
            block: Array,
            mesh: DeviceMesh | None = None,
            placements: Sequence[Placement] | Placement | None = None,
            shape: Sequence[int] | None = None,
            *,
            check: bool = True,
        ) -> "DistArray":
            """Make an array from this rank's block, as :func:`distarray.from_local`."""
            ...

    def __init__(self) -> None:
        raise TypeError(
            "make a DistArray with distarray.distribute(x), DistArray.from_local(block, mesh, "
            "placements) or a function of distarray.numpy"
        )

    # -- attributes: free, never communicate -------------------------------------------------

    @property
    def device_mesh(self) -> DeviceMesh:
        """Mesh, under DTensor's name."""
        return self.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Placement of the array along each mesh dimension."""
        return self.layout.placements

    @property
    def device(self) -> str:
        """Device of this rank's block: "cpu" or "cuda:N"."""
        return self.mesh.device

    @device.setter
    def device(self, name: Never) -> None:
        raise AttributeError("attribute 'device' of 'numpy.ndarray' objects is not writable")

    # -- local blocks ------------------------------------------------------------------------

    def to_local(self) -> Array:
        """Return this rank's block, not copied: writing to the block writes to the array.

        If a fold is pending, the block is this rank's contribution. Does not communicate. A stale
        block of shared memory raises an error; :meth:`refresh` updates it.
        """
        block = lend(self) if not self.layout.is_whole and block_for_caller() else self.block
        return cast(Array, self.mesh.asarray(block) if isinstance(block, np.generic) else block)

    # -- for authors of operations -------------------------------------------------------------

    def like(self, block: Array) -> "DistArray":
        """Return an array with the layout of this one and another block; checks nothing."""
        return wrap(block, self.layout, self.mesh)

    def computed(self, block: Array) -> Any:
        """Return the result of an operation, as :meth:`like`; a 0-d result becomes a number."""
        layout = self.layout
        if not layout.shape:
            result = self.like(single(block, layout, self.mesh))
            return result if isinstance(self.block, np.generic) else result.number()
        result = _new(DistArray)
        result.layout = layout
        result.mesh = self.mesh
        result.block = block
        return result

    def number(self) -> Any:
        """Return the 0-d result of an operation as NumPy's scalar, or the Python object in it.

        A rank outside of the mesh does not know the number, and returns the array.

        Cost
        ----
        One allreduce if a fold is pending, one broadcast if one coordinate has the number; else
        none.
        """
        if self.mesh.coords is None:
            return self
        scalar = self.mesh.scalar(self.plain().block)
        return scalar if isinstance(scalar, np.generic) else scalar[()]

    def settle(self) -> None:
        """Carry out pending folds and replicate blocks of single coordinates, in place; collective.

        Cost
        ----
        One allreduce along the mesh dimensions where a fold is pending (a reduce-scatter if the
        array is large), one broadcast along those where one coordinate has everything. Nothing if
        the layout is plain.
        """
        layout = self.layout
        large = layout.partials and self.nbytes >= config.replicate_below
        target = movement.scatter_target(layout) if large else None
        writeable = getattr(self.block.flags, "writeable", True)
        self._natural = None  # some ranks may keep their block
        self.block, self.layout = movement.settled(self.block, layout, self.mesh, target)
        if not writeable and layout.partials and isinstance(self.block, np.ndarray):
            self.block.flags.writeable = False

    def plain(self) -> "DistArray":
        """Return the array without pending folds, and on all coordinates; collective.

        The result is the array itself, settled. If the array is stored at one coordinate, the
        result is a copy: the array may be a view of another array and has to stay where it is.
        """
        if self.layout.is_plain:
            return self
        if not self.layout.ats:
            self.settle()
            return self
        copy = self.like(self.block)
        copy.settle()
        return copy

    # -- moving ------------------------------------------------------------------------------

    def redistribute(
        self,
        mesh: DeviceMesh | Sequence[Placement] | Placement | None = None,
        placements: Sequence[Placement] | Placement | None = None,
    ) -> "DistArray":
        """Return the array with other placements, in one step; collective.

        Parameters
        ----------
        mesh : DeviceMesh, optional
            The mesh of the result: the array's own by default, or another over ranks that share a
            communicator with it.
        placements : sequence of Placement, optional
            One per mesh dimension; all `Replicate()` by default. A pending fold can only stay
            along its mesh dimension.

        Returns
        -------
        DistArray
            With the canonical cut, and memory of its own.

        Raises
        ------
        LayoutError
            If the placements do not fit the array or the mesh.

        Cost
        ----
        Each rank receives the elements of its new block that it does not hold already, in one
        message per pair of ranks. Pending folds are carried out first: one allreduce along their
        mesh dimensions, or one reduce-scatter if the result is sharded there.
        """
        return cast(DistArray, call(DistArray.redistribute, self, mesh, placements))

    def explain(self, placements: Sequence[Placement] | Placement) -> Explanation:
        """Predict messages and time of ``redistribute(placements=placements)``; nothing is sent.

        Parameters
        ----------
        placements : sequence of Placement
            One per mesh dimension.

        Returns
        -------
        Explanation
            To be printed, or displayed in a notebook.
        """
        return explained(self, placements)

    def full(self) -> np.ndarray[Any, Any]:
        """Return the global array as a new NumPy array on every rank; collective."""
        x = readable(self)
        verify(DistArray.full, (x,), {})
        return cast("np.ndarray[Any, Any]", movement.gathered(x.block, x.layout, x.mesh))

    full_tensor = full

    def gather(self, root: int = 0) -> np.ndarray[Any, Any] | None:
        """Return the global array as a NumPy array on rank `root` of the mesh, None elsewhere.

        Collective.

        Parameters
        ----------
        root : int
            Rank of the mesh.
        """
        root = operator.index(root)
        verify(DistArray.gather, (self, root), {})
        if not 0 <= root < self.mesh.size():
            raise ValueError(f"gather(root={root}): the mesh has ranks 0 to {self.mesh.size() - 1}")
        return movement.gathered(self.block, self.layout, self.mesh, root)

    # -- protocols ---------------------------------------------------------------------------

    @quick("array_ufunc")
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found: Any = NotImplemented
        if method == "__call__":
            if not kwargs:
                found = called(ufunc, self, inputs)
            elif kwargs.keys() == _INTO:
                found = call_into(ufunc, self, inputs, kwargs["out"])
        return _by_ladder(ufunc, method, inputs, kwargs) if found is NotImplemented else found

    @quick("array_function")
    def __array_function__(
        self, func: Callable[..., Any], types: Collection[type], args: Args, kwargs: Kwargs
    ) -> Any:
        if type(args) is tuple:
            found = at_once(func, args, kwargs)  # accepts only DistArray and NumPy types
            if found is not NotImplemented:
                return found
        given: Any = (args, kwargs)
        if (type(given[0]), type(given[1])) != (tuple, dict):
            np.empty(0).__array_function__(func, (), *given)  # raises NumPy's error
        for kind in types:
            known = issubclass(kind, _KNOWN) or issubclass(DistArray, kind)
            if not known and not hasattr(kind, "__cuda_array_interface__"):
                return NotImplemented
        if any(map(is_subclass, types)):
            name = f"numpy.{func.__name__}"
            return func(*ordinary(args, name), **ordinary(kwargs, name))
        row = FUNCTIONS.get(func)
        if row is not None and row.like:
            kwargs = {"like": self, **kwargs}  # NumPy does not pass on its argument like=
        return call_in_general(func, *args, **kwargs)

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        exporting.while_in_lists()
        if self.layout.is_replicated and (copy is not False or self.mesh.device_type == "cpu"):
            return np.array(self.mesh.to_host(self.block), dtype, copy=copy)
        if copy is False:
            raise ValueError("a NumPy array made from a distributed array is always a copy")
        take = exporting.gathered if copy else exporting.lent
        whole = take(self, exporting.CONVERSION)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return exporting.interface(self)

    @property
    def __array_struct__(self) -> Any:
        return exporting.struct(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return call(DistArray.__array_namespace__, api_version=api_version)

    def __buffer__(self, flags: int, /) -> memoryview:
        view = buffer.view_of(buffer.export(self, flags))
        if flags & _WRITABLE and view.readonly:
            raise BufferError("read-only: the buffer of a cut array is a gathered copy")
        return view

    def __release_buffer__(self, view: memoryview, /) -> None:
        """Do nothing: without this method `numpy.frombuffer` would not keep the buffer alive."""

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        hand_out()
        block = self.to_local() if self.layout.is_whole else lend(self)
        return exporting.capsule(self, block, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return cast("tuple[int, int]", self.mesh.asarray(raw_block(self)).__dlpack_device__())

    # -- copies and printing -------------------------------------------------------------------

    def __copy__(self) -> "DistArray":
        return np.copy(self)  # type: ignore[return-value]

    def __deepcopy__(self, memo: dict[int, Any]) -> "DistArray":
        if self.block.dtype.hasobject:
            return self.like(deepcopy(self.block, memo))
        return np.copy(self)  # type: ignore[return-value]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + getsizeof(raw_block(self))

    def to_tensor(self) -> Any:
        """Return the :class:`distarray.torch.DistTensor` over the same memory, without gradient.

        Raises
        ------
        ImportError
            If the program has not imported ``distarray.torch``.
        TypeError, CopyRequiredError
            If torch cannot share the blocks' memory; see :func:`distarray.torch.to_torch`.

        Cost
        ----
        None for an array that is known to be in C order, else allreduces of an integer.
        """
        if not exporting.tensor_of:
            raise ImportError("x.to_tensor() is there when the program imports distarray.torch")
        return exporting.tensor_of[0](self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return exporting.reduced(self, protocol)

    def __reduce__(self) -> Any:
        return exporting.reduced(self, 2)

    def __repr__(self) -> str:
        return printing.array_repr(self)

    def __str__(self) -> str:
        return printing.array_str(self)

    def _repr_html_(self) -> str:
        return printing.array_html(self)

    def summary(self) -> str:
        """Return one line with shape, data type and placements; never communicates."""
        return printing.summary(self)


def _by_ladder(ufunc: Any, method: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a ufunc through the dispatcher; NotImplemented if another type implements the call."""
    if not isinstance(ufunc, np.ufunc):
        np.empty(0).__array_ufunc__(ufunc, method, *inputs)  # raises NumPy's error
    if ufunc.signature is not None and any(map(_takes_ufuncs, map(type, inputs))):
        return NotImplemented
    contracts = ufunc.signature is not None and "out" not in kwargs
    if contracts and any(map(is_subclass, map(type, inputs))):
        return getattr(ufunc, method)(*ordinary(inputs, f"numpy.{ufunc.__name__}"), **kwargs)
    return call_ufunc(ufunc, method, inputs, kwargs)


_INTO = {"out"}
#: Types whose instances can be mixed with distributed arrays in a call.
_KNOWN = (DistArray, np.ndarray)

buffer.give_buffer(DistArray)


@lru_cache(maxsize=256)
def _takes_ufuncs(kind: Hashable) -> bool:
    """Return True if a type implements ufuncs, and this library does not compute with it."""
    override = getattr(kind, "__array_ufunc__", None)
    known = (None, np.ndarray.__array_ufunc__, DistArray.__array_ufunc__)
    return override not in known and not hasattr(kind, "__cuda_array_interface__")


Base.plain_type = DistArray


def wrap(block: Array | np.generic, layout: Layout, mesh: DeviceMesh) -> DistArray:
    """Make a DistArray of a block that is known to fit its layout; checks nothing."""
    self: DistArray = object.__new__(DistArray)
    self.block, self.layout, self.mesh = block, layout, mesh
    return self


def single(value: Array, layout: Layout, mesh: DeviceMesh) -> Any:
    """Return the 0-d result of an operation as a scalar of the same type on all ranks.

    The type of a string scalar includes its length, which only the rank that has the string knows.

    Cost
    ----
    One broadcast of a string that is stored at one coordinate; else none.
    """
    scalar = mesh.scalar(value)
    if layout.ats and isinstance(scalar, (np.str_, np.bytes_)) and mesh.coords is not None:
        for mesh_dim in layout.ats:
            root = layout.placements[mesh_dim].coordinate  # type: ignore[attr-defined]
            scalar = mesh.subgroup((mesh_dim,)).broadcast_object(scalar, root)
    return scalar
