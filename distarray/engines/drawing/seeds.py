"""NumPy's bit generators and seed sequences, equal on all ranks even without a seed."""

from abc import ABCMeta
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.random.bit_generator import ISeedSequence
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
    "Integers",
    "Kind",
    "Philox",
    "Seed",
    "SeedSequence",
    "named_bits",
    "sequence_of",
    "shared_bits",
]

_Object: TypeAlias = (
    np.random.SeedSequence | np.random.BitGenerator | np.random.Generator | np.random.RandomState
)
#: Types that numpy.random accepts for counters and keys.
Integers: TypeAlias = int | Sequence[int] | NDArray[np.integer[Any]]
#: Types that numpy.random accepts for a seed, and distributed arrays.
Seed: TypeAlias = ArrayLike | _Object | None


def sequence_of(seed: Seed, mesh: DeviceMesh | None = None) -> np.random.SeedSequence:
    """Return the seed sequence of a seed, equal on all ranks of a mesh.

    Parameters
    ----------
    seed : None, int, array_like of int, or object of numpy.random's
        A seed sequence is used directly. A bit generator, or an object that contains one, draws its
        next numbers as the seed.
    mesh : DeviceMesh, optional
        The ranks that share the seed; the default mesh by default.

    Cost
    ----
    No communication for integers. Other seeds, which might differ between ranks, are broadcast from
    rank 0.
    """
    mesh = default_mesh() if mesh is None else mesh
    if seed is None:
        return np.random.SeedSequence(_shared_entropy(mesh))
    if isinstance(seed, _Object):
        return _shared(_own_sequence(seed), mesh)
    entropy: Any = _bare(seed)
    verify_text(f"a generator seeded with {entropy!r}", mesh)
    return np.random.SeedSequence(entropy)


def shared_bits(bits: np.random.BitGenerator, mesh: DeviceMesh | None = None) -> None:
    """Set a bit generator on all ranks of a mesh to rank 0's state.

    The bit generators of this module are equal from the start, so that no message is sent for them.
    """
    mesh = default_mesh() if mesh is None else mesh
    if _Alike in type(bits).__mro__ or mesh.coords is None or mesh.size() == 1:
        return
    try:
        own: Any = bits.state
    except (NotImplementedError, AttributeError):
        return  # a user's bit generator, which does not expose its state
    state = mesh.group.broadcast_object(own, 0, "place of a bit generator")
    if repr(state) != repr(own):
        bits.state = state


def _shared_entropy(mesh: DeviceMesh | None = None) -> int:
    """Return fresh entropy of rank 0's operating system, on all ranks; collective."""
    mesh = default_mesh() if mesh is None else mesh
    entropy: Any = np.random.SeedSequence().entropy
    if mesh.coords is not None and mesh.size() > 1:
        entropy = mesh.group.broadcast_object(entropy, 0, "entropy for a seed")
    return int(entropy)


def _own_sequence(seed: _Object) -> np.random.SeedSequence:
    """Return the seed sequence of this rank's object."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    source: Any = getattr(seed, "_bit_generator", seed)
    return np.random.SeedSequence([int(word) for word in np.atleast_1d(source.random_raw(8))])


def _shared(own: np.random.SeedSequence, mesh: DeviceMesh) -> np.random.SeedSequence:
    """Return rank 0's sequence, or this rank's own object if it is equal.

    Keeping the object keeps its count of spawned children.
    """
    if type(own) is SeedSequence or mesh.coords is None or mesh.size() == 1:
        return own
    state = mesh.group.broadcast_object(own.state, 0, "seed")
    if _plain(state) == _plain(own.state):
        return own
    return np.random.SeedSequence(**state)


def _plain(state: Mapping[str, object]) -> str:
    """Return the state as text, in which arrays and lists are alike."""
    return repr({name: np.asarray(value).tolist() for name, value in state.items()})


def _bare(seed: Any) -> Any:
    """Return a seed with NumPy arrays in place of distributed arrays."""
    if isinstance(seed, DistArray):
        return np.asarray(seed.full())[()]
    if type(seed) in (list, tuple):
        return [_bare(item) for item in seed]
    return seed


class Kind(ABCMeta):
    """Metaclass of classes that replace NumPy's: NumPy's objects count as their instances."""

    _theirs: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._theirs)


class SeedSequence(np.random.SeedSequence, metaclass=Kind):
    """NumPy's seed sequence. Without entropy it uses rank 0's entropy, which is collective."""

    _theirs = np.random.SeedSequence

    def __init__(
        self,
        entropy: Integers | None = None,
        *,
        spawn_key: Sequence[int] = (),
        pool_size: int = 4,
        n_children_spawned: int = 0,
    ) -> None:
        super().__init__(
            _shared_entropy() if entropy is None else _bare(entropy),
            spawn_key=spawn_key,
            pool_size=pool_size,
            n_children_spawned=n_children_spawned,
        )


# NumPy's bit generators construct others of their kind without a seed, only to set their state.


class _Alike:
    """Base of this package's bit generators: NumPy's, with equal initial states on all ranks."""

    _theirs: Any

    def __init__(self: Any, seed: Any = None, *args: Any, **keywords: Any) -> None:
        seed = _bare(seed)
        keyed = keywords.get("key") is not None or any(arg is not None for arg in args[1:])
        if not keyed and not isinstance(seed, ISeedSequence):
            seed = SeedSequence(seed)
        super().__init__(seed, *args, **keywords)  # type: ignore[call-arg]

    def __reduce__(self: Any) -> Any:
        return _restored, (type(self), self.state, self.seed_seq)


class _Jumping(_Alike):
    """Base of the bit generators that can jump far along their stream."""

    def jumped(self: Any, jumps: int = 1) -> Any:
        """Return a bit generator of the same stream, far ahead; see NumPy's method."""
        plain = self._theirs(0)
        plain.state = self.state
        far = plain.jumped(jumps).state
        words = np.frombuffer(repr(far).encode(), np.uint8).tolist()
        return _restored(type(self), far, SeedSequence(words))


def _restored(kind: Any, state: Any, sequence: Any) -> Any:
    """Restore a bit generator from a state and a seed sequence."""
    bits = kind(0)
    bits.__setstate__((state, sequence))
    return bits


class MT19937(_Jumping, np.random.MT19937, metaclass=Kind):
    """NumPy's bit generator; without a seed it uses rank 0's entropy."""

    _theirs = np.random.MT19937


class PCG64(_Jumping, np.random.PCG64, metaclass=Kind):
    """NumPy's bit generator; without a seed it uses rank 0's entropy."""

    _theirs = np.random.PCG64


class PCG64DXSM(_Jumping, np.random.PCG64DXSM, metaclass=Kind):
    """NumPy's bit generator; without a seed it uses rank 0's entropy."""

    _theirs = np.random.PCG64DXSM


class Philox(_Jumping, np.random.Philox, metaclass=Kind):
    """NumPy's bit generator; without a seed it uses rank 0's entropy."""

    _theirs = np.random.Philox


class SFC64(_Alike, np.random.SFC64, metaclass=Kind):
    """NumPy's bit generator; without a seed it uses rank 0's entropy."""

    _theirs = np.random.SFC64


def named_bits(name: str) -> Any:
    """Make a bit generator by the name of its kind; the caller sets its state afterwards."""
    kinds: dict[str, Any] = {k.__name__: k for k in (MT19937, PCG64, PCG64DXSM, Philox, SFC64)}
    if name not in kinds:
        raise ValueError(f"{name} is not a known BitGenerator module.")
    return kinds[name](0)
