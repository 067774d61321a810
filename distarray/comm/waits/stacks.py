"""Activity of a thread of this process, read from its stack by another thread.

So the program itself records nothing for it. A thread that waits in MPI is in a function of a
module with ``WAITS_FOR_RANKS = True``. An operation has called that function, and the user has
called the operation. `SHOWN_AS`, in a module or in a package around it, is the prefix that users
write before the names of its functions. It is None if a function replaces one of the user's
functions, which the line of the program names.
"""

import sys
import threading
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from distarray.comm import calls, pending
from distarray.comm.calls import Call
from distarray.comm.describing import described, named
from distarray.comm.frames import current_frames
from distarray.comm.user_lines import called, expression, is_house, places, user_frames
from distarray.comm.waits.verdict import AFTER_STATEMENT

__all__ = ["Look", "look"]

#: Function in which a rank under the runner waits for the other ranks at the end of its program.
_AT_THE_END = "all_arrive"
#: Variables in which wrapper functions keep the wrapped function.
_STAND_INS = ("numpy_function", "ufunc", "func", "function", "method")
_MOST = 240  # largest number of characters of arguments


class Look(NamedTuple):
    """Activity of a process, as read from its stack.

    Attributes
    ----------
    doing : str
        "waits" for other ranks, "computes", or "left": the program has ended.
    call : str
        The function that the user's line called; if the process computes, the expression there.
    arguments : str
    path : tuple of str
        The user's lines, the innermost first.
    begun : Call or None
        The communication call in which the process waits.
    peers : tuple of int or None
        The ranks of the group that take part; None for all ranks.
    size : int
        Bytes of the communication call.
    aside : bool
        True if a thread other than the main thread waits, so that the main thread may go on.
    """

    doing: str
    call: str = ""
    arguments: str = ""
    path: tuple[str, ...] = ()
    begun: Call | None = None
    peers: tuple[int, ...] | None = None
    size: int = 0
    aside: bool = False


def look() -> Look:
    """Read the activity of the main thread, or of another thread that waits if main does not.

    Autograd's threads have no user line, and work for the main thread. A thread that itself waits
    for ranks must not call this function.
    """
    frames = current_frames()
    main: FrameType | None = frames.pop(threading.main_thread().ident or 0, None)
    for frame in (main, *frames.values()):
        if frame is not None and frame.f_globals.get("WAITS_FOR_RANKS") and is_house(frame):
            aside = frame is not main and next(user_frames(frame), None) is not None
            return _waiting(frame, main)._replace(aside=aside)
    frame = next(user_frames(main), None)
    if frame is None:
        return Look("computes")
    return Look("computes", expression(frame.f_code, frame.f_lasti), "", tuple(places(frame)))


def _waiting(frame: FrameType, main: FrameType | None) -> Look:
    """Return the communication call in which a thread waits, the user's call, and the user's lines.

    `frame` is the innermost frame; the other frames are found outwards from it.
    """
    if frame.f_code.co_name == _AT_THE_END:
        return Look("left")
    begun, peers, size = _conversation(frame)
    if frame.f_code.co_name == AFTER_STATEMENT:
        statement = frame.f_locals["self"].statement
        return Look("waits", "the wait at a statement's end", "", (statement,), begun, peers, size)
    entry = frame
    while entry.f_back is not None and is_house(entry.f_back):
        entry = entry.f_back
    path = places(entry) or places(main)
    call, arguments = _call(entry)
    return Look("waits", call, arguments, tuple(path), begun, peers, size)


def _conversation(frame: FrameType) -> tuple[Call | None, tuple[int, ...] | None, int]:
    """Return the communication call that a frame belongs to, its peers and its bytes."""
    if frame.f_globals.get("__name__") == pending.__name__:
        begun = getattr(frame.f_locals.get("self"), "call", None)
        return None if begun is None else Call(*begun), None, 0
    latest = calls.latest()
    here: FrameType | None = frame
    while here is not None and latest is not None and is_house(here):
        if here.f_code.co_name == latest[2]:
            values = here.f_locals
            owner = values.get("self")
            if latest[0] in (owner, getattr(owner, "group", None), values.get("group")):
                return Call(*latest), _peers(latest[2], values), _size(values)
        here = here.f_back
    return None, None, 0


def _peers(name: str, values: dict[str, Any]) -> tuple[int, ...] | None:
    if name == "subset":
        return tuple(values["ranks"])
    if name != "exchange":
        return None
    return tuple({peer for peer, _ in (*values["sends"], *values["receives"])})


def _size(values: dict[str, Any]) -> int:
    """Return the bytes of the arrays that were passed to a method of a group."""
    pairs = [*values.get("sends", ()), *values.get("receives", ())]
    blocks = [view for _, view in pairs]
    blocks += [values.get("block"), values.get("view"), *(values.get("blocks") or ())]
    return sum([getattr(block, "nbytes", 0) for block in blocks])


def _call(entry: FrameType) -> tuple[str, str]:
    """Return the function that the user has called, and its arguments."""
    values, code = entry.f_locals, entry.f_code
    module = str(entry.f_globals.get("__name__", ""))
    if code.co_name == "__array_function__":
        return named(values["func"]), _arguments(values["args"], values["kwargs"])
    if code.co_name == "__array_ufunc__":
        method = "" if values["method"] == "__call__" else f".{values['method']}"
        return f"{named(values['ufunc'])}{method}", _arguments(values["inputs"], values["kwargs"])
    shown_as = _shown_as(module)
    if shown_as is None and entry.f_back is not None:
        return called(expression(entry.f_back.f_code, entry.f_back.f_lasti)), ""
    given = [values[name] for name in code.co_varnames[: code.co_argcount] if name in values]
    if "<locals>" in code.co_qualname:
        return _stood_for(values, code.co_name), _arguments(
            [*given, *values.get("args", ())], values.get("kwargs")
        )
    if module.partition(".")[0] == "torch":
        return _of_torch(code.co_qualname, values), ""
    return _of_ours(code.co_qualname, module, shown_as or ""), _arguments(given, None)


def _stood_for(values: dict[str, Any], otherwise: str) -> str:
    """Return the name of the function that a local wrapper replaces."""
    found = [values[key] for key in _STAND_INS if callable(values.get(key))]
    if not found:
        return otherwise
    module = str(getattr(found[0], "__module__", ""))
    if module.startswith("distarray.array."):
        return _of_ours(found[0].__qualname__, module, "")
    return named(found[0])


def _of_torch(name: str, values: dict[str, Any]) -> str:
    return f"{type(values.get('self')).__name__}.forward" if name.startswith("Module._") else name


def _shown_as(module: str) -> str | None:
    """Return the prefix that users write before the names of a module's functions."""
    if module.partition(".")[0] == "numpy":
        return "np."
    while module:
        names = vars(sys.modules[module]) if module in sys.modules else {}
        if "SHOWN_AS" in names:
            shown: str | None = names["SHOWN_AS"]
            return shown
        module = module.rpartition(".")[0]
    return ""


def _of_ours(name: str, module: str, shown_as: str) -> str:
    """Return the name by which a user knows a function of the library."""
    owner, _, last = name.rpartition(".")
    if owner:  # methods of arrays are in several base classes
        return f"DistArray.{last}" if module.startswith("distarray.array.") else name
    return shown_as + name


def _arguments(args: Iterable[Any], kwargs: Mapping[str, Any] | None) -> str:
    words = [described(value) for value in args]
    words += [f"{name}={described(value)}" for name, value in (kwargs or {}).items()]
    text = ", ".join(words)
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
