"""Comparison of arguments that must be equal on all ranks: one small fold, and a clear error.

If arguments differ between ranks, one rank waits for a message that another rank never sends, or
blocks of two arrays are combined in one. So a function whose arguments must be equal on all ranks
compares them before it does anything else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from distarray.comm.agree import agree
from distarray.comm.describing import ranks_in_words
from distarray.config import Settings
from distarray.errors import ArgumentsDiffer, DivergenceError
from distarray.layout.placement import Fold

if TYPE_CHECKING:
    from distarray.comm.group import Group

__all__ = ["Argument", "SameCall", "same_on_all", "grouped", "same_call", "same_settings"]

#: Largest number of characters of a rank's text in a message.
_SHOWN = 200


class Argument(NamedTuple):
    """Argument that must be equal on all ranks, as this rank has it.

    Attributes
    ----------
    what : str
        The message if the ranks differ; ``{rank}`` is replaced by the first rank that differs from
        rank 0.
    text : str
        The argument on this rank.
    cure : str
        The remedy, for the message.
    """

    what: str
    text: str
    cure: str = ""


class SameCall(NamedTuple):
    """Result of a comparison by ranks that make the same call.

    Attributes
    ----------
    order : list of str
        The names of the arrays in rank 0's order.
    one : bool
        True if `own`, which may differ, is the same on all ranks.
    """

    order: list[str]
    one: bool


def same_on_all(group: "Group", *texts: str) -> tuple[bool, ...]:
    """Return, for each text, True if it is the same on all ranks; collective.

    Cost
    ----
    One allreduce of two integers per text.
    """
    if group.size == 1:
        return (True,) * len(texts)
    digests = [blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7) for text in texts]
    numbers = np.array([int.from_bytes(digest.digest(), "little") for digest in digests])
    both = group.allreduce(np.array([numbers, -numbers]), Fold.MAX, "agreement on arguments")
    return tuple([bool(most == -least) for most, least in zip(*both.tolist())])


def same_call(
    group: "Group",
    call: str,
    arguments: Sequence[Argument],
    arrays: Mapping[str, str] | None = None,
    error: Exception | None = None,
    own: str = "",
) -> SameCall:
    """Raise on all ranks if they do not make the same call; collective, and a barrier.

    Parameters
    ----------
    group : Group
        The ranks that make the call.
    call : str
        The function's name, for messages.
    arguments : sequence of Argument
        The arguments.
    arrays : mapping of str to str, optional
        The arrays by name, each described in words. Their order may differ between ranks.
    error : Exception, optional
        An error in the arguments that this rank has found already.
    own : str
        A text that may differ between ranks.

    Returns
    -------
    SameCall

    Raises
    ------
    ArgumentsDiffer
        If arguments or arrays differ.
    Exception
        The error of the lowest rank that has one.

    Cost
    ----
    One allreduce of four integers; if anything differs, also an allgather of the texts.
    """
    mine = list((arrays or {}).items())
    if group.size == 1 and error is not None:
        raise error
    problem = "" if error is None else f"{type(error).__name__}: {error}"
    same, one = same_on_all(
        group, repr(([(each.what, each.text) for each in arguments], mine, problem)), own
    )
    if same:
        if error is not None:
            raise error
        return SameCall([name for name, _ in mine], one)
    found = group.allgather_object((list(arguments), mine), "agreement on arguments")
    agree(group, error)
    _compare(call, found)
    return SameCall([name for name, _ in found[0][1]], one)


def same_settings(found: Sequence[Settings]) -> None:
    """Raise if settings differ between ranks; `found` has all ranks' settings, so all raise."""
    lines = []
    for name in [each.name for each in fields(Settings) if each.init]:
        texts = [repr(getattr(theirs, name)) for theirs in found]
        if len(set(texts)) > 1:
            lines += [f"\n    {ranks}  config.{name} = {text}" for ranks, text in grouped(texts)]
    if lines:
        raise DivergenceError(
            f"settings differ between the ranks:{''.join(lines)}\n"
            "  change them on all ranks, at the same place of the program"
        )


def _compare(call: str, found: Sequence[tuple[list[Argument], list[tuple[str, str]]]]) -> None:
    """Raise if arguments or arrays differ between the ranks."""
    texts = [{each.what: each.text for each in given} for given, _ in found]
    for what, cure in dict.fromkeys((each.what, each.cure) for given, _ in found for each in given):
        _check(call, what, [theirs.get(what, "nothing") for theirs in texts], cure)
    arrays = [dict(theirs) for _, theirs in found]
    for name in sorted(set().union(*arrays)):
        quoted = repr(name) if name else "the array"
        words = [f"{quoted} {own[name]}" if name in own else f"no {quoted}" for own in arrays]
        _check(call, _DIFFERS, words, _EQUAL)


_DIFFERS = "an array on rank {rank} differs from that on rank 0"
_EQUAL = (
    "names, shapes, data types and layouts must be the same on all ranks, and so must values that "
    "are not distributed"
)


def _check(call: str, what: str, words: Sequence[str], cure: str) -> None:
    """Raise if one argument, as described by each rank, differs between ranks."""
    if len(set(words)) == 1:
        return
    shown = [text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..." for text in words]
    if len(set(shown)) == 1:  # the difference is further on
        first = next(i for i, found in enumerate(zip_longest(*words)) if len({*found}) > 1)
        shown = [f"...{text[first - 20 : first + _SHOWN]}" for text in words]
    lines = "".join([f"\n    {ranks}  {text}" for ranks, text in grouped(shown)])
    rank = next(rank for rank, text in enumerate(words) if text != words[0])
    cure = f"\n  {cure}" if cure else ""
    raise ArgumentsDiffer(f"{call}: {what.format(rank=rank)}:{lines}{cure}")


def grouped(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return the distinct texts, each with a description of the ranks that have it.

    Examples
    --------
    >>> grouped(["a", "b", "b", "a"])
    [('ranks 0, 3', 'a'), ('ranks 1-2', 'b')]
    """
    groups: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        groups.setdefault(text, []).append(rank)
    return [(ranks_in_words(ranks), text) for text, ranks in groups.items()]
