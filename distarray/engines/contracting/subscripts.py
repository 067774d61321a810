"""Labels of einsum's subscripts, given as a string or as lists."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["Subscripts", "parse"]

#: A letter, a number, or the position of a dimension that an ellipsis covers.
Label = str | int | tuple[str, int]
Term = tuple[Label, ...]


class Subscripts(NamedTuple):
    """Labels of the dimensions of each operand and of the result, one per dimension.

    Labels of dimensions that an ellipsis covers are ``("...", n)``, with n counted from the last.
    """

    terms: tuple[Term, ...]
    out: Term


def parse(operands: Sequence[Any], ndims: Sequence[int]) -> Subscripts:
    """Parse the labels of a call of einsum that NumPy accepts.

    Parameters
    ----------
    operands : sequence
        The string alone, or the lists of labels in order, with the result's list last if it is
        given.
    ndims : sequence of int
        The number of dimensions of each operand.
    """
    if isinstance(operands[0], str):
        return _parse_string(operands[0], tuple(ndims))
    terms = [_expanded(list(term), n) for term, n in zip(operands, ndims, strict=False)]
    out = list(operands[len(ndims)]) if len(operands) > len(ndims) else None
    return _with_result(terms, out)


@lru_cache(maxsize=1024)
def _parse_string(text: str, ndims: tuple[int, ...]) -> Subscripts:
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = [_expanded(_letters(t), n) for t, n in zip(left.split(","), ndims, strict=True)]
    return _with_result(terms, _letters(right) if arrow else None)


def _letters(text: str) -> list[Any]:
    head, dots, tail = text.partition("...")
    return [*head, *([Ellipsis] if dots else []), *tail]


def _expanded(labels: Sequence[Any], ndim: int) -> Term:
    """Return the labels of one operand, with its ellipsis expanded."""
    return _replaced(labels, ndim - sum([label is not Ellipsis for label in labels]))


def _replaced(labels: Sequence[Any], covered: int) -> Term:
    """Expand an ellipsis that covers this number of dimensions."""
    term: list[Label] = []
    for label in labels:
        if label is Ellipsis:
            term += [("...", n) for n in range(covered, 0, -1)]
        else:
            term.append(label)
    return tuple(term)


def _with_result(terms: Sequence[Term], out: Sequence[Any] | None) -> Subscripts:
    """Combine the terms with the labels of the result.

    Without a given result, the result has the covered dimensions and the labels that occur once.
    """
    labels = [label for term in terms for label in term]
    covered = max([label[1] for label in labels if isinstance(label, tuple)], default=0)
    if out is None:
        named = [label for label in labels if not isinstance(label, tuple)]
        once = sorted([label for label in set(named) if named.count(label) == 1])
        out = [Ellipsis, *once]
    return Subscripts(tuple(terms), _replaced(out, covered))
