"""Recipes: a call of einsum as checks, diagonals, and contractions in order.

Recipes are made from metadata alone and cached, so that a call in a loop is parsed once.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from distarray.array.probes import hollow
from distarray.engines.contracting.subscripts import Label, Subscripts, Term, parse
from distarray.plan import Contraction
from distarray.typing import Array, DType, Shape

__all__ = ["Recipe", "Step", "recipe"]

#: The shape and the data type of the array given for the result.
_Out = tuple[Shape, DType]


class Step(NamedTuple):
    """One contraction: its operands are removed from a list, and its result is appended to it.

    Attributes
    ----------
    positions : tuple of int
        The positions of the operands in the list, in the order of the labels.
    spec : Contraction or None
        The labels of the contraction.
    axes : tuple of int
        Without `spec`: the order of the dimensions of the single operand.
    """

    positions: tuple[int, ...]
    spec: Contraction | None
    axes: tuple[int, ...] = ()


class Recipe(NamedTuple):
    """Checked and planned call of einsum.

    Attributes
    ----------
    diagonals : tuple of tuple of (int, int)
        For each operand, the pairs of dimensions to merge, one pair after the other.
    steps : tuple of Step
        The contractions.
    shape : tuple of int
        The shape of the result.
    dtype : dtype
        The data type to compute in.
    scalar : bool
        True if a 0-d result is a scalar.
    """

    diagonals: tuple[tuple[tuple[int, int], ...], ...]
    steps: tuple[Step, ...]
    shape: Shape
    dtype: DType
    scalar: bool

    @property
    def is_view(self) -> bool:
        """True if the result is a view of the single operand."""
        return len(self.diagonals) == 1 and all(step.spec is None for step in self.steps)


@lru_cache(maxsize=4096)
def recipe(
    subscripts: tuple[Any, ...],
    shapes: tuple[Shape, ...],
    dtypes: tuple[DType, ...],
    out: _Out | None,
    optimize: Hashable,
    keywords: tuple[tuple[str, Any], ...],
) -> Recipe:
    """Make the recipe of a call of einsum.

    Parameters
    ----------
    subscripts : tuple
        The string alone, or the lists of labels as tuples, with the result's tuple last if it is
        given.
    shapes, dtypes : tuple
        The shapes and data types of the operands.
    out : (shape, dtype), optional
        The shape and data type of the array given for the result.
    optimize : hashable
        The argument of the call, with lists as tuples.
    keywords : tuple of (str, object)
        The other keywords: dtype, casting, order.

    Raises
    ------
    ValueError, TypeError
        NumPy's exceptions for the call.
    """
    call = _Call(subscripts, shapes, dtypes, dict(keywords))
    # For single elements NumPy raises all its errors except the errors about extents.
    path = optimize if isinstance(optimize, (bool, str)) else False
    into = None if out is None else np.ones((1,) * len(out[0]), out[1])
    small = [np.ones((1,) * len(shape), t) for shape, t in zip(shapes, dtypes)]
    made = None
    with suppress(TypeError):  # NumPy checks the extents before the types
        made = call.on(small, path, into)
    if made is None:
        call.refuse(out)
    parsed = parse(subscripts, [len(shape) for shape in shapes])
    extents = _extents(parsed, shapes)
    shape = () if extents is None else tuple([extents[label] for label in parsed.out])
    if extents is None or (out is not None and out[0] != shape):
        call.refuse(out)
    merged = [_merges(term) for term in parsed.terms]
    terms = [tuple(dict.fromkeys(term)) for term in parsed.terms]
    short = [
        tuple([extent for d, extent in enumerate(shape) if term.index(term[d]) == d])
        for term, shape in zip(parsed.terms, shapes, strict=True)
    ]
    steps = _steps(terms, short, parsed.out, optimize)
    dtype = np.dtype(call.keywords.get("dtype") or np.result_type(*dtypes))
    return Recipe(tuple(merged), tuple(steps), shape, dtype, isinstance(made, np.generic))


class _Call(NamedTuple):
    """Call in the form that the caller gave it, for NumPy to check."""

    subscripts: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[DType, ...]
    keywords: dict[str, Any]

    def on(
        self, arrays: Sequence[Array], optimize: bool | str = False, out: Array | None = None
    ) -> Any:
        """Call NumPy's einsum on other arrays."""
        how = {**self.keywords, "optimize": optimize, "out": out}
        if isinstance(self.subscripts[0], str):
            return np.einsum(self.subscripts[0], *arrays, **how)
        mixed = [item for pair in zip(arrays, self.subscripts) for item in pair]
        return np.einsum(*mixed, *self.subscripts[len(arrays) :], **how)

    def refuse(self, out: _Out | None) -> NoReturn:
        """Raise NumPy's error about extents that do not fit, with arrays that take no memory."""
        pairs = zip(self.shapes, self.dtypes, strict=True)
        into = None if out is None else np.empty(*out)
        self.on([hollow(shape, dtype) for shape, dtype in pairs], False, into)
        raise ValueError("einsum: the operands do not fit together")


def _extents(parsed: Subscripts, shapes: Sequence[Shape]) -> dict[Label, int] | None:
    """Return the extent of each label, or None if two dimensions of a label do not fit."""
    extents: dict[Label, int] = {}
    for term, shape in zip(parsed.terms, shapes, strict=True):
        own: dict[Label, int] = {}
        for label, extent in zip(term, shape, strict=True):
            if own.setdefault(label, extent) != extent:  # a diagonal needs equal extents
                return None
            known = extents.get(label, 1)
            if extent != known and 1 not in (extent, known):
                return None
            extents[label] = extent if known == 1 else known
    return extents


def _merges(term: Term) -> tuple[tuple[int, int], ...]:
    """Return the pairs of dimensions to merge, in order, until no label occurs twice."""
    labels, pairs = list(term), []
    for label in dict.fromkeys(term):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            pairs.append((first, second))
            del labels[second]
    return tuple(pairs)


def _steps(terms: list[Term], shapes: list[Shape], out: Term, optimize: Hashable) -> list[Step]:
    """Return the contractions along the path, and the labels that each contraction keeps."""
    steps = []
    for positions in _by_pairs(_path(terms, shapes, out, optimize), len(terms)):
        now = [terms[p] for p in positions], [shapes[p] for p in positions]
        for p in sorted(positions, reverse=True):
            del terms[p], shapes[p]
        kept = out
        if terms:
            wanted = {label for term in (*terms, out) for label in term}
            kept = tuple(dict.fromkeys(lab for term in now[0] for lab in term if lab in wanted))
        step, shape = _step(*now, kept, positions)
        steps.append(step)
        terms.append(kept)
        shapes.append(shape)
    return steps


def _by_pairs(path: Sequence[Sequence[int]], count: int) -> list[tuple[int, ...]]:
    """Return the path with at most two operands per step; the given path may have more."""
    planned, real, pairs = list(range(count)), list(range(count)), []
    for positions in path:
        members = [planned[p] for p in positions]
        planned = [member for member in planned if member not in members]
        while members:
            now, members = members[:2], members[2:]
            pairs.append(tuple([real.index(member) for member in now]))
            real = [member for member in real if member not in now]
            count += 1
            real.append(count)
            if not members:
                break
            members.insert(0, count)
        planned.append(count)
    return pairs


def _path(
    terms: Sequence[Term], shapes: Sequence[Shape], out: Term, optimize: Hashable
) -> list[tuple[int, ...]]:
    """Return the positions of the operands to contract in each step, from einsum_path."""
    if len(terms) <= 2:
        return [tuple(range(len(terms)))]
    how: Any = "greedy" if isinstance(optimize, bool) else optimize
    number = {
        label: n for n, label in enumerate(dict.fromkeys(label for term in terms for label in term))
    }
    mixed: list[Any] = []
    for term, shape in zip(terms, shapes, strict=True):
        mixed += [np.broadcast_to(0.0, shape), [number[label] for label in term]]
    how = list(how) if isinstance(how, tuple) and how[0] == "einsum_path" else how
    return list(np.einsum_path(*mixed, [number[label] for label in out], optimize=how)[0][1:])


def _step(
    terms: Sequence[Term], shapes: Sequence[Shape], out: Term, positions: tuple[int, ...]
) -> tuple[Step, Shape]:
    """Return one contraction, and the shape of its result."""
    extents: dict[Label, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            extents[label] = extent if extents.get(label, 1) == 1 else extents[label]
    made = tuple([extents[label] for label in out])
    if len(terms) == 1 and set(terms[0]) == set(out):
        return Step(positions, None, tuple([terms[0].index(label) for label in out])), made
    number = {label: n for n, label in enumerate(extents)}
    numbered = [
        tuple(
            [number[lab] if n == extents[lab] else -1 for lab, n in zip(term, shape, strict=True)]
        )
        for term, shape in zip(terms, shapes, strict=True)
    ]
    result = tuple([number[label] for label in out])
    return Step(positions, Contraction(tuple(numbered), result, tuple(extents.values()))), made
