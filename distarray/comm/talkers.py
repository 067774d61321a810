"""Talkers: in each group, the one thread of a process that may send and receive.

On one communicator the messages of two threads would mix, and each thread could receive the
messages of the other. So every group has a talker. For groups of the job's own ranks it is the main
thread. For a communicator of the program it is the thread that made a group of it. A child process
has none.
"""

import os
import threading
from collections.abc import Callable
from threading import get_ident
from weakref import WeakSet

from distarray.comm.processes import child_of
from distarray.errors import CommunicationForbidden

__all__ = [
    "MAIN",
    "Talker",
    "allow",
    "check_talker",
    "may_talk",
    "talker_here",
    "threads_take_turns",
]


class Talker:
    """Thread that sends and receives in some groups.

    Attributes
    ----------
    thread : int
        Identifier of the thread (`threading.get_ident`); 0 in a child process.
    """

    __slots__ = ("__weakref__", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        _talkers.add(self)


_talkers: WeakSet[Talker] = WeakSet()
#: Talker of the groups of the job's ranks.
MAIN = Talker(threading.main_thread().ident or 0)
#: Conditions under which other threads may communicate, too; see `allow`.
_others: list[Callable[[], bool]] = []


def talker_here() -> Talker:
    """Return the talker of a group that this thread makes on a communicator of the program."""
    return MAIN if get_ident() == MAIN.thread else Talker(get_ident())


def allow(talks: Callable[[], bool]) -> None:
    """Let other threads communicate while the main thread waits, if `talks()` is true in them."""
    _others.append(talks)


def may_talk(talker: Talker) -> bool:
    """Return True if this thread may send and receive in the groups of a talker."""
    thread = talker.thread
    return get_ident() == thread or (thread != 0 and any(talks() for talks in _others))


def check_talker(talker: Talker) -> None:
    """Raise CommunicationForbidden, with a remedy, in a thread that may not communicate."""
    if may_talk(talker):
        return
    if not talker.thread:
        raise CommunicationForbidden(
            f"this process is a child of {child_of()}, and a world of its own: the other blocks of "
            "distributed arrays are in processes that do not answer it. Pass it whole arrays "
            "(x.full(), or pickle x, which gives a NumPy array) or a block (x.to_local())"
        )
    raise CommunicationForbidden(
        "only the main thread may communicate with the other ranks: the messages of two threads "
        "would mix. Do this in the main thread; or let threads work on blocks (x.to_local()) and "
        "whole arrays (x.full()); or give the thread a communicator of its own "
        "(comm = MPI.COMM_WORLD.Dup() before it starts), and let it work inside "
        "`with distarray.DeviceMesh(comm):`"
    )


def threads_take_turns() -> bool:
    """Return True if MPI can be called from several threads, as long as they take turns."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() >= MPI.THREAD_SERIALIZED)


def _in_forked_child() -> None:
    for talker in list(_talkers):
        talker.thread = 0


os.register_at_fork(after_in_child=_in_forked_child)
