"""Agreement on errors that depend on data: either all ranks raise, or no rank does."""

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from distarray.comm.ledger import forbid_communication
from distarray.errors import DistArrayError
from distarray.layout.placement import Fold

if TYPE_CHECKING:
    from distarray.comm.group import Group

__all__ = ["agree", "agreed"]

T = TypeVar("T")


def agree(group: "Group", error: BaseException | None) -> None:
    """Raise the same error on all ranks if any rank has one.

    Call it outside of the ``except`` block that caught the error: a chained exception would make
    one rank's error differ from the errors of the other ranks.

    Parameters
    ----------
    group : Group
        The ranks that raise together; the call is collective.
    error : exception or None
        This rank's error. If several ranks have an error, the error of the lowest rank is raised.

    Cost
    ----
    One allreduce of an integer; if there is an error, also a broadcast of the error.
    """
    if group.size == 1:
        if error is not None:
            raise error
        return
    mine = group.size if error is None else group.rank
    first = int(group.allreduce(np.array(mine), Fold.MIN, "agreement on errors"))
    if first == group.size:
        return
    name, text, data = group.broadcast_object(_packed(error), first, "agreement on errors")
    if error is not None and (type(error).__name__, str(error)) == (name, text):
        raise error  # the original: not every NumPy error can be sent
    raise _unpacked(name, text, data)


def agreed(group: "Group", act: Callable[[], T]) -> T:
    """Return the result of `act()`; if it fails on one rank of the group, raise the error on all.

    Collective. `act` itself must not communicate, since it may fail on one rank before it
    communicates.
    """
    error: Exception | None = None
    result: T | None = None
    try:
        result = act()
    except Exception as caught:
        error = caught
    agree(group, error)
    return result  # type: ignore[return-value]


def _packed(error: BaseException | None) -> tuple[str, str, bytes | None]:
    """Return name, text and pickle of an exception, or of its nearest base class that pickles."""
    name = type(error).__name__
    for kind in type(error).__mro__:
        if kind in (Exception, BaseException):
            break
        try:
            with forbid_communication():  # an array in it would be gathered, by this rank alone
                data = pickle.dumps(error if kind is type(error) else kind(str(error)))
            pickle.loads(data)
        except Exception:
            continue
        return name, str(error), data
    return name, str(error), None


def _unpacked(name: str, text: str, data: bytes | None) -> BaseException:
    if data is not None:
        error = pickle.loads(data)
        if isinstance(error, BaseException):
            return error
    return DistArrayError(f"{name}: {text}")
