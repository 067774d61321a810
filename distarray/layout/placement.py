"""Placements: what one mesh dimension does to an array."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["At", "Fold", "Partial", "Placement", "Replicate", "Shard"]


class Fold(Enum):
    """How the pending contributions of a mesh dimension are folded into one value."""

    SUM = "sum"
    AVG = "avg"
    PROD = "product"
    MIN = "min"
    MAX = "max"
    ANY = "any"
    ALL = "all"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


@dataclass(frozen=True, slots=True)
class Placement:
    """Base class of the placements."""


@dataclass(frozen=True, slots=True)
class Shard(Placement):
    """Cut one array dimension into blocks, as ``torch.chunk`` cuts it.

    Parameters
    ----------
    dim : int
        The array dimension that is cut. Negative values count from the last dimension and are
        made positive as soon as the number of dimensions is known.
    """

    dim: int

    def __repr__(self) -> str:
        return f"Shard({self.dim})"


@dataclass(frozen=True, slots=True)
class Replicate(Placement):
    """Every coordinate of the mesh dimension holds the same values."""

    def __repr__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True, slots=True)
class Partial(Placement):
    """Every coordinate holds a contribution of full shape; the array is their fold.

    Parameters
    ----------
    op : str or Fold
        "sum" (the default), "avg", "product", "min", "max", "any", "all", "band", "bor", "bxor".
    """

    op: Fold = Fold.SUM

    def __init__(self, op: Fold | str = Fold.SUM) -> None:
        object.__setattr__(self, "op", Fold(op))

    def __repr__(self) -> str:
        return f"Partial({self.op.value!r})"


@dataclass(frozen=True, slots=True)
class At(Placement):
    """Only one coordinate of the mesh dimension holds the array; the other blocks are empty.

    It is what ``u[3]`` makes of a row of a sharded array: a view, on the ranks that own the row.

    Parameters
    ----------
    coordinate : int
        The coordinate that holds the array.
    """

    coordinate: int

    def __repr__(self) -> str:
        return f"At({self.coordinate})"
