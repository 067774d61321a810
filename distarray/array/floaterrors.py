"""Floating-point errors that raise: on all ranks, or on none.

Under ``numpy.errstate(divide="raise")`` NumPy raises FloatingPointError on the ranks that hold an
element which causes it. The others would go on, and wait for these at the next message. So while
any kind of error is to be raised, NumPy is told to log it instead, and at the end of the call the
ranks agree on what has been logged.

Filters of Python's ``warnings`` that raise act on each rank separately.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from typing import Any, ParamSpec, TypeVar

import numpy as np

from distarray.array.base import Base
from distarray.comm import DeviceMesh
from distarray.comm.group import Group
from distarray.layout import Fold

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["NORMAL", "agreed", "error_state", "error_variable", "mesh_concerned", "raises"]

#: NumPy's words for a kind of error -> its name in :func:`numpy.errstate`, in the order in which
#: NumPy checks them.
_KINDS = {
    "divide by zero": "divide",
    "overflow": "over",
    "underflow": "under",
    "invalid value": "invalid",
}


#: NumPy's context variable of the error state; None if this NumPy has none.
error_variable: Any = getattr(
    getattr(getattr(np, "_core", None), "umath", None), "_extobj_contextvar", None
)
#: An object that stands for the state of :func:`numpy.errstate` in force: in 30 ns, where
#: ``geterr`` takes 1 us. Without the variable every state seems new, and :func:`raises` calls
#: that.
error_state: Callable[[], object] = object if error_variable is None else error_variable.get
#: Its value if nobody has changed the state; nothing raises then.
NORMAL = Context().run(error_state)

_seen: tuple[object, bool] = (NORMAL, False)


def raises() -> bool:
    """Whether any kind of floating-point error is to be raised."""
    global _seen
    state, (known, answer) = error_state(), _seen
    if state is not known:
        answer = "raise" in np.geterr().values()
        _seen = state, answer
    return answer


def mesh_concerned(values: Iterable[Any]) -> Any:
    """The mesh whose ranks have to agree on errors of a call with these arguments; None if none.

    A call with only replicated arrays raises the same on every rank, without a message.
    """
    for value in values:
        found = value.mesh if isinstance(value, Base) and not value.layout.is_replicated else None
        if isinstance(value, (list, tuple)):
            found = mesh_concerned(value)
        if found is not None:
            return found
    return None


def agreed(mesh: DeviceMesh, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function; floating-point errors that have to be raised are raised on all ranks.

    Parameters
    ----------
    mesh : DeviceMesh
        The ranks, all of which make the call.
    function, *args, **kwargs
        The call.

    Raises
    ------
    FloatingPointError
        With NumPy's text. If the ranks have different errors, it is the one that NumPy checks
        first, and the lowest rank's.

    Cost
    ----
    That of the call, and one allreduce of an integer.
    """
    modes = np.geterr()
    notes = _Notes(modes)
    wanted: Any = {kind: "log" for kind, mode in modes.items() if mode == "raise"}
    with np.errstate(call=notes, **wanted):
        value = function(*args, **kwargs)
    _agree(mesh.group, notes.first)
    return value


def _agree(group: Group, text: str | None) -> None:
    """Raise on all ranks if NumPy has reported anything on one of them."""
    if group.size > 1:
        nothing = len(_KINDS) * group.size
        mine = nothing if text is None else _place(text) * group.size + group.rank
        first = int(group.allreduce(np.array(mine), Fold.MIN, "agreement on errors"))
        if first == nothing:
            return
        text = group.broadcast_object(text, first % group.size, "agreement on errors")
    if text is not None:
        raise FloatingPointError(text)


def _kind(text: str) -> str:
    return text.partition(" encountered")[0]


def _place(text: str) -> int:
    """The position of an error's kind in the order in which NumPy checks them."""
    return list(_KINDS).index(_kind(text))


class _Notes:
    """Keeps what NumPy reports in place of raising; all other reports are passed on."""

    def __init__(self, modes: Mapping[str, Any]) -> None:
        self._modes = modes
        self._others: Any = np.geterrcall()
        self.first: str | None = None

    def write(self, line: str) -> None:
        """Take a line of NumPy's log."""
        text = line.removeprefix("Warning: ").rstrip("\n")
        if self._modes[_KINDS[_kind(text)]] != "raise":
            self._others.write(line)
        elif self.first is None:
            self.first = text

    def __call__(self, kind: str, flag: int) -> None:
        """Pass an error to the program's own function, if the program handles its kind so."""
        self._others(kind, flag)
