"""Plan of a reduction: its dimensions, the layout of the result, and the ranks that fold."""

from functools import lru_cache
from typing import NamedTuple

from numpy.lib.array_utils import normalize_axis_tuple

from distarray.layout import Coords, Cut, Fold, Layout
from distarray.typing import Axes, DType

__all__ = ["ReductionPlan", "plan_reduction"]


class ReductionPlan(NamedTuple):
    """Plan that reduces an array of one layout.

    Attributes
    ----------
    axes : tuple of int
        The dimensions that are reduced.
    keepdims : bool
        True if the reduced dimensions stay with extent 1.
    dtype : dtype
        Data type of the result.
    layout : Layout
        Layout of the result after the fold.
    mesh_dims : tuple of int
        Mesh dimensions along which the ranks have contributions to fold.
    direct : bool
        True if a reduction of the block and one fold are sufficient.
    rounds : bool
        True if the result depends on the order of operations.
    total : Fold or None
        The fold that completes a result without dimensions, if ranks have to fold it.

    Notes
    -----
    The last three attributes depend on the operation. The engine that plans the rest sets them.
    """

    axes: tuple[int, ...]
    keepdims: bool
    dtype: DType
    layout: Layout
    mesh_dims: tuple[int, ...]
    direct: bool = False
    rounds: bool = False
    total: Fold | None = None

    def leads(self, coords: Coords | None) -> bool:
        """Return True if a rank is the first of the ranks whose contributions are folded."""
        return coords is None or not any(coords[m] for m in self.mesh_dims)


@lru_cache(maxsize=4096)
def plan_reduction(layout: Layout, axis: Axes, keepdims: bool, dtype: DType) -> ReductionPlan:
    """Plan a reduction for axes that have been checked.

    Parameters
    ----------
    layout : Layout
        Layout of the operand. Pending folds and lone coordinates are folded with the rest.
    axis : int, tuple of int or None
        The dimensions to reduce; None for all.
    keepdims : bool
        True if the reduced dimensions stay with extent 1.
    dtype : dtype
        Data type of the result.

    Examples
    --------
    >>> import numpy
    >>> from distarray.layout import Layout, Shard
    >>> rows = Layout.chunked((8, 3), (4,), [Shard(0)])
    >>> plan = plan_reduction(rows, 0, False, numpy.dtype(float))
    >>> plan.layout.shape, plan.mesh_dims
    ((3,), (0,))
    """
    ndim = layout.ndim
    axes = tuple(range(ndim)) if axis is None or not ndim else normalize_axis_tuple(axis, ndim)
    folded = {*layout.ats, *layout.partials}
    folded.update([m for axis in axes for m in layout.cuts[axis].mesh_dims])
    cuts = []
    for dim, cut in enumerate(layout.cuts):
        if dim not in axes:
            cuts.append(cut)
        elif keepdims:
            cuts.append(Cut.whole(1))
    result = Layout.from_cuts(cuts, layout.mesh_shape)
    mesh_dims = tuple([m for m in sorted(folded) if layout.mesh_shape[m] > 1])
    return ReductionPlan(axes, keepdims, dtype, result, mesh_dims)
