"""Check, under `config.check`, that all ranks make the same call.

Before each call the ranks exchange descriptions of the call, in one small allgather. If a rank
calls another function, or passes other shapes, placements or scalars, all ranks raise an error.
Without the check the program would hang or compute wrong results.
"""

from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

import numpy as np

from distarray.array.adopting import adopt, adopting
from distarray.array.base import Base
from distarray.comm import DeviceMesh
from distarray.comm.describing import described, named
from distarray.comm.group import Group
from distarray.comm.same_call import grouped, same_settings
from distarray.comm.user_lines import user_line
from distarray.config import in_force
from distarray.errors import DivergenceError
from distarray.typing import Array

__all__ = ["verify", "verify_among", "verify_equal", "verify_text"]


def verify(function: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any]) -> None:
    """Raise on every rank if the ranks are about to make different calls; see `config.check`.

    Raises
    ------
    DivergenceError
        On all ranks of the mesh of the first distributed operand, naming each group of ranks
        and its call.
    """
    if not in_force().check:
        return
    args = list(args)
    if adopting():
        adopt([*args, *kwargs.values()])
        return
    mesh = _mesh_of([args, list(kwargs.values())])
    if mesh is None:
        return
    words = [described(value) for value in args]
    words += [f"{name}={described(value)}" for name, value in kwargs.items()]
    verify_text(f"{named(function)}({', '.join(words)})", mesh)


def verify_text(text: str, mesh: DeviceMesh) -> None:
    """Raise on every rank of a mesh if their descriptions of the call differ."""
    if in_force().check and mesh.coords is not None:
        verify_among(mesh.group, text)


def verify_among(group: Group, text: str) -> None:
    """Raise on every rank of a group if their descriptions of the call, or settings, differ.

    A thread that may not communicate does not check: it can only run operations that need no other
    rank.
    """
    if not group.answers:
        return
    here = in_force()
    brought = group.allgather_object((text, here, user_line(short=True)), "check")
    if any(theirs != here for _, theirs, _ in brought):
        same_settings([theirs for _, theirs, _ in brought])
    if any(words != text for words, _, _ in brought):
        calls = [f"{words}  at {line}" for words, _, line in brought]
        raise DivergenceError(
            "the ranks are not making the same call (checked because config.check is on):"
            + "".join([f"\n    {ranks}  {call}" for ranks, call in grouped(calls)])
        )


def verify_equal(group: Group, block: Array, text: str) -> None:
    """Raise on every rank of a group if their values of an array differ.

    Parameters
    ----------
    group : Group
        The ranks that must have the same values.
    block : numpy.ndarray
        This rank's values, in host memory.
    text : str
        Description of the values, for the message.
    """
    found = crc32(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
    verify_among(group, f"{text} of shape {block.shape} and checksum {found:08x}")


def _mesh_of(values: Iterable[Any]) -> Any:
    for value in values:
        found = value.mesh if isinstance(value, Base) else None
        if isinstance(value, (list, tuple)):
            found = _mesh_of(value)
        if found is not None:
            return found
    return None
