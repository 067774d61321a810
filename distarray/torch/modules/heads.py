"""Queries that share keys and values: whether a plan leaves both on the same ranks."""

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
    """Refuse layers side by side whose heads belong together and are on different ranks.

    In grouped-query attention several heads of queries share one of keys and values. What attention
    is handed as plain tensors are this rank's heads, and it pairs them as it finds them: it cannot
    tell that those of other ranks are meant.

    Raises
    ------
    LayoutError
        On all ranks alike: the plan and the shapes decide.
    """
    layers: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    for name, module, style in matched:
        if isinstance(style, ColwiseParallel) and style.multiple_of > 1 and style.use_local_output:
            if style.output_layouts is not None:
                continue  # whole again
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
    """Refuse more heads beside fewer unless every rank has those that share its own."""
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
