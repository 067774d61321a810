"""Programs: contractions planned from metadata, down to the last message."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.config import config
from distarray.layout import Layout
from distarray.plan import (
    Contraction,
    ContractionPlan,
    Panels,
    panels_of,
    parts_of,
    plan_contraction,
)
from distarray.typing import Array

__all__ = ["PANEL_BYTES", "Kernel", "Program", "program_for"]

#: ``kernel(blocks, dtype, out)``: the product of this rank's blocks, in `out` if `out` is an array.
Kernel = Callable[[Sequence[Array], np.dtype[Any], Array | None], Array]

#: An operand of fewer bytes is sent in one exchange, and a result of fewer bytes is folded at once.
PANEL_BYTES = 1 << 25
#: A result this many times smaller than a small array is replicated at once.
TINY = 128


class Program(NamedTuple):
    """Contraction of operands of given layouts, planned down to the last message.

    Attributes
    ----------
    kernel : callable
        Function that multiplies blocks as `spec` defines.
    spec : Contraction
        The labels of the operands and of the result.
    plan : ContractionPlan
        The layouts of the operands and of the result.
    panels : Panels or None
        The ranges in which large operands are sent.
    dtype, work : dtype
        The data type of the result, and of the products that are folded into it.
    scalar : bool
        True if the result is a NumPy scalar.
    direct : bool
        True if no message is needed.
    rounds : bool
        True if the result is a sum of numbers that round, so that it depends on the order.
    parts : int
        The number of parts in which a large pending result is computed and folded.
    whole : Layout or None
        The replicated layout of a tiny result of a large operand, as for other small arrays. Later
        operations on the result then need no messages.
    """

    kernel: Kernel
    spec: Contraction
    plan: ContractionPlan
    panels: Panels | None
    dtype: np.dtype[Any]
    work: np.dtype[Any]
    scalar: bool
    direct: bool
    rounds: bool
    parts: int
    whole: Layout | None

    @property
    def sums_in(self) -> np.dtype[Any]:
        """The data type to add in, in order: half precision is added in single precision."""
        return np.promote_types(self.dtype, np.float32)


@lru_cache(maxsize=4096)
def _program(
    kernel: Kernel,
    spec: Contraction,
    layouts: tuple[Layout, ...],
    itemsizes: tuple[int, ...],
    dtype: np.dtype[Any],
    scalar: bool,
    small: int,
    panel_bytes: int,
    grains: tuple[int, ...],
) -> Program:
    plan = plan_contraction(spec, layouts, itemsizes, dtype.itemsize, small, grains)
    panels = panels_of(spec, plan, layouts, itemsizes, panel_bytes, grains)
    # Contributions in half precision could overflow even if their sum does not.
    work = np.dtype(np.float32) if dtype == np.float16 and plan.pending else dtype
    alone = prod(plan.result.mesh_shape) == 1
    stays = all(have is want for have, want in zip(layouts, plan.operands, strict=True))
    direct = (stays or alone) and not plan.pending and panels is None and bool(spec.out)
    scalar = scalar and not spec.out
    rounds = dtype.kind in "fc" and len(spec.out) < len(spec.extents)
    parts = parts_of(spec, plan, layouts, itemsizes, work.itemsize, panel_bytes)
    whole = _whole(plan.result, dtype.itemsize, layouts, itemsizes, small)
    direct = direct and whole is None
    return Program(kernel, spec, plan, panels, dtype, work, scalar, direct, rounds, parts, whole)


def _whole(
    result: Layout,
    itemsize: int,
    layouts: tuple[Layout, ...],
    itemsizes: tuple[int, ...],
    small: int,
) -> Layout | None:
    """Return the replicated layout of a tiny cut result, if an operand is large."""
    large = any(
        layout.size * size >= small for layout, size in zip(layouts, itemsizes, strict=True)
    )
    if result.is_whole or not large or result.size * itemsize > small // TINY:
        return None
    return Layout.replicated(result.shape, result.mesh_shape)


def program_for(
    kernel: Kernel,
    spec: Contraction,
    layouts: Sequence[Layout],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any],
    scalar: bool = True,
    small: int | None = None,
    grains: tuple[int, ...] = (),
) -> Program:
    """Plan the program of a contraction of operands of these layouts; does not communicate.

    Parameters
    ----------
    kernel : callable
        Function that multiplies blocks as `spec` defines.
    spec : Contraction
        The labels of the operands and of the result.
    layouts, dtypes : sequence of Layout and of dtype
        The layouts of the operands, which are plain and on one mesh, and the data types.
    dtype : dtype
        The data type of the result.
    scalar : bool
        True if a 0-d result is a scalar, as most of NumPy's functions return.
    small : int, optional
        Bytes below which a result is replicated; `config.replicate_below` by default.
    grains : tuple of int
        See :func:`~distarray.plan.plan_contraction`.
    """
    itemsizes = tuple([given.itemsize for given in dtypes])
    small = config.settings.replicate_below if small is None else small
    known = (kernel, spec, tuple(layouts), itemsizes, dtype, scalar, small)
    return _program(*known, PANEL_BYTES, grains)
