"""Explanation of an operation's messages before it runs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, grown_layout
from distarray.array.base import operands_in
from distarray.array.explaining import settling
from distarray.array.probes import tiny
from distarray.comm.ledger import size_text
from distarray.config import config
from distarray.engines.folds import RULES
from distarray.layout import Fold, Layout
from distarray.ops import explained
from distarray.ops.contractions.matmul import PRODUCTS, program_of
from distarray.ops.rehearsing import rehearsal
from distarray.plan import plan_reduction, propagate
from distarray.plan.explaining import (
    Explanation,
    Step,
    explain_fold,
    explain_move,
    largest,
    with_pending,
)

__all__ = ["explain"]

#: Functions that reduce the block on each rank, and fold the results.
_FOLDED: dict[Any, np.ufunc] = {
    np.sum: np.add,
    np.prod: np.multiply,
    np.max: np.maximum,
    np.min: np.minimum,
    np.any: np.logical_or,
    np.all: np.logical_and,
}
_AXES = {"axis", "keepdims"}


def explain(function: Callable[..., Any], *operands: Any, **keywords: Any) -> Explanation:
    """Explain the messages of a call (bytes, senders, receivers) and its memory; nothing is sent.

    Parameters
    ----------
    function : callable
        A function of NumPy's that `distarray.ops.explained` lists: ufuncs and their methods,
        products, reductions, scans, Fourier transforms, linear algebra, and functions that
        rearrange, join or select; or ``DistArray.redistribute``. For the operator ``@`` pass
        ``np.matmul``, for ``+`` ``np.add``.
    *operands, **keywords
        Arguments of the call: at least one distributed array; all distributed arrays on one mesh.

    Returns
    -------
    Explanation
        The explanation; print it, or show it in a notebook.

    Raises
    ------
    ValueError
        If values decide the messages, as for `unique`; the text names these values. Also if
        `function` is no function of NumPy's. In both cases :func:`distarray.trace` around a small
        run, or :func:`distarray.profile`, shows the messages.

    Notes
    -----
    Values are assumed to be ordinary: no NaN, no error. For sorts along a dimension that is cut,
    the steps up to the exchange of samples are exact. `then` and `at_most` describe the maximum of
    the later messages.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> a = np.ones((512, 512)).redistribute(placements=[distarray.Shard(0)])
    >>> print(str(distarray.explain(np.matmul, a, a)).splitlines()[0])
    matmul of (512, 512), (512, 512)
    """
    name = explained.name_of(function)
    arrays = _on_one_mesh([*operands, *keywords.values()])
    if function is DistArray.redistribute:
        return arrays[0].explain(*operands[1:], **keywords)
    title = f"{name} of {', '.join(_shown(operands))}"
    found = _planned(title, function, operands, arrays, keywords)
    if found is not None:
        return found
    explained.check(function, name)
    plan = rehearsal(title, function, operands, keywords)
    if plan.then:
        explained.close(plan, name, arrays)
    return plan


def _planned(
    title: str,
    function: Any,
    operands: Sequence[Any],
    arrays: Sequence[DistArray],
    keywords: dict[str, Any],
) -> Explanation | None:
    """Return an explanation from a plan alone; None if the call has to be rehearsed."""
    if not keywords and _is_elementwise(function, operands):
        return _elementwise(title, function, operands)
    if config.settings.reproducible:  # ordered sums go from rank to rank
        return None
    if function in _FOLDED and len(operands) == 1 and not keywords.keys() - _AXES:
        return _reduction(title, _FOLDED[function], arrays[0], **keywords)
    if not keywords and function in PRODUCTS and len(arrays) == 2:
        return _product(title, function, *arrays)
    return None


def _shown(operands: Sequence[Any]) -> list[str]:
    """Return the shapes of operands as text, also in lists; leave out other arguments."""
    found = []
    for x in operands:
        if isinstance(x, (list, tuple)) and any(isinstance(item, DistArray) for item in x):
            found.append(f"[{', '.join(_shown(x))}]")
        elif hasattr(x, "shape"):
            found.append(str(x.shape))
    return found


def _on_one_mesh(operands: Sequence[Any]) -> list[DistArray]:
    """Return the distributed arrays among operands and in their lists; raise if meshes differ."""
    arrays: list[Any] = list(operands_in(operands))
    if not arrays or any(x.mesh is not arrays[0].mesh for x in arrays):
        raise ValueError("explain(function, *operands) takes distributed arrays, all on one mesh")
    return arrays


def _is_elementwise(function: Any, operands: Sequence[Any]) -> bool:
    """Return True for a ufunc without core dimensions that is called with all its inputs."""
    plain = isinstance(function, np.ufunc) and function.signature is None
    return plain and len(operands) == function.nin


def _settled(arrays: Sequence[DistArray]) -> tuple[list[Step], list[Layout]]:
    """Return the steps that carry out the operands' pending folds, and the layouts afterwards."""
    steps: list[Step] = []
    layouts = []
    for x in arrays:
        found, layout = settling(x.layout, x.dtype.itemsize)
        steps += found
        layouts.append(layout)
    return steps, layouts


def _elementwise(title: str, ufunc: Any, operands: Sequence[Any]) -> Explanation:
    """Explain an elementwise operation: operands are redistributed to a common layout."""
    arrays = [x for x in operands if isinstance(x, DistArray)]
    mesh_shape = arrays[0].mesh.shape
    steps, layouts = _settled(arrays)
    whole = [np.asarray(x) for x in operands if not isinstance(x, DistArray) and np.ndim(x)]
    every: list[Any] = [*arrays, *whole]
    sizes = [x.dtype.itemsize for x in every]
    layouts += [Layout.replicated(x.shape, mesh_shape) for x in whole]
    made: Any = ufunc(
        *[tiny(x.shape, x.dtype) if isinstance(x, DistArray) else x for x in operands]
    )
    itemsize = (made[0] if isinstance(made, tuple) else made).dtype.itemsize
    plan = propagate(tuple(layouts), tuple(sizes))
    result = plan.result
    if plan.may_be_cut:
        result = grown_layout(result.shape, itemsize, arrays[0].mesh, every)
    for number, (have, want) in enumerate(zip(layouts, plan.operands, strict=True), 1):
        steps.append(explain_move(have, want, sizes[number - 1], f"operand {number}"))
    return Explanation(title, steps, result, itemsize, size_text)


def _product(title: str, ufunc: Any, a: DistArray, b: DistArray) -> Explanation:
    """Explain a product: operands are redistributed, and contributions are summed."""
    steps, layouts = _settled([a, b])
    program = program_of(ufunc, a, b)
    plan = program.plan
    for number, (x, have, want) in enumerate(zip((a, b), layouts, plan.operands, strict=True), 1):
        step = explain_move(have, want, x.dtype.itemsize, f"operand {number}")
        if step.total:
            step.memory = largest(want) * x.dtype.itemsize  # a block assembled from received data
        if step.total and program.panels is not None:
            panels = len(program.panels.stretches)
            step.what += f", in {panels} panels one after the other"
            step.memory //= panels
        steps.append(step)
    size = program.work.itemsize
    steps.append(explain_fold(plan.local, plan.result, size, "the sum of all contributions"))
    return Explanation(title, steps, plan.result, program.dtype.itemsize, size_text)


def _reduction(
    title: str, ufunc: Any, x: DistArray, axis: Any = None, keepdims: bool = False
) -> Explanation:
    """Explain a reduction: each rank reduces its block, and the results are folded."""
    steps, (layout,) = _settled([x])
    made = ufunc.reduce(tiny(x.shape, x.dtype), axis=axis, keepdims=keepdims)
    plan = plan_reduction(layout, axis, keepdims, made.dtype)
    pending = with_pending(plan.layout, plan.mesh_dims, RULES[ufunc].fold or Fold.SUM)
    size = plan.dtype.itemsize
    if plan.layout.shape and plan.layout.size * size >= config.settings.replicate_below:
        return Explanation(
            f"{title}, not folded before it is read", steps, pending, size, size_text
        )
    steps.append(explain_fold(pending, plan.layout, size, "the results of the blocks"))
    return Explanation(title, steps, plan.layout, size, size_text)
