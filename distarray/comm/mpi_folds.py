"""Folds of a group on MPI: by MPI if it folds as NumPy does, otherwise by NumPy."""

from collections.abc import Callable, Sequence
from functools import cached_property
from threading import get_ident
from typing import Any

import numpy as np
from mpi4py import MPI

from distarray.comm import algorithms
from distarray.comm.algorithms import GATHER_BELOW
from distarray.comm.datatypes import LARGE, carrier, message
from distarray.comm.folding import UFUNCS, averaged, prepared
from distarray.comm.group import Array, Board, Group
from distarray.comm.pending import FINISHED, Pending, Requested
from distarray.comm.shared_memory import FROM as SHARED_FROM
from distarray.comm.shared_memory import SharedMemory, shared_by
from distarray.comm.talkers import Talker
from distarray.errors import DivergenceError
from distarray.layout.placement import Fold

__all__ = ["MPIFolds"]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

_IN_PLACE = MPI.IN_PLACE


def _native_folds() -> dict[str, dict[np.dtype[Any], tuple[MPI.Op, MPI.Datatype]]]:
    """Return MPI's operation and type, by fold and dtype, if MPI folds as NumPy does.

    The table has no MIN and MAX of floats (MPI may lose a NaN), no products of complex numbers (C
    and NumPy differ at infinities), no half and extended precision and no times. It has no sums of
    integers of 8 and 16 bits, which wrap around in NumPy and saturate in Open MPI's vectorized
    loops.
    """
    integers = {np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)}
    types = {dtype: carrier(dtype).mpi_type for dtype in integers}
    wide = {dtype: kind for dtype, kind in types.items() if dtype.itemsize >= 4}
    floats = {np.dtype(name): carrier(np.dtype(name)).mpi_type for name in ("f4", "f8")}
    complexes = {np.dtype(name): carrier(np.dtype(name)).mpi_type for name in ("c8", "c16")}
    boolean = {np.dtype(bool): MPI.C_BOOL}

    def table(operation: MPI.Op, *groups: dict[Any, Any]) -> dict[Any, Any]:
        return {dtype: (operation, kind) for group in groups for dtype, kind in group.items()}

    return {
        Fold.SUM.value: table(MPI.SUM, wide, floats, complexes) | table(MPI.LOR, boolean),
        Fold.PROD.value: table(MPI.PROD, types, floats) | table(MPI.LAND, boolean),
        Fold.MIN.value: table(MPI.MIN, types) | table(MPI.LAND, boolean),
        Fold.MAX.value: table(MPI.MAX, types) | table(MPI.LOR, boolean),
        Fold.ANY.value: table(MPI.LOR, boolean),
        Fold.ALL.value: table(MPI.LAND, boolean),
        Fold.BAND.value: table(MPI.BAND, types) | table(MPI.LAND, boolean),
        Fold.BOR.value: table(MPI.BOR, types) | table(MPI.LOR, boolean),
        Fold.BXOR.value: table(MPI.BXOR, types) | table(MPI.LXOR, boolean),
        Fold.AVG.value: {},
    }


_NATIVE = _native_folds()
_NOTHING: dict[Any, Any] = {}
#: MIN and MAX of these floats, for small blocks: gathered by MPI and folded by NumPy, with NaN.
_GATHERED = {
    fold.value: {
        np.dtype(name): (UFUNCS[fold].reduce, carrier(np.dtype(name)).mpi_type)
        for name in ("f4", "f8")
    }
    for fold in (Fold.MIN, Fold.MAX)
}


class MPIFolds(Group):
    """Base of :class:`~distarray.comm.mpi.MPIGroup` with its folds.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
        The library's own communicator, a duplicate: its messages never mix with the program's.
    talker : Talker
        The thread that may use the communicator.
    """

    def __init__(self, comm: MPI.Intracomm, talker: Talker) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size())
        self._comm = comm
        self.talker = talker

    @property
    def comm(self) -> MPI.Intracomm:
        """Communicator of all messages; raises in a thread that may not use it."""
        if get_ident() != self.talker.thread:
            self.check_talker()
        return self._comm

    # -- memory that the ranks share ------------------------------------------------------------

    @property
    def _on_one_node(self) -> bool:
        """True if there are several ranks, all on one node."""
        return self.size > 1 and self.nodes is None

    @property
    def _shared(self) -> SharedMemory | None:
        """Memory in which the ranks can fold; None if there is none. Collective the first time."""
        if get_ident() != self.talker.thread:
            self.check_talker()
        return self._memory

    @cached_property
    def _memory(self) -> SharedMemory | None:
        # A rank that wrongly folds a smaller block by MPI gets an error here, as in `_meet_alike`.
        self.comm.Allreduce(_IN_PLACE, np.zeros(2))
        return shared_by(self.comm) if self._on_one_node else None

    def _board(self) -> Board | None:
        return self._shared

    def _is_large(self, block: Array) -> bool:
        """Return True if the ranks fold blocks of this size in shared memory."""
        return block.nbytes >= SHARED_FROM and self._shared is not None

    def _fold_large(self, block: Array, total: Array | None, fold: Fold) -> Array:
        assert self._shared is not None
        block = np.ascontiguousarray(block)
        total = np.empty(block.shape, block.dtype) if total is None else total
        self._shared.allreduce(block, total, UFUNCS[fold])
        return total

    # -- folds -----------------------------------------------------------------------------------

    def _allreduce(self, block: Array, fold: Fold) -> Array:
        rule = _NATIVE[fold._value_].get(block.dtype)
        if rule is None:
            return self._allreduce_otherwise(block, fold)
        if self._is_large(block):
            return self._fold_large(block, None, fold)
        total = block.copy()
        if self.size > 1:
            if total.size > LARGE:
                self._in_pieces(self.comm.Allreduce, total, rule)
            else:
                try:
                    self.comm.Allreduce(_IN_PLACE, (total, rule[1]), rule[0])
                except MPI.Exception as error:
                    raise _explained(error, "allreduce", block) from error
        return total

    def _allreduce_in_place(self, block: Array, fold: Fold) -> None:
        rule = _NATIVE[fold._value_].get(block.dtype)
        if rule is None or block.size > LARGE:
            block[...] = self._allreduce(block, fold)
        elif self._is_large(block):
            self._fold_large(block, block, fold)
        elif self.size > 1:
            try:
                self.comm.Allreduce(_IN_PLACE, (block, rule[1]), rule[0])
            except MPI.Exception as error:
                raise _explained(error, "allreduce", block) from error

    def _begin_allreduce(self, block: Array, fold: Fold) -> Pending:
        if self.size == 1 and fold is not Fold.AVG:
            return FINISHED
        rule = _NATIVE[fold._value_].get(block.dtype)
        if rule is None or block.size > LARGE:
            return super()._begin_allreduce(block, fold)
        request = self.comm.Iallreduce(_IN_PLACE, (block, rule[1]), rule[0])
        return Requested(request, block)

    def _in_pieces(
        self, call: Callable[..., None], total: Array, rule: tuple[MPI.Op, MPI.Datatype]
    ) -> None:
        """Fold in place an array with more elements than one call can count."""
        flat = total.reshape(-1)
        for start in range(0, flat.size, LARGE):
            call(_IN_PLACE, (flat[start : start + LARGE], rule[1]), rule[0])

    def _allreduce_otherwise(self, block: Array, fold: Fold) -> Array:
        quick = _GATHERED.get(fold._value_, _NOTHING).get(block.dtype)
        if quick is not None and self.size > 1 and block.nbytes * self.size <= GATHER_BELOW:
            rows = np.empty((self.size, *block.shape), block.dtype)
            self.comm.Allgather(message(block), (rows, block.size, quick[1]))
            return np.asarray(quick[0](rows, 0))
        ready = prepared(block, fold)
        if ready is not block and ready.dtype in _NATIVE[fold._value_]:
            return self._allreduce(ready, fold)
        if fold is Fold.AVG and ready.dtype in _NATIVE[Fold.SUM.value] and ready.dtype != bool:
            return averaged(self._allreduce(ready, Fold.SUM), self.size, fold)
        plain = fold is not Fold.AVG and not ready.dtype.hasobject
        if plain and self._is_large(ready):
            return self._fold_large(ready, None, fold)
        return algorithms.allreduce(self, ready, fold)

    def _reduce_scatter(self, blocks: Sequence[Array], fold: Fold) -> Array:
        ready = [prepared(block, fold) for block in blocks]
        own = ready[self.rank]
        rule = _NATIVE[fold._value_].get(own.dtype)
        if rule is None or self.size == 1 or sum([block.size for block in ready]) > LARGE:
            return algorithms.reduce_scatter(self, ready, fold)
        if sum([block.nbytes for block in ready]) > GATHER_BELOW and self._on_one_node:
            return algorithms.reduce_scatter(self, ready, fold)  # without packing
        operation, kind = rule
        packed = np.concatenate([block.reshape(-1) for block in ready])
        total = np.empty(own.shape, own.dtype)
        counts = [block.size for block in ready]
        try:
            self.comm.Reduce_scatter((packed, kind), (total, kind), counts, operation)
        except MPI.Exception as error:
            raise _explained(error, "reduce_scatter", packed) from error
        return total

    def _exscan(self, block: Array, fold: Fold, identity: complex | Array) -> Array:
        ready = prepared(block, fold)
        rule = _NATIVE[fold._value_].get(ready.dtype)
        if rule is None or self.size == 1:
            return algorithms.exscan(self, ready, fold, identity)
        total = ready.copy()
        self._in_pieces(self.comm.Exscan, total, rule)
        if self.rank == 0:
            total[...] = identity
        return total


def _explained(error: MPI.Exception, call: str, block: Array) -> Exception:
    """Return MPI's error, as a DivergenceError if the ranks pass arrays of different sizes."""
    if error.Get_error_class() != MPI.ERR_TRUNCATE:
        return error
    return DivergenceError(
        f"{call}: the ranks pass different numbers of elements, this one an array of shape "
        f"{block.shape}. With config.check (DISTARRAY_CHECK=1) they compare their arguments before "
        "they send anything, and the error shows what each rank passes"
    )
