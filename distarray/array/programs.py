"""Operations that were put off, in an order in which they can run, each once."""

import warnings
from collections.abc import Sequence
from typing import Any

from distarray.array.operations import Leaf, Operation
from distarray.array.tiled import Step, Tiles
from distarray.typing import Array

__all__ = ["Program"]


class Program:
    """What has to run for the results of some operations.

    Parameters
    ----------
    ends : sequence of Operation
        Not done yet, of blocks of one shape.

    Attributes
    ----------
    blocks : list of array
        The memory that is read.
    """

    def __init__(self, ends: Sequence[Operation]) -> None:
        self.blocks: list[Array] = []
        self._constants: list[Any] = []
        self._steps: list[Step] = []
        #: The operations that each step stands for: those that are alike are one.
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
        """The number of the step that stands for an operation."""
        return self._numbers[id(x)] - len(self.blocks)

    def tiles(self, outs: dict[int, Array]) -> Tiles:
        """The steps, ready to run; the results of those in `outs` are kept."""
        return Tiles(self.blocks, self._constants, self._steps, outs)

    def warn(self, tiles: Tiles) -> None:
        """Warn of floating-point errors, each at the program's line, as NumPy does."""
        for number, kind in tiles.finished():
            for operation in self._operations[number]:
                _warn(operation, kind)

    def _read(self, operand: Leaf | Operation) -> None:
        """Count the memory of an operand to what is read, if it is there."""
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


def _graph(ends: Sequence[Operation]) -> list[Operation]:
    """All operations that have to run, operands first."""
    found: dict[int, Operation] = {}
    pending = list(ends)
    while pending:
        x = pending.pop()
        if x.block is None and x.number not in found:
            found[x.number] = x
            pending += [y for y in x.operands if type(y) is Operation]
    return [found[number] for number in sorted(found)]


def _warn(operation: Operation, kind: str) -> None:
    path, number, names = operation.line
    warnings.warn_explicit(
        f"{kind} encountered in {operation.function.__name__}",
        RuntimeWarning,
        path,
        number,
        names.get("__name__") or "<string>",
        names.setdefault("__warningregistry__", {}),
    )
