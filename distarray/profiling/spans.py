"""Timeline of bounded length: the longer it gets, the coarser its spans."""

from distarray.profiling.measured import Line

__all__ = ["Span", "Spans"]

#: Start, stop, line, kind of communication (empty for a line), and seconds of communication. A span
#: of several lines has the line that took longest.
Span = tuple[float, float, Line | None, str, float]
#: Initial minimum length of a span, in seconds.
_FINEST = 2e-6


class Spans:
    """Timeline of a rank's activity, in order of time.

    Parameters
    ----------
    most : int
        Maximum number of spans; beyond it, short spans are joined with their neighbors.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._shortest = _FINEST
        self._spans: list[Span] = []
        #: Seconds of the line that names the last span.
        self._longest = 0.0

    def add(self, start: float, stop: float, line: Line | None, what: str, talking: float) -> None:
        """Add a span from `start` to `stop`, which is not earlier than the spans added before."""
        self._append((start, stop, line, what, talking))
        if len(self._spans) > self._most:
            self._coarsen()

    def listed(self) -> list[Span]:
        """Return all spans, by time."""
        return list(self._spans)

    def _append(self, new: Span) -> None:
        if self._spans:
            last = self._spans[-1]
            near = new[0] - last[1] <= self._shortest
            short = new[1] - last[0] <= self._shortest
            if near and (short or new[2:4] == last[2:4]):
                self._spans[-1] = self._joined(last, new)
                return
        self._spans.append(new)
        self._longest = new[1] - new[0]

    def _joined(self, last: Span, new: Span) -> Span:
        length = new[1] - new[0]
        named = last
        if length > self._longest:
            named, self._longest = new, length
        return last[0], max(last[1], new[1]), named[2], named[3], last[4] + new[4]

    def _coarsen(self) -> None:
        """Join short spans until at most half of the maximum number is left."""
        while len(self._spans) > self._most // 2:
            self._shortest *= 2
            spans, self._spans = self._spans, []
            for span in spans:
                self._append(span)
