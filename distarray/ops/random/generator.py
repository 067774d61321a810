"""NumPy's `Generator`, which returns distributed arrays."""

from typing import Any, cast

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from distarray.comm import DeviceMesh
from distarray.comm.chance import home, home_of_copy
from distarray.engines.drawing.methods import GENERATOR
from distarray.engines.drawing.seeds import PCG64, Kind, Seed, named_bits, sequence_of, shared_bits
from distarray.ops.random.ordering import Ordering
from distarray.ops.random.sampling import add_methods

__all__ = ["Generator", "Seed", "default_rng"]

_Theirs: Any = np.random.Generator


class Generator(Ordering, _Theirs, metaclass=Kind):  # type: ignore[misc]
    """NumPy's generator: the same numbers, bit for bit, in distributed arrays.

    Has every method of :class:`numpy.random.Generator`, which draws the numbers: each rank draws
    its block, from the stream position where the block begins (:mod:`distarray.engines.drawing`).
    After a call the bit generators of all ranks have the state that NumPy's would have. A scalar in
    NumPy is a scalar here, the same on all ranks.

    Parameters
    ----------
    bit_generator : BitGenerator
        NumPy's own object, or a user's. One that is not from :mod:`distarray.numpy.random` gets
        the state of rank 0's bit generator.
    mesh : DeviceMesh, optional
        Mesh of the arrays that the generator makes; the default mesh if not given.

    Attributes
    ----------
    bit_generator : BitGenerator
        Its state can be read and set; two generators may share one.
    mesh : DeviceMesh or None
        Mesh of the arrays that the generator makes; None for the default mesh.

    Notes
    -----
    All ranks make the same calls, for scalars as well. Methods also take `mesh` and `placements`
    for a new array. For arrays on a GPU the host draws.

    Cost
    ----
    See :doc:`/random`.

    Examples
    --------
    >>> from distarray.numpy.random import default_rng
    >>> rng = default_rng(42)
    >>> rng.standard_normal(2)
    array([ 0.30471708, -1.03998411])
    """

    _theirs = np.random.Generator

    def __init__(
        self, bit_generator: np.random.BitGenerator, *, mesh: DeviceMesh | None = None
    ) -> None:
        super().__init__(bit_generator)
        shared_bits(bit_generator, mesh)
        self._source = np.random.Generator(bit_generator)
        self._mesh, self._home = mesh, home()

    def spawn(self, n_children: int) -> list["Generator"]:
        """Return generators whose sequences are independent of this one's and of one another."""
        children = self._plain.spawn(n_children)
        return [type(self)(child.bit_generator, mesh=self._mesh) for child in children]

    def bytes(self, length: int) -> bytes:
        """Return random bytes, the same on all ranks."""
        return bytes(self._plain.bytes(length))

    def __reduce__(self) -> Any:
        return _restored, (self._source.bit_generator,), (self._mesh, self._home is None)

    def __setstate__(self, state: Any) -> None:
        mesh, shared = state if type(state) is tuple else (None, True)  # NumPy's is not a tuple
        self._mesh, self._home = mesh, home_of_copy(shared)


def _restored(bits: Any = "MT19937") -> Generator:
    """Return a generator from a bit generator, or from the name of one, as in old files."""
    return Generator(named_bits(bits) if isinstance(bits, str) else bits)


add_methods(Generator, np.random.Generator, GENERATOR)


def default_rng(seed: Seed = None, *, mesh: DeviceMesh | None = None) -> Generator:
    """Return NumPy's default generator, with distributed arrays.

    Parameters
    ----------
    seed : None, int, array_like of int, SeedSequence, BitGenerator, Generator or RandomState
        None takes fresh entropy from rank 0. A generator of this class is returned itself.
    mesh : DeviceMesh, optional
        Mesh of the arrays that the generator makes; the default mesh if not given.

    Returns
    -------
    Generator

    Cost
    ----
    None for integers; else one small broadcast, so that all ranks have the same seed.
    """
    if Generator in type(seed).__mro__:
        return cast("Generator", seed)
    if isinstance(seed, np.random.BitGenerator):
        return Generator(seed, mesh=mesh)
    if isinstance(seed, np.random.Generator | np.random.RandomState):
        holder: Any = seed
        return Generator(holder._bit_generator, mesh=mesh)
    of_theirs = isinstance(seed, ISeedSequence) and not isinstance(seed, np.random.SeedSequence)
    return Generator(PCG64(seed if of_theirs else sequence_of(seed, mesh)), mesh=mesh)
