"""What a mesh is made of, checked: shape, names, ranks; one clear error, equal on all ranks."""

from math import prod
from typing import Any

import numpy as np

from distarray.comm.group import Group
from distarray.errors import MeshError

__all__ = ["checked_names", "checked_ranks", "checked_shape"]


def checked_shape(shape: Any) -> tuple[int, ...]:
    """A mesh shape as a tuple of positive integers."""
    try:
        lengths = (int(shape),) if np.ndim(shape) == 0 else tuple(int(n) for n in shape)
        whole = bool(np.all(np.asarray(shape) == np.asarray(lengths)))
    except (TypeError, ValueError):
        raise MeshError(f"a mesh shape is a tuple of positive integers, not {shape!r}") from None
    if not whole or any(n < 1 for n in lengths):
        raise MeshError(f"a mesh shape is a tuple of positive integers, not {shape!r}")
    return lengths


def checked_names(names: Any, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    """Names of the mesh dimensions: one for each, distinct; None for none."""
    if names is None:
        return None
    given: tuple[Any, ...] = (names,) if isinstance(names, str) else tuple(names)
    if len(given) != len(shape):
        raise MeshError(f"{len(given)} name(s) {given} for a mesh of shape {shape}")
    for name in given:
        if not isinstance(name, str) or not name:
            raise MeshError(f"a mesh dimension's name is a non-empty str, not {name!r}")
    if len(set(given)) < len(given):
        raise MeshError(f"mesh_dim_names {given} are not distinct")
    return given


def checked_ranks(ranks: Any, shape: tuple[int, ...], root: Group | None) -> tuple[int, ...]:
    """The members of the mesh: distinct ranks of the communicator, as many as the shape has."""
    needed = prod(shape)
    if ranks is None:
        if root is not None and root.size != needed:
            raise MeshError(
                f"a mesh of shape {shape} has {needed} rank(s), the communicator has {root.size}; "
                "ranks=[...] takes some of them"
            )
        return tuple(range(needed))
    try:
        members = tuple(int(rank) for rank in np.ravel(np.asarray(ranks)))
    except (TypeError, ValueError):
        raise MeshError(f"ranks are integers, not {ranks!r}") from None
    if len(members) != needed:
        raise MeshError(
            f"a mesh of shape {shape} has {needed} rank(s), ranks= names {len(members)}"
        )
    if len(set(members)) < needed:
        raise MeshError(f"ranks {members} are not distinct")
    if root is not None and not all(0 <= rank < root.size for rank in members):
        raise MeshError(f"ranks {members} are not all in the communicator of {root.size} rank(s)")
    return members
