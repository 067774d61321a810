"""Random numbers by position, for programs that NumPy's sequence slows down; see the manual."""

from distarray.ops.random.position import Generator, Philox, default_rng

__all__ = ["Generator", "Philox", "default_rng"]
