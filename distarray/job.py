"""Batch jobs: the request to stop, from the scheduler or the clock, equal on all ranks.

When a scheduler needs the nodes, or the job's time is nearly up, a program has some seconds to
save its state. Which rank gets the signal, and when, depends on the scheduler and the launcher. A
program needs the same result on all ranks, at the same iteration::

    with distarray.job.preemption(margin=120) as p:
        for step in range(first, steps):
            ...
            if p.requested:
                distarray.checkpoint.save("run", state, step=step)
                break

As a program, ``python -m distarray.job mpiexec ...``, this module starts a launcher that the
scheduler's signals do not reach, and forwards them as a signal that reaches the ranks.
"""

import ctypes
import math
import os
import signal as signals
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

import numpy as np

from distarray.comm import Group, world_group
from distarray.comm.threads import current_world
from distarray.layout.placement import Fold

__all__ = ["Preemption", "main", "preemption", "time_left"]

#: Prefix of this module's functions in reports (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray.job."

#: Signals of schedulers: Slurm and most others send SIGTERM, scripts of many sites SIGUSR1.
_SIGNALS = (signals.SIGTERM, signals.SIGUSR1)
#: Signal that launchers forward and otherwise ignore. SIGTERM is not suitable: Open MPI's launcher
#: then leaves the ranks a quarter of a second.
_PASSED_ON = signals.SIGUSR1
#: Linux's `prctl` option for a signal when the parent process ends.
_PR_SET_PDEATHSIG = 1
#: Environment variables with the job's end in seconds since 1970; the first that is set is used.
_ENDS = ("DISTARRAY_JOB_END", "SLURM_JOB_END_TIME")
#: Timeout of the scheduler's command, in seconds.
_PATIENCE = 10.0


class Preemption:
    """Request to stop the job; see :func:`preemption`.

    Attributes
    ----------
    signal : signal.Signals or None
        The signal that some rank has received; set once all ranks have been informed.

    Examples
    --------
    >>> import distarray
    >>> with distarray.job.preemption(()) as p:  # no signals: by the program's request alone
    ...     for step in range(10):
    ...         if step == 3:
    ...             p.request()
    ...         if p.requested:
    ...             print("stopped at step", step)
    ...             break
    stopped at step 3
    """

    def __init__(
        self, watched: tuple[signals.Signals, ...], margin: float | None, group: Group
    ) -> None:
        self.signal: signals.Signals | None = None
        self._watched = watched
        self._margin = margin
        self._group = group
        self._caught = 0
        self._agreed = False
        self._before: dict[signals.Signals, Any] = {}
        self._end: float | None = None

    @property
    def requested(self) -> bool:
        """True if any rank is to stop, or the time is up; equal on all ranks.

        Collective, unlike other attributes: every rank must read this property at the same place
        of the program. Once the value is True it stays True, and reading it costs nothing.

        Cost
        ----
        One allreduce of two integers.
        """
        if not self._agreed:
            late = self._end is not None and time.monotonic() >= self._end
            mine = np.array([self._caught, self._caught or late], np.int64)
            number, stop = self._group.allreduce(mine, Fold.MAX, "is the job to stop?").tolist()
            self._agreed = bool(stop)
            self.signal = signals.Signals(number) if number else None
        return self._agreed

    def request(self) -> None:
        """Request the stop from the program itself; a call on one rank is enough."""
        self._end = -math.inf

    def __enter__(self) -> Self:
        if self._margin is not None:
            left = time_left(self._group)
            self._end = None if left is None else time.monotonic() + left - self._margin
        if current_world() is None:
            for number in self._watched:
                self._before[number] = signals.signal(number, self._on_signal)
            _watching.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._agreed:
            return  # keep the handlers: schedulers repeat signals, an ending program ignores them
        self._unwatch()

    def _unwatch(self) -> None:
        if self in _watching:
            _watching.remove(self)
        for number, handler in self._before.items():
            signals.signal(number, signals.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._caught = number
        before: Any = self._before.get(signals.Signals(number))
        if isinstance(getattr(before, "__self__", None), Preemption):
            before(number, frame)  # the enclosing `with` block is to stop as well


#: `with` blocks that the program is in, the innermost last.
_watching: list[Preemption] = []


#: Signals that were blocked before each fork in progress.
_held: list[set[int]] = []


def _before_fork() -> None:
    """Block signals: the child would lose a signal that it gets before it resets its handlers."""
    numbers = {number for watch in _watching for number in watch._before}
    _held.append(signals.pthread_sigmask(signals.SIG_BLOCK, numbers))


def _let_signals_in() -> None:
    signals.pthread_sigmask(signals.SIG_SETMASK, _held.pop())


def _in_forked_child() -> None:
    """Reset the handlers in the child: it is not the job, and pools end children by a signal."""
    for watch in reversed(_watching[:]):
        watch._unwatch()
    _let_signals_in()


os.register_at_fork(
    before=_before_fork, after_in_parent=_let_signals_in, after_in_child=_in_forked_child
)


def preemption(
    signal: int | Iterable[int] = _SIGNALS,
    *,
    margin: float | None = None,
    group: Group | None = None,
) -> Preemption:
    """Watch for the end of the job, in a ``with`` statement; collective.

    In the block the signals no longer end the process. The program reads ``p.requested`` where it
    can stop, on all ranks at the same place, and saves. At the end of the block the earlier
    handlers are restored, unless the job is to stop: schedulers repeat their signals, which must
    not kill a program that is ending. A nested block forwards its signals to the enclosing block.
    Ranks that are threads watch no signals, since signals belong to the process.

    Parameters
    ----------
    signal : int or iterable of int
        The scheduler's signals; one of these signals on one rank is enough.
    margin : float, optional
        Seconds before the end of the job's time at which to stop without a signal, if
        :func:`time_left` finds the end.
    group : Group, optional
        The ranks that agree; all ranks of the job by default.

    Returns
    -------
    Preemption

    Raises
    ------
    ValueError
        If a signal cannot be caught (SIGKILL), or this is not the main thread.

    Cost
    ----
    With `margin`, the cost of :func:`time_left`, once. Then one allreduce of two integers each
    time that ``p.requested`` is read.

    Examples
    --------
    >>> import distarray
    >>> with distarray.job.preemption() as p:
    ...     p.requested
    False
    """
    numbers = (signal,) if isinstance(signal, int) else tuple(signal)
    watched = tuple([signals.Signals(number) for number in numbers])
    for number in watched:
        if number in (signals.SIGKILL, signals.SIGSTOP):
            raise ValueError(f"{number.name} cannot be caught; have the scheduler send another")
    return Preemption(watched, margin, world_group() if group is None else group)


def time_left(group: Group | None = None) -> float | None:
    """Return the seconds until the scheduler ends the job; None if the end is not known.

    Without a group each rank uses its own clock: good enough for output, but not for decisions,
    which would differ between ranks. With a group all ranks get the same result;
    ``preemption(margin=...)`` decides for all ranks.

    The end of the job is read from the environment: Slurm sets SLURM_JOB_END_TIME, and job scripts
    of other schedulers can set DISTARRAY_JOB_END (seconds since 1970). Otherwise ``squeue`` is run.

    Parameters
    ----------
    group : Group, optional
        The ranks that call together, and get the same result; the call is then collective.

    Cost
    ----
    With a group, one small broadcast. If the end is not in the environment, one run of ``squeue``
    on each rank that calls; with a group on rank 0 alone.

    Examples
    --------
    >>> import distarray
    >>> left = distarray.job.time_left()
    >>> soon = left is not None and left < 300
    """
    if group is None:
        return _left()
    left: float | None = group.broadcast_object(_left() if group.rank == 0 else None, 0)
    return left


def _left() -> float | None:
    """Return the seconds left, by this rank's clock."""
    for name in _ENDS:
        try:
            return float(os.environ[name]) - time.time()
        except (KeyError, ValueError):
            continue
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _seconds(told.stdout)


def _seconds(text: str) -> float | None:
    """Convert Slurm's ``days-hours:minutes:seconds`` to seconds; leading fields may be missing.

    >>> _seconds("1-02:03:04"), _seconds("5:06"), _seconds("UNLIMITED")
    (93784.0, 306.0, None)
    """
    days, _, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in (*parts, days or "0")):
        return None
    total = 0
    for part in parts:
        total = 60 * total + int(part)
    return float(total + 86400 * int(days or 0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a launcher in a session of its own: ``python -m distarray.job mpiexec -n 4 ...``.

    Schedulers send their signals to all processes of a job, also to the launcher. MPICH's launcher
    forwards SIGTERM. Open MPI's launcher kills the ranks, which have no time to save, and fails.
    Here the scheduler's signals do not reach the launcher, since it has its own session. If this
    process gets SIGTERM or SIGUSR1, it sends SIGUSR1 to the launcher, and both launchers forward
    SIGUSR1 to the ranks. When this process is killed, the launcher is killed as well.

    Parameters
    ----------
    arguments : sequence of str, optional
        The launcher and its arguments; by default the arguments of the command line.

    Returns
    -------
    int
        The launcher's exit status; as in a shell, 128 plus the signal's number if a signal ended
        the launcher.
    """
    command = list(sys.argv[1:] if arguments is None else arguments)
    if not command:
        sys.stderr.write("usage: python -m distarray.job mpiexec -n P python program.py ...\n")
        return 2
    received: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for process in started:
            process.send_signal(_PASSED_ON)

    for number in _SIGNALS:
        signals.signal(number, pass_on)
    parent = os.getpid()
    try:
        process = subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=lambda: _die_with(parent),  # noqa: PLW1509 (there are no threads yet)
        )
    except OSError as error:
        sys.stderr.write(f"distarray.job: cannot start {command[0]}: {error.strerror}\n")
        return 127
    started.append(process)
    if received:  # signals that arrived before the launcher started
        process.send_signal(_PASSED_ON)
    status = process.wait()
    return 128 - status if status < 0 else status


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signals.SIGKILL)
    if os.getppid() != parent:  # the parent has already ended
        os.kill(os.getpid(), signals.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main())
