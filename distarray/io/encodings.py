"""Which texts can be divided by their bytes."""

from codecs import lookup
from locale import getpreferredencoding

__all__ = ["PACKED", "is_piecewise"]

#: Endings of files that NumPy decompresses.
PACKED = (".gz", ".bz2", ".xz")
#: Encodings in which a part of a text is that part of its bytes, and a line ends with a newline.
_PIECEWISE = frozenset({"ascii", "utf-8", "iso8859-1", "iso8859-15", "cp1252"})


def is_piecewise(encoding: str | None) -> bool:
    """Whether lines in this encoding (None: the system's) can be told apart in their bytes."""
    try:
        return lookup(encoding or getpreferredencoding(False)).name in _PIECEWISE
    except LookupError:
        return False
