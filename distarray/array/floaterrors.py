"""Floating-point errors and warnings: what the program learns of them, all ranks learn.

NumPy reports what is wrong with elements on the ranks that hold them: by an exception, a call, a
line of a log, or a warning, as :func:`numpy.errstate` says. The others would go on, in another way.
So while the program can tell (:func:`told`), reports are kept in the course of a call, and at its
end the ranks agree on what has been reported: then each of them raises, calls, logs or warns, once.
Otherwise a warning is a line on standard error, which one rank may write, and nothing is sent.

Where every rank has all operands, and the whole result, all of them have the same reports.
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

#: NumPy's words for a kind of error -> its name in :func:`numpy.errstate` and its bit in the number
#: that a function of the program gets, in the order in which NumPy checks them.
_KINDS = {
    "divide by zero": ("divide", 1),
    "overflow": ("over", 2),
    "underflow": ("under", 4),
    "invalid value": ("invalid", 8),
}
_PLACES = list(_KINDS)
#: Ways to handle an error that the program can tell by itself, or that are wanted once.
_TOLD = frozenset({"raise", "call", "log", "print"})


#: NumPy's context variable of the error state; None if this NumPy has none.
error_variable: Any = getattr(
    getattr(getattr(np, "_core", None), "umath", None), "_extobj_contextvar", None
)
#: An object that stands for the state of :func:`numpy.errstate` in force: in 30 ns, where
#: ``geterr`` takes 1 us. Without the variable every state seems new, and :func:`_handles` calls
#: that.
error_state: Callable[[], object] = object if error_variable is None else error_variable.get
#: Its value if nobody has changed the state; nothing is handled then but by warnings.
NORMAL = Context().run(error_state)

_seen: tuple[object, bool] = (NORMAL, False)


class Report(NamedTuple):
    """What has been reported.

    Attributes
    ----------
    word : str
        Of a floating-point error, NumPy's word for its kind; of a warning, its text.
    place : str
        NumPy's name of what found the error; of a warning "".
    category : type
        Of the warning.
    line : Line or None
        Of the program, if the warning names one.
    number : tuple of int
        Tells warnings of the program's own functions apart, which they may give again and again.
    """

    word: str
    place: str
    category: type[Warning] = RuntimeWarning
    line: warned_lines.Line | None = None
    number: tuple[int, ...] = ()


_NOTHING: AbstractContextManager[Any] = nullcontext()
_reports: ContextVar["_Reports | None"] = ContextVar("distarray_reports", default=None)


def told() -> bool:
    """Whether the program can tell what is reported, and no call has yet begun to keep it."""
    return _reports.get() is None and (_handles() or is_observed())


def _handles() -> bool:
    """Whether any kind of floating-point error is handled otherwise than by a warning."""
    global _seen
    state, (known, answer) = error_state(), _seen
    if state is not known:
        answer = not _TOLD.isdisjoint(np.geterr().values())
        _seen = state, answer
    return answer


def of_elements(layout: Layout, mesh: DeviceMesh) -> AbstractContextManager[Any]:
    """Report nothing of what is on other ranks in the place of an element that one rank has."""
    if layout.is_lone_element and not layout.holds(mesh.coords):
        return np.errstate(all="ignore")
    return _NOTHING


def is_on_one_rank(values: Iterable[Any]) -> bool:
    """Whether arrays are on one rank, which learns of everything by itself."""
    array = next(operands_in(values), None)
    return array is not None and array.mesh.size() == 1


def settle_before(values: Iterable[Any]) -> None:
    """Carry out pending folds of arguments: what is wrong with them belongs to earlier lines."""
    for value in values:
        if isinstance(value, Base) and value.layout.partials:
            value.settle()
        elif isinstance(value, (list, tuple)):
            settle_before(value)


def mesh_concerned(values: Iterable[Any]) -> Any:
    """The mesh whose ranks have to agree on reports of a call with these arguments; None if none.

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
    """Say that ranks divide work on operands that all of them have: they agree on reports then."""
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
    """Call a function; what is reported is handled on all ranks as the program has it.

    Parameters
    ----------
    mesh : DeviceMesh or None
        The ranks, all of which make the call. None: they have all that is computed with, and agree
        if the result is cut.
    key : object
        The function of NumPy for which the call is made, or a ufunc and its method.
    function, *args, **kwargs
        The call.

    Raises
    ------
    FloatingPointError
        With NumPy's text. If there are several errors, it is the one that NumPy checks first.

    Cost
    ----
    That of the call, and one allreduce of an integer; two small conversations more for each rank
    that has reported what those before it have not.
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
            group.barrier()  # who goes on would take the warnings of all threads
    return value


def _settle(values: Iterable[Any]) -> None:
    """Carry out what folds are pending, so that their errors belong to this call."""
    for value in values:
        if isinstance(value, Base) and value.layout.partials:
            value.settle()
        elif isinstance(value, (list, tuple)):
            _settle(value)


def _united(group: Group, mine: list[Report]) -> list[Report]:
    """What any rank has reported: the lowest rank's first."""
    known: dict[Report, None] = {}
    while True:
        new = [report for report in mine if report not in known]
        vote = np.array(group.rank if new else group.size)
        first = int(group.allreduce(vote, Fold.MIN, "agreement on errors"))
        if first == group.size:
            return list(known)
        known.update(dict.fromkeys(group.broadcast_object(new, first, "agreement on errors")))


def _in_numpys_words(found: Iterable[Report], key: Hashable) -> list[Report]:
    """Reports as NumPy makes them of the whole call, in its order."""
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
    """Keeps what is reported in the course of a call, and hands it to the program at its end."""

    def __init__(self, mesh: DeviceMesh | None) -> None:
        self.mesh = mesh
        self.found: dict[Report, None] = {}
        #: The rank, where ranks divide the calls of a function of the program.
        self.caller = 0
        self._numbered = 0
        self._modes: Mapping[str, Any] = np.geterr()
        self._receiver: Any = np.geterrcall()
        self._observed = is_observed()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep reports."""
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
        """Whether errors handled so are kept; a function is told of those that are ignored, too."""
        if mode == "ignore":
            return "call" in self._modes.values()
        return mode in _TOLD or self._observed

    @contextmanager
    def as_the_program_has_it(self) -> Iterator[None]:
        """The program's own error state, for functions of the program."""
        modes: Any = self._modes
        with np.errstate(call=self, **modes):
            yield

    # -- what is kept ----------------------------------------------------------------------------

    def write(self, line: str) -> None:
        """Take a line of NumPy's log."""
        text = line.removeprefix("Warning: ").rstrip("\n")
        word, _, place = text.partition(" encountered in ")
        self.found[Report(word, place)] = None

    def _note_fold(self, word: str, _: int) -> None:
        if self._keeps(self._modes[_KINDS[word][0]]):
            self.found[Report(word, "reduce")] = None

    def __call__(self, word: str, flag: int) -> None:
        """Keep what NumPy calls a function of the program for, in one."""
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

    # -- what is handed over ---------------------------------------------------------------------

    def hand_over(self, report: Report, found: Iterable[Report]) -> None:
        """Do with a report what the program wants to be done with it."""
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
    """A context in which a function of the program finds the error state that it has set."""
    reports = _reports.get()
    if reports is None:
        yield
        return
    with reports.as_the_program_has_it():
        yield


def _sent(category: type[Warning]) -> type[Warning]:
    """A category as other ranks know it: itself, or the nearest base that can be sent."""
    for kind in category.__mro__:
        try:
            pickle.dumps(kind)
        except Exception:
            continue
        return kind
    return Warning
