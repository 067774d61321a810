"""Explanation of a step in advance: its messages and their memory; nothing is sent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from distarray.layout import Cut, Fold, Layout, Partial, Shard
from distarray.layout.pictures import described, layout_svg
from distarray.plan.cost import moved_elements
from distarray.plan.exchange import plan_exchange, rank_of

__all__ = [
    "Explanation",
    "Step",
    "explain_broadcast",
    "explain_fold",
    "explain_move",
    "largest",
    "with_pending",
]

#: Largest number of ranks for which every pair of ranks is computed.
MOST = 256
#: Largest number of steps that are listed individually.
_LISTED = 12
#: Largest number of pairs of ranks that the text names.
_NAMED = 12


@dataclass
class Step:
    """One exchange or collective of an operation.

    Attributes
    ----------
    what : str
        Purpose of the step.
    kind : str
        "exchange" for messages between pairs of ranks, or the name of the collective.
    pairs : dict
        For an exchange on at most 256 ranks: ``{(sender, receiver): bytes}``.
    sent : list of int
        Bytes that each rank sends, as :func:`distarray.trace` counts them; empty on more than 256
        ranks.
    total : float
        Bytes that all ranks send; an estimate on more than 256 ranks.
    memory : int
        Bytes of received data on the rank that needs the most.
    route : tuple of Layout
        Source and target layouts; empty if no array is redistributed.
    counts : list of int
        Messages that each rank sends, as :func:`distarray.trace` counts them: a collective is one
        message.
    """

    what: str
    kind: str
    route: tuple[Layout, ...]
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)
    total: float = 0.0
    memory: int = 0
    counts: list[int] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """Messages of all ranks; a collective counts once on each rank."""
        return sum(self.counts)


class Explanation:
    """Explanation of an operation's messages and memory; print it, or show it in a notebook.

    Attributes
    ----------
    title : str
        The operation.
    steps : list of Step
        Exchanges and collectives of the operation; empty if nothing is sent.
    result : Layout
        The layout of the result.
    nbytes : int
        Bytes of the result on the rank with the largest block.
    then : str
        Communication after the steps that depends on values, in words; empty if there is none.
    at_most : int
        Largest number of bytes that all ranks send in that communication.
    open_result : bool
        True if the layout of the result is not known in advance.
    about_memory : str
        Meaning of `memory`, in words.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> x = np.zeros((100, 100)).redistribute(placements=[distarray.Shard(0)])
    >>> plan = x.explain([distarray.Shard(1)])
    >>> plan.sent == sum(step.total for step in plan.steps)
    True
    """

    def __init__(
        self,
        title: str,
        steps: Sequence[Step],
        result: Layout,
        itemsize: int,
        size_text: Callable[[int], str],
    ) -> None:
        self.title, self.result = title, result
        self.steps = [step for step in steps if step.total or step.messages]
        self.nbytes = largest(result) * itemsize
        self._size = size_text
        self.then, self.at_most = "", 0
        self.open_result = False
        self.about_memory = "at most, with the result"

    def lies(self, result: Layout, itemsize: int) -> None:
        """Set the layout of the result, which is then known."""
        self.result, self.nbytes = result, largest(result) * itemsize
        self.open_result = False

    @property
    def sent(self) -> float:
        """Bytes that all ranks send in the steps."""
        return sum([step.total for step in self.steps])

    @property
    def messages(self) -> int:
        """Messages that all ranks send; unknown, and 0, on more than 256 ranks."""
        return sum([step.messages for step in self.steps])

    @property
    def memory(self) -> int:
        """Bytes that the steps and the result take at most, on one rank."""
        return self.nbytes + max([step.memory for step in self.steps], default=0)

    def _lines(self) -> list[tuple[str, str]]:
        """Return the names and values of the text's lines."""
        found = []
        if not self.open_result:
            found.append(("result", f"{list(self.result.placements)} of {self.result.shape}"))
        if not self.steps and not self.then:
            found.append(("sends", "nothing: every rank has what it needs"))
        if len(self.steps) <= _LISTED:
            for number, step in enumerate(self.steps, 1):
                found.append((f"step {number}", f"{step.what}: {self._told(step)}"))
        else:
            found += self._summary()
        if self.then:
            found.append(("then", f"{self.then}: at most {self._size(self.at_most)} in all"))
        if not self.open_result:
            found.append(("result a rank", self._size(self.nbytes)))
        found.append(("memory a rank", f"{self._size(self.memory)} {self.about_memory}"))
        return found

    def _summary(self) -> list[tuple[str, str]]:
        """Summarize the steps of an operation with many steps, by purpose and kind."""
        alike: dict[tuple[str, str], list[Step]] = {}
        for step in self.steps:
            alike.setdefault((step.what, step.kind), []).append(step)
        found = []
        for (what, kind), steps in alike.items():
            total, messages = sum([s.total for s in steps]), sum([s.messages for s in steps])
            text = f"{what}: {kind}, {self._size(int(total))} in all, {messages} messages"
            found.append((f"{len(steps)} step{'s' * (len(steps) > 1)}", text))
        return found

    def _told(self, step: Step) -> str:
        about = "" if step.sent else "about "
        text = f"{step.kind}, {about}{self._size(int(step.total))} in all"
        if step.kind == "exchange" and step.sent:
            text += f", {step.messages} message{'s' * (step.messages != 1)}"
            largest_pairs = sorted(step.pairs.items(), key=lambda item: (-item[1], item[0]))
            named = [f"{a} to {b} {self._size(n)}" for (a, b), n in largest_pairs[:_NAMED]]
            more = ", ..." if len(step.pairs) > _NAMED else ""
            text += f" ({', '.join(named)}{more})"
        return text

    def __str__(self) -> str:
        lines = [f"{name:<13}  {value}" for name, value in self._lines()]
        return "\n".join([self.title, *lines])

    def __repr__(self) -> str:
        return f"<Explanation of {self.title}: {self._size(int(self.sent))} sent>"

    def _repr_html_(self) -> str:
        pictures = [
            f"<figure><figcaption>{number}. {step.kind}</figcaption>"
            f"{''.join(map(layout_svg, step.route))}</figure>"
            for number, step in enumerate(self.steps[:_LISTED], 1)
            if step.route
        ]
        return described(self.title, self._lines(), "".join(pictures) or layout_svg(self.result))


def largest(layout: Layout) -> int:
    """Return the number of elements of the largest block, from the longest interval of each cut."""
    return prod([_longest(cut) for cut in layout.cuts])


def _longest(cut: Cut) -> int:
    if cut.parts > 4 * MOST:
        return -(-cut.extent // cut.parts)
    return max([stop - start for start, stop in map(cut.interval, range(cut.parts))], default=0)


def explain_move(src: Layout, dst: Layout, itemsize: int, what: str) -> Step:
    """Explain the exchange that moves an array to another layout; no fold is pending."""
    step = Step(what, "exchange", (src, dst))
    size = prod(src.mesh_shape)
    if src is dst:
        return step
    if size > MOST:
        step.total = moved_elements(src, dst) * itemsize
        step.memory = largest(dst) * itemsize if step.total else 0
        return step
    step.sent, step.counts = [0] * size, [0] * size
    for coords in product(*map(range, src.mesh_shape)):
        me, received = rank_of(coords, src.mesh_shape), 0
        for transfer in plan_exchange(src, dst, coords).receives:
            nbytes = transfer.size * itemsize
            step.pairs[transfer.peer, me] = step.pairs.get((transfer.peer, me), 0) + nbytes
            step.sent[transfer.peer] += nbytes
            step.counts[transfer.peer] += 1
            received += nbytes
        step.memory = max(step.memory, received)
    step.total = sum(step.sent)
    return step


def explain_fold(src: Layout, dst: Layout, itemsize: int, what: str) -> Step:
    """Explain the fold of contributions that are pending in `src` and not in `dst`.

    The fold is a reduce-scatter if it leaves the result cut, otherwise an allreduce.
    """
    folded = [m for m in src.partials if src.mesh_shape[m] > 1]
    scattered = any(isinstance(dst.placements[m], Shard) for m in folded)
    step = Step(what, "reduce_scatter" if scattered else "allreduce", (src, dst))
    if not folded:
        return step
    size = prod(src.mesh_shape)
    if size > MOST:
        step.total, step.memory = float(size * largest(src) * itemsize), largest(src) * itemsize
        return step
    for coords in product(*map(range, src.mesh_shape)):
        whole, own = [prod(layout.local_shape(coords)) * itemsize for layout in (src, dst)]
        step.sent.append(whole - own if scattered else whole)
        step.memory = max(step.memory, own if scattered else whole)
    step.total, step.counts = sum(step.sent), [1] * size
    return step


def explain_broadcast(src: Layout, dst: Layout, itemsize: int, what: str) -> Step:
    """Explain the broadcast of an array from one coordinate of mesh dimensions to the others."""
    step = Step(what, "broadcast", (src, dst))
    size, block = prod(src.mesh_shape), largest(dst) * itemsize
    at = {m: src.placements[m].coordinate for m in src.ats}  # type: ignore[attr-defined]
    step.memory = block
    if size > MOST:
        step.total = float(block * sum([size // src.mesh_shape[m] for m in at]))
        return step
    for coords in product(*map(range, src.mesh_shape)):
        roots = sum([coords[m] == coordinate for m, coordinate in at.items()])
        step.sent.append(roots * prod(dst.local_shape(coords)) * itemsize)
    step.total = sum(step.sent)
    step.counts = [sum([src.mesh_shape[m] > 1 for m in at])] * size
    return step


def with_pending(layout: Layout, mesh_dims: Sequence[int], fold: Fold) -> Layout:
    """Return the layout of contributions that have to be folded along some mesh dimensions."""
    return Layout.from_cuts(layout.cuts, layout.mesh_shape, {m: Partial(fold) for m in mesh_dims})
