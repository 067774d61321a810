"""Floating-point errors and warnings: reports that the program can observe reach all ranks.

NumPy reports errors of elements only on the ranks that hold the elements: by an exception, a call,
a line of a log, or a warning, as :func:`numpy.errstate` sets. The ranks would then diverge. So
while the program can observe reports (:func:`told`), they are recorded in the course of a call. At
its end the ranks agree on the reports: then every rank raises, calls, logs or warns, once.
Otherwise a warning is a line on standard error, which one rank may write, and nothing is sent.

If every rank has all operands, and the whole result, all ranks have the same reports.
"""

import pickle
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from distarray.array.base import Base, operands_in
from distarray.array.error_words import words_of
from distarray.comm import DeviceMesh, fold_errors, warned_lines
from distarray.comm.group import Group
from distarray.comm.observed import is_observed
from distarray.layout import Fold, Layout

P = ParamSpec("P")
T = TypeVar("T")

__all__ = [
    "NORMAL",
    "agreed",
    "as_the_program_has_it",
    "divide",
    "error_state",
    "error_variable",
    "is_on_one_rank",
    "mesh_concerned",
    "of_elements",
    "settle_before",
    "told",
]

#: NumPy's words for a kind of error -> its name in :func:`numpy.errstate` and its bit in the
#: number that a function of the program gets, in the order in which NumPy checks the kinds.
_KINDS = {
    "divide by zero": ("divide", 1),
    "overflow": ("over", 2),
    "underflow": ("under", 4),
    "invalid value": ("invalid", 8),
}
_PLACES = list(_KINDS)
#: Modes of handling an error that the program can observe, or that must act only once.
_TOLD = frozenset({"raise", "call", "log", "print"})


#: NumPy's context variable of the error state; None if this version of NumPy has none.
error_variable: Any = getattr(
    getattr(getattr(np, "_core", None), "umath", None), "_extobj_contextvar", None
)
#: Function that returns an object which identifies the :func:`numpy.errstate` in force, in 30 ns;
#: ``geterr`` takes 1 us. Without the context variable every state seems new, and :func:`_handles`
#: calls ``geterr``.
error_state: Callable[[], object] = object if error_variable is None else error_variable.get
#: Default error state, which nobody has changed; it handles errors only by warnings.
NORMAL = Context().run(error_state)

_seen: tuple[object, bool] = (NORMAL, False)


class Report(NamedTuple):
    """Report of a floating-point error or a warning.

    Attributes
    ----------
    word : str
        NumPy's word for the kind of a floating-point error; the text of a warning.
    place : str
        NumPy's name of the function that found the error; "" for a warning.
    category : type
        Category of the warning.
    line : Line or None
        Line of the program, if the warning names one.
    number : tuple of int
        Number that distinguishes warnings of the program's own functions, which may be repeated.
    """

    word: str
    place: str
    category: type[Warning] = RuntimeWarning
    line: warned_lines.Line | None = None
    number: tuple[int, ...] = ()


_NOTHING: AbstractContextManager[Any] = nullcontext()
_reports: ContextVar["_Reports | None"] = ContextVar("distarray_reports", default=None)


def told() -> bool:
    """Return True if the program can observe reports, and no enclosing call records them yet."""
    return _reports.get() is None and (_handles() or is_observed())


def _handles() -> bool:
    """Return True if any kind of floating-point error is handled otherwise than by a warning."""
    global _seen
    state, (known, answer) = error_state(), _seen
    if state is not known:
        answer = not _TOLD.isdisjoint(np.geterr().values())
        _seen = state, answer
    return answer


def of_elements(layout: Layout, mesh: DeviceMesh) -> AbstractContextManager[Any]:
    """Suppress reports of the placeholders that other ranks have for an element of one rank."""
    if layout.is_lone_element and not layout.holds(mesh.coords):
        return np.errstate(all="ignore")
    return _NOTHING


def is_on_one_rank(values: Iterable[Any]) -> bool:
    """Return True if arrays are on a single rank, which has all reports itself."""
    array = next(operands_in(values), None)
    return array is not None and array.mesh.size() == 1


def settle_before(values: Iterable[Any]) -> None:
    """Carry out pending folds of arguments: their errors belong to earlier lines."""
    for value in values:
        if isinstance(value, Base) and value.layout.partials:
            value.settle()
        elif isinstance(value, (list, tuple)):
            settle_before(value)


def mesh_concerned(values: Iterable[Any]) -> Any:
    """Return the mesh whose ranks must agree on reports of a call with these arguments, or None.

    A call with only replicated arrays reports the same on every rank, without a message.
    """
    for value in values:
        found = value.mesh if isinstance(value, Base) and not value.layout.is_replicated else None
        if isinstance(value, (list, tuple)):
            found = mesh_concerned(value)
        if found is not None:
            return found
    return None


def divide(mesh: DeviceMesh) -> None:
    """Note that ranks divide work on replicated operands: at the end they agree on reports."""
    reports = _reports.get()
    if reports is not None:
        reports.mesh, reports.caller = mesh, mesh.group.rank


def agreed(
    mesh: DeviceMesh | None,
    key: Hashable,
    function: Callable[P, T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function, and handle its reports on all ranks in the program's error state.

    Parameters
    ----------
    mesh : DeviceMesh or None
        The ranks, all of which make the call. None: every rank has all operands, and the ranks
        agree only if the result is cut.
    key : object
        The NumPy function for which the call is made, or a ufunc and its method.
    function, *args, **kwargs
        The call.

    Raises
    ------
    FloatingPointError
        With NumPy's text. If there are several errors, it is the error that NumPy checks first.

    Cost
    ----
    That of the call, and one allreduce of an integer. Each rank with reports that lower ranks do
    not have adds one broadcast and one more allreduce.
    """
    reports = _Reports(mesh)
    with reports.kept():
        value = function(*args, **kwargs)
        _settle([value])
    found = [*reports.found]
    mesh = reports.mesh or mesh_concerned([value])
    group = None if mesh is None or mesh.group.size == 1 else mesh.group
    if group is not None:
        found = _united(group, found)
    try:
        for report in _in_numpys_words(found, key):
            reports.hand_over(report, found)
    finally:
        if found and group is not None and group.in_one_process:
            group.barrier()  # a thread that continued would take the warnings of all threads
    return value


def _settle(values: Iterable[Any]) -> None:
    """Carry out pending folds, so that their errors belong to this call."""
    for value in values:
        if isinstance(value, Base) and value.layout.partials:
            value.settle()
        elif isinstance(value, (list, tuple)):
            _settle(value)


def _united(group: Group, mine: list[Report]) -> list[Report]:
    """Collect the reports of all ranks: the lowest rank's first."""
    known: dict[Report, None] = {}
    while True:
        new = [report for report in mine if report not in known]
        vote = np.array(group.rank if new else group.size)
        first = int(group.allreduce(vote, Fold.MIN, "agreement on errors"))
        if first == group.size:
            return list(known)
        known.update(dict.fromkeys(group.broadcast_object(new, first, "agreement on errors")))


def _in_numpys_words(found: Iterable[Report], key: Hashable) -> list[Report]:
    """Return the reports in the words and the order of NumPy's call on the whole arrays."""
    words = words_of(key)
    named: dict[Report, None] = {}
    for report in found:
        if isinstance(words, dict) or not report.place:
            place = words.get(report.place, report.place) if isinstance(words, dict) else ""
            named[report._replace(place=place)] = None
        elif words is not None:
            named[report._replace(place=words)] = None
    order = {place: number for number, place in enumerate(dict.fromkeys(r.place for r in named))}
    return sorted(named, key=lambda r: (order[r.place], _PLACES.index(r.word) if r.place else 0))


class _Reports:
    """Recorder of the reports in the course of a call, which handles them at its end."""

    def __init__(self, mesh: DeviceMesh | None) -> None:
        self.mesh = mesh
        self.found: dict[Report, None] = {}
        #: This rank's number, where ranks divide the calls of a function of the program.
        self.caller = 0
        self._numbered = 0
        self._modes: Mapping[str, Any] = np.geterr()
        self._receiver: Any = np.geterrcall()
        self._observed = is_observed()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Record reports."""
        token = _reports.set(self)
        wanted: Any = {kind: "log" for kind, mode in self._modes.items() if self._keeps(mode)}
        try:
            with fold_errors.heard(self._note_fold), np.errstate(call=self, **wanted):
                if self._observed:
                    with warned_lines.taken(self._note_warning):
                        yield
                else:
                    yield
        finally:
            _reports.reset(token)

    def _keeps(self, mode: str) -> bool:
        """Return True if errors of a mode are recorded; a function also receives ignored errors."""
        if mode == "ignore":
            return "call" in self._modes.values()
        return mode in _TOLD or self._observed

    @contextmanager
    def as_the_program_has_it(self) -> Iterator[None]:
        """Restore the program's own error state, for functions of the program."""
        modes: Any = self._modes
        with np.errstate(call=self, **modes):
            yield

    # -- recording -------------------------------------------------------------------------------

    def write(self, line: str) -> None:
        """Record a line of NumPy's log."""
        text = line.removeprefix("Warning: ").rstrip("\n")
        word, _, place = text.partition(" encountered in ")
        self.found[Report(word, place)] = None

    def _note_fold(self, word: str, _: int) -> None:
        if self._keeps(self._modes[_KINDS[word][0]]):
            self.found[Report(word, "reduce")] = None

    def __call__(self, word: str, flag: int) -> None:
        """Record the errors for which NumPy calls a function of the program, all in one call."""
        for other, (_, bit) in _KINDS.items():
            if flag & bit:
                self.found[Report(other, "a function")] = None

    def _note_warning(self, said: Any) -> None:
        line = warned_lines.line_of(said)
        number: tuple[int, ...] = ()
        if line is not None:
            self._numbered += 1
            number = self.caller, self._numbered
        self.found[Report(str(said.message), "", _sent(said.category), line, number)] = None

    # -- handling --------------------------------------------------------------------------------

    def hand_over(self, report: Report, found: Iterable[Report]) -> None:
        """Handle a report in the mode that the program has set."""
        if not report.place:
            warned_lines.warn_user(report.word, report.category, report.line)
            return
        kind, _ = _KINDS[report.word]
        text = f"{report.word} encountered in {report.place}"
        match self._modes[kind]:
            case "raise":
                raise FloatingPointError(text)
            case "warn":
                warned_lines.warn_user(text, RuntimeWarning)
            case "call":
                bits = {_KINDS[x.word][1] for x in found if x.place}
                self._receiver(report.word, sum(bits))
            case "log":
                self._receiver.write(f"Warning: {text}\n")
            case "print":
                sys.stderr.write(f"Warning: {text}\n")


@contextmanager
def as_the_program_has_it() -> Iterator[None]:
    """Restore, as a context, the error state of the program for a function of the program."""
    reports = _reports.get()
    if reports is None:
        yield
        return
    with reports.as_the_program_has_it():
        yield


def _sent(category: type[Warning]) -> type[Warning]:
    """Return a category that other ranks know: itself, or the nearest base that can be sent."""
    for kind in category.__mro__:
        try:
            pickle.dumps(kind)
        except Exception:
            continue
        return kind
    return Warning
