"""Classification of the caller that accesses a file: the program, a library, or the machinery.

The class decides whether the other ranks take part. All ranks execute in step the program's own
lines and the libraries that these lines call, so both may communicate. Threads, and functions that
each rank calls independently, concern one rank alone. So do the files that libraries keep between
runs (`Paths.is_private`), which the libraries lock and check themselves.
"""

import enum
import sys
from types import FrameType

from distarray.runner.imports import belongs_to_program
from distarray.runner.step import in_step

__all__ = ["Caller", "caller"]


class Caller(enum.Enum):
    """Kinds of callers that access a file."""

    PROGRAM = enum.auto()
    LIBRARY = enum.auto()
    #: A thread or a function that this rank runs independently.
    BY_ITSELF = enum.auto()
    #: The interpreter, MPI and the library's own I/O, which the runner leaves alone.
    MACHINERY = enum.auto()
    #: The finalizer of an object, which runs at no fixed time.
    FINALIZER = enum.auto()


#: Standard modules that access files for internal reasons, on one rank and not on another.
_MACHINERY = frozenset(
    {
        *("_frozen_importlib", "_frozen_importlib_external", "importlib", "pkgutil", "runpy"),
        *("site", "sysconfig", "zipimport", "encodings", "gettext", "locale", "zoneinfo"),
        *("inspect", "linecache", "pdb", "tokenize", "traceback", "warnings"),
        *("asyncio", "concurrent", "ctypes", "multiprocessing", "platform", "subprocess"),
        "threading",
    }
)
#: Libraries that run the program's statements, and whose own loops differ between ranks.
_PROMPTS = frozenset(
    {
        *("IPython", "ipykernel", "ipyparallel", "jupyter_client", "jupyter_core", "traitlets"),
        *("comm", "debugpy", "prompt_toolkit", "tornado", "zmq"),
    }
)
#: Subpackages of this package whose ranks write files, or parts of files, independently.
_OURS = ("distarray.io", "distarray.checkpoint", "distarray.comm", "distarray.profiling")


def caller(depth: int = 2) -> Caller:
    """Classify the nearest frame, from `depth` up, that does not merely forward a call."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        answer = _classify(frame)
        if answer is not None:
            return answer
        frame = frame.f_back
    return Caller.MACHINERY


def _classify(frame: FrameType) -> Caller | None:
    """Return the class of one frame; None for NumPy, distarray and most of the standard library."""
    if belongs_to_program(frame):
        return Caller.PROGRAM if in_step() else Caller.BY_ITSELF
    name: str = frame.f_globals.get("__name__") or ""
    top = name.partition(".")[0]
    if top == "weakref":
        return Caller.FINALIZER
    if top in _MACHINERY or name.startswith(_OURS) or name == "__main__":  # the runner
        return Caller.MACHINERY
    if top in ("numpy", "distarray") or top in sys.stdlib_module_names:
        return None
    return Caller.LIBRARY if in_step() and not _serves_a_prompt(frame) else Caller.BY_ITSELF


def _serves_a_prompt(frame: FrameType | None) -> bool:
    """Return True if a prompt called the library, such as for the traceback of one rank's error."""
    while frame is not None and not belongs_to_program(frame):
        name: str = frame.f_globals.get("__name__") or ""
        if name.partition(".")[0] in _PROMPTS:
            return True
        frame = frame.f_back
    return False
