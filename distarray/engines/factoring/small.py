"""NumPy's linear algebra on whole matrices, single or in stacks; NumPy's argument checks.

An array of one or more matrices is treated by one of three methods:

* *at once*: every rank holds the whole array, or the array is so small that one gather costs less
  than the first message of a distributed algorithm; each rank then calls ``np.linalg`` on its copy
  (:func:`is_small`, :func:`at_once`);
* *stackwise*: there are many matrices, and every rank factors some of them, whole, without messages
  (:func:`is_stack`, :func:`stackwise`); a few large matrices are factored one after the other
  (:func:`one_by_one`);
* *distributed*: one large matrix is factored by a blocked algorithm, on the ranks that store it.

The ranks agree on an error that depends on the elements (a singular matrix) before they raise it.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.linalg import _linalg

from distarray.array import (
    DistArray,
    as_distarray,
    call,
    common_mesh,
    movement,
    to_layout,
    wrap,
)
from distarray.array.base import sequence_like
from distarray.array.portable import on_host
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.comm.devices import on_device
from distarray.layout import Cut, Layout, Shard
from distarray.plan import broadcast_shapes, propagate, restrict
from distarray.typing import Array, ArrayLike

__all__ = [
    "SMALL_BYTES",
    "at_once",
    "call_linalg",
    "check_2d",
    "check_square",
    "check_stacked",
    "common_type",
    "is_small",
    "is_stack",
    "one_by_one",
    "read",
    "replicated",
    "real_type",
    "stackwise",
]

LinAlgError = np.linalg.LinAlgError

#: Operands of fewer bytes in total are gathered, and every rank calls LAPACK on its copy. Callers
#: whose algorithms cost more or fewer messages pass their own limits.
SMALL_BYTES = 1 << 22

#: Functions that CuPy, like NumPy, has for stacks of matrices, and the keywords that CuPy accepts.
_ON_DEVICE: dict[str, tuple[str, ...]] = {
    "cholesky": (),
    "det": (),
    "eigh": ("UPLO",),
    "eigvalsh": ("UPLO",),
    "inv": (),
    "qr": ("mode",),
    "slogdet": (),
    "svd": ("full_matrices", "compute_uv"),
}
#: NumPy's named tuples for the results, which are plain tuples in CuPy.
_NAMED: dict[str, Any] = {
    "eigh": _linalg.EighResult,
    "qr": _linalg.QRResult,
    "slogdet": _linalg.SlogdetResult,
    "svd": _linalg.SVDResult,
}


# -- NumPy's checks --------------------------------------------------------------------------------


def read(*operands: ArrayLike) -> list[DistArray]:
    """Return the operands as distributed arrays on their common mesh, in native byte order."""
    mesh = common_mesh(*operands)
    found = [as_distarray(x, mesh) for x in operands]
    return [x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("=")) for x in found]


def check_stacked(*operands: DistArray) -> None:
    """Raise NumPy's LinAlgError for arrays of fewer than two dimensions."""
    for x in operands:
        if x.ndim < 2:
            raise LinAlgError(
                f"{x.ndim}-dimensional array given. Array must be at least two-dimensional"
            )


def check_2d(*operands: DistArray) -> None:
    """Raise NumPy's LinAlgError for arrays that are not one matrix."""
    for x in operands:
        if x.ndim != 2:
            raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")


def check_square(*operands: DistArray) -> None:
    """Raise NumPy's LinAlgError for (stacks of) matrices that are not square."""
    check_stacked(*operands)
    for x in operands:
        if x.shape[-1] != x.shape[-2]:
            raise LinAlgError("Last 2 dimensions of the array must be square")


def common_type(*dtypes: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the data types to compute in and of the result; raise NumPy's TypeError.

    As in NumPy everything is computed in double precision. The result is rounded to single
    precision if no operand is wider. NumPy's TypeError is raised for unsupported data types.
    """
    complex_, double = False, False
    for dtype in dtypes:
        if dtype.kind in "fc":
            if dtype.char not in "fdFD":
                raise TypeError(f"array type {dtype.name} is unsupported in linalg")
            complex_ = complex_ or dtype.kind == "c"
            double = double or dtype.char in "dD"
        else:
            double = True
    work = np.dtype(np.complex128 if complex_ else np.float64)
    if double:
        return work, work
    return work, np.dtype(np.complex64 if complex_ else np.float32)


def real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the data type of the real parts."""
    return np.empty(0, dtype).real.dtype


# -- at once ---------------------------------------------------------------------------------------


def is_small(*operands: DistArray, limit: int | None = None) -> bool:
    """Return True if at most `limit` bytes would be gathered, so that LAPACK is called at once.

    The result is the same on all ranks.
    """
    if operands[0].mesh.size() == 1:
        return True
    limit = SMALL_BYTES if limit is None else limit
    elsewhere = [x.nbytes for x in operands if not x.layout.is_replicated]
    return not elsewhere or sum(elsewhere) <= limit


def at_once(function: Callable[..., Any], *operands: DistArray) -> Any:
    """Call a NumPy function on whole copies of the operands, on every rank.

    Parameters
    ----------
    function : callable
        ``np.linalg.inv``, or another function from arrays to an array or a tuple of arrays. Its
        keywords are bound beforehand, as by :func:`functools.partial`.
    *operands : DistArray
        Arrays on one mesh, without pending folds.

    Returns
    -------
    DistArray or tuple of DistArray
        Replicated; scalars where NumPy returns scalars, and named tuples where NumPy does.

    Raises
    ------
    LinAlgError
        On all ranks, if NumPy raises it on any rank.

    Cost
    ----
    One gather of each operand that is not replicated, and then an agreement on errors (one
    integer). Replicated operands cost no message: equal elements raise equal errors.

    Notes
    -----
    On a rank outside the mesh, the result has the shape of the result for identity matrices, even
    if the shape depends on the elements, as for the residuals of ``lstsq``.
    """
    mesh = operands[0].mesh
    if mesh.coords is None:
        return _wrapped(function(*[_unit(x) for x in operands]), mesh)
    if all(x.layout.is_replicated for x in operands):
        return _wrapped(call_linalg(function, *[x.to_local() for x in operands]), mesh)
    copies = [_whole(x) for x in operands]
    return _wrapped(agreed(mesh.group, lambda: call_linalg(function, *copies)), mesh)


def call_linalg(function: Callable[..., Any], *blocks: Array) -> Any:
    """Call a NumPy function on blocks; copy device blocks to the host if CuPy lacks it."""
    if not on_device(blocks[0]):
        return function(*blocks)
    name = getattr(getattr(function, "func", function), "__name__", "")
    keywords = getattr(function, "keywords", {})  # of a partial
    if name not in _ON_DEVICE or not set(keywords) <= set(_ON_DEVICE[name]):
        return on_host(function, *blocks)
    if not all(bool(np.isfinite(block).all()) for block in blocks):
        return on_host(function, *blocks)  # cuSOLVER loses NaN
    # By default CuPy ignores cuSOLVER's report of a singular matrix.
    extras = sys.modules.get("cupyx")
    with nullcontext() if extras is None else extras.errstate(linalg="raise"):
        result = function(*blocks)
    if type(result) is tuple and name in _NAMED and keywords.get("mode") != "raw":
        return _NAMED[name](*result)
    return result


def _whole(x: DistArray) -> Array:
    """Return the whole array on this rank."""
    whole = Layout.replicated(x.shape, x.mesh.shape)
    block: Array = x.mesh.asarray(movement.moved(x.block, x.layout, whole, x.mesh))
    return block


def _unit(x: DistArray) -> Array:
    """Return (a stack of) identity matrices of the shape of `x`, in host memory."""
    if x.ndim < 2:
        return np.ones(x.shape, x.dtype)
    return np.broadcast_to(np.eye(*x.shape[-2:], dtype=x.dtype), x.shape)


def _wrapped(value: Any, mesh: DeviceMesh) -> Any:
    """Wrap NumPy's results, which are equal on every rank, as replicated arrays."""
    if isinstance(value, tuple):
        return sequence_like(value, [_wrapped(item, mesh) for item in value])
    return replicated(value, mesh) if hasattr(value, "dtype") else value


def replicated(value: Any, mesh: DeviceMesh) -> DistArray:
    """Wrap an array or scalar that is equal on every rank as a distributed array."""
    layout = Layout.replicated(tuple(value.shape), mesh.shape)
    if isinstance(value, np.generic) or (not value.ndim and on_device(value)):
        return wrap(mesh.scalar(value), layout, mesh)  # a device has no scalars of its own
    if mesh.coords is None and value.ndim:
        return wrap(mesh.xp.empty(layout.local_shape(None), value.dtype), layout, mesh)
    return wrap(mesh.asarray(value), layout, mesh)


# -- stacks ----------------------------------------------------------------------------------------


def is_stack(*operands: DistArray, core: int = 2) -> bool:
    """Return True if there is at least one matrix, of `core` dimensions, for every rank."""
    stack = max([prod(x.shape[: x.ndim - core]) for x in operands if x.ndim >= core], default=0)
    return stack >= operands[0].mesh.size() or stack == 0


def stackwise(
    function: Callable[..., Any],
    *operands: DistArray,
    cores: Sequence[int] | None = None,
    anywhere: bool = False,
) -> Any:
    """Call a NumPy function on stacks of matrices: each rank computes its own matrices.

    Parameters
    ----------
    function : callable
        Function that behaves like a generalized ufunc: stacks broadcast, the results have the
        stack's dimensions first, and stacks may be empty.
    *operands : DistArray
        Arrays on one mesh, without pending folds.
    cores : sequence of int, optional
        The number of trailing dimensions of each operand that form the matrix or vector; 2 by
        default.
    anywhere : bool
        True if the function also accepts blocks on a device, and never raises.

    Returns
    -------
    DistArray or tuple of DistArray
        Results cut like the stack; core dimensions are not cut.

    Raises
    ------
    LinAlgError
        On all ranks: NumPy's error about shapes, before anything is sent, or an error about a
        matrix on any rank.

    Cost
    ----
    An agreement on errors (one integer) if the stack is cut. Operands whose matrices are cut are
    redistributed first, so that their stack is cut instead.
    """
    mesh = operands[0].mesh
    if mesh.coords is not None and all(x.layout.is_replicated for x in operands):
        blocks = [x.to_local() for x in operands]
        return _wrapped((function if anywhere else partial(call_linalg, function))(*blocks), mesh)
    cores = [2] * len(operands) if cores is None else cores
    empty = [_empty_stack(x, core) for x, core in zip(operands, cores, strict=True)]
    made = function(*empty)  # raises NumPy's error about shapes; has the results' data types
    stack = _stack_layout(operands, cores)
    if mesh.coords is None:
        return _cut(made, stack, mesh, None)
    blocks = []
    for x, core in zip(operands, cores, strict=True):
        part = restrict(stack, x.shape[: x.ndim - core])
        target = _with_core(part, x.shape[x.ndim - core :])
        blocks.append(mesh.asarray(movement.moved(x.block, x.layout, target, mesh)))
    if anywhere:
        return _cut(made, stack, mesh, function(*blocks))
    compute = partial(call_linalg, function, *blocks)
    value = compute() if stack.is_replicated else agreed(mesh.group, compute)
    return _cut(made, stack, mesh, value)


def _empty_stack(x: DistArray, core: int) -> Array:
    """Return an empty stack of matrices of the shape in `x`, or ones if `x` has no such shape."""
    lead = x.ndim - core
    return np.ones(x.shape, x.dtype) if lead < 0 else np.ones((0, *x.shape[lead:]), x.dtype)


def _stack_layout(operands: Sequence[DistArray], cores: Sequence[int]) -> Layout:
    """Return the layout of the broadcast stack, which determines the rank of each matrix."""
    layouts: list[Layout] = []
    used: set[int] = set()
    mesh_shape = operands[0].layout.mesh_shape
    for x, core in zip(operands, cores, strict=True):
        cuts = x.layout.cuts
        layouts.append(Layout.from_cuts(cuts[: x.ndim - core], mesh_shape))
        used |= {m for cut in cuts for m in cut.mesh_dims}
    shape = broadcast_shapes(*[layout.shape for layout in layouts])
    sizes = tuple([x.nbytes // max(1, layout.size) for x, layout in zip(operands, layouts)])
    found = propagate(tuple(layouts), sizes).result
    idle = used - {m for cut in found.cuts for m in cut.mesh_dims}
    if not any(mesh_shape[m] > 1 for m in idle) or not shape:
        return found
    longest = int(np.argmax(shape))
    return Layout.chunked(shape, mesh_shape, [Shard(longest)] * len(mesh_shape))


def _with_core(stack: Layout, core: Sequence[int]) -> Layout:
    """Extend the stack's layout by uncut core dimensions."""
    return stack.with_cuts([*stack.cuts, *[Cut.whole(extent) for extent in core]])


def _cut(
    made: Array | tuple[Array, ...],
    stack: Layout,
    mesh: DeviceMesh,
    value: Any,
) -> Any:
    """Wrap this rank's results as arrays; `made` are the results for an empty stack."""
    if isinstance(made, tuple):
        values = [None] * len(made) if value is None else value
        parts = zip(made, values, strict=True)
        return sequence_like(made, [_cut(one, stack, mesh, block) for one, block in parts])
    layout = _with_core(stack, made.shape[1:])
    if value is None:
        value = mesh.xp.empty(layout.local_shape(None), made.dtype)
    return wrap(value if layout.shape else mesh.scalar(value), layout, mesh)


def one_by_one(function: Callable[[DistArray], Any], x: DistArray, core: int = 2) -> Any:
    """Call a function of one large distributed matrix for each matrix of a small stack.

    Parameters
    ----------
    function : callable
        Function from a matrix to an array or a tuple of arrays.
    x : DistArray
        The stack.
    core : int
        The number of trailing dimensions that form the matrix.

    Returns
    -------
    DistArray or tuple of DistArray
        The results, stacked along new first dimensions.
    """
    lead = x.ndim - core
    stack = x.shape[:lead]
    if any(cut.mesh_dims for cut in x.layout.cuts[:lead]):
        # A matrix that one rank holds alone would have to be copied whole to all: cut the matrices
        # instead.
        longest = lead + int(np.argmax(x.shape[lead:]))
        placed = [Shard(longest)] * len(x.layout.mesh_shape)
        x = to_layout(x, Layout.chunked(x.shape, x.layout.mesh_shape, placed))
    results = [function(x[place]) for place in np.ndindex(*stack)]
    if not isinstance(results[0], tuple):
        return _restacked(results, stack)
    items = [_restacked(column, stack) for column in zip(*results, strict=True)]
    return sequence_like(results[0], items)


def _restacked(parts: Sequence[DistArray], stack: tuple[int, ...]) -> DistArray:
    """Stack the results for all matrices; the stack's dimensions come first."""
    joined = call(np.stack, list(parts))
    result: DistArray = call(np.reshape, joined, (*stack, *parts[0].shape))
    return result
