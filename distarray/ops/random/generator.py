"""The generator: NumPy's `Generator`, whose arrays are distributed."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from distarray.comm import DeviceMesh
from distarray.engines.drawing.choosing import Choosing
from distarray.engines.drawing.sampling import Source
from distarray.engines.drawing.seeds import sequence_of
from distarray.engines.drawing.streams import Philox
from distarray.ops.random.continuous import Continuous
from distarray.ops.random.discrete import Discrete
from distarray.ops.random.ordering import Ordering
from distarray.ops.random.standard import Standard
from distarray.ops.random.vectors import Vectors
from distarray.typing import ArrayLike

__all__ = ["Generator", "Seed", "default_rng"]

#: What a generator can start from.
Seed: TypeAlias = (
    "ArrayLike | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator"
    " | np.random.RandomState | Philox | Source | None"
)


class Generator(Standard, Continuous, Discrete, Vectors, Ordering, Choosing):
    """Random numbers by global position: the same arrays on any number of ranks.

    Has every method of :class:`numpy.random.Generator`. A number depends on the seed, on how many
    calls came before, on the shape and on its place in the array, and on nothing else: neither on
    the number of ranks nor on the layout. For the same seed they are not NumPy's numbers (see
    :mod:`distarray.engines.drawing.streams`). What is a scalar in NumPy is a scalar here, the same
    on all ranks.

    Parameters
    ----------
    bit_generator : Philox or object of numpy.random's
        Other bit generators serve as seeds.
    mesh : DeviceMesh, optional
        The mesh of the arrays it makes; the default mesh if not given.

    Attributes
    ----------
    bit_generator : Philox
        Key and counter; two generators may share one.

    Notes
    -----
    All ranks make the same calls, for scalars as well. Each call takes the next part of the
    sequence, so that ``rng.random(3)`` twice is not ``rng.random(6)``. For arrays on a GPU the host
    draws, and the numbers are copied: they are the same as without a GPU.

    Examples
    --------
    >>> from distarray.numpy.random import default_rng
    >>> rng = default_rng(5)
    >>> rng.integers(10, size=4)
    array([8, 8, 1, 9])
    """

    def __init__(
        self, bit_generator: Philox | np.random.BitGenerator, *, mesh: DeviceMesh | None = None
    ) -> None:
        if not isinstance(bit_generator, Philox):
            if not isinstance(bit_generator, np.random.BitGenerator):
                raise AttributeError(
                    f"{type(bit_generator).__name__!r} object has no attribute 'capsule'"
                )
            bit_generator = Philox.of(sequence_of(bit_generator, mesh))
        super().__init__(bit_generator, mesh)

    @property
    def bit_generator(self) -> Philox:
        """Key and counter."""
        return self._bit_generator

    @property
    def mesh(self) -> DeviceMesh | None:
        """The mesh of the arrays it makes; None for the default one."""
        return self._mesh

    def spawn(self, n_children: int) -> list["Generator"]:
        """Generators whose sequences are independent of this one's and of one another."""
        children = self._bit_generator.spawn(n_children)
        return [type(self)(child, mesh=self._mesh) for child in children]

    def __reduce__(self) -> tuple[Callable[..., "Generator"], tuple[Any, ...]]:
        return _restored, (type(self), self._bit_generator, self._mesh)

    def __repr__(self) -> str:
        return f"{self} at 0x{id(self):X}"

    def __str__(self) -> str:
        return f"{type(self).__name__}({type(self._bit_generator).__name__})"


def _restored(kind: type[Generator], bit_generator: Philox, mesh: DeviceMesh | None) -> Generator:
    return kind(bit_generator, mesh=mesh)


def default_rng(seed: Seed = None, *, mesh: DeviceMesh | None = None) -> Generator:
    """A generator of the same distributed arrays on any number of ranks.

    Parameters
    ----------
    seed : None, int, array_like of int, SeedSequence, BitGenerator, Generator or RandomState
        None takes fresh entropy from rank 0. A generator of ours is returned as it is.
    mesh : DeviceMesh, optional
        The mesh of the arrays it makes; the default mesh if not given.

    Returns
    -------
    Generator

    Cost
    ----
    None for integers; else one small broadcast, so that all ranks have the same seed.
    """
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, Source):
        return Generator(seed._bit_generator, mesh=mesh)
    if isinstance(seed, Philox):
        return Generator(seed, mesh=mesh)
    return Generator(Philox.of(sequence_of(seed, mesh)), mesh=mesh)
