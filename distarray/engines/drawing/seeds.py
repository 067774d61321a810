"""Seeds of generators, equal on all ranks."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from distarray.array import DistArray
from distarray.array.divergence import verify_text
from distarray.comm import DeviceMesh, default_mesh
from distarray.typing import ArrayLike

__all__ = [
    "MT19937",
    "PCG64",
    "PCG64DXSM",
    "SFC64",
    "SeedSequence",
    "sequence_of",
]

_Object: TypeAlias = (
    np.random.SeedSequence | np.random.BitGenerator | np.random.Generator | np.random.RandomState
)
#: Whatever numpy.random takes for counters and keys.
Integers: TypeAlias = int | Sequence[int] | NDArray[np.integer[Any]]
#: Whatever numpy.random takes for a seed, and distributed arrays.
Seed: TypeAlias = ArrayLike | _Object | None


def sequence_of(seed: Seed, mesh: DeviceMesh | None = None) -> np.random.SeedSequence:
    """The seed sequence of a seed, equal on all ranks of a mesh.

    Parameters
    ----------
    seed : None, int, array_like of int, or object of numpy.random's
        A seed sequence is used itself; of bit generators, and objects that contain one, the next
        numbers are the seed.
    mesh : DeviceMesh, optional
        The default mesh by default.

    Cost
    ----
    None for integers. Everything else, which might differ between ranks, is broadcast from rank 0.
    """
    mesh = default_mesh() if mesh is None else mesh
    if seed is None:
        return np.random.SeedSequence(_shared_entropy(mesh))
    if isinstance(seed, _Object):
        return _shared(_own_sequence(seed), mesh)
    entropy: Any = seed.full() if isinstance(seed, DistArray) else seed
    verify_text(f"a generator seeded with {entropy!r}", mesh)
    return np.random.SeedSequence(entropy)


def _shared_entropy(mesh: DeviceMesh | None = None) -> int:
    """Fresh entropy of rank 0's operating system, on all ranks; collective."""
    mesh = default_mesh() if mesh is None else mesh
    entropy: Any = np.random.SeedSequence().entropy
    if mesh.coords is not None and mesh.size() > 1:
        entropy = mesh.group.broadcast_object(entropy, 0, "entropy for a seed")
    return int(entropy)


def _own_sequence(seed: _Object) -> np.random.SeedSequence:
    """The sequence of this rank's object."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    source: Any = getattr(seed, "_bit_generator", seed)
    return np.random.SeedSequence([int(word) for word in np.atleast_1d(source.random_raw(8))])


def _shared(own: np.random.SeedSequence, mesh: DeviceMesh) -> np.random.SeedSequence:
    """Rank 0's sequence; this rank's own object if it is equal, so that children are counted."""
    if mesh.coords is None or mesh.size() == 1:
        return own
    state = mesh.group.broadcast_object(own.state, 0, "seed")
    if _plain(state) == _plain(own.state):
        return own
    return np.random.SeedSequence(**state)


def _plain(state: Mapping[str, object]) -> str:
    """The state as text, in which arrays and lists are alike."""
    return repr({name: np.asarray(value).tolist() for name, value in state.items()})


def _given(seed: Integers | np.random.SeedSequence | None) -> Any:
    """The seed, or fresh entropy if there is none."""
    return _shared_entropy() if seed is None else seed


class SeedSequence(np.random.SeedSequence):
    """NumPy's seed sequence; without entropy it uses rank 0's, and is then collective."""

    def __init__(
        self,
        entropy: Integers | None = None,
        *,
        spawn_key: Sequence[int] = (),
        pool_size: int = 4,
        n_children_spawned: int = 0,
    ) -> None:
        super().__init__(
            _given(entropy),
            spawn_key=spawn_key,
            pool_size=pool_size,
            n_children_spawned=n_children_spawned,
        )


class MT19937(np.random.MT19937):
    """NumPy's bit generator, a seed for a distributed Generator; by default seeded by rank 0."""

    def __init__(self, seed: Integers | np.random.SeedSequence | None = None) -> None:
        super().__init__(_given(seed))


class PCG64(np.random.PCG64):
    """NumPy's bit generator, a seed for a distributed Generator; by default seeded by rank 0."""

    def __init__(self, seed: Integers | np.random.SeedSequence | None = None) -> None:
        super().__init__(_given(seed))


class PCG64DXSM(np.random.PCG64DXSM):
    """NumPy's bit generator, a seed for a distributed Generator; by default seeded by rank 0."""

    def __init__(self, seed: Integers | np.random.SeedSequence | None = None) -> None:
        super().__init__(_given(seed))


class SFC64(np.random.SFC64):
    """NumPy's bit generator, a seed for a distributed Generator; by default seeded by rank 0."""

    def __init__(self, seed: Integers | np.random.SeedSequence | None = None) -> None:
        super().__init__(_given(seed))
