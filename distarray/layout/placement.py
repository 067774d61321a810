"""Placements: the distribution of an array along one mesh dimension."""

import operator
from dataclasses import dataclass
from enum import Enum
from typing import SupportsIndex

__all__ = ["At", "Fold", "Partial", "Placement", "Replicate", "Shard"]


class Fold(Enum):
    """Operation that folds the pending contributions of a mesh dimension into one value.

    Examples
    --------
    >>> import numpy, distarray
    >>> group = distarray.default_mesh().group
    >>> group.allreduce(numpy.array([group.rank]), distarray.Fold.MAX).tolist() == [group.size - 1]
    True
    >>> distarray.Partial(distarray.Fold.MAX)
    Partial('max')
    """

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
    """Base class of the placements.

    Examples
    --------
    >>> import distarray
    >>> from distarray.layout import Placement
    >>> [isinstance(p, Placement) for p in distarray.numpy.ones(3).placements]
    [True]
    """

    def _repr_html_(self) -> str:
        from distarray.layout.showing import placement_html

        return placement_html(self)


@dataclass(frozen=True, slots=True)
class Shard(Placement):
    """Placement that cuts one array dimension into blocks, as ``torch.chunk`` cuts it.

    Parameters
    ----------
    dim : int
        The array dimension that is cut. Negative values count from the last dimension and are
        made positive once the number of dimensions is known.

    Examples
    --------
    >>> from distarray.layout import Layout, Shard
    >>> [Layout.chunked((9, 6), (4,), [Shard(0)]).local_shape((rank,)) for rank in range(4)]
    [(3, 6), (3, 6), (3, 6), (0, 6)]
    """

    dim: int

    def __post_init__(self) -> None:
        if type(self.dim) is not int:  # 1.0 == 1 would find the layout interned for an integer
            object.__setattr__(self, "dim", _integer(self.dim))

    def __repr__(self) -> str:
        return f"Shard({self.dim})"


def _integer(dim: SupportsIndex) -> int:
    try:
        return int(operator.index(dim))
    except TypeError:
        raise TypeError(f"Shard(dim): dim is an integer, not {dim!r}") from None


@dataclass(frozen=True, slots=True)
class Replicate(Placement):
    """Placement in which every coordinate of the mesh dimension holds the same values.

    Examples
    --------
    >>> from distarray.layout import Layout, Replicate
    >>> Layout.chunked((9, 6), (4,), [Replicate()]).local_shape((3,))
    (9, 6)
    """

    def __repr__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True, slots=True)
class Partial(Placement):
    """Placement of contributions: each coordinate holds one of full shape; the array is their fold.

    Parameters
    ----------
    op : str or Fold
        "sum" (the default), "avg", "product", "min", "max", "any", "all", "band", "bor", "bxor".

    Examples
    --------
    >>> import numpy, distarray
    >>> mesh = distarray.default_mesh()
    >>> mine = numpy.full(3, mesh.rank)
    >>> whole = distarray.from_local(mine, mesh, [distarray.Partial("sum")])
    >>> whole.placements, bool((whole == sum(range(mesh.size()))).all())
    ((Partial('sum'),), True)
    """

    op: Fold = Fold.SUM

    def __init__(self, op: Fold | str = Fold.SUM) -> None:
        try:
            object.__setattr__(self, "op", Fold(op))
        except ValueError:
            known = ", ".join([repr(fold.value) for fold in Fold])
            raise ValueError(f"Partial({op!r}): the folds are {known}") from None

    def __repr__(self) -> str:
        return f"Partial({self.op.value!r})"


@dataclass(frozen=True, slots=True)
class At(Placement):
    """Placement in which one coordinate of the mesh dimension holds the array.

    The other coordinates have empty blocks. Indexing creates this placement: ``u[3]`` of a sharded
    array is a view stored on the ranks that own the row.

    Parameters
    ----------
    coordinate : int
        The coordinate that holds the array.

    Examples
    --------
    >>> from distarray.layout import Layout, Shard, view_layout
    >>> rows = Layout.chunked((8, 3), (4,), [Shard(0)])
    >>> view_layout(rows, (5, (0, 1, 3))).placements
    (At(2),)
    """

    coordinate: int

    def __repr__(self) -> str:
        return f"At({self.coordinate})"
