"""Watch: a thread of each process that notices when the process waits too long for other ranks.

Several times within `config.wait_limit` the thread checks whether the process is still in the same
communication call. If so, it writes the line of the program, for the other ranks to read. The
lowest of the ranks that wait too long reports the activity of all ranks, and ends the job if they
wait in vain. The thread sends nothing by MPI, since the communicator may be stuck.
"""

import atexit
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from distarray.comm import calls, hooks, thread_start
from distarray.comm.waits import stacks
from distarray.comm.waits.last_words import leave_words
from distarray.comm.waits.scope import Among, Scope, make_scope
from distarray.comm.waits.speaker import Exit, Speaker, State, pause
from distarray.comm.waits.verdict import LONG
from distarray.comm.waits.wire import Wire
from distarray.config import config

if TYPE_CHECKING:
    from mpi4py import MPI

    from distarray.comm.mpi import MPIGroup

__all__ = ["Among", "another_line", "before_meeting", "elsewhere", "join"]

_now = time.monotonic
#: Seconds without a check after which the process must have been stopped: it has not waited.
_GAP = 5.0
_watch: "_Watch | None" = None


class _Watch:
    """Watching thread of this process."""

    def __init__(self, rank: int, size: int) -> None:
        self.speakers: list[Speaker] = []
        self._first: tuple[int, int] | None = (rank, size)
        self._moves = -1
        self._since = self._seen = _now()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.start()

    def start(self) -> None:
        """Start the watch, or restart it after a fork."""
        if self._thread is not None:
            return
        self._stop.clear()
        thread = threading.Thread(target=self._run, name="distarray-watch", daemon=True)
        error = thread_start.try_start(thread)
        if error is not None:
            hooks.say(f"this rank's waits are not watched: {error}")
            return
        self._thread = thread
        for wire in self._wires():
            wire.start()

    def stop(self) -> None:
        """End the thread, since it could hold a lock during a fork."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            for wire in self._wires():
                wire.stop()

    @property
    def watches(self) -> bool:
        """True if the thread runs."""
        return self._thread is not None

    def met(self) -> None:
        """Record that the ranks' first collective is over, even if they cannot read reports."""
        self._first = None

    def add(self, scope: Scope) -> None:
        """Watch one more set of ranks."""
        self.speakers.append(Speaker(scope))
        if scope.wire is not None:
            scope.wire.start()

    def _wires(self) -> list[Wire]:
        return [s.scope.wire for s in self.speakers if s.scope.wire is not None]

    def forget(self) -> None:
        """Leave all sets of ranks, in a forked child."""
        for speaker in self.speakers:
            speaker.scope.close()
        self.speakers.clear()

    def leave(self) -> None:
        """Arrange that a report on the program's end is written when the interpreter ends."""
        call, line, moves = hooks.last_exit
        end = Exit(call, (line,)) if moves == calls.moves() else Exit()
        state = State(calls.moves(), _now())
        words = [speaker.last_words(state, end) for speaker in self.speakers]
        leave_words(words, [wire.door for wire in self._wires()])

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # left to the main thread
        while self._rest(pause()):
            try:
                if config.wait_limit > 0:
                    self._look()
            except Exception as error:  # it must not end a healthy job
                if not sys.is_finalizing():
                    hooks.say(f"this rank's waits are no longer watched: {error!r}")
                return

    def _rest(self, seconds: float) -> bool:
        """Wait for some seconds; return True if the thread has to go on."""
        return not self._stop.wait(seconds)

    def _look(self) -> None:
        moves, now = calls.moves(), _now()
        if moves != self._moves or now - self._seen > pause() + _GAP:
            self._moves, self._since = moves, now
        for speaker in list(self.speakers):
            speaker.attend(State(moves, self._since), self._rest)
        still = _now() - self._since
        if not self.speakers and self._first is not None and still >= LONG * config.wait_limit:
            self._look_alone(still)
        self._seen = _now()

    def _look_alone(self, still: float) -> None:
        """Check before the ranks' first collective, when they cannot read each other's reports."""
        assert self._first is not None
        look = stacks.look()
        rank, size = self._first
        if look.doing != "waits":
            return
        self._first = None
        if rank < 2:  # rank 1 as well, as rank 0 may be the one that does not come
            where = look.path[0] if look.path else "its start"
            hooks.say(
                f"rank {rank} of {size} waits in {look.call} at {where}, for {still:.0f} s, until "
                "all ranks make their first mesh or array, which takes all of them.\n"
                "  What the others do is not known here: the job goes on."
            )


def before_meeting(comm: "MPI.Intracomm") -> None:
    """Watch this process before it first communicates with other ranks, and record each wait.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    """
    global _watch
    calls.waiting()
    if _watch is None and comm.Get_size() > 1 and config.wait_limit > 0:
        _watch = _Watch(comm.Get_rank(), comm.Get_size())
        atexit.register(_leave, os.getpid())
        os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_forget)


def join(group: "MPIGroup") -> None:
    """Watch the ranks of a communicator; collective over it, once.

    Cost
    ----
    A few small collectives, unless the ranks already watch each other in a larger set.
    """
    if group.size == 1:
        return
    labels = group.world_ranks
    for speaker in [] if _watch is None else _watch.speakers:
        group.among = speaker.scope.among(labels)
        if group.among is not None:
            break
    else:
        scope = make_scope(group.comm, labels, _watch is not None and _watch.watches)
        if _watch is not None:
            _watch.met()
        if scope is None or _watch is None:
            return
        group.among = scope.among(labels)
        _watch.add(scope)
    if group.among is not None:
        group.among.scope.keep(group)


def another_line() -> Among | None:
    """Return the world's ranks, for a communicator of the runner; all call in the same order."""
    scope = _watch.speakers[0].scope if _watch is not None and _watch.speakers else None
    return None if scope is None else scope.among(scope.labels, "line ")


def elsewhere(error: BaseException) -> str:
    """Describe the activities of the other ranks, for an MPI error, which names only one rank."""
    by_mpi = type(error).__module__.startswith("mpi4py")
    if not by_mpi or _watch is None or not _watch.speakers:
        return ""
    try:
        return f"\nmeanwhile {_watch.speakers[0].others()}"
    except Exception as another:  # the first error is the one to report
        return f"\nwhat the other ranks do is not known: {another!r}"


def _leave(process: int) -> None:
    if _watch is not None and os.getpid() == process:
        _watch.leave()


def _pause() -> None:
    if _watch is not None:
        _watch.stop()


def _resume() -> None:
    if _watch is not None:
        _watch.start()


def _forget() -> None:
    global _watch
    if _watch is not None:
        _watch.forget()
        _watch = None


hooks.meanwhile = elsewhere
