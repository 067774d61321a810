"""Check that a plan places queries on the same ranks as the keys and values they share."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from torch.nn import Module

from distarray.comm import DeviceMesh
from distarray.errors import LayoutError
from distarray.layout import Cut
from distarray.torch.modules.handing import ParallelStyle
from distarray.torch.modules.styles import ColwiseParallel
from distarray.torch.parameters.distribute import whole_shape

__all__ = ["check_heads"]

Matched = Sequence[tuple[str, Module, ParallelStyle]]


def check_heads(matched: Matched, mesh: DeviceMesh) -> None:
    """Refuse sibling layers whose heads belong together but are on different ranks.

    In grouped-query attention several query heads share one head of keys and values. From plain
    tensors attention gets only this rank's heads, and pairs them by position. It has no access to
    the matching heads of other ranks.

    Raises
    ------
    LayoutError
        On all ranks alike, because only the plan and the shapes matter.
    """
    layers: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    for name, module, style in matched:
        if isinstance(style, ColwiseParallel) and style.multiple_of > 1 and style.use_local_output:
            if style.output_layouts is not None:
                continue  # the output is not cut by heads
            features = whole_shape(module, "weight")[style.dim_of(module)]
            beside = name.rpartition(".")[0], style.multiple_of
            layers[beside].append((name, features // style.multiple_of))
    for (_, size), found in layers.items():
        for one, other in combinations(found, 2):
            many, few = (one, other) if one[1] > other[1] else (other, one)
            _check_pair(many, few, size, mesh)


def _check_pair(
    queries: tuple[str, int], keys: tuple[str, int], size: int, mesh: DeviceMesh
) -> None:
    """Refuse query heads unless every rank has the key heads that its query heads share."""
    (many, heads), (few, kept) = queries, keys
    if not kept or heads % kept or heads == kept:
        return
    share = heads // kept
    own, shared = (Cut.chunked(n, (0,), mesh.shape) for n in (heads, kept))
    for rank in range(own.parts):
        start, stop = shared.interval(rank)
        if own.interval(rank) != (start * share, stop * share):
            raise LayoutError(
                f"parallelize_module: {many!r} has {heads} heads of {size} and {few!r} has {kept}, "
                f"which {share} each share; on {mesh.size()} ranks those of rank {rank} do not "
                f"belong together. Cut {many!r} with multiple_of={size * share} (and what takes "
                "the heads), if there are as many groups as ranks; or say use_local_output=False "
                "for these layers, so that attention has distributed tensors"
            )
