"""Printed forms of masked arrays: NumPy's text of the whole array, or of this rank's block."""

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy

from distarray.array import printing
from distarray.array.base import Base
from distarray.array.dressing import bare, dressed
from distarray.config import config

__all__ = ["printed"]


class Masked(Protocol):
    """Masked array of the executed module."""

    _mask: Any
    is_constant: bool
    _update_from: Callable[..., None]


def printed(original: Callable[[Any], str], numpys_own: Callable[[Any], str]) -> Any:
    """Make a printing method: NumPy's text of the whole array where possible, else of the block."""

    def text(self: Masked) -> str:
        x = bare(cast(Any, self))
        if self.is_constant or not isinstance(x, Base) or _is_here(self):
            return original(self)
        if config.print_gathered and x.mesh.coords is not None:
            return original(_replicated(self))
        if x.mesh.coords is None:
            return printing.local_form(x, "")
        local = printing.local_form(x, numpys_own(_local(self)))
        return local.replace("DistArray", type(self).__name__, 1)

    return text


def _is_here(self: Masked) -> bool:
    mask = bare(self._mask)
    return bool(bare(cast(Any, self)).layout.is_replicated) and (
        not isinstance(mask, Base) or mask.layout.is_replicated
    )


def _replicated(self: Masked) -> Any:
    """Return the array replicated on every rank; collective."""
    x, mask = bare(cast(Any, self)), bare(self._mask)
    made = dressed(x.redistribute(), type(self), None)
    made._update_from(self)
    made._mask = getattr(mask, "redistribute", lambda: mask)()
    return made


def _local(self: Masked) -> Any:
    """Return this rank's block as a NumPy masked array."""
    x, mask = bare(cast(Any, self)), bare(self._mask)
    if isinstance(mask, Base):
        if mask.layout.is_replicated:
            mask = mask.to_local()[tuple(slice(*ends) for ends in x.layout.section(x.mesh.coords))]
        else:
            mask = mask.to_local()
    block = x.to_local()
    return numpy.ma.MaskedArray(block, mask if numpy.shape(mask) == block.shape else False)
