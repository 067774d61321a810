"""`x.flags` of a cut array: the storage of the whole array, the same on all ranks.

The flags of one block may differ: one row of a matrix is contiguous in both orders. A program that
branches on flags must take the same branch on all ranks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array.base import Base, natural_of, owns_block, raw_block
from distarray.array.geometry import base_of, owns_memory
from distarray.array.storage import is_contiguous
from distarray.comm.agree import agreed

__all__ = ["Flags", "flags_of", "set_flags"]

#: NumPy's keys of the flags that any block has in common with the array -> their attribute.
_OF_BLOCKS = {
    "W": "writeable",
    "WRITEABLE": "writeable",
    "A": "aligned",
    "ALIGNED": "aligned",
}
#: View of a read-only array.
_OF_READ_ONLY = np.frombuffer(b" ", np.uint8)[:]
_ORDERS = {"c_contiguous": "C", "contiguous": "C", "f_contiguous": "F", "fortran": "F"}


class Flags:
    """NumPy's flags for a cut array.

    Cost
    ----
    Setting a flag to True: one allreduce of an integer, by which the ranks agree. Reading: none for
    `writeable` and `aligned`; for other flags that of
    :func:`~distarray.array.storage.is_contiguous`, for both orders.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Base) -> None:
        object.__setattr__(self, "_array", array)

    def _is_stored(self, order: str) -> bool:
        x: Base = self._array
        long = sum(extent > 1 for extent in x.layout.shape)
        return not x.layout.size or is_contiguous(x, order if long > 1 else "C")

    def _told(self) -> Any:
        """Return NumPy's flags of a sample array that is stored in the same order."""
        sides = {
            (True, True): np.empty(1),
            (True, False): np.empty((2, 2)),
            (False, True): np.empty((2, 2), order="F"),
            (False, False): np.empty((4, 4))[::2, ::2],
        }
        sample = sides[self._is_stored("C"), self._is_stored("F")]
        if not owns_memory(self._array):
            sample = sample[...]
        sample.flags.writeable = raw_block(self._array).flags.writeable
        return sample.flags

    def __getattr__(self, name: str) -> Any:
        if name in _OF_BLOCKS.values():
            return getattr(raw_block(self._array).flags, name)
        order = _ORDERS.get(name)
        return getattr(self._told(), name) if order is None else self._is_stored(order)

    def __setattr__(self, name: str, value: bool) -> None:
        set_flags(self._array, lambda block: setattr(block.flags, name, value), bool(value))

    def __getitem__(self, name: str) -> Any:
        known = _OF_BLOCKS.get(name)
        return self._told()[name] if known is None else getattr(self, known)

    def __setitem__(self, name: str, value: bool) -> None:
        set_flags(self._array, lambda block: block.flags.__setitem__(name, value), bool(value))

    def __eq__(self, other: object) -> bool:
        return bool(self.num == getattr(other, "num", None))

    def __hash__(self) -> int:
        return hash(self.num)

    def __repr__(self) -> str:
        return repr(self._told())


def flags_of(x: Base) -> Any:
    """Return the flags of an array: of an array that every rank has whole NumPy's own object."""
    block = raw_block(x)
    if not isinstance(block, np.ndarray):
        return getattr(block, "flags", None)  # of a CuPy array or a scalar
    is_numpys = x.layout.is_whole and (block.flags.owndata or not owns_block(block))
    return block.flags if is_numpys else Flags(x)


def set_flags(x: Base, act: Callable[[Any], None], allows: bool) -> None:
    """Change flags of all blocks of an array, or of none if NumPy rejects the change on some rank.

    Parameters
    ----------
    x : DistArray
        The array.
    act : callable
        Takes the block, and changes its flags.
    allows : bool
        True if the change permits something, such as writes. NumPy may reject it for some blocks,
        so the ranks agree.
    """
    blocks = _owned(raw_block(x))
    if x.layout.is_whole or x.mesh.coords is None:
        _apply(act, blocks)
        return
    if not allows:
        _apply(act, [*blocks[:-1], _own_view(x, blocks[-1])])
        return
    before, base = [block.flags.writeable for block in blocks], base_of(x)
    refused = base is not None and not raw_block(base).flags.writeable
    try:
        # NumPy itself raises the error.
        agreed(x.mesh.group, lambda: _apply(act, [_OF_READ_ONLY] if refused else blocks))
    except Exception:
        for block, writeable in zip(blocks, before, strict=True):
            block.flags.writeable = writeable
        raise


def _apply(act: Callable[[Any], None], blocks: Sequence[Any]) -> None:
    for block in blocks:
        act(block)


def _owned(block: Any) -> list[Any]:
    """List a block and the blocks whose place it took, beginning with the owner of the memory."""
    if not owns_block(block) or block.flags.owndata:
        return [block]
    return [*_owned(block.base), block]


def _own_view(x: Base, block: Any) -> Any:
    """Return the block of an array; for a view of an array, a NumPy view of the block's memory.

    In NumPy a view of a read-only view can be made writeable if the owner of the memory is
    writeable.
    """
    if type(block) is not np.ndarray or not block.flags.owndata:
        return block
    if base_of(x) is None:
        return block
    view = block[...]
    if x._storage.block is block:
        x._storage.block = view
    else:
        x.block = view
        if natural_of(x) is block:
            x._natural = view
    return view
