"""Exact contractions, bitwise equal on every mesh: other than matrix products, or on a GPU.

Under ``config.reproducible`` the other contractions are computed tile by tile, which is much faster
(:mod:`distarray.engines.contracting.tiling`).

Floating-point operands are cut into slices of so few bits that products of slices are integers,
whose sum over all summands is exact in any order, on any number of ranks, by any BLAS (Ozaki,
Ogita, Oishi and Rump, Error-free transformations of matrix multiplication by using fast routines of
matrix multiplication and its applications, Numerical Algorithms 59, 2012). Products of equal weight
are added exactly. Then the weights are added from the lightest to the heaviest, on every rank in
the same order. The range of the operands' exponents determines the number of slices, so that the
error is no larger than that of a plain product: three or four slices for numbers of similar
magnitude, and more slices, which take longer, for numbers of very different magnitudes.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache, reduce
from itertools import product
from math import prod
from operator import add
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray, to_layout, wrap
from distarray.array.portable import as_array, contiguous
from distarray.engines.contracting.execution import execute
from distarray.engines.contracting.program import Kernel, Program, program_for
from distarray.layout import Cut, Fold, Layout
from distarray.plan import Contraction
from distarray.typing import Array

__all__ = ["exact_contraction"]


class _Slicing(NamedTuple):
    """Slices that operands are cut into.

    Attributes
    ----------
    bits : int
        The number of bits of a slice.
    slices : tuple of int
        The number of slices of each operand.
    last : int
        The last weight that is computed: a product of slices i, j, ... has weight i + j + ...
    """

    bits: int
    slices: tuple[int, ...]
    last: int

    @property
    def weights(self) -> range:
        """All weights, the heaviest first."""
        return range(len(self.slices), self.last + 1)


class _Scaled(NamedTuple):
    """Operand times powers of two, so that its largest elements reach at most :func:`_top`.

    This scale leaves the most room for small elements: elements of any magnitude keep all bits.

    Attributes
    ----------
    array : DistArray
        The scaled operand; elements that are not finite are zero.
    exponents : DistArray
        The powers of two; summed dimensions have extent 1.
    spread : int
        The bits between the largest and the smallest element of one sum, on this rank.
    highest : int
        The largest of the exponents, on this rank.
    finite : bool
        True if all elements on this rank are finite.
    """

    array: DistArray
    exponents: DistArray
    spread: int
    highest: int
    finite: bool


def exact_contraction(program: Program, operands: Sequence[DistArray]) -> DistArray:
    """Carry out a contraction by exact sums of products of slices, one for each weight.

    Parameters and cost are those of :func:`~distarray.engines.contracting.contract.contract`.
    """
    spec, mesh = program.spec, operands[0].mesh
    work = np.promote_types(program.dtype, np.float64)
    scaled = [_scaled(x, term, spec, work) for x, term in zip(operands, spec.terms, strict=True)]
    known = np.array([(s.spread, s.highest, not s.finite) for s in scaled])
    if mesh.coords is not None:
        known = mesh.group.allreduce(known, Fold.MAX)
    spreads, highest, endless = known.T.tolist()
    slicing = _slicing(spec, program.dtype, work, spreads)
    kernel, wide = _sliced(program.kernel, slicing), _with_weights(spec, len(slicing.weights))
    layouts = [s.array.layout for s in scaled]
    inner = program_for(kernel, wide, layouts, [work] * len(scaled), work)
    sums = execute(inner, [s.array for s in scaled])
    sums = to_layout(sums, sums.layout.without_cut([sums.ndim - 1]))
    layout = Layout.from_cuts(sums.layout.cuts[:-1], sums.layout.mesh_shape)
    pairs = zip(scaled, spec.terms, strict=True)
    shift = reduce(add, [_spread_out(s.exponents, term, spec, layout) for s, term in pairs])
    top = sum(highest) + _levels(spec, program.dtype)
    odd = any(endless) or top > np.finfo(program.dtype).maxexp
    total: Array = mesh.xp.zeros(layout.local_shape(mesh.coords), work)
    with np.errstate(over="ignore", invalid="ignore") if odd else nullcontext():
        for position, weight in reversed(list(enumerate(slicing.weights))):
            total += _shifted(sums.block[..., position], shift - slicing.bits * weight)
        total = total.astype(program.dtype)
    if odd:  # a plain product gives non-finite elements and their warnings
        plain = to_layout(execute(program, operands), layout).block
        total = np.where(np.isfinite(plain) & np.isfinite(total), total, plain)
    return wrap(mesh.scalar(total) if program.scalar else total, layout, mesh)


# -- scaling -----------------------------------------------------------------------------------


def _scaled(x: DistArray, term: Sequence[int], spec: Contraction, work: np.dtype[Any]) -> _Scaled:
    """Scale an operand, with one power of two for all elements of a sum."""
    summed = tuple([d for d, label in enumerate(term) if label not in spec.out and label >= 0])
    mesh_dims = {m for d in summed for m in x.layout.cuts[d].mesh_dims}
    parts = _parts(as_array(x.block).astype(work, order="C"))
    axes = (*summed, x.ndim)
    finite = np.isfinite(parts)
    parts[~finite] = 0
    sizes = np.abs(parts)
    largest = _largest(sizes, axes, 0.0)
    sizes[sizes == 0] = np.inf
    smallest = -_largest(-sizes, axes, -np.inf)
    if mesh_dims and x.mesh.coords is not None:
        group = x.mesh.subgroup(tuple(sorted(mesh_dims)))
        largest, smallest = group.allreduce(np.stack([largest, -smallest]), Fold.MAX)
        smallest = -smallest
    exponents = np.frexp(largest)[1]
    lowest = np.frexp(np.where(largest > 0, smallest, 1))[1]
    spread = np.where(largest > 0, exponents - lowest, 0)
    block = np.ldexp(parts, _top(work) - exponents)
    array = block.view(work)[..., 0] if work.kind == "c" else block[..., 0]
    cuts = [Cut.whole(1) if d in summed else cut for d, cut in enumerate(x.layout.cuts)]
    layout = Layout.from_cuts(cuts, x.layout.mesh_shape)
    return _Scaled(
        x.like(array),
        wrap(exponents[..., 0], layout, x.mesh),
        int(spread.max()) if spread.size else 0,
        int(exponents.max()) if exponents.size else 0,
        bool(finite.all()),
    )


def _largest(sizes: Array, axes: tuple[int, ...], otherwise: float) -> Array:
    """Compute the maximum over dimensions, which are kept; CuPy's has no `initial`."""
    if all(sizes.shape[axis] for axis in axes):
        largest: Array = np.max(sizes, axis=axes, keepdims=True)
        return largest
    shape = tuple([1 if axis in axes else n for axis, n in enumerate(sizes.shape)])
    return np.full_like(sizes, otherwise, shape=shape)


def _top(work: np.dtype[Any]) -> int:
    """Return the exponent of scaled numbers."""
    return int(np.finfo(work).maxexp) - 2


def _parts(block: Array) -> Array:
    """View a block with its real parts, or real and imaginary parts, as a new last dimension."""
    block = block[..., None]
    return block.view(block.real.dtype) if block.dtype.kind == "c" else block


def _shifted(block: Array, shift: Array) -> Array:
    """Multiply the numbers by powers of two."""
    if block.dtype.kind != "c":
        return np.ldexp(block, shift)
    parts = np.ldexp(_parts(contiguous(block).reshape(block.shape)), shift[..., None])
    return parts.view(block.dtype)[..., 0]


def _spread_out(x: DistArray, term: Sequence[int], spec: Contraction, layout: Layout) -> Array:
    """Redistribute an operand's exponents as blocks that broadcast to the result's blocks."""
    cut = dict(zip(spec.out, layout.cuts, strict=True))
    wanted = [cut.get(label, have) for label, have in zip(term, x.layout.cuts, strict=True)]
    wanted = [want if want.extent == n else Cut.whole(n) for want, n in zip(wanted, x.shape)]
    block: Array = to_layout(x, Layout.from_cuts(wanted, layout.mesh_shape)).block
    if x.mesh.coords is None:
        return np.zeros_like(block, shape=layout.local_shape(None))
    block = block[tuple([slice(None) if label in cut else 0 for label in term])]
    labels = [label for label in term if label in cut]
    block = block.transpose([labels.index(label) for label in spec.out if label in labels])
    return block[tuple([slice(None) if label in labels else None for label in spec.out])]


# -- slices ------------------------------------------------------------------------------------


def _slicing(
    spec: Contraction, dtype: np.dtype[Any], work: np.dtype[Any], spreads: Sequence[int]
) -> _Slicing:
    """Find the most bits of a slice for which sums are exact, and the number of slices."""
    digits = np.finfo(dtype).nmant + 1
    pairs = 4
    while True:  # until all pairs of slices of one weight fit in the sum
        levels = _levels(spec, dtype, pairs)
        bits = (np.finfo(work).nmant + 1 - levels) // len(spreads)
        slices = [-(-(digits + spread + 1) // bits) for spread in spreads]
        if len(slices) == 1 or min(slices) <= pairs:
            break
        pairs *= 2
    needed = -(-(digits + sum(spreads) + levels + 2) // bits) + len(spreads) - 1
    return _Slicing(bits, tuple(slices), min(sum(slices), needed))


def _levels(spec: Contraction, dtype: np.dtype[Any], pairs: int = 1) -> int:
    """Return the bits by which a sum, of `pairs` products per summand, can exceed a product."""
    summands = prod([n for label, n in enumerate(spec.extents) if label not in spec.out])
    summands = max(1, summands * (2 if dtype.kind == "c" else 1))
    return (summands * pairs - 1).bit_length()


@lru_cache(maxsize=256)
def _sliced(kernel: Kernel, slicing: _Slicing) -> Kernel:
    """Make a kernel of exact sums of slices' products, with the weights as last dimension."""

    def multiply(blocks: Sequence[Array], dtype: np.dtype[Any], out: Array | None) -> Array:
        cut = [_slices(b, n, slicing.bits) for b, n in zip(blocks, slicing.slices, strict=True)]
        sums: dict[int, Array] = {}
        for numbers in product(*cut):
            weight = sum(numbers) + len(numbers)
            if weight <= slicing.last:
                part = kernel([c[n] for c, n in zip(cut, numbers, strict=True)], dtype, None)
                sums[weight] = sums[weight] + part if weight in sums else part
        none = np.zeros_like(sums[slicing.weights[0]])
        return np.stack([sums.get(weight, none) for weight in slicing.weights], axis=-1)

    return multiply


def _slices(block: Array, count: int, bits: int) -> dict[int, Array]:
    """Return the digits of scaled numbers, integers of `bits` bits, by position.

    A slice of zeros is omitted unless it is the first.
    """
    slices = {}
    top = _top(block.dtype)
    for position in range(count):
        power = bits * (position + 1) - top
        whole = np.rint(_times_two_to(block, power))
        if not position or whole.any():
            slices[position] = whole
            block = block - _times_two_to(whole, -power)
    return slices


def _times_two_to(block: Array, power: int) -> Array:
    """Multiply the numbers by a power of two.

    Two steps are needed, as the power itself may be out of range.
    """
    one, half = block.real.dtype.type(1), power // 2
    result: Array = block * np.ldexp(one, half) * np.ldexp(one, power - half)
    return result


@lru_cache(maxsize=1024)
def _with_weights(spec: Contraction, count: int) -> Contraction:
    """Return the contraction with a result for each weight."""
    return Contraction(spec.terms, (*spec.out, len(spec.extents)), (*spec.extents, count))
