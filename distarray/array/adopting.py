"""Adoption of the parent's arrays by a forked child process, which is a world of one rank.

Arrays that are whole on the parent become the child's own at their first use: the child already
has their memory. The other blocks of a cut array are in processes that do not communicate with the
child.
"""

import os
from collections.abc import Iterable
from typing import Any

from distarray.array.base import operands_in
from distarray.comm import default_mesh
from distarray.comm.processes import is_child
from distarray.config import config
from distarray.layout import Layout

__all__ = ["adopt", "adopting"]

_adopting = [False]


def adopting() -> bool:
    """Return True if this process may use arrays of its parent."""
    return _adopting[0]


def adopt(values: Iterable[Any]) -> None:
    """Move the whole arrays among the arguments to this process's mesh, in place.

    Raises
    ------
    CommunicationForbidden
        If a cut array of the parent is combined with an array of this process.
    """
    operands = list(operands_in(values))
    lost = []
    for x in operands:
        root = x.mesh._root
        if root is None or root.answers:
            continue
        if x.layout.is_whole:
            x.mesh = mesh = default_mesh()
            x.layout = Layout.replicated(x.layout.shape, mesh.shape)
        else:
            lost.append(root)
    if 0 < len(lost) < len(operands):
        lost[0].check_talker()


def _in_forked_child() -> None:
    if is_child():
        _adopting[0] = True
        config.check = True  # so that every call reaches `verify`, which then adopts


os.register_at_fork(after_in_child=_in_forked_child)
