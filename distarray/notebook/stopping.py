"""Interrupts: all ranks stop a cell at the same place, between two passes of a loop of the cell.

A signal arrives at a different place on each rank, perhaps while the rank waits for another one. If
each rank stopped where the signal arrives, arrays would be at different steps, and messages would
remain unreceived. Therefore the loops of cells count their passes. The ranks that are to stop send
one another their pass numbers, and continue to the highest of these. A rank never waits for ranks
that are behind it, so all ranks get there.
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

#: Signal for an interrupt: launchers forward it to all ranks, and do not act on it themselves.
SIGNAL = signal.SIGUSR1
#: Name by which the loops of cells find the function that counts.
STEP = "__distarray_step__"
#: Seconds that a rank waits in a pass for the pass numbers of other ranks, which may wait for this
#: rank.
_PATIENCE = 0.2
_TICK = 5e-4
_sleep = time.sleep
_clock = time.monotonic


class CountPasses(ast.NodeTransformer):
    """Transformer that makes each pass of a cell's loops begin with a call that counts it."""

    def _counted(self, node: ast.For | ast.While) -> ast.For | ast.While:
        self.generic_visit(node)
        call = ast.Expr(ast.Call(ast.Name(STEP, ast.Load()), [], []))
        for part in ast.walk(call):
            ast.copy_location(part, node.body[0])
        node.body.insert(0, call)
        return node

    visit_For = visit_While = _counted


class Stopping:
    """Interrupts of a rank.

    Parameters
    ----------
    line : Line
        Communicator to the other ranks.
    builtins : dict
        Builtins of the program, where its loops find the function that counts.

    Attributes
    ----------
    open : bool
        True while a statement is running that an interrupt stops.
    torn : bool
        True if it was stopped at a place that the ranks have not agreed on.
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
        #: Pass numbers of the other ranks that are to stop; -1 where the number is not known yet.
        self._known: dict[int, float] = {}
        builtins[STEP] = self._count.__next__
        signal.signal(SIGNAL, self._on_signal)

    def begin(self, cell: int) -> None:
        """Begin a cell, which has no interrupt yet."""
        self._cell, self._asked = cell, 0
        self.torn = self._through = self._heard_of = False
        self._known.clear()
        self._count = count()
        self._builtins[STEP] = self._count.__next__

    def is_over(self) -> None:
        """Notify ranks that are to stop that this one has finished the statement."""
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
        """Return the counter that loops call now: at full speed up to another rank's pass."""
        return chain.from_iterable(iter(self._next_passes, None))

    def _next_passes(self) -> Iterable[None]:
        """Return the passes until this rank must check again; the first of them begins now."""
        if not self.open:
            return repeat(None, 1)
        mine = next(self._count)
        farther = self._wait_in(mine)
        ahead = max(0, farther - mine - 1)
        for _ in islice(self._count, ahead):
            pass
        return repeat(None, 1 + ahead)

    def _wait_in(self, mine: int) -> int:
        """Wait in a pass, and stop if all ranks are in it; else return the pass to continue to.

        A rank that has sent its pass number leaves the pass only for a higher pass of another rank.
        Until it has received a message from every rank it sends no pass number, because the ranks
        not yet heard from may wait for it.
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
                self._through = True  # other ranks, which may not know yet, must not receive an end
                raise KeyboardInterrupt
            if not bound and _clock() > until:
                self._tell(mine + 0.5)  # this rank has left the pass
                return mine + 1
            _sleep(_TICK)
