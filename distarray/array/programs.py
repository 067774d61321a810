"""Schedule of deferred operations: a topological order in which each operation runs once."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array.leaves import Leaf
from distarray.array.operations import Line, Operation
from distarray.array.pieces import Cell, Pieces, cells_of, whole_box
from distarray.array.tiled import Step, Tiles, run_behind
from distarray.comm.observed import as_under
from distarray.comm.pending import FINISHED
from distarray.layout import Box
from distarray.typing import Array

__all__ = ["Program"]

#: Number of bands of a block that are computed while messages arrive. Messages progress only in MPI
#: calls, which are made between the bands.
_BANDS = 8


class Program:
    """Schedule of all operations that the results of some operations need.

    Parameters
    ----------
    ends : sequence of Operation
        The operations with the results: not run yet, with blocks of one shape.

    Attributes
    ----------
    blocks : list of array or Pieces
        The blocks that the operations read.
    """

    def __init__(self, ends: Sequence[Operation]) -> None:
        self.blocks: list[Any] = []
        self._whole = whole_box(ends[0].shape) if ends else ()
        self._found: set[tuple[int, str]] = set()
        self._constants: list[Any] = []
        self._steps: list[Step] = []
        #: The operations that each step computes; equal operations share one step.
        self._operations: list[list[Operation]] = []
        self._numbers: dict[Any, int] = {}
        every = _graph(ends)
        for x in every:
            for operand in x.operands:
                if type(operand) is Leaf or type(operand) is Operation:
                    self._read(operand)
        for x in every:
            self._add(x)

    def step_of(self, x: Operation) -> int:
        """Return the number of the step that computes an operation."""
        return self._numbers[id(x)] - len(self.blocks)

    def run(self, outs: dict[int, Array], boxes: Sequence[Box] | None = None) -> None:
        """Run the steps in the given boxes, or in the whole block; store results in `outs`.

        Floating-point errors are stored for :meth:`warn`.
        """
        late: list[Cell] = []
        for box in boxes or [self._whole]:
            for part in _bands(box) if self._coming() else [box]:
                cells = cells_of(self.blocks, self._whole, part)
                self._run([cell for cell in cells if cell.is_here], outs)
                late += [cell for cell in cells if not cell.is_here]
                self.poke()
        if late:
            self._arrive()
            self._run(late, outs)

    def _run(self, cells: Sequence[Cell], outs: dict[int, Array]) -> None:
        for key, blocks, _ in cells:
            tiles = self._tiles(key, blocks, {number: out[key] for number, out in outs.items()})
            tiles.run()
            self.note(tiles)

    def _coming(self) -> list[Pieces]:
        """Return the operands with elements that have not arrived."""
        return [x for x in self.blocks if type(x) is Pieces and x.coming is not FINISHED]

    def poke(self) -> None:
        """Advance the messages that deliver operands, without waiting."""
        for block in self._coming():
            block.coming.poke()

    def _arrive(self) -> None:
        for block in self._coming():
            block.arrive()

    def tiles(self, outs: dict[int, Array]) -> Tiles | None:
        """Return the steps, ready to run; None if an operand is split into several arrays."""
        if any(type(block) is Pieces for block in self.blocks):
            return None
        ((key, blocks, _),) = cells_of(self.blocks, self._whole)
        return self._tiles(key, blocks, outs)

    def following(
        self, end: Operation, box: Box, target: Array
    ) -> tuple[list[Tiles], list[Tiles]] | None:
        """Return the steps for a box of a block whose result is written to `target` after reads.

        The steps of the first list can run at once. Those of the second wait for messages from
        other ranks; they read copies of elements that the first steps overwrite. The result is None
        if a write might precede a read of the same element.
        """
        cells = cells_of(self.blocks, self._whole, box)
        here = [cell for cell in cells if cell.is_here]
        late = [cell for cell in cells if not cell.is_here]
        if sum([cell.size for cell in late]) > sum([cell.size for cell in here]):
            self._arrive()  # the copies would cost more than waiting
            here, late = cells, []
        here.sort(key=lambda cell: cell.key[0].start)
        if len(here) > 1 and not all(_spans(cell.key, box) for cell in here):
            return None
        step = self.step_of(end)
        return (
            [self._behind(cell, step, box, target) for cell in here],
            [self._behind(_apart(cell, target), step, box, target) for cell in late],
        )

    def _behind(self, cell: Cell, step: int, box: Box, target: Array) -> Tiles:
        """Return the steps for a cell, with the result in the cell's section of `target`.

        `target` holds the elements of `box`.
        """
        parts = zip(cell.key, box, strict=True)
        into = target[tuple([slice(k.start - low, k.stop - low) for k, (low, _) in parts])]
        return self._tiles(cell.key, cell.parts, {}, (step, into))

    def follow(self, here: Sequence[Tiles], late: Sequence[Tiles], back: int) -> None:
        """Run the steps that :meth:`following` returned."""
        run_behind(here, back, self.poke)
        if late:
            self._arrive()
            run_behind(late, 0)
        for one in (*here, *late):
            self.note(one)

    def _tiles(self, key: tuple[slice, ...], blocks: list[Array], *results: Any) -> Tiles:
        shape = tuple([part.stop - part.start for part in key])
        lifted = [
            block if block.shape == shape else np.broadcast_to(block, shape) for block in blocks
        ]
        return Tiles(lifted, self._constants, self._steps, *results)

    def note(self, tiles: Tiles) -> None:
        """Store the floating-point errors of tiles that have run."""
        self._found |= set(tiles.finished())

    def lines(self) -> list[Line]:
        """Return the lines of the program that called the operations."""
        return [operation.line for alike in self._operations for operation in alike]

    def warn(self) -> None:
        """Warn of floating-point errors as NumPy does, each at its line of the program."""
        for number, kind in sorted(self._found):
            for operation in self._operations[number]:
                _warn(operation, kind)

    def _read(self, operand: Leaf | Operation) -> None:
        """Add the block of an operand, if there is one, to the blocks that are read."""
        if operand.block is not None and id(operand) not in self._numbers:
            self._numbers[id(operand)] = len(self.blocks)
            self.blocks.append(operand.block)

    def _add(self, x: Operation) -> None:
        operands = tuple([self._number(y) for y in x.operands])
        key = x.function, operands
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.blocks) + len(self._steps)
            self._steps.append(Step(x.function, operands, x.dtype))
            self._operations.append([])
        self._operations[number - len(self.blocks)].append(x)
        self._numbers[id(x)] = number

    def _number(self, operand: Any) -> int:
        if type(operand) is Leaf or type(operand) is Operation:
            return self._numbers[id(operand)]
        for place, known in enumerate(self._constants):
            if known is operand:
                return -1 - place
        self._constants.append(operand)
        return -len(self._constants)


def _bands(box: Box) -> list[Box]:
    """Divide a box into bands along the first dimension."""
    (start, stop), *others = box
    extent = max(1, -(-(stop - start) // _BANDS))
    bands = [(low, min(low + extent, stop)) for low in range(start, stop, extent)]
    return [(band, *others) for band in bands]


def _apart(cell: Cell, target: Array) -> Cell:
    """Return a cell with copies of the blocks that may overlap `target`."""
    parts = [x.copy() if np.may_share_memory(x, target) else x for x in cell.parts]
    return cell._replace(parts=parts)


def _spans(key: tuple[slice, ...], box: Box) -> bool:
    """Return True if a section covers a whole box in every dimension but the first."""
    return all((k.start, k.stop) == pair for k, pair in zip(key[1:], box[1:], strict=True))


def _graph(ends: Sequence[Operation]) -> list[Operation]:
    """Return all operations that have to run, operands first."""
    found: dict[int, Operation] = {}
    pending = list(ends)
    while pending:
        x = pending.pop()
        if x.block is None and x.number not in found:
            found[x.number] = x
            pending += [y for y in x.operands if type(y) is Operation]
    return [found[number] for number in sorted(found)]


def _warn(operation: Operation, kind: str) -> None:
    path, number, names, then = operation.line
    with as_under(then):
        warnings.warn_explicit(
            f"{kind} encountered in {operation.function.__name__}",
            RuntimeWarning,
            path,
            number,
            names.get("__name__") or "<string>",
            names.setdefault("__warningregistry__", {}),
        )
