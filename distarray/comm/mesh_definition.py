"""What a mesh is made of, checked: shape, names, ranks; one clear error, equal on all ranks."""

from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from distarray.comm.group import Group
from distarray.errors import DivergenceError, MeshError
from distarray.layout.placement import Fold

__all__ = ["Definition", "check_device", "checked_names", "compare", "definition"]

_DEVICES = ("cpu", "cuda")
#: Shape, names, members and kind of device.
Definition = tuple[tuple[int, ...], tuple[str, ...] | None, tuple[int, ...], str]


def definition(
    root: Group | None, shape: Any, names: Any, device_type: str, ranks: Any
) -> Definition:
    """What a mesh is made of, checked."""
    check_device(device_type)
    lengths = _shape(shape)
    return lengths, checked_names(names, lengths), _ranks(ranks, lengths, root), device_type


def compare(group: Group, wanted: Definition | MeshError) -> None:
    """Raise on all ranks of a group if they do not make the same mesh, or the same mistake.

    A mesh that this rank has already may be new to another one, which would wait: what is there
    already is compared as well.
    """
    if group.size == 1:
        return
    text = str(wanted)
    digest = crc32(text.encode())
    high, low = group._allreduce(np.array([digest, -digest]), Fold.MAX).tolist()
    if high == -low:
        return
    if not isinstance(wanted, MeshError):
        lengths, names, _, device_type = wanted
        text = f"shape {lengths}, names {names}, on {device_type!r}"
    lines = [f"\n    rank {r}  {t}" for r, t in enumerate(group._allgather_object(text))]
    raise DivergenceError(f"the ranks do not make the same mesh:{''.join(lines)}")


def check_device(device_type: str) -> None:
    """Raise if it is no kind of device."""
    if device_type not in _DEVICES:
        gaudi = "; tensors on HPUs go with a mesh of blocks in host memory, 'cpu'"
        hint = gaudi if device_type == "hpu" else ""
        raise MeshError(f"device_type is one of {_DEVICES}, not {device_type!r}{hint}")


def _shape(shape: Any) -> tuple[int, ...]:
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
        raise MeshError(
            f"{len(given)} name(s) {given} for a mesh of shape {shape}; give one name a dimension"
        )
    for name in given:
        if not isinstance(name, str) or not name:
            raise MeshError(f"a mesh dimension's name is a non-empty str, not {name!r}")
    if len(set(given)) < len(given):
        raise MeshError(f"mesh_dim_names {given} are not distinct")
    return given


def _ranks(ranks: Any, shape: tuple[int, ...], root: Group | None) -> tuple[int, ...]:
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
