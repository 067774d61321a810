"""Business days and dates as text, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, implements
from distarray.engines.reducing import write
from distarray.ops.strings import by_element
from distarray.typing import Array, ArrayLike, Casting, DTypeLike, Out

__all__ = ["busday_count", "busday_offset", "datetime_as_string", "is_busday"]


def _days(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    dtype: DTypeLike,
    out: Out,
    settings: dict[str, Any],
) -> Any:
    """Apply a function of business days; every rank gets the holidays and the week mask."""
    settings = {k: v.full() if isinstance(v, DistArray) else v for k, v in settings.items()}
    # NumPy's functions read lists and text as dates; arrays stay unchanged.
    given = [x if hasattr(x, "dtype") or np.isscalar(x) else np.asarray(x) for x in inputs]
    (result,) = by_element(lambda *blocks: function(*blocks, **settings), given, [dtype])
    return result if out is None else write(result.block, result.layout, result.mesh, out)


@implements(np.busday_count)
def busday_count(
    begindates: ArrayLike,
    enddates: ArrayLike,
    weekmask: str | ArrayLike = "1111100",
    holidays: ArrayLike = (),
    busdaycal: np.busdaycalendar | None = None,
    out: Out = None,
) -> Any:
    """Count the business days between dates; see :func:`numpy.busday_count`.

    Cost
    ----
    The cost of aligning the dates, and one allreduce of a number to agree on errors; every rank
    gets `holidays`.
    """
    settings = {"weekmask": weekmask, "holidays": holidays, "busdaycal": busdaycal}
    return _days(np.busday_count, (begindates, enddates), np.int64, out, _given(settings))


@implements(np.busday_offset)
def busday_offset(
    dates: ArrayLike,
    offsets: ArrayLike,
    roll: str = "raise",
    weekmask: str | ArrayLike = "1111100",
    holidays: ArrayLike | None = None,
    busdaycal: np.busdaycalendar | None = None,
    out: Out = None,
) -> Any:
    """Add a number of business days to dates; see :func:`numpy.busday_offset`.

    Cost
    ----
    The cost of :func:`busday_count`.
    """
    settings = {"weekmask": weekmask, "holidays": holidays, "busdaycal": busdaycal, "roll": roll}
    return _days(np.busday_offset, (dates, offsets), "M8[D]", out, _given(settings))


@implements(np.is_busday)
def is_busday(
    dates: ArrayLike,
    weekmask: str | ArrayLike = "1111100",
    holidays: ArrayLike | None = None,
    busdaycal: np.busdaycalendar | None = None,
    out: Out = None,
) -> Any:
    """Return True where dates are business days; see :func:`numpy.is_busday`.

    Cost
    ----
    The cost of :func:`busday_count`.
    """
    settings = {"weekmask": weekmask, "holidays": holidays, "busdaycal": busdaycal}
    return _days(np.is_busday, (dates,), np.bool_, out, _given(settings))


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from the defaults: NumPy takes a calendar only alone."""
    found = dict(settings)
    if isinstance(found["weekmask"], str) and found["weekmask"] == "1111100":
        del found["weekmask"]
    if found["holidays"] is None or len(found["holidays"]) == 0:
        del found["holidays"]
    if found["busdaycal"] is None:
        del found["busdaycal"]
    return found


@implements(np.datetime_as_string)
def datetime_as_string(
    arr: ArrayLike,
    unit: str | None = None,
    timezone: str | tzinfo = "naive",
    casting: Casting = "same_kind",
) -> Any:
    """Convert dates to text; see :func:`numpy.datetime_as_string`.

    Cost
    ----
    One allreduce of a number to agree on errors, and one for the length of the text.
    """
    function: Any = np.datetime_as_string

    def text(block: Array) -> Array:
        return function(block, unit, timezone, casting)  # type: ignore[no-any-return]

    return by_element(text, [as_distarray(arr)], ["U"])[0]
