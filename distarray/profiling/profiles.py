"""Profiles: the cost of each line of a program, on each rank."""

import json
import os
import sys
import time
from contextlib import ExitStack
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from distarray.array.base import Base
from distarray.comm import ledger, stopwatch, world_group
from distarray.profiling import putting_off
from distarray.profiling.analysis import Report
from distarray.profiling.chrome import events
from distarray.profiling.figures import figures
from distarray.profiling.following import Follower, follow, is_counted
from distarray.profiling.guard import Guard
from distarray.profiling.measured import Seen
from distarray.profiling.meeting import brought, clock_offset, serial
from distarray.profiling.page import page
from distarray.profiling.recorder import Recorder, program_line
from distarray.profiling.table import table
from distarray.profiling.writing import fault, is_newer, write

__all__ = ["Profile", "profile"]

#: Prefix with which users call this module's functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray."
#: Maximum number of ranks that write their own page when the job is killed; more would be similar.
_PAGES = 8
#: Seconds that a rank being killed waits for the other ranks' pages.
_PATIENCE = 2.0
#: Maximum number of arrays shown, the largest ones.
_ARRAYS = 40


class Profile:
    """Profile of a block of the program; made by :func:`profile`.

    ``print`` shows it as a table. On rank 0 it covers all ranks, on the other ranks only their own
    part. So printing it sends nothing, and ``if rank == 0: print(p)`` is safe.

    Attributes
    ----------
    report : Report or None
        The figures; None until the block has ended.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> with distarray.profile() as p:
    ...     x = np.arange(100_000.0)
    ...     total = float((x * x).sum())
    >>> p.report.seconds > 0
    True
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(os.path.abspath(path))
        self._stack = ExitStack()
        self._recorder: Recorder | None = None
        self._written = False
        self.report: Report | None = None

    # -- the block ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        frame = sys._getframe(1)
        ended = "" if kind is None else f"{kind.__name__}: {error}"
        self.end(ended, frame.f_globals, frame.f_locals)

    def begin(self) -> None:
        """Start measuring; called by the ``with`` statement. Collective."""
        if self._recorder is not None:
            raise RuntimeError("a profile is of one block; make another one for another block")
        self._group = world_group()
        self._number = serial(self._group)
        offset = clock_offset(self._group)
        self._refuse_path()
        line = program_line(sys._getframe(2))
        self._recorder = recorder = Recorder(self._group, is_counted(), line)
        recorder.part.offset = offset
        self._stack.enter_context(ledger.listening(recorder))
        stopwatch.start(recorder)
        self._stack.callback(stopwatch.stop, recorder)
        putting_off.watch(recorder)
        self._stack.callback(putting_off.watch_no_more, recorder)
        self._follower: Follower = follow(recorder)
        self._guard = Guard(self._killed)
        if self._path is not None:
            self._guard.begin()
        self._process, self._begun = os.getpid(), time.time()

    def end(self, ended: str = "", *names: dict[str, Any]) -> None:
        """Stop measuring and collect the parts; called by the ``with`` statement. Collective.

        Parameters
        ----------
        ended : str
            Reason for an early end; if not empty, the ranks wait for one another only briefly.
        *names : dict
            Namespaces of the program, which are searched for arrays.
        """
        recorder = self._recorder
        if recorder is None or self.report is not None:
            return
        self._follower.stop()
        self._stack.close()
        self._guard.end()
        part = recorder.finished(ended)
        part.arrays = _seen(names)
        if os.getpid() != self._process:  # in a forked child: the profile is its parent's
            self.report = Report({part.rank: part})
            return
        parts, taken = brought(self._group, part, self._number)
        self.report = Report(parts)
        if self._path is not None and (part.rank == 0 or not taken):
            where = self._own_path(part.rank, part.size) if part.rank else self._path
            self._write(where, _content(where, self.report))
            if part.rank and self._written:
                say(f"what rank {part.rank} alone has measured is in {where}")

    def _refuse_path(self) -> None:
        """Warn at once if the page cannot be written."""
        if self._path is None:
            return
        problem = fault(self._path)
        if problem:
            if self._group.rank == 0:
                say(f"the profile will not be written: {problem}")
            self._path = None

    def _killed(self) -> None:
        """Save the measurements so far, because the process is about to end."""
        recorder = self._recorder
        if recorder is None or self.report is not None:
            return
        part = recorder.finished("killed by SIGTERM")
        if part.rank < _PAGES:
            where = self._own_path(part.rank, part.size)
            self._write(where, _content(where, Report({part.rank: part})))
        self._await_pages(part.size)

    def _await_pages(self, size: int) -> None:
        """Wait for the other ranks' pages: when one rank ends, the launcher kills the others."""
        until = time.monotonic() + _PATIENCE
        missing = [self._own_path(rank, size) for rank in range(min(size, _PAGES))]
        while missing and time.monotonic() < until:
            missing = [path for path in missing if not is_newer(path, self._begun)]
            time.sleep(0.01)

    def _own_path(self, rank: int, size: int) -> Path:
        """Return the file of one rank's part, for when rank 0 could not collect the parts."""
        assert self._path is not None
        if size == 1:
            return self._path
        return self._path.with_name(f"{self._path.stem}.rank{rank}{self._path.suffix}")

    def tell(self) -> None:
        """Print the table on standard error, on rank 0, and the path of the page.

        For figures, which are for programs to read, only the path is printed.
        """
        if self.report is None or self._group.rank or os.getpid() != self._process:
            return
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
        stream = sys.__stderr__
        if stream is not None:
            figures_only = self._path is not None and self._path.suffix == ".json"
            stream.write("" if figures_only else f"\n{self}\n")
            what = "figures are in" if figures_only else "page is"
            stream.write(f"\nThe {what} {self._path}\n" if self._written else "")
            stream.flush()

    # -- results -----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page as one self-contained HTML file; only rank 0 writes.

        Parameters
        ----------
        path : str or path
            If it ends in ``.json``, all figures are written instead, by line and rank.
        """
        report = self._found()
        if self._group.rank == 0:
            self._write(Path(path), _content(Path(path), report))

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline in Chrome's trace format, which Perfetto opens; only rank 0 writes.

        Each rank is a lane; their clocks are aligned.

        Parameters
        ----------
        path : str or path
        """
        report = self._found()
        if self._group.rank == 0:
            self._write(Path(path), events(report))

    def _found(self) -> Report:
        if self.report is None:
            raise RuntimeError("the profile's block has not ended yet")
        return self.report

    def _write(self, path: Path, text: str) -> None:
        """Write a file; on failure print the reason and continue.

        An exception on rank 0 alone would make the ranks diverge.
        """
        problem = write(path, text)
        self._written = not problem
        if problem:
            say(f"{path} cannot be written: {problem}")

    def __str__(self) -> str:
        return "a profile that has not ended yet" if self.report is None else table(self.report)

    def __repr__(self) -> str:
        return f"<Profile: {'not ended yet' if self.report is None else repr(self.report)[1:-1]}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def profile(path: str | os.PathLike[str] | None = None) -> Profile:
    """Measure the cost of each line of a block on each rank, in a ``with`` statement; collective.

    Parameters
    ----------
    path : str or path, optional
        File that rank 0 writes at the end of the block: one HTML page, or the figures if the path
        ends in ``.json``. If the file cannot be written, rank 0 prints the reason once, and the
        program continues.

    Returns
    -------
    Profile

    Cost
    ----
    At the start, rank 0 exchanges a few small messages with every other rank to compare their
    clocks. At the end, every rank sends one message to rank 0. Within the block the profile sends
    nothing.

    Notes
    -----
    If the block raises on one rank, that rank waits two seconds for the others, and then has only
    its own part.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> with distarray.profile() as p:
    ...     x = np.ones(1000).sum()
    >>> print(str(p).splitlines()[0][:7])
    Profile
    """
    return Profile(path)


def say(text: str) -> None:
    """Print a message on the original standard error, bypassing the runner's redirection."""
    stream = sys.__stderr__
    if stream is not None:
        stream.write(f"distarray: {text}\n")
        stream.flush()


def _content(path: Path, report: Report) -> str:
    """Return the text of the file: the figures as JSON, or the page."""
    return json.dumps(figures(report)) if path.suffix == ".json" else page(report)


def _seen(spaces: tuple[dict[str, Any], ...]) -> list[Seen]:
    """Return the arrays that the program has names for, the largest first."""
    found: dict[int, Seen] = {}
    for names in spaces:
        for name, value in list(names.items()):
            if isinstance(value, Base) and not name.startswith("_"):
                found[id(value)] = Seen(name, str(value.dtype), value.nbytes, value.layout)
    return sorted(found.values(), key=lambda seen: -seen.nbytes)[:_ARRAYS]
