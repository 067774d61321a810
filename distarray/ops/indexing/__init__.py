"""Advanced indexing and selection: what is not a plain view.

``keys`` reads a key into its normal form, ``located`` brings index arrays side by side, ``owners``
says who has the rows they name, ``gather`` and ``scatter`` move rows, ``packing`` and ``masks``
deal with boolean masks. The other files register NumPy's functions on top of these.
"""

from distarray.ops.indexing import (
    along,
    conditions,
    diagonals,
    getset,
    nonzeros,
    positions,
    selection,
    take,
    triangles,
)

__all__ = [
    "along",
    "conditions",
    "diagonals",
    "getset",
    "nonzeros",
    "positions",
    "selection",
    "take",
    "triangles",
]
