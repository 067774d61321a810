"""Strategy `CUT`: each rank starts at a guessed position of the stream; then sequences are joined.

An element takes a varying number of words, which does not depend on other elements. Each rank
starts at a guessed word, a little before the expected start of its first element, as if an element
began at the guess. Each rank draws past the position where the next rank started::

    words   |--+---+--+-----+--+---+--+--+---+----+--+---+--+---   the true elements
    rank 0  |--+---+--+-----+--+---+--+--+
    rank 1                    |--+-+--+--+---+----+--+---+--+---   starts within an element
                              ^          ^
                            guess     synchronized: the same elements from here on

The two sequences read the same words, so they synchronize after a few elements: once an element
begins at the same position in both, all later elements are equal. Rank 0 finds this position, since
it can move its own copy of the generator to the position where rank 1 started. Every rank reports
to the others how many elements it has drawn up to the join; from the sums each rank knows which of
the elements it has drawn are its own. As ranks start early, no rank needs elements that another
rank has drawn.

If sequences do not synchronize (elements of very many words), or a guess is too far off, all ranks
learn this from the reports, and draw in turns.
"""

from typing import NamedTuple

from distarray.engines.drawing.job import Job, Share, compare, fingerprint, raise_alike
from distarray.engines.drawing.pace import Pace, pace_of
from distarray.engines.drawing.places import LostError, State, Walker, put, state_of
from distarray.typing import Array, Shape

__all__ = ["drawn_and_joined"]

#: Elements that are drawn one by one until two sequences are synchronized.
_STEPS = 256
#: The least number of MT19937 words that are compared.
_NEAR = 1 << 12
#: The least number of half words of a rank.
_LEAST = 64
#: Elements that are drawn at once if they are discarded.
_PIECE = 1 << 15
#: From this many numbers on, skipping words of MT19937 is faster than drawing in turns.
_WORTH_PASSING = 1 << 20


class _Plan(NamedTuple):
    """Start position of each active rank, and the most elements that it may draw."""

    pace: Pace
    starts: list[int]
    room: list[int]


class _Piece(NamedTuple):
    """Report of a rank: elements before the join in its own and the next sequence, and success."""

    mine: int
    theirs: int
    well: bool
    mark: int


def drawn_and_joined(job: Job, share: Share, shape: Shape) -> Array | None:
    """Draw this rank's elements; afterwards the generator is past the last element of all ranks.

    Returns
    -------
    array or None
        None, on all ranks, if the sequences cannot be joined; the generator's state is then
        unchanged.
    """
    group = share.group
    plan = _plan(job, share)
    if plan is None or group is None:
        return None
    drawer = _Drawer(job, share, plan)
    own = drawer.drawn()
    found = group.allgather_object(own, "places")
    compare([piece.mark for piece in found], job)
    firsts = _firsts(found, share, plan)
    if firsts is None:
        job.reset()
        return None
    part, error = job.empty(shape), None
    try:
        if drawer.turn is not None:
            part = drawer.finished(firsts[drawer.turn], shape)
    except Exception as caught:
        error = caught
    raise_alike(group, job, error)
    put(job.source, group.broadcast_object(state_of(job.source), share.active[-1], "place"))
    return part


def _plan(job: Job, share: Share) -> _Plan | None:
    """Plan the start positions; return None if they are too close, or if no words are taken."""
    assert job.walker is not None
    if not job.walker.jumps and share.total * job.width < _WORTH_PASSING:
        return None
    pace = pace_of(job, share.total)
    if not pace.halves:
        return None
    starts, room = [0], []
    for turn, rank in enumerate(share.active):
        first, last = share.bounds[rank]
        margin = pace.margin(first)
        if turn:
            start = int(first * pace.halves - margin)
            starts.append(start - start % pace.unit)
            if starts[-1] - starts[-2] < _LEAST + 8 * pace.halves:
                return None
        room.append(last - first + int(2 * margin / pace.halves) + 64)
    return _Plan(pace, starts, room)


def _firsts(found: list[_Piece], share: Share, plan: _Plan) -> list[int] | None:
    """Return the global number of the first element that each active rank has drawn.

    None if a sequence was not joined, or does not contain all elements of its rank. Elements before
    the join with the previous rank's sequence are not true elements of the stream.
    """
    pieces = [found[rank] for rank in share.active]
    if not all(piece.well for piece in found):
        return None
    firsts, untrue = [0], [0]
    for piece in pieces[:-1]:
        if piece.mine < untrue[-1]:
            return None  # joined before this rank's own sequence was synchronized
        firsts.append(firsts[-1] + piece.mine - piece.theirs)
        untrue.append(piece.theirs)
    for turn, rank in enumerate(share.active):
        first, last = share.bounds[rank]
        if first - firsts[turn] < untrue[turn] or last - firsts[turn] > plan.room[turn]:
            return None
    if pieces[-1].mine > share.total - firsts[-1]:
        return None
    return firsts


class _Drawer:
    """This rank's sequence of elements, from the rank's start position."""

    def __init__(self, job: Job, share: Share, plan: _Plan) -> None:
        assert job.walker is not None
        assert share.group is not None
        self._job, self._plan, self._count = job, plan, 0
        self._walker: Walker = job.walker
        rank = share.group.rank
        #: The index of this rank among the ranks that draw.
        self.turn = share.active.index(rank) if rank in share.active else None
        self._own = share.own
        self._begin = job.start
        self._room = 0
        self._line: Array | None = None

    def drawn(self) -> _Piece:
        """Draw up to the join with the next sequence, or the last sequence's certain elements."""
        mark = fingerprint(self._job.start)
        if self.turn is None:
            return _Piece(0, 0, True, mark)
        try:
            return _Piece(*self._drawn(self.turn), True, mark)
        except Exception:  # NumPy raises the error again when ranks draw in turns
            return _Piece(0, 0, False, mark)

    def _drawn(self, turn: int) -> tuple[int, int]:
        job, plan = self._job, self._plan
        self._room = plan.room[turn]
        self._begin = self._place(plan.starts[turn])
        put(job.source, self._begin)
        if turn + 1 < len(plan.starts):
            distance = plan.starts[turn + 1] - plan.starts[turn]
            target = self._place(plan.starts[turn + 1])
            self._reach(target, distance)
            return self._join(target)
        first, last = self._own
        count = last - first - int(plan.pace.margin(last) / plan.pace.halves)
        self._draw(max(0, count))
        return self._count, 0

    def _place(self, halves: int) -> State:
        """Return the state at a position, as if an element began there."""
        found = self._walker.on(self._job.start, halves, True)
        if halves and "has_gauss" in found:
            found |= {"has_gauss": 0, "gauss": 0.0}
        return found

    def _draw(self, count: int) -> None:
        """Draw the next elements."""
        if self._count + count > self._room:
            raise LostError
        if self._job.varies:
            for first in range(0, count, _PIECE):
                self._job.draw_standing_in(min(_PIECE, count - first))
        elif self._line is None:
            self._line = self._job.draw_with_room(count, self._room)
        else:
            self._job.fill(self._line[self._count : self._count + count])
        self._count += count

    def _reach(self, target: State, left: float) -> None:
        """Draw until the generator's position is not before the position of another state."""
        pace, job = self._plan.pace, self._job
        while left > 0:
            far = int((left - pace.margin(left / pace.halves)) / pace.halves)
            count = far if far > 16 else max(1, int(left / pace.halves / 2))
            self._draw(count)
            most = left - count * pace.halves + pace.margin(count)
            left = self._walker.ahead(state_of(job.source), target, max(_NEAR, int(most)))

    def _join(self, target: State) -> tuple[int, int]:
        """Advance both sequences until they synchronize; return the number of elements of each."""
        job, twin = self._job, self._job.twin
        assert twin is not None
        other, theirs = target, 0
        true = state_of(job.source)
        ours, at, first = self._walker.ahead(target, true, _NEAR), 0, self._count
        while ours != at or not _same(true, other):
            if theirs > _STEPS or self._count > first + _STEPS:
                raise LostError
            ahead = ours - at
            if ahead <= 0:
                self._draw(1)
                true = state_of(job.source)
                ours = self._walker.ahead(target, true, _NEAR)
            if ahead >= 0:
                put(twin, other)
                job.draw(1, twin) if not job.varies else job.draw_standing_in(1, twin)
                other, theirs = state_of(twin), theirs + 1
                at = self._walker.ahead(target, other, _NEAR)
        return self._count, theirs

    def finished(self, first: int, shape: Shape) -> Array:
        """Return this rank's elements; draw the missing last ones first.

        Parameters
        ----------
        first : int
            The global number of the first element of this rank's sequence.
        shape : tuple of int
            The shape of this rank's part.
        """
        start, stop = (bound - first for bound in self._own)
        if self._job.varies:
            put(self._job.source, self._begin)
            self._count = 0
            self._draw(start)
            return self._job.draw(shape)
        self._draw(max(0, stop - self._count))
        assert self._line is not None
        return self._line[start:stop].reshape((*shape, *self._job.tail))


def _same(one: State, other: State) -> bool:
    """Return True if two states at one position store the same half word and normal number."""
    for has, kept in (("has_uint32", "uinteger"), ("has_gauss", "gauss")):
        if one.get(has, 0) != other.get(has, 0):
            return False
        if one.get(has, 0) and one[kept] != other[kept]:
            return False
    return True
