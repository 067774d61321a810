"""Kernels: the product of one rank's blocks, by BLAS wherever the labels allow it."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

import numpy as np

from distarray.array.portable import call_ufunc
from distarray.comm.devices import on_device
from distarray.engines.contracting.program import Kernel
from distarray.plan import Contraction
from distarray.typing import Array

__all__ = ["labelled_kernel", "ufunc_kernel"]

Labels = tuple[int, ...]


@lru_cache(maxsize=64)
def ufunc_kernel(ufunc: np.ufunc, subscripts: str) -> Kernel:
    """Make a kernel that calls a generalized ufunc on blocks, which broadcast like the operands.

    Parameters
    ----------
    ufunc : ufunc
        The ufunc: `matmul` or a similar one.
    subscripts : str
        The subscripts with which einsum computes the same result for real numbers.
    """

    def multiply(blocks: Sequence[Array], dtype: np.dtype[Any], out: Array | None) -> Array:
        a, b = [_cast(block, dtype) for block in blocks]
        if _slow(dtype, a):
            return _summed(subscripts, dtype, a, b)
        return call_ufunc(ufunc, a, b) if out is None else call_ufunc(ufunc, a, b, out=out)

    return multiply


def _slow(dtype: np.dtype[Any], block: Array) -> bool:
    """Return True if einsum is faster: NumPy's integer matmul has no blocking and no SIMD."""
    return dtype.kind in "ium" and type(block) is np.ndarray


def _summed(subscripts: str, dtype: np.dtype[Any], *blocks: Array) -> Array:
    """Sum products by einsum.

    Time spans are summed as integers, as in NumPy's dot.
    """
    if dtype.kind == "m":
        numbers = [block.view(np.int64) for block in blocks]
        return np.array(np.einsum(subscripts, *numbers)).view(dtype)
    result: Array = np.einsum(subscripts, *blocks)
    return result


def _cast(block: Array, dtype: np.dtype[Any]) -> Array:
    return block if block.dtype == dtype else block.astype(dtype)


@lru_cache(maxsize=1024)
def labelled_kernel(spec: Contraction, zero: bool = False) -> Kernel:
    """Make a kernel from labels: a matrix product if the labels allow one, else einsum.

    Integers are exact in both cases, and wrap around as in NumPy. With `zero`, products without a
    sum are added to zero, as einsum does.
    """
    terms = tuple([tuple([label for label in term if label >= 0]) for term in spec.terms])
    product = _kernel(terms, spec.out, zero)
    if terms == spec.terms:
        return product
    keys = [tuple([0 if label < 0 else slice(None) for label in term]) for term in spec.terms]

    def multiply(blocks: Sequence[Array], dtype: np.dtype[Any], out: Array | None) -> Array:
        squeezed = [block[(*key, ...)] for block, key in zip(blocks, keys, strict=True)]
        return product(squeezed, dtype, out)

    return multiply


def _kernel(terms: Sequence[Labels], out: Labels, zero: bool) -> Kernel:
    """Return the fastest kernel for terms without broadcast dimensions."""
    if len(terms) != 2:
        return _einsum(terms, out)
    if all(label in out for term in terms for label in term):
        product = _elementwise(terms, out)
        return _added_to_zero(product, _einsum(terms, out)) if zero else product
    arrangement = _arrangement(terms, out)
    if arrangement is None:
        return _einsum(terms, out)
    if arrangement.is_plain:
        return ufunc_kernel(np.matmul, arrangement.subscripts)
    return arrangement.multiply


def _elementwise(terms: Sequence[Labels], out: Labels) -> Kernel:
    """Make a kernel for the product of two blocks without a sum, in C order."""
    orders = [tuple([term.index(label) for label in out if label in term]) for term in terms]
    keys = [tuple([slice(None) if label in term else None for label in out]) for term in terms]

    def multiply(blocks: Sequence[Array], dtype: np.dtype[Any], into: Array | None) -> Array:
        # A block without dimensions broadcasts unchanged: a scalar combines with blocks on any
        # device.
        a, b = [
            factor.transpose(order)[(*key, ...)] if order else factor
            for factor, order, key in zip(_factors(blocks, dtype), orders, keys, strict=True)
        ]
        return call_ufunc(np.multiply, a, b, order="C")

    return multiply


def _factors(blocks: Sequence[Array], dtype: np.dtype[Any]) -> Sequence[Array]:
    """Cast the blocks to the type of their product, unless that is a time span."""
    return blocks if dtype.kind == "m" else [_cast(block, dtype) for block in blocks]


def _added_to_zero(product: Kernel, einsum: Kernel) -> Kernel:
    """Make a kernel for a product without a sum, with einsum's positive zeros."""

    def multiply(blocks: Sequence[Array], dtype: np.dtype[Any], into: Array | None) -> Array:
        if not any(on_device(block) for block in blocks):
            return einsum(blocks, dtype, into)
        found = product(blocks, dtype, into)
        found += 0
        return found

    return multiply


def _einsum(terms: Sequence[Labels], out: Labels) -> Kernel:
    """Make a kernel for the sum of products of any number of blocks."""
    seen = dict.fromkeys(label for term in (*terms, out) for label in term)
    letter = dict(zip(seen, ascii_letters, strict=False))
    left = ",".join(["".join([letter[label] for label in term]) for term in terms])
    subscripts = f"{left}->{''.join([letter[label] for label in out])}"

    def multiply(blocks: Sequence[Array], dtype: np.dtype[Any], into: Array | None) -> Array:
        return _summed(subscripts, dtype, *[_cast(block, dtype) for block in blocks])

    return multiply


class _Arrangement(NamedTuple):
    """Pair of operands as stacks of matrices: the order of their axes and of the product's axes.

    Attributes
    ----------
    swapped : bool
        True if the operands are swapped, because the second operand's labels come first in the
        result.
    left, right : tuple of int
        The axes of the first operand as (stack, rows, summed), and of the second operand as (stack,
        summed, columns).
    stack, rows, summed, columns : int
        The number of labels of each kind.
    result : tuple of int
        The axes that transpose (stack, rows, columns) to the order of the result.
    subscripts : str
        The product of the matrices, or vectors, as einsum subscripts.
    """

    swapped: bool
    left: Labels
    right: Labels
    stack: int
    rows: int
    summed: int
    columns: int
    result: Labels
    subscripts: str

    @property
    def is_plain(self) -> bool:
        """True if operands and result are matrices or vectors, without any rearrangement."""
        orders = (self.left, self.right, self.result)
        in_order = all(order == tuple(range(len(order))) for order in orders)
        return in_order and not self.swapped and max(self.rows, self.summed, self.columns) == 1

    def multiply(self, blocks: Sequence[Array], dtype: np.dtype[Any], into: Array | None) -> Array:
        """Compute the product as a (stacked) matrix product; matrices are not copied."""
        a, b = reversed(blocks) if self.swapped else blocks
        a = _cast(a, dtype).transpose(self.left)
        b = _cast(b, dtype).transpose(self.right)
        stack, rows = a.shape[: self.stack], a.shape[self.stack : self.stack + self.rows]
        columns = b.shape[b.ndim - self.columns :]
        depth = prod(a.shape[self.stack + self.rows :])
        if self.rows > 1 or self.summed > 1:
            a = a.reshape(*stack, *([prod(rows)] if rows else []), depth)
        if self.columns > 1 or self.summed > 1:
            b = b.reshape(*stack, depth, *([prod(columns)] if columns else []))
        slow = _slow(dtype, a)
        product = _summed(self.subscripts, dtype, a, b) if slow else np.matmul(a, b)
        if self.rows > 1 or self.columns > 1:
            product = product.reshape(*stack, *rows, *columns)
        if self.result != tuple(range(len(self.result))):
            product = product.transpose(self.result)
        return product


def _arrangement(terms: Sequence[Labels], out: Labels) -> _Arrangement | None:
    """Arrange a pair of operands as a matrix product.

    None if the pair is no matrix product, or if a matrix product is not faster.
    """
    a, b = terms
    shared = set(a) & set(b)
    free = [label for label in out if label not in shared]
    swapped = bool(free) and free[0] in b
    if swapped:
        a, b = b, a
    stack = [label for label in out if label in shared]
    rows = [label for label in free if label in a]
    columns = [label for label in free if label in b]
    summed = [label for label in a if label in shared and label not in out]
    if not _is_matrix_product(len(a) + len(b), stack, rows, summed, columns):
        return None
    made = [*stack, *rows, *columns]
    i, k = "i" if rows else "", "k" if columns else ""
    return _Arrangement(
        swapped,
        tuple([a.index(label) for label in (*stack, *rows, *summed)]),
        tuple([b.index(label) for label in (*stack, *summed, *columns)]),
        len(stack),
        len(rows),
        len(summed),
        len(columns),
        tuple([made.index(label) for label in out]),
        f"...{i}j,...j{k}->...{i}{k}",
    )


def _is_matrix_product(
    labels: int, stack: list[int], rows: list[int], summed: list[int], columns: list[int]
) -> bool:
    """Return True if a pair with this number of labels is best computed as a matrix product."""
    used = 2 * len(stack) + len(rows) + 2 * len(summed) + len(columns)
    if used < labels or not summed:  # a label that only one operand sums over is unused
        return False
    return not stack or bool(rows and columns)
