"""Short NumPy programs with loops, and how long they take beside NumPy."""

from benchmarks.kernels import dense, grids, science, sequences
from benchmarks.kernels.kernel import KERNELS, Kernel

__all__ = ["KERNELS", "Kernel", "dense", "grids", "science", "sequences"]
