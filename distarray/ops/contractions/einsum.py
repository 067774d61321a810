"""Einstein summation: every syntax of NumPy's, two operands at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, implements
from distarray.ops.contractions.diagonals import merged
from distarray.ops.contractions.engine import contract, deliver
from distarray.ops.contractions.kernels import labelled_kernel
from distarray.ops.contractions.operands import moved_axes, read, shadow
from distarray.ops.contractions.subscripts import Label, Subscripts, Term, parse
from distarray.plan import Contraction

__all__ = ["einsum", "einsum_path"]


@implements(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """As :func:`numpy.einsum`, with its keywords; integers are exact.

    More than two operands are contracted pair by pair, in the order that
    :func:`numpy.einsum_path` finds or `optimize` gives. Without a sum, one operand gives a view.

    Cost
    ----
    For each pair as :func:`numpy.matmul`.
    """
    subscripts, given = _split(operands)
    arrays, _ = read(*given, out=out)
    like = None if out is None else np.ones(tuple([1] * out.ndim), out.dtype)
    dtype, scalar = _checked(subscripts, arrays, like, optimize, kwargs)
    parsed = parse(subscripts, [x.ndim for x in arrays])
    extents = _extents(parsed, arrays, subscripts, kwargs)
    shape = tuple([extents[label] for label in parsed.out])
    if out is not None and out.shape != shape:
        _raise(subscripts, arrays, {**kwargs, "out": np.empty(out.shape, out.dtype)})
    terms, arrays = _without_repeats(parsed.terms, arrays)
    if len(arrays) > 1 or set(terms[0]) != set(parsed.out):
        arrays = [x if x.dtype == dtype else x._like(x._block.astype(dtype)) for x in arrays]
    result = _along_path(Subscripts(terms, parsed.out), arrays, extents, dtype, optimize, scalar)
    return deliver(result, out)


def _split(operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The subscripts and the arrays of a call in either form."""
    if not operands:
        np.einsum()  # type: ignore[call-overload]  # raises
    if isinstance(operands[0], str):
        return [operands[0]], list(operands[1:])
    pairs = len(operands) // 2
    lists = list(operands[1 : 2 * pairs : 2])
    if len(operands) % 2:
        lists.append(operands[-1])
    return lists, list(operands[0 : 2 * pairs : 2])


def _call(subscripts: Sequence[Any], arrays: Sequence[Any], **kwargs: Any) -> Any:
    """NumPy's einsum in the form in which it was called."""
    if isinstance(subscripts[0], str):
        return np.einsum(subscripts[0], *arrays, **kwargs)
    mixed = [item for pair in zip(arrays, subscripts, strict=False) for item in pair]
    return np.einsum(*mixed, *subscripts[len(arrays) :], **kwargs)


def _checked(
    subscripts: Sequence[Any], arrays: Sequence[DistArray], out: Any, optimize: Any, kwargs: Any
) -> tuple[np.dtype[Any], bool]:
    """The dtype to work in and whether a 0-d result is a scalar, from NumPy on single elements.

    What is wrong with subscripts, numbers of dimensions, dtypes or keywords it says itself.
    """
    units = [np.ones((1,) * x.ndim, x.dtype) for x in arrays]
    path = optimize if isinstance(optimize, (bool, str)) else False
    made = _call(subscripts, units, optimize=path, out=out, **kwargs)
    dtype = kwargs.get("dtype") or np.result_type(*[x.dtype for x in arrays])
    return np.dtype(dtype), isinstance(made, np.generic)


def _extents(
    parsed: Subscripts, arrays: Sequence[DistArray], subscripts: Any, kwargs: Any
) -> dict[Label, int]:
    extents: dict[Label, int] = {}
    for term, x in zip(parsed.terms, arrays, strict=True):
        if len(set(zip(term, x.shape, strict=True))) != len(set(term)):  # a diagonal of no square
            _raise(subscripts, arrays, kwargs)
        for label, extent in zip(term, x.shape, strict=True):
            known = extents.get(label, 1)
            if extent != known and 1 not in (extent, known):
                _raise(subscripts, arrays, kwargs)
            extents[label] = extent if known == 1 else known
    return extents


def _raise(subscripts: Any, arrays: Sequence[DistArray], kwargs: Any) -> Any:
    _call(subscripts, [shadow(x) for x in arrays], **kwargs)
    raise ValueError("einsum: the operands do not fit together")


def _without_repeats(
    terms: Sequence[Term], arrays: Sequence[DistArray]
) -> tuple[tuple[Term, ...], list[DistArray]]:
    """Operands reduced to the diagonals that a label repeated within one stands for."""
    made, found = [], []
    for term, x in zip(terms, arrays, strict=True):
        labels = list(term)
        for label in dict.fromkeys(term):
            while labels.count(label) > 1:
                first = labels.index(label)
                second = labels.index(label, first + 1)
                x = merged(x, first, second)
                del labels[second]
        made.append(tuple(labels))
        found.append(x)
    return tuple(made), found


def _along_path(
    parsed: Subscripts,
    arrays: list[DistArray],
    extents: dict[Label, int],
    dtype: np.dtype[Any],
    optimize: Any,
    scalar: bool,
) -> DistArray:
    terms = list(parsed.terms)
    for positions in _path(parsed, arrays, optimize):
        chosen = [terms[p] for p in positions]
        operands = [arrays[p] for p in positions]
        for p in sorted(positions, reverse=True):
            del terms[p], arrays[p]
        while len(chosen) > 2:
            others = {label for term in (*terms, *chosen[2:], parsed.out) for label in term}
            kept = _kept(chosen[:2], others)
            operands[:2] = [_step(chosen[:2], kept, operands[:2], extents, dtype, True)]
            chosen[:2] = [kept]
        kept = parsed.out
        if terms:
            kept = _kept(chosen, {label for term in (*terms, parsed.out) for label in term})
        arrays.append(_step(chosen, kept, operands, extents, dtype, scalar))
        terms.append(kept)
    return arrays[0]


def _kept(chosen: Sequence[Term], others: set[Label]) -> Term:
    return tuple(dict.fromkeys(label for term in chosen for label in term if label in others))


def _path(parsed: Subscripts, arrays: Sequence[DistArray], optimize: Any) -> list[tuple[int, ...]]:
    """Which operands to contract in which step."""
    if len(arrays) <= 2:
        return [tuple(range(len(arrays)))]
    if optimize is False or optimize is True:
        optimize = "greedy"
    labels: dict[Label, int] = {}
    mixed: list[Any] = []
    for x, term in zip(arrays, parsed.terms, strict=True):
        mixed += [shadow(x), [labels.setdefault(label, len(labels)) for label in term]]
    mixed.append([labels[label] for label in parsed.out])
    return list(np.einsum_path(*mixed, optimize=optimize)[0][1:])


def _step(
    terms: Sequence[Term],
    out: Term,
    operands: Sequence[DistArray],
    extents: dict[Label, int],
    dtype: np.dtype[Any],
    scalar: bool,
) -> DistArray:
    """One contraction; of one operand without a sum, a view."""
    if len(operands) == 1 and set(terms[0]) == set(out):
        result = moved_axes(operands[0], [terms[0].index(label) for label in out])
        if scalar and not out:
            return result._like(result._block[()])
        return result
    seen = dict.fromkeys(label for term in terms for label in term)
    number = {label: n for n, label in enumerate(seen)}
    numbered = [
        tuple(
            [
                number[label] if extent == extents[label] else -1
                for label, extent in zip(term, x.shape, strict=True)
            ]
        )
        for term, x in zip(terms, operands, strict=True)
    ]
    spec = Contraction(
        tuple(numbered),
        tuple([number[label] for label in out]),
        tuple([extents[label] for label in number]),
    )
    return contract(labelled_kernel(spec), spec, operands, dtype, scalar=scalar)


@implements(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """As :func:`numpy.einsum_path`: the order of contractions, from the shapes alone."""
    stand_ins = [shadow(x) if isinstance(x, DistArray) else x for x in operands]
    return np.einsum_path(*stand_ins, optimize=optimize, einsum_call=einsum_call)  # type: ignore[arg-type]
