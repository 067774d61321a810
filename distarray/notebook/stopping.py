"""Interrupts: the ranks stop a cell at one place, between two passes of a loop of the cell.

A signal reaches each rank somewhere else, perhaps while it waits for another one. If each stopped
where it is, arrays would be at different steps, and messages would be left over. Therefore loops of
cells count their passes. Ranks that are to stop tell one another how far they are, and go on to the
pass of the one that is farthest: a rank never waits for those that are behind it, so all get there.
"""

import ast
import math
import signal
import time
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice, repeat
from types import FrameType
from typing import Any

from distarray.runner.talk import Line

__all__ = ["SIGNAL", "CountPasses", "Stopping"]

#: The signal for an interrupt: launchers hand it on to all ranks, and do not act upon it.
SIGNAL = signal.SIGUSR1
#: The name by which the loops of cells find the function that counts.
STEP = "__distarray_step__"
#: Seconds that a rank waits in a pass for others to tell where they are; they may wait for it.
_PATIENCE = 0.2
_TICK = 5e-4
_sleep = time.sleep
_clock = time.monotonic


class CountPasses(ast.NodeTransformer):
    """Make each loop of a cell begin its passes with a call that counts them."""

    def _counted(self, node: ast.For | ast.While) -> ast.For | ast.While:
        self.generic_visit(node)
        call = ast.Expr(ast.Call(ast.Name(STEP, ast.Load()), [], []))
        for part in ast.walk(call):
            ast.copy_location(part, node.body[0])
        node.body.insert(0, call)
        return node

    visit_For = visit_While = _counted


class Stopping:
    """The interrupts of a rank.

    Parameters
    ----------
    line : Line
        To the other ranks.
    builtins : dict
        The builtins of the program, where its loops find the function that counts.

    Attributes
    ----------
    open : bool
        Whether a statement is running, which an interrupt stops.
    torn : bool
        Whether it was stopped at a place that the ranks have not agreed on.
    """

    def __init__(self, line: Line, builtins: dict[str, Any]) -> None:
        self.open = False
        self.torn = False
        self._line = line
        self._builtins = builtins
        self._cell = 0
        self._asked = 0
        self._count = count()
        self._through = False
        self._heard_of = False
        #: How far the other ranks are that are to stop as well: -1 where that is not known yet.
        self._known: dict[int, float] = {}
        builtins[STEP] = self._count.__next__
        signal.signal(SIGNAL, self._on_signal)

    def begin(self, cell: int) -> None:
        """Begin a cell, of which nobody has asked to stop."""
        self._cell, self._asked = cell, 0
        self.torn = self._through = self._heard_of = False
        self._known.clear()
        self._count = count()
        self._builtins[STEP] = self._count.__next__

    def is_over(self) -> None:
        """Tell ranks that are to stop that this one is through with the statement."""
        if self._asked and not self._through:
            self._through = True
            self._tell(math.inf)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked == 1:
            self._builtins[STEP] = self._passes().__next__
        elif self.open:
            self.torn = True
            raise KeyboardInterrupt

    def _tell(self, passes: float) -> None:
        for rank in range(self._line.size):
            if rank != self._line.rank:
                self._line.send_object((self._cell, self._line.rank, passes), rank)

    def _listen(self) -> None:
        for cell, rank, passes in self._line.received_objects():
            if cell == self._cell:
                self._known[rank] = passes

    def _passes(self) -> Iterator[None]:
        """What the loops call from now on: at full speed on the way to a pass of another rank."""
        return chain.from_iterable(iter(self._next_passes, None))

    def _next_passes(self) -> Iterable[None]:
        """The passes until this rank has to look again; the first of them begins now."""
        if not self.open:
            return repeat(None, 1)
        mine = next(self._count)
        farther = self._wait_in(mine)
        ahead = max(0, farther - mine - 1)
        for _ in islice(self._count, ahead):
            pass
        return repeat(None, 1 + ahead)

    def _wait_in(self, mine: int) -> int:
        """Wait in a pass when the ranks are to stop, and stop if all are there; else the next one.

        A rank that has told its pass leaves it only for that of one that is farther. Until it has
        heard from all it tells no pass, since those that it has not heard of may wait for it.
        """
        if not self._heard_of:
            self._heard_of = True
            self._tell(-1.0)
        bound = False
        until = _clock() + _PATIENCE
        while True:
            self._listen()
            farthest = max(self._known.values(), default=0.0)
            if farthest > mine:
                return mine + 1 if farthest == math.inf else math.ceil(farthest)
            if not bound and len(self._known) == self._line.size - 1:
                bound = True
                self._tell(mine)
            if bound and min(self._known.values(), default=mine) == mine:
                self._through = True  # others, which may not know yet, must not hear of an end
                raise KeyboardInterrupt
            if not bound and _clock() > until:
                self._tell(mine + 0.5)  # it has left this one
                return mine + 1
            _sleep(_TICK)
