"""Layout of a global array: shape, mesh shape, placements and cuts."""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from threading import Lock
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

from distarray.errors import LayoutError
from distarray.layout.cut import Cut, Interval
from distarray.layout.placement import At, Partial, Placement, Replicate, Shard

__all__ = ["LARGE", "Box", "Coords", "Layout", "normalize_placements"]

Coords = tuple[int, ...]
#: A box of the global index space: one interval per dimension.
Box = tuple[Interval, ...]

#: Number of elements from which an array counts as large.
LARGE = 1 << 17
_REPLICATE = Replicate()
_shard = lru_cache(maxsize=64)(Shard)


@lru_cache(maxsize=1024)
def _kinds(
    placements: tuple[Placement, ...], mesh_shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], bool, bool]:
    """Return four attributes of a layout: `partials`, `ats`, `is_replicated` and `is_whole`."""
    partials = tuple([m for m, p in enumerate(placements) if isinstance(p, Partial)])
    ats = tuple([m for m, p in enumerate(placements) if isinstance(p, At)])
    cutting = [m for m, p in enumerate(placements) if not isinstance(p, Replicate)]
    whole = not partials and not ats and all(mesh_shape[m] == 1 for m in cutting)
    return partials, ats, not cutting, whole


class _Replicas(dict[tuple[int, ...], "Layout"]):
    """Cache of the layouts of replicated arrays of a mesh, by shape; filled on a miss."""

    MOST = 4096

    def __init__(self, mesh_shape: tuple[int, ...]) -> None:
        self._mesh_shape = mesh_shape

    def __missing__(self, shape: tuple[int, ...]) -> "Layout":
        if len(self) >= self.MOST:
            self.clear()
        found = self[shape] = Layout.replicated(shape, self._mesh_shape)
        return found


_replicas = lru_cache(maxsize=256)(_Replicas)


class Layout:
    """Layout of a global array: the ranks that hold each element; immutable and interned.

    Equal layouts are the same object, so comparing two layouts is one pointer comparison. Only
    explicit bounds take memory per rank. A query about one rank takes time independent of the
    number of ranks.

    Attributes
    ----------
    shape : tuple of int
        Shape of the global array.
    mesh_shape : tuple of int
        Shape of the device mesh.
    placements : tuple of Placement
        Placement of the array along each mesh dimension.
    cuts : tuple of Cut
        Division of each array dimension into blocks.

    Examples
    --------
    >>> from distarray.layout import Layout, Shard
    >>> layout = Layout.chunked((10, 3), (4,), [Shard(0)])
    >>> [layout.local_shape((rank,)) for rank in range(4)]
    [(3, 3), (3, 3), (3, 3), (1, 3)]
    >>> Layout.chunked((10, 3), (4,), [Shard(-2)]) is layout
    True
    """

    __slots__ = (
        "__weakref__",
        "_sections",
        "ats",
        "cuts",
        "is_lone_element",
        "is_plain",
        "is_replicated",
        "is_whole",
        "mesh_shape",
        "ndim",
        "partials",
        "placements",
        "replicas",
        "row",
        "shape",
        "size",
    )

    shape: tuple[int, ...]
    mesh_shape: tuple[int, ...]
    placements: tuple[Placement, ...]
    cuts: tuple[Cut, ...]
    ndim: int
    size: int
    #: Mesh dimensions with a pending fold.
    partials: tuple[int, ...]
    #: Mesh dimensions along which a single coordinate holds the array.
    ats: tuple[int, ...]
    #: True if there is no pending fold and no lone coordinate: every rank's block holds final
    #: values.
    is_plain: bool
    #: True for one element stored on one rank; the element in its place on other ranks has no
    #: meaning.
    is_lone_element: bool
    #: True if every rank holds the whole array.
    is_replicated: bool
    #: True if every rank holds the whole array, also where mesh dimensions of size 1 cut it.
    is_whole: bool
    #: For a small replicated layout: layouts, by shape, of its views and of results computed with
    #: it. None for other layouts.
    replicas: _Replicas | None
    #: Entry of `replicas` for a row ``x[0]``; None for other layouts.
    row: Any

    _sections: dict[Coords | None, Box]
    _interned: ClassVar[WeakValueDictionary[tuple[object, ...], "Layout"]] = WeakValueDictionary()
    #: Recent layouts, kept alive for loops that create the same arrays repeatedly.
    _latest: ClassVar[deque["Layout"]] = deque(maxlen=256)
    _lock = Lock()

    def __new__(
        cls, cuts: tuple[Cut, ...], mesh_shape: tuple[int, ...], placements: tuple[Placement, ...]
    ) -> Self:
        """Return the interned layout of these cuts; see `chunked`, `replicated` and `from_cuts`."""
        key = (cuts, mesh_shape, placements)
        found = cls._interned.get(key)
        if found is not None:
            return found  # type: ignore[return-value]
        self = super().__new__(cls)
        self.cuts = cuts
        self.mesh_shape = mesh_shape
        self.placements = placements
        self.shape = tuple([cut.extent for cut in cuts])
        self.ndim = len(cuts)
        self.size = prod(self.shape)
        kinds = _kinds(placements, mesh_shape)
        self.partials, self.ats, self.is_replicated, self.is_whole = kinds
        self.is_plain = not self.partials and not self.ats
        self.is_lone_element = bool(self.ats) and not cuts
        small = self.is_replicated and self.size < LARGE
        self.replicas = known = _replicas(mesh_shape) if small else None
        self.row = known[self.shape[1:]] if known is not None and self.ndim else None
        self._sections = {}
        with cls._lock:
            self = cls._interned.setdefault(key, self)  # type: ignore[assignment]
        cls._latest.append(self)
        return self

    @classmethod
    def chunked(
        cls, shape: Sequence[int], mesh_shape: Sequence[int], placements: Sequence[Placement]
    ) -> "Layout":
        """Return the canonical layout: each sharded dimension is cut as ``torch.chunk`` cuts it.

        Raises
        ------
        LayoutError
            If there is not one placement per mesh dimension, or a placement shards a dimension that
            the array does not have.
        """
        return _chunked(tuple(shape), tuple(mesh_shape), tuple(placements))

    @staticmethod
    @lru_cache(maxsize=1024)
    def replicated(shape: tuple[int, ...], mesh_shape: tuple[int, ...]) -> "Layout":
        """Return the layout of an array that every rank holds whole."""
        cuts = tuple([Cut.whole(extent) for extent in shape])
        return Layout(cuts, mesh_shape, (_REPLICATE,) * len(mesh_shape))

    @classmethod
    def lone(cls, shape: Sequence[int], mesh_shape: Sequence[int], coords: Coords) -> "Layout":
        """Return the layout of an array that one rank holds whole, and no other rank."""
        cuts = [Cut.whole(extent) for extent in shape]
        return cls.from_cuts(cuts, tuple(mesh_shape), {m: At(c) for m, c in enumerate(coords)})

    @classmethod
    def from_cuts(
        cls,
        cuts: Sequence[Cut],
        mesh_shape: tuple[int, ...],
        others: Mapping[int, Placement] | None = None,
    ) -> "Layout":
        """Return the layout with these cuts; `others` places mesh dimensions that cut nothing."""
        placements: list[Placement] = [_REPLICATE] * len(mesh_shape)
        for mesh_dim, placement in (others or {}).items():
            if not (isinstance(placement, At) and mesh_shape[mesh_dim] == 1):
                placements[mesh_dim] = placement
        for dim, cut in enumerate(cuts):
            for mesh_dim in cut.mesh_dims:
                placements[mesh_dim] = _shard(dim)
        return cls(tuple(cuts), mesh_shape, tuple(placements))

    # -- questions about one rank ------------------------------------------------------------

    def holds(self, coords: Coords | None) -> bool:
        """Return True if a rank can hold elements: in the mesh, and at every lone coordinate."""
        if coords is None:
            return False
        for mesh_dim in self.ats:
            if coords[mesh_dim] != self.placements[mesh_dim].coordinate:  # type: ignore[attr-defined]
                return False
        return True

    def section(self, coords: Coords | None) -> Box:
        """Return the box of global indices that a rank owns; empty outside the mesh (None)."""
        box = self._sections.get(coords)
        if box is None:
            if coords is None:
                return ((0, 0),) * self.ndim
            box = tuple([cut.interval(cut.part(coords)) for cut in self.cuts])
            if box and not self.holds(coords):
                box = ((0, 0), *box[1:])
            if len(self._sections) < 64:
                self._sections[coords] = box
        return box

    def local_shape(self, coords: Coords | None) -> tuple[int, ...]:
        """Return the shape of the block that a rank holds."""
        if self.is_whole and coords is not None:
            return self.shape
        return tuple([stop - start for start, stop in self.section(coords)])

    # -- questions about all ranks -----------------------------------------------------------

    @property
    def is_canonical(self) -> bool:
        """True if this is the layout that :meth:`chunked` returns for the same placements."""
        return all(cut.is_canonical for cut in self.cuts)

    @property
    def sharded_dims(self) -> tuple[int, ...]:
        """Array dimensions that are cut."""
        return tuple([dim for dim, cut in enumerate(self.cuts) if cut.mesh_dims])

    @property
    def others(self) -> dict[int, Placement]:
        """Placements that neither cut nor replicate, by mesh dimension: `Partial` and `At`."""
        return {} if self.is_plain else {m: self.placements[m] for m in self.partials + self.ats}

    # -- new layouts from this one, all without moving data -----------------------------------

    def canonical(self) -> "Layout":
        """Return the canonical layout of the same shape and placements."""
        return Layout.chunked(self.shape, self.mesh_shape, self.placements)

    def with_cuts(self, cuts: Sequence[Cut]) -> "Layout":
        """Return the layout with other cuts; mesh shape, pending folds and `At` placements stay."""
        return Layout.from_cuts(cuts, self.mesh_shape, self.others)

    def replace(self, dim: int, cut: Cut) -> "Layout":
        """Return the layout with another cut of one dimension; placements that do not cut stay.

        The new cut removes a pending fold or a lone coordinate if it uses its mesh dimension.

        Examples
        --------
        >>> from distarray.layout import Cut, Layout, Partial, Shard
        >>> layout = Layout.chunked((8, 3), (4, 2), [Shard(0), Partial()])
        >>> layout.replace(0, Cut.whole(5)).placements
        (Replicate(), Partial('sum'))
        >>> layout.replace(1, Cut.chunked(3, (1,), (2,))).placements
        (Shard(0), Shard(1))
        """
        cuts = list(self.cuts)
        cuts[dim] = cut
        return self.with_cuts(cuts)

    def transpose(self, axes: Sequence[int]) -> "Layout":
        """Return the layout of the array with its dimensions permuted."""
        return self.with_cuts([self.cuts[axis] for axis in axes])

    def expand(self, dim: int) -> "Layout":
        """Return the layout with a new dimension of extent 1 before `dim`."""
        cuts = list(self.cuts)
        cuts.insert(dim, Cut.whole(1))
        return self.with_cuts(cuts)

    def settled(self) -> "Layout":
        """Return the layout with pending folds and lone coordinates replaced by replication."""
        return Layout.from_cuts(self.cuts, self.mesh_shape)

    def without_cut(self, dims: Sequence[int]) -> "Layout":
        """Return the layout with the given dimensions whole on every rank."""
        cuts = [Cut.whole(c.extent) if d in dims else c for d, c in enumerate(self.cuts)]
        return self.with_cuts(cuts)

    def __repr__(self) -> str:
        text = f"Layout({self.shape} on mesh {self.mesh_shape}: {list(self.placements)}"
        return text + (")" if self.is_canonical else f", cuts={self.sharded_cuts()})")

    def _repr_html_(self) -> str:
        from distarray.layout.showing import layout_html

        return layout_html(self)

    def sharded_cuts(self) -> dict[int, str]:
        """Return the cuts that are not canonical as text, by array dimension."""
        texts = {}
        for dim, cut in enumerate(self.cuts):
            if not cut.is_canonical:
                base = f"bounds {cut.bounds}" if cut.bounds is not None else f"{cut.base}"
                texts[dim] = f"[{cut.offset}::{cut.step}] of {base}"
        return texts

    def __reduce__(self) -> tuple[object, ...]:
        return Layout, (self.cuts, self.mesh_shape, self.placements)


@lru_cache(maxsize=1024)
def _chunked(
    shape: tuple[int, ...], mesh_shape: tuple[int, ...], placements: tuple[Placement, ...]
) -> Layout:
    placed = normalize_placements(placements, len(shape), mesh_shape)
    cuts = []
    for dim, extent in enumerate(shape):
        mesh_dims = tuple([m for m, p in enumerate(placed) if p == Shard(dim)])
        radix = tuple([mesh_shape[m] for m in mesh_dims])
        cuts.append(Cut.chunked(extent, mesh_dims, radix))
    return Layout(tuple(cuts), mesh_shape, placed)


def normalize_placements(
    placements: Sequence[object], ndim: int, mesh_shape: tuple[int, ...]
) -> tuple[Placement, ...]:
    """Return placements with dimensions counted from the front, checked against array and mesh.

    Examples
    --------
    >>> from distarray.layout import Shard, normalize_placements
    >>> normalize_placements([Shard(-1)], 3, (4,))
    (Shard(2),)
    """
    placements = (placements,) if isinstance(placements, Placement) else tuple(placements)
    if len(placements) != len(mesh_shape):
        raise LayoutError(
            f"placements {list(placements)} name {len(placements)} mesh dimension(s), but the mesh "
            f"has shape {mesh_shape}; give one placement per mesh dimension"
        )
    normal: list[Placement] = []
    # At a graph break, torch.compile passes objects in a wrapper.
    for placement in [getattr(placement, "real_obj", placement) for placement in placements]:
        if isinstance(placement, Shard):
            dim = placement.dim + ndim if placement.dim < 0 else placement.dim
            if not 0 <= dim < ndim:
                raise LayoutError(
                    f"{placement} names a dimension that an array of {ndim} dimension(s) lacks; "
                    f"use Replicate() or a dimension in {-ndim}..{ndim - 1}"
                    if ndim
                    else f"{placement}: a 0-d array cannot be sharded; use Replicate()"
                )
            placement = Shard(dim)
        elif not isinstance(placement, Placement):
            kind = type(placement)  # for example from torch.distributed.tensor
            raise TypeError(
                "a placement is Shard(dim), Replicate() or Partial(op) of distarray, not "
                f"{placement!r} of {kind.__module__}"
            )
        normal.append(placement)
    return tuple(normal)
