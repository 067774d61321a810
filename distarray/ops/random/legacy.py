"""NumPy's older interface: `RandomState`, and functions that share one state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, MutableSequence
from ctypes import c_uint32
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh, current_world
from distarray.comm.chance import home, home_of_copy, verify_home
from distarray.engines.drawing.methods import LEGACY
from distarray.engines.drawing.seeds import MT19937, Kind, Seed, named_bits, shared_bits
from distarray.ops.random.ordering import chosen, permutation_of, shuffle_in_place
from distarray.ops.random.sampling import Drawing, Place, add_methods
from distarray.typing import Array, ArrayLike, ShapeLike

__all__ = [
    "RandomState",
    "function",
    "get_bit_generator",
    "join",
    "mtrand",
    "reseed",
    "set_bit_generator",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_Theirs: Any = np.random.RandomState
_HERE = Place(None, None)
#: Entries of a pickled state besides NumPy's.
_OURS = frozenset({"mesh", "apart"})


class RandomState(Drawing, _Theirs, metaclass=Kind):  # type: ignore[misc]
    """NumPy's older generator: the same numbers, bit for bit, in distributed arrays.

    Parameters
    ----------
    seed : None, int, array_like of int, BitGenerator, SeedSequence
        None takes fresh entropy from rank 0, which is collective.
    mesh : DeviceMesh, optional
        Mesh of the arrays that the generator makes; the default mesh if not given.

    Notes
    -----
    Methods that draw samples take `mesh` and `placements`, as those of :class:`Generator` do.
    """

    _theirs = np.random.RandomState

    def __init__(self, seed: Seed = None, *, mesh: DeviceMesh | None = None) -> None:
        self._mesh, self._home = mesh, home()
        self._source: Any = np.random.RandomState(self._bits_of(seed))
        super().__init__(self._source._bit_generator)

    def _bits_of(self, seed: Seed) -> Any:
        """Return the source of NumPy's state: a seed, or a bit generator equal on all ranks."""
        if seed is None:
            return MT19937()
        if isinstance(seed, np.random.BitGenerator):
            shared_bits(seed, self._mesh)
            return seed
        return seed.full() if isinstance(seed, DistArray) else seed

    # -- the state ----------------------------------------------------------------------------

    def seed(self, seed: Seed = None) -> None:
        """Restart from a seed."""
        plain = self._plain
        if seed is None and type(plain._bit_generator).__name__ == "MT19937":
            fresh = np.random.RandomState(MT19937())
            plain.set_state(fresh.get_state(legacy=False))
        else:
            plain.seed(seed.full() if isinstance(seed, DistArray) else seed)

    def get_state(self, legacy: bool = True) -> Any:
        """Return NumPy's own state: a tuple of five, or a dictionary."""
        return self._source.get_state(legacy)

    def set_state(self, state: Any) -> None:
        """Restore a state that `get_state` returned, here or in NumPy."""
        self._plain.set_state(state)

    def leave(self) -> None:
        """Do nothing after a draw through the functions; `_Joined` records its position here."""

    def __getstate__(self) -> Any:
        return self.get_state(legacy=False)

    def __setstate__(self, state: Any) -> None:
        self._mesh = state.get("mesh")
        self._home = home_of_copy("apart" not in state)
        self.set_state({name: value for name, value in state.items() if name not in _OURS})

    def __reduce__(self) -> Any:
        state = self.get_state(legacy=False)
        if self._mesh is not None:
            state["mesh"] = self._mesh
        if self._home is not None:
            state["apart"] = True
        return _restored, (self._source._bit_generator,), state

    # -- other names --------------------------------------------------------------------------

    def rand(self, *args: int) -> Any:
        """Draw uniform numbers on [0, 1), in an array of the given extents."""
        return self.random_sample(size=args) if args else self.random_sample()

    def randn(self, *args: int) -> Any:
        """Draw normal numbers of mean 0 and variance 1, in an array of the given extents."""
        return self.standard_normal(size=args) if args else self.standard_normal()

    def random(self, size: ShapeLike | None = None) -> Any:
        """Draw uniform numbers on [0, 1)."""
        return self.random_sample(size=size)

    def random_integers(
        self, low: ArrayLike, high: ArrayLike | None = None, size: ShapeLike | None = None
    ) -> Any:
        """Draw integers from `low` to `high`, inclusive; deprecated, as in NumPy."""
        low, high = (1, low) if high is None else (low, high)
        warnings.warn(
            f"This function is deprecated. Please call randint({low}, {high} + 1) instead",
            DeprecationWarning,
            stacklevel=2,
        )
        last: Any = high
        return self.randint(low, int(last) + 1, size=size, dtype="l")

    def bytes(self, length: int) -> bytes:
        """Return random bytes, the same on all ranks."""
        return bytes(self._plain.bytes(length))

    # -- permutations and choices -------------------------------------------------------------

    def choice(
        self,
        a: ArrayLike,
        size: ShapeLike | None = None,
        replace: bool = True,
        p: ArrayLike | None = None,
    ) -> Any:
        """Choose elements of a 1-d population, or integers below `a`."""
        if np.ndim(a) > 1:
            raise ValueError("a must be 1-dimensional")
        return chosen(self, a, size, replace, p, _HERE, {})

    def permutation(self, x: ArrayLike) -> Any:
        """Return a random permutation of the integers below `x`, or of an array's rows."""
        return permutation_of(self, x, _HERE)

    def shuffle(self, x: DistArray | Array | MutableSequence[Any]) -> None:
        """Permute an array's rows in place."""
        shuffle_in_place(self, x)


def _restored(bits: Any = "MT19937") -> RandomState:
    """Return a state from a bit generator, or from the name of one, as in old files."""
    return RandomState(named_bits(bits) if isinstance(bits, str) else bits)


add_methods(RandomState, np.random.RandomState, LEGACY)


# -- one state for all --------------------------------------------------------------------------


class _Joined(RandomState):
    """NumPy's own shared state, from which libraries draw as well.

    The memory of MT19937, 624 words and the index of the next word, shows whether a library has
    drawn. It may have drawn on some ranks only. So at the next draw here the ranks compare their
    positions, and continue from rank 0's position.
    """

    def __init__(self, settle: Callable[[Any], Any]) -> None:
        self._mesh = self._home = None
        self._source = np.random.mtrand._rand
        self._settle = settle
        self.begin(self._source._bit_generator)

    def begin(self, bits: np.random.BitGenerator) -> None:
        """Draw from this bit generator; the words of MT19937 are read from its memory."""
        _Theirs.__init__(self, bits)
        self._words = None
        if isinstance(bits, np.random.MT19937):
            memory = (c_uint32 * 625).from_address(bits.ctypes.state_address)
            self._words = memoryview(memory).cast("B").cast("I")
        self.leave()

    def leave(self) -> None:
        """Record the position after a draw."""
        words = self._words
        self._place = None if words is None else (words[624], words[1])

    @property
    def _plain(self) -> Any:
        verify_home(None)
        words, source = self._words, self._source
        if words is not None and self._place != (words[624], words[1]):
            own = source.get_state(legacy=False)
            settled = self._settle(own)
            if settled is not own:
                source.set_state(settled)
            self.leave()
        return source


class _Process:
    """Key for this process if ranks are not threads."""


_PROCESS = _Process()
_states: WeakKeyDictionary[Any, RandomState] = WeakKeyDictionary()


def _shared() -> RandomState:
    """Return the state behind the functions, one for each world: ranks may be threads."""
    world = current_world() or _PROCESS
    found = _states.get(world)
    if found is None:
        verify_home(None)  # a state made in a function that each rank calls alone would differ
        found = _states[world] = RandomState()
    return found


def function(
    method: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Parameters, Result]:
    """Return the function that calls a method of the shared state."""
    name = method.__name__

    @wraps(method)
    def call(*args: Any, **keywords: Any) -> Any:
        shared = _shared()
        try:
            return getattr(shared, name)(*args, **keywords)
        finally:
            shared.leave()

    own = signature(method)
    call.__signature__ = own.replace(parameters=[*own.parameters.values()][1:])  # type: ignore[attr-defined]
    call.__qualname__ = name
    return call


class _Module:
    """Module ``numpy.random.mtrand``: the class, the functions, and their shared state."""

    RandomState = RandomState

    @property
    def _rand(self) -> Any:
        return _shared()

    def __getattr__(self, name: str) -> Any:
        return function(getattr(RandomState, name))


mtrand = _Module()


def join(settle: Callable[[Any], Any]) -> None:
    """Let the functions draw from NumPy's own state, as libraries do.

    Parameters
    ----------
    settle : callable
        Returns rank 0's value if the values of the ranks differ; collective.
    """
    _states[_PROCESS] = _Joined(settle)


def get_bit_generator() -> Any:
    """Return the bit generator that the functions share."""
    return _shared()._source._bit_generator


def set_bit_generator(bitgen: np.random.BitGenerator) -> None:
    """Let the functions draw from another bit generator."""
    shared = _shared()
    if type(shared) is _Joined:  # Kind counts NumPy's own states as instances
        shared_bits(bitgen)
        np.random.set_bit_generator(bitgen)  # type: ignore[attr-defined]
        shared.begin(bitgen)
    else:
        _states[current_world() or _PROCESS] = RandomState(bitgen)


def reseed(seed: Seed = None) -> None:
    """Reseed the functions' state, even if its bit generator is not MT19937."""
    shared = _shared()
    bits = shared._plain._bit_generator
    if isinstance(bits, np.random.MT19937):
        shared.seed(seed)
    else:
        bits.state = named_bits(type(bits).__name__).__class__(seed).state
