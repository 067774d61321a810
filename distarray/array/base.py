"""What the machinery around a distributed array needs to know about it."""

from abc import ABC, abstractmethod
from typing import Any

from distarray.layout import Layout

__all__ = ["Base"]


class Base(ABC):
    """What dispatch needs to know about a distributed array."""

    __slots__ = ("__weakref__", "_block", "_layout", "_mesh")

    _block: Any
    _layout: Layout
    _mesh: Any

    @abstractmethod
    def _settle(self) -> None:
        """Carry out pending folds and replicate what lives at one coordinate, in place."""

    @abstractmethod
    def _like(self, block: Any) -> Any:
        """An array laid out as this one, with another block."""
