"""Hooks by which one rank's uncaught error ends the whole job: one traceback, then MPI_Abort.

Without them the other ranks would wait for the lost rank until the batch system's limit. The hooks
cover exceptions that reach the top of any thread, and an exit with a nonzero status
(``sys.exit(1)``, ``raise SystemExit(1)``), from the import of the package on. Before MPI has
started they use the launcher's own means. The launcher notices a killed process, and the kernel a
killed launcher.
"""

import atexit
import contextlib
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import MemberDescriptorType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from distarray.comm import calls, child_exit, launcher, processes, thread_start
from distarray.comm.user_lines import place

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["AgreedExit", "abort", "end_all", "install", "install_early", "last_exit", "say"]

_TAG = 32001
#: Seconds that ranks wait before they print an error, longer for higher ranks. So an error that all
#: ranks have is printed once.
_WORD_AFTER = 0.1
_RANK_STEP = 0.05
_LAST_RANK = 20
#: Seconds for the launcher to read the output before the job ends.
_DRAIN = 0.05
#: Seconds for MPI to end the job; the main thread may hold MPI's locks.
_DEAF = 5.0
#: MPICH's process on each node that starts the ranks, and Linux's option for a signal when the
#: parent dies.
_DAEMON = "hydra_pmi_proxy"
_PR_SET_PDEATHSIG = 1

#: Last call of `sys.exit`: its text, its line, and the number of moves by then (`calls.moves`).
last_exit = ("", "", -1)


def _nothing_is_known(error: BaseException) -> str:
    return ""


#: Function that describes the activities of the other ranks when this rank fails; set by
#: :mod:`distarray.comm.waits.watch`.
meanwhile: Callable[[BaseException], str] = _nothing_is_known


def _whole(error: BaseException, tb: TracebackType | None) -> str:
    return "".join(traceback.format_exception(type(error), error, tb))


#: Function that formats the traceback of an error; the runner replaces it.
written: Callable[[BaseException, TracebackType | None], str] = _whole

#: Argument type of `sys.exit`.
Status: TypeAlias = int | str | None

_installed = False
#: True while the previously installed hook prints an error.
_showing = False
_process = 0
_ending = threading.Lock()
_real_exit = os._exit
_plain_hook: Callable[..., Any] = sys.__excepthook__
_plain_thread_hook: Callable[..., Any] = threading.__excepthook__


def install() -> None:
    """Install the hooks: at the import of the package in a rank of a job, else with MPI.

    They are installed again when the first MPI group is made, around hooks that the program has
    installed since.
    """
    global _installed, _process, _plain_hook, _plain_thread_hook
    if sys.excepthook is not _on_exception:
        _plain_hook, sys.excepthook = sys.excepthook, _on_exception
    if threading.excepthook is not _on_thread_exception:
        _plain_thread_hook, threading.excepthook = threading.excepthook, _on_thread_exception
    if _installed:
        return
    _installed, _process = True, os.getpid()
    atexit.register(_at_exit, getattr(sys, "last_value", None))
    if _watch_exits():
        sys.exit = _exit
    _end_with_daemon()


def install_early() -> None:
    """Install the hooks if a launcher has started this process as one of several ranks."""
    if launcher.size > 1 and not processes.is_child():
        install()
        os._exit = _exit_at_once


def say(text: str) -> None:
    """Write to standard error, on any rank and from any thread."""
    stream = sys.__stderr__ or sys.stderr
    with contextlib.suppress(Exception):
        stream.write(f"\ndistarray: {text}\n")
        stream.flush()


def end_all(text: str) -> None:
    """End the job from a thread other than the thread that is in MPI.

    Parameters
    ----------
    text : str
        The reason, for the message.
    """
    from mpi4py import MPI

    if not _ending.acquire(blocking=False):
        return  # an error of this rank already ends the job
    _flush()
    say(text)
    time.sleep(_DRAIN)
    aborting = threading.Thread(target=abort, args=(MPI.COMM_WORLD, 1), daemon=True)
    if thread_start.try_start(aborting) is None:
        time.sleep(_DEAF)
    os._exit(1)  # for the launcher this is an abort, too


def _on_exception(
    kind: type[BaseException], error: BaseException, tb: TracebackType | None
) -> None:
    if _showing:  # called by a later hook, which wraps this one
        sys.__excepthook__(kind, error, tb)
    elif _alone():
        _shown(kind, error, tb)
    elif issubclass(kind, KeyboardInterrupt):
        _end(130, lambda: "interrupted")
    elif _plain_hook is sys.__excepthook__:
        _end(1, lambda: _told(error, tb))
    else:
        _end(1, lambda: _shown(kind, error, tb))


def _on_thread_exception(args: threading.ExceptHookArgs) -> None:
    if issubclass(args.exc_type, SystemExit):
        return
    if _alone() or args.exc_value is None:
        _plain_thread_hook(args)
    else:
        name = args.thread.name if args.thread is not None else "?"
        error, trace = args.exc_value, args.exc_traceback
        _end(1, lambda: f"in thread {name}\n{_told(error, trace)}")


class AgreedExit(SystemExit):
    """Exit with a status that all ranks have agreed on, so that no rank is aborted."""

    #: Hides `SystemExit.code`: reading that attribute would end the other ranks.
    code: Any = None

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.code = status


def _watch_exits() -> bool:
    """Arrange that a function is called when the process exits with a nonzero status.

    The interpreter calls no hook at such an exit. But it reads the attribute `code` of the uncaught
    SystemExit, from no Python frame: only then is it certain that the process exits with this
    status. So a property around the original member replaces the attribute. If the class is not
    built as in CPython, nothing is replaced and the result is False.
    """
    spaces = [found for found in gc.get_referents(SystemExit.__dict__) if type(found) is dict]
    member = SystemExit.__dict__.get("code")
    if len(spaces) != 1 or type(member) is not MemberDescriptorType:
        return False

    def read(error: SystemExit) -> Any:
        status = member.__get__(error)
        if sys._getframe(0).f_back is None and not _is_good(status):
            number = status if isinstance(status, int) else 1
            child_exit.note_status(number)
            if not _alone():
                _end(number, lambda: "" if isinstance(status, int) else str(status))
        return status

    spaces[0]["code"] = property(read, member.__set__, doc=member.__doc__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
    return True


def _end_with_daemon() -> None:
    """Let the kernel end this rank when the MPICH daemon that started it is killed.

    When the job is aborted, the daemon kills the ranks. But mpiexec kills the remaining daemons at
    the next full second of the clock, which may be at once. A daemon that is killed first leaves
    its ranks behind: they wait for the lost rank and spin for ever.
    """
    parent = os.getppid()
    try:
        if Path(f"/proc/{parent}/comm").read_text().strip() != _DAEMON:
            return
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it was killed just now
        os.kill(os.getpid(), signal.SIGKILL)


def _exit(status: Status = None, /) -> NoReturn:
    """Record the call and raise the exception itself: Python 3.11's `sys.exit` raises its type."""
    global last_exit
    frame = sys._getframe(1)
    call = "sys.exit()" if status is None else f"sys.exit({status!r})"
    last_exit = call, place(frame.f_code, frame.f_lasti), calls.moves()
    raise SystemExit(status)


def _exit_at_once(status: int) -> NoReturn:
    """Exit as `os._exit` does; also end other ranks that would wait for this rank to start MPI."""
    if status and _mpi() is None and not _alone():
        _end(status, lambda: f"os._exit({status})")
    _real_exit(status)


def _is_good(status: object) -> bool:
    return status is None or (isinstance(status, int) and status == 0)


def _told(error: BaseException, tb: TracebackType | None) -> str:
    return written(error, tb) + meanwhile(error)


def _shown(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> str:
    """Let the hook that was installed before print the error."""
    global _showing
    _showing = True
    try:
        _plain_hook(kind, error, tb)
    finally:
        _showing = False
    return ""


def _alone() -> bool:
    """Return True if there is no other rank to end: MPI has one process, or this one is no rank.

    A forked child is no rank, and must not touch MPI.
    """
    if os.getpid() != _process:
        return True
    mpi = _mpi()
    if mpi is None:
        return launcher.size == 1
    return bool(mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() == 1)


def _mpi() -> Any:
    """Return mpi4py's module MPI if MPI has been started, even if it has ended; else None."""
    module = sys.modules.get("mpi4py.MPI")
    started = getattr(module, "Is_initialized", None)  # absent while the module is being imported
    return module if started is not None and started() else None


def _at_exit(known: BaseException | None) -> None:
    """End the job if a hook in the place of this module's hook has printed an error."""
    error = getattr(sys, "last_value", None)
    if error is not None and error is not known and _mpi() is None and not _alone():
        _end(1, lambda: f"{type(error).__name__}: {error}")


def _end(code: int, text: Callable[[], str]) -> None:
    """Print a text, unless another rank prints its own text, and end all ranks."""
    if not _ending.acquire(blocking=False):
        time.sleep(10)  # another thread of this rank is ending the job
    if isinstance(sys.stderr, io.StringIO):  # torch.distributed's hook, around ours, buffers it
        sys.stderr = sys.__stderr__ or sys.stderr
    mpi = _mpi()
    if mpi is None:
        # The lowest failing rank ends the job first.
        time.sleep(_turn(launcher.rank) + launcher.patience(launcher.rank))
        _write(launcher.rank, launcher.size, code, text)
        launcher.end_job(code & 0xFF or 1)
    world = mpi.COMM_WORLD
    if mpi.Query_thread() == mpi.THREAD_MULTIPLE or mpi.Is_thread_main():
        if _another_tells(world):
            time.sleep(5)  # its abort ends this process, too
            abort(world, code)
        with contextlib.suppress(Exception):
            _claim(world)
    _write(world.Get_rank(), world.Get_size(), code, text)
    abort(world, code)


def _write(rank: int, size: int, code: int, text: Callable[[], str]) -> None:
    """Write the final message of the job, and give the launcher time to read it."""
    _flush()
    words = text().rstrip("\n")
    if words or code != 1:
        words = words or f"exit status {code}"
        sys.stderr.write(f"\ndistarray: rank {rank} of {size} ends the job: {_separated(words)}\n")
    _flush()
    time.sleep(_DRAIN)


def _turn(rank: int) -> float:
    """Return the seconds until a rank may print its error; longer for higher ranks."""
    return _WORD_AFTER + _RANK_STEP * min(rank, _LAST_RANK) if rank else 0.0


def _separated(words: str) -> str:
    """Begin text of several lines, such as a traceback, on a new line."""
    return f"\n{words}" if "\n" in words else words


def _another_tells(world: "MPI.Comm") -> bool:
    """Return True if another rank prints its error; lower ranks have time to print first."""
    until = time.monotonic() + _turn(world.Get_rank())
    while True:
        if world.Iprobe(tag=_TAG):
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)


def _claim(world: "MPI.Comm") -> None:
    """Notify the other ranks that this rank prints; they need not receive the message."""
    word = bytearray(1)
    rank = world.Get_rank()
    for peer in range(world.Get_size()):
        if peer != rank:
            world.Isend([word, 1], peer, _TAG).Test()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def abort(comm: "MPI.Comm", code: int) -> None:
    """End the job with a nonzero status that fits into a byte; MPI's own message is not printed.

    The error has been printed by then. MPICH prints its message from this process, hence the null
    device.
    """
    _flush()
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
    comm.Abort(code & 0xFF or 1)
