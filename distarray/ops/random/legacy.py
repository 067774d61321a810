"""The older interface: `RandomState`, and functions that share one state.

The numbers are those of :class:`~distarray.ops.random.Generator`, not those of MT19937.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, MutableSequence, Sequence
from functools import wraps
from inspect import signature
from operator import index
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh, Group, world_group
from distarray.engines.drawing.seeds import sequence_of
from distarray.engines.drawing.streams import Philox
from distarray.ops.random.continuous import Continuous
from distarray.ops.random.discrete import Discrete
from distarray.ops.random.generator import Generator, Seed
from distarray.ops.random.vectors import Vectors
from distarray.typing import Array, ArrayLike, DTypeLike, Placements, ShapeLike

__all__ = ["RandomState", "function", "get_bit_generator", "set_bit_generator"]

_SEED_RANGE = "Seed must be between 0 and 2**32 - 1"
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class RandomState(Continuous, Discrete, Vectors):
    """NumPy's older generator, whose arrays are distributed.

    Parameters
    ----------
    seed : None, int, array_like of int, BitGenerator, SeedSequence
        None takes fresh entropy from rank 0, which is collective.
    mesh : DeviceMesh, optional
        The mesh of the arrays it makes; the default mesh if not given.

    Notes
    -----
    As with :class:`Generator`, the same seed gives the same arrays on any number of ranks; they are
    not NumPy's.
    """

    def __init__(self, seed: Seed = None, *, mesh: DeviceMesh | None = None) -> None:
        super().__init__(seed if isinstance(seed, Philox) else _seeded(seed, mesh), mesh)

    # -- the state ----------------------------------------------------------------------------

    def seed(self, seed: Seed = None) -> None:
        """Begin anew."""
        self._bit_generator = _seeded(seed, self._mesh)

    def get_state(self, legacy: bool = True) -> Any:
        """Key and counter: a dictionary, or a tuple of five as older programs expect."""
        state = self._bit_generator.state
        if not legacy:
            return {**state, "has_gauss": 0, "gauss": 0.0}
        words = np.concatenate([state["state"]["key"], state["state"]["counter"]])
        return state["bit_generator"], words, 0, 0, 0.0

    def set_state(self, state: dict[str, Any] | Sequence[Any]) -> None:
        """Go back to a state that `get_state` gave."""
        if not isinstance(state, dict):
            if state[0] != "Philox":
                raise ValueError("set_state can only be used with legacy MT19937 state instances.")
            words = np.asarray(state[1], np.uint64)
            own = self._bit_generator.state
            given = {**own, "state": {"key": words[:2], "counter": words[2:]}}
        else:
            given = state
        known = {name: value for name, value in given.items() if name not in ("has_gauss", "gauss")}
        self._bit_generator.state = known

    # -- uniform and normal numbers -----------------------------------------------------------

    def rand(self, *args: int) -> Any:
        """Uniform numbers on [0, 1), in an array of the given extents."""
        return self.random_sample(args or None)

    def randn(self, *args: int) -> Any:
        """Normal numbers of mean 0 and variance 1, in an array of the given extents."""
        return self.standard_normal(args or None)

    def uniform(
        self,
        low: ArrayLike = 0.0,
        high: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Uniform numbers between `low` and `high`; here `high` may be the lower one."""
        place: dict[str, Any] = {"mesh": mesh, "placements": placements}
        reversed_ = np.less(high, low)
        if not np.any(reversed_):
            return super().uniform(low, high, size, **place)
        sign: Any = np.where(reversed_, -1.0, 1.0) if np.ndim(reversed_) else -1.0
        return sign * super().uniform(sign * low, sign * high, size, **place)

    def random_sample(self, size: ShapeLike | None = None) -> Any:
        """Uniform numbers on [0, 1)."""
        return self._generator.random(size)

    def random(self, size: ShapeLike | None = None) -> Any:
        """Uniform numbers on [0, 1)."""
        return self._generator.random(size)

    def standard_normal(self, size: ShapeLike | None = None) -> Any:
        """Normal numbers of mean 0 and variance 1."""
        return self._generator.standard_normal(size)

    def standard_exponential(self, size: ShapeLike | None = None) -> Any:
        """Exponential numbers of mean 1."""
        return self._generator.standard_exponential(size)

    def standard_cauchy(self, size: ShapeLike | None = None) -> Any:
        """Samples of the standard Cauchy distribution."""
        return self._generator.standard_cauchy(size)

    def standard_gamma(self, shape: ArrayLike, size: ShapeLike | None = None) -> Any:
        """Samples of a gamma distribution of scale 1."""
        return self._generator.standard_gamma(shape, size)

    # -- integers -----------------------------------------------------------------------------

    def randint(
        self,
        low: ArrayLike,
        high: ArrayLike | None = None,
        size: ShapeLike | None = None,
        dtype: DTypeLike = int,
    ) -> Any:
        """Integers from `low` to `high`, exclusive."""
        return self._generator.integers(low, high, size, dtype)

    def random_integers(
        self, low: ArrayLike, high: ArrayLike | None = None, size: ShapeLike | None = None
    ) -> Any:
        """Integers from `low` to `high`, inclusive; deprecated as NumPy's."""
        low, high = (1, low) if high is None else (low, high)
        warnings.warn(
            f"This function is deprecated. Please call randint({low}, {high} + 1) instead",
            DeprecationWarning,
            stacklevel=1,
        )
        return self._generator.integers(low, high, size, endpoint=True)

    def tomaxint(self, size: ShapeLike | None = None) -> Any:
        """Integers from 0 to the largest, inclusive."""
        dtype = int if size is None else np.int64
        return self._generator.integers(0, np.iinfo(np.int64).max, size, dtype, True)

    def bytes(self, length: int) -> bytes:
        """Random bytes, the same on all ranks."""
        return self._generator.bytes(length)

    # -- permutations and choices -------------------------------------------------------------

    def choice(
        self,
        a: ArrayLike,
        size: ShapeLike | None = None,
        replace: bool = True,
        p: ArrayLike | None = None,
    ) -> Any:
        """Elements of a 1-d population, or integers below `a`."""
        if np.ndim(a) > 1:
            raise ValueError("a must be 1-dimensional")
        return self._generator.choice(a, size, replace, p)

    def permutation(self, x: ArrayLike) -> Any:
        """A random permutation of the integers below `x`, or of an array's rows."""
        return self._generator.permutation(x)

    def shuffle(self, x: DistArray | Array | MutableSequence[Any]) -> None:
        """Permute an array's rows in place."""
        self._generator.shuffle(x)

    @property
    def _generator(self) -> Generator:
        return Generator(self._bit_generator, mesh=self._mesh)

    def __repr__(self) -> str:
        return f"{self} at 0x{id(self):X}"

    def __str__(self) -> str:
        return f"{type(self).__name__}({type(self._bit_generator).__name__})"


def _seeded(seed: Seed, mesh: DeviceMesh | None) -> Philox:
    """A bit generator; the integers allowed are those of NumPy's RandomState."""
    if isinstance(seed, int | np.integer):
        if not 0 <= index(seed) < 1 << 32:
            raise ValueError(_SEED_RANGE)
    elif isinstance(seed, list | tuple | np.ndarray):
        words = np.asarray(seed)
        if not words.size:
            raise ValueError("Seed must be non-empty")
        if words.ndim != 1:
            raise ValueError("Seed array must be 1-d")
        if np.any((words < 0) | (words >= 1 << 32)):
            raise ValueError(_SEED_RANGE)
    elif isinstance(seed, str | float):
        raise TypeError(
            f"Cannot cast scalar from {np.asarray(seed).dtype!r} to dtype('int64') according to "
            "the rule 'safe'"
        )
    return Philox.of(sequence_of(cast("Any", seed), mesh))


# -- one state for all --------------------------------------------------------------------------

_states: WeakKeyDictionary[Group, RandomState] = WeakKeyDictionary()


def _shared() -> RandomState:
    """The state behind the functions, one for each world: ranks may be threads."""
    world = world_group()
    if world not in _states:
        _states[world] = RandomState()
    return _states[world]


def function(
    method: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Parameters, Result]:
    """The function that calls a method of the shared state."""
    name = method.__name__

    @wraps(method)
    def call(*args: Any, **keywords: Any) -> Any:
        return getattr(_shared(), name)(*args, **keywords)

    own = signature(method)
    call.__signature__ = own.replace(parameters=[*own.parameters.values()][1:])  # type: ignore[attr-defined]
    return call


def get_bit_generator() -> Philox:
    """The bit generator that the functions share."""
    return _shared()._bit_generator


def set_bit_generator(bitgen: Philox | np.random.BitGenerator) -> None:
    """Let the functions draw from another bit generator."""
    _shared()._bit_generator = Generator(bitgen).bit_generator
