"""Random numbers by position: a seed, a call and a tile together address a Philox stream.

Philox4x64-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, *Parallel random numbers: as easy
as 1, 2, 3*, SC11) is a keyed bijection of 256-bit counters: the numbers at a counter are computed
from the counter alone, without a state from the previous one. The counter's four words are:

* word 0: the position in the stream of one tile,
* word 1: the tile, a box of the array's index space, which is the same for every layout,
* word 2: the call; each method call that draws increments it,
* word 3: the jump, for streams made with :meth:`Philox.jumped`.

No two tiles, calls or jumps of a seed share a counter, so their numbers are disjoint parts of one
sequence of period 2^258. The paper tests such use (blocks of counters, interleaved counters, few
bits that change) with BigCrush, besides the plain sequence, and finds no failure. Seeds differ by
the key, 128 bits that NumPy's `SeedSequence` hashes from them as for :class:`numpy.random.Philox`.
Within a tile NumPy's own methods draw, so every distribution is NumPy's. The first call's numbers
for the first tile are bit for bit those of ``numpy.random.Generator(numpy.random.Philox(seed))``,
and the next call starts at the counter of ``jumped()`` of NumPy's Philox.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.comm import DeviceMesh
from distarray.engines.drawing.seeds import Integers, Seed, sequence_of
from distarray.typing import ShapeLike

__all__ = ["Call", "Philox"]

_CALL = 1 << 128
_JUMP = 1 << 192
_END = 1 << 256
_WORD = (1 << 64) - 1


class Call:
    """Random numbers of one or more calls: a stream for each tile."""

    __slots__ = ("_base", "_machine", "_words")

    def __init__(self, machine: "_Machine", base: int) -> None:
        self._machine = machine
        self._base = base
        self._words = _words(base)

    def after(self, tiles: int) -> "Call":
        """Return the same streams, numbered from a later tile on."""
        return Call(self._machine, (self._base + (tiles << 64)) % _END)

    def tile(self, number: int) -> np.random.Generator:
        """Return a generator at the start of a tile's stream, valid until the next call."""
        first, second, third, fourth = self._words
        second += number
        if second >> 64:
            return self._machine.at(_words((self._base + (number << 64)) % _END))
        return self._machine.at([first, second, third, fourth])


class _Machine:
    """NumPy's generator, which can be set to any counter in a microsecond."""

    __slots__ = ("_generator", "_philox", "_state", "key")

    def __init__(self, philox: np.random.Philox, state: dict[str, Any]) -> None:
        self._philox = philox
        self._generator = np.random.Generator(philox)
        # NumPy reads lists several times as fast as arrays.
        self.key = state["state"]["key"].tolist()
        self._state: Any = {**state, "buffer": [0, 0, 0, 0], "buffer_pos": 4, "has_uint32": 0}

    def at(self, counter: list[int]) -> np.random.Generator:
        """Return the generator at a counter."""
        self._state["state"] = {"counter": counter, "key": self.key}
        self._philox.state = self._state
        return self._generator


def _words(number: int) -> list[int]:
    """Return the four words of a counter, the lowest first."""
    return [number >> shift & _WORD for shift in (0, 64, 128, 192)]


class Philox:
    """Bit generator of a distributed :class:`Generator`: a key and a counter.

    Parameters
    ----------
    seed : None, int, array_like of int or SeedSequence
        The seed, as for :class:`numpy.random.Philox`. None uses rank 0's entropy on all ranks of
        the mesh. None and a SeedSequence are collective.
    counter : int or array_like of 4 ints, optional
        The first counter.
    key : int or array_like of 2 ints, optional
        The key, instead of a seed.
    mesh : DeviceMesh, optional
        The ranks that share the seed; the default mesh by default.

    Attributes
    ----------
    seed_seq : SeedSequence
        The sequence from which children are spawned.
    """

    __slots__ = ("_machine", "_position", "seed_seq")

    def __init__(
        self,
        seed: Seed = None,
        *,
        counter: Integers | None = None,
        key: Integers | None = None,
        mesh: DeviceMesh | None = None,
    ) -> None:
        if key is None:
            self.seed_seq = sequence_of(seed, mesh)
            found = np.random.Philox(self.seed_seq, counter=counter)
        else:
            given: Any = seed  # NumPy rejects a seed beside a key
            found = np.random.Philox(given, counter=counter, key=key)
            words = found.state["state"]["key"]
            self.seed_seq = np.random.SeedSequence([int(word) for word in words])
        self._start(found)

    @classmethod
    def of(cls, seed_seq: np.random.SeedSequence, state: dict[str, Any] | None = None) -> "Philox":
        """Make a bit generator from a seed that is equal on all ranks; does not communicate."""
        self = cls.__new__(cls)
        self.seed_seq = seed_seq
        self._start(np.random.Philox(seed_seq))
        if state is not None:
            self.state = state
        return self

    def _start(self, philox: np.random.Philox) -> None:
        state: Any = philox.state
        self._machine = _Machine(philox, state)
        words = state["state"]["counter"].tolist()
        self._position = sum([word << 64 * place for place, word in enumerate(words)])

    # -- drawing ------------------------------------------------------------------------------

    def call(self) -> Call:
        """Return the numbers of the next call."""
        base = self._position
        self._position = (base + _CALL) % _END
        return Call(self._machine, base)

    def random_raw(self, size: ShapeLike | None = None, output: bool = True) -> Any:
        """Draw 64-bit words, as NumPy's Philox does, in an array equal on every rank."""
        source: Any = self.call().tile(0).bit_generator
        return source.random_raw(size, output)

    @property
    def state(self) -> dict[str, Any]:
        """Key and counter in the form of NumPy's Philox; can be assigned."""
        return {
            "bit_generator": "Philox",
            "state": {
                "counter": np.array(_words(self._position), np.uint64),
                "key": np.array(self._machine.key, np.uint64),
            },
            "buffer": np.zeros(4, np.uint64),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        found = np.random.Philox(0)
        found.state = value  # type: ignore[assignment]
        self._start(found)

    # -- other streams ------------------------------------------------------------------------

    def spawn(self, n_children: int) -> list["Philox"]:
        """Return bit generators with the keys of the seed sequence's children."""
        return [type(self).of(child) for child in self.seed_seq.spawn(n_children)]

    def jumped(self, jumps: int = 1) -> "Philox":
        """Return a bit generator that is `jumps` times 2^64 calls (2^192 counters) further on."""
        other = type(self).of(self.seed_seq, self.state)
        other._position = (self._position + jumps * _JUMP) % _END
        return other

    def advance(self, delta: int) -> "Philox":
        """Advance the counter, as NumPy's Philox does; return the bit generator itself."""
        self._position = (self._position + delta) % _END
        return self

    def __reduce__(self) -> tuple[Callable[..., "Philox"], tuple[Any, ...]]:
        return type(self).of, (self.seed_seq, self.state)

    def summary(self) -> str:
        """Return key and counter as text."""
        key = "".join([f"{word:016x}" for word in self._machine.key])
        return f"key {key}, counter {self._position:#x}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"
