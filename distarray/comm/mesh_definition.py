"""Definition of a mesh, checked: shape, names, ranks; with one clear error on all ranks."""

from collections.abc import Sequence
from math import prod
from typing import cast
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike

from distarray.comm.group import Group
from distarray.comm.same_call import same_settings
from distarray.config import in_force
from distarray.errors import DivergenceError, MeshError
from distarray.layout import Coords, Fold
from distarray.typing import ShapeLike

__all__ = ["Definition", "check_device", "checked_names", "compare", "definition", "fiber"]

_DEVICES = ("cpu", "cuda")
#: Names of mesh dimensions; a string is the name of the only dimension.
Names = str | Sequence[str]
#: Shape, names, members and device type.
Definition = tuple[tuple[int, ...], tuple[str, ...] | None, tuple[int, ...], str]


def definition(
    root: Group | None,
    shape: ShapeLike | None,
    names: Names | None,
    device_type: str,
    ranks: ArrayLike | None,
) -> Definition:
    """Check the arguments of :class:`~distarray.comm.mesh.DeviceMesh`; return the definition."""
    check_device(device_type)
    if shape is None:
        shape = np.shape(ranks) if ranks is not None else (root.size if root else 1,)
    lengths = _shape(shape)
    return lengths, checked_names(names, lengths), _ranks(ranks, lengths, root), device_type


def compare(group: Group, wanted: Definition | MeshError) -> None:
    """Raise on all ranks of a group if they do not make the same mesh, or the same error.

    Meshes that this rank has already made are compared, too: another rank may be making one for the
    first time, and would wait. The settings are also compared, since they must be equal on every
    rank.
    """
    if group.size == 1:
        return
    text = str(wanted)
    digest = crc32(f"{text} {in_force()}".encode())
    high, low = group._allreduce(np.array([digest, -digest]), Fold.MAX).tolist()
    if high == -low:
        return
    same_settings(group._allgather_object(in_force()))
    if not isinstance(wanted, MeshError):
        lengths, names, _, device_type = wanted
        text = f"shape {lengths}, names {names}, on {device_type!r}"
    lines = [f"\n    rank {r}  {t}" for r, t in enumerate(group._allgather_object(text))]
    raise DivergenceError(f"the ranks do not make the same mesh:{''.join(lines)}")


def check_device(device_type: str) -> None:
    """Raise if there is no such device type."""
    if device_type not in _DEVICES:
        gaudi = "; tensors on HPUs go with a mesh of blocks in host memory, 'cpu'"
        hint = gaudi if device_type == "hpu" else ""
        raise MeshError(f"device_type is one of {_DEVICES}, not {device_type!r}{hint}")


def fiber(
    ranks: tuple[int, ...], shape: tuple[int, ...], coords: Coords, dims: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the ranks of a grid along some of its dimensions, through a coordinate."""
    where = tuple([slice(None) if dim in dims else at for dim, at in enumerate(coords)])
    plane = np.array(ranks).reshape(shape)[where]
    axes = [sorted(dims).index(dim) for dim in dims]
    return tuple(plane.transpose(axes).ravel().tolist())


def _shape(shape: ShapeLike) -> tuple[int, ...]:
    """Return a mesh shape as a tuple of positive integers; raise if it is none."""
    try:
        given = cast("Sequence[int]", (shape,) if np.ndim(shape) == 0 else shape)
        lengths = tuple(int(n) for n in given)
        whole = bool(np.all(np.asarray(shape) == np.asarray(lengths)))
    except (TypeError, ValueError):
        raise MeshError(f"a mesh shape is a tuple of positive integers, not {shape!r}") from None
    if not whole or any(n < 1 for n in lengths):
        raise MeshError(f"a mesh shape is a tuple of positive integers, not {shape!r}")
    return lengths


def checked_names(names: Names | None, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    """Check that there is one distinct name per mesh dimension; None if there are no names."""
    if names is None:
        return None
    given: tuple[object, ...] = (names,) if isinstance(names, str) else tuple(names)
    checked = tuple([name for name in given if isinstance(name, str) and name])
    if len(given) != len(shape):
        raise MeshError(
            f"{len(given)} name(s) {given} for a mesh of shape {shape}; give one name per dimension"
        )
    if len(checked) < len(given):
        wrong = next(name for name in given if not isinstance(name, str) or not name)
        raise MeshError(f"a mesh dimension's name is a non-empty str, not {wrong!r}")
    if len(set(checked)) < len(given):
        raise MeshError(f"mesh_dim_names {given} are not distinct")
    return checked


def _ranks(ranks: ArrayLike | None, shape: tuple[int, ...], root: Group | None) -> tuple[int, ...]:
    """Return the members of the mesh: as many distinct ranks as the shape needs."""
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
