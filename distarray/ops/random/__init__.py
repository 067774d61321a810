"""NumPy's own random numbers in distributed arrays: generators and the legacy functions."""

from distarray.engines.drawing.seeds import (
    MT19937,
    PCG64,
    PCG64DXSM,
    SFC64,
    Philox,
    SeedSequence,
)
from distarray.ops.random.generator import Generator, default_rng
from distarray.ops.random.legacy import (
    RandomState,
    function,
    get_bit_generator,
    mtrand,
    reseed,
    set_bit_generator,
)

__all__ = [
    "MT19937",
    "PCG64",
    "PCG64DXSM",
    "SFC64",
    "Generator",
    "Philox",
    "RandomState",
    "SeedSequence",
    "default_rng",
    "get_bit_generator",
    "mtrand",
    "reseed",
    "set_bit_generator",
    "function",
]

#: Prefix under which users call these functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "np.random."
