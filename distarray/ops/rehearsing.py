"""Messages that an operation will send, found by simulating each rank on blocks without values."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from distarray.array import wrap
from distarray.array.base import Base, operands_in
from distarray.array.ladder import passed
from distarray.array.storage import is_natural
from distarray.comm import DeviceMesh
from distarray.comm.ledger import size_text
from distarray.config import config
from distarray.engines.rehearsing.group import Said, rehearsed
from distarray.engines.rehearsing.hollow import Hollow, Unknown, hollow
from distarray.layout import Layout
from distarray.plan.explaining import MOST, Explanation, Step

__all__ = ["rehearsal"]

#: Number of ranks that are simulated if there are more than `MOST`.
_SOME = 32
#: Purposes of collectives that have no note of their own.
_PURPOSES = {
    "allreduce": "the ranks' own results",
    "exscan": "the ranks' own results",
    "reduce_scatter": "the ranks' own results",
    "allgather": "a part from each rank",
    "broadcast": "what one rank has",
}
#: Maximum bytes of a replicated array up to which the simulation uses its values.
_KNOWN = 1 << 20


def rehearsal(
    title: str, function: Callable[..., Any], args: Sequence[Any], keywords: dict[str, Any]
) -> Explanation:
    """Explain the messages of a call, on a mesh of any number of ranks; nothing is sent.

    Where values decide how the call continues, the explanation ends, and `then` names the reason.
    """
    mesh = next(operands_in([*args, *keywords.values()])).mesh
    size = mesh.size()
    ranks = list(range(size)) if size <= MOST else _spread(size)
    steps: dict[Any, Step] = {}
    result, then = (Layout.replicated((), mesh.shape), 8), ""
    for rank in ranks:
        with _apart(), rehearsed(mesh, rank) as (stage, book):
            try:
                result = _first(function(*_staged(args, stage), **_staged(keywords, stage)), stage)
            except Unknown as unknown:
                then = str(unknown)
        _enter(steps, book, rank, size)
    if size > MOST:
        for step in steps.values():
            step.sent, step.counts, step.pairs = [], [], {}
            step.total *= size / len(ranks)
    found = Explanation(title, list(steps.values()), *result, size_text)
    found.open_result = bool(then)
    found.then, found.about_memory = then, "for messages and the result"
    return found


def _spread(size: int) -> list[int]:
    """Return some ranks, the first and the last among them."""
    return [number * (size - 1) // (_SOME - 1) for number in range(_SOME)]


@contextmanager
def _apart() -> Iterator[None]:
    """Run operations that are not deferred and not counted, since other ranks do not run them."""
    # Floating-point warnings of the simulation (0 / 0) are suppressed; exceptions are not.
    quiet: Any = {kind: "ignore" for kind, act in np.geterr().items() if act != "raise"}
    before = passed.number, passed.harmless, passed.exports
    try:
        with config.override(fuse="off"), np.errstate(**quiet):
            yield
    finally:
        passed.number, passed.harmless, passed.exports = before


def _staged(value: Any, mesh: DeviceMesh) -> Any:
    """Return an argument with its arrays on the rehearsal's mesh."""
    if isinstance(value, Base):
        layout, dtype = value.layout, value.dtype
        if layout.is_replicated and value.nbytes <= _KNOWN and mesh.coords is not None:
            return wrap(np.array(value.mesh.to_host(value.block)), layout, mesh)
        made = wrap(hollow(layout.local_shape(mesh.coords), dtype), layout, mesh)
        if is_natural(value):
            made._natural = made.block
        return made
    if isinstance(value, dict):
        return {name: _staged(item, mesh) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_staged(item, mesh) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _first(made: Any, mesh: DeviceMesh) -> tuple[Layout, int]:
    """Return the layout of the first array of a result, and its bytes per element."""
    found = next(operands_in([made]), None)
    if found is None:
        scalar = isinstance(made, (Hollow, np.ndarray, np.generic))
        return Layout.replicated((), mesh.shape), made.dtype.itemsize if scalar else 8
    return found.layout, found.dtype.itemsize


def _enter(steps: dict[Any, Step], book: Sequence[Said], rank: int, size: int) -> None:
    """Add the messages that a rank has recorded to the steps."""
    seen: dict[Any, int] = {}
    for said in book:
        words = _PURPOSES.get(said.kind, "values") if said.note is None else str(said.note)
        key = said.kind, words
        seen[key] = seen.get(key, 0) + 1
        name = (*key, seen[key])
        step = steps.get(name)
        if step is None:
            step = steps[name] = Step(words, said.kind, _route(said))
            step.sent, step.counts = [0] * size, [0] * size
        step.sent[rank] += said.sent
        step.counts[rank] += said.messages
        step.total += said.sent
        step.memory = max(step.memory, said.received)
        for peer, nbytes in said.pairs.items():
            step.pairs[rank, peer] = step.pairs.get((rank, peer), 0) + nbytes


def _route(said: Said) -> tuple[Layout, ...]:
    note: Any = said.note
    return (note.src, note.dst) if hasattr(note, "src") else ()
