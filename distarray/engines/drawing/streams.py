"""Numbers by position: a seed, a call and a tile address a Philox stream each.

Philox4x64-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, *Parallel random numbers: as easy
as 1, 2, 3*, SC11) is a keyed bijection of 256-bit counters: the numbers at a counter are computed
from it, and no state is carried from one to the next. The counter's four words are used so:

* word 0 runs through the numbers of one tile,
* word 1 is the tile: a box of the array's index space, the same whatever the layout,
* word 2 is the call: each method call that draws takes the next one,
* word 3 is the jump: streams made with :meth:`Philox.jumped`.

No two tiles, calls or jumps of a seed share a counter, so their numbers are disjoint parts of one
sequence of period 2^258. The paper tests such use (blocks of counters, interleaved counters, few
bits that change) with BigCrush, besides the plain sequence, and finds no failure. Seeds differ by
the key, 128 bits that NumPy's `SeedSequence` hashes from them as for :class:`numpy.random.Philox`.
Within a tile NumPy's own methods draw, so every distribution is NumPy's; what the first call draws
for the first tile is bit for bit what ``numpy.random.Generator(numpy.random.Philox(seed))`` draws,
and the call after it continues where ``jumped()`` of NumPy's Philox would.
"""

from collections.abc import Callable
from threading import RLock
from typing import Any

import numpy as np

from distarray.comm import DeviceMesh
from distarray.engines.drawing.seeds import sequence_of

__all__ = ["Call", "Philox"]

_CALL = 1 << 128
_JUMP = 1 << 192
_END = 1 << 256
_WORD = (1 << 64) - 1


class Call:
    """The numbers of one call, or of as many calls as it needs: a stream for each tile."""

    __slots__ = ("_base", "_machine", "_words")

    def __init__(self, machine: "_Machine", base: int) -> None:
        self._machine = machine
        self._base = base
        self._words = _words(base)

    def after(self, tiles: int) -> "Call":
        """The same streams, numbered from a later one on."""
        return Call(self._machine, (self._base + (tiles << 64)) % _END)

    def tile(self, number: int) -> np.random.Generator:
        """NumPy's generator at the beginning of a tile's stream; valid until the next is asked."""
        first, second, third, fourth = self._words
        second += number
        if second >> 64:
            return self._machine.at(_words((self._base + (number << 64)) % _END))
        return self._machine.at([first, second, third, fourth])


class _Machine:
    """NumPy's generator, put at any counter in a microsecond."""

    __slots__ = ("_generator", "_philox", "_state", "key")

    def __init__(self, philox: np.random.Philox, state: dict[str, Any]) -> None:
        self._philox = philox
        self._generator = np.random.Generator(philox)
        # Lists are read several times as fast as arrays.
        self.key = state["state"]["key"].tolist()
        self._state: Any = {**state, "buffer": [0, 0, 0, 0], "buffer_pos": 4, "has_uint32": 0}

    def at(self, counter: list[int]) -> np.random.Generator:
        """The generator at a counter."""
        self._state["state"] = {"counter": counter, "key": self.key}
        self._philox.state = self._state
        return self._generator


def _words(number: int) -> list[int]:
    """The four words of a counter, the lowest first."""
    return [number >> shift & _WORD for shift in (0, 64, 128, 192)]


class Philox:
    """The bit generator behind a distributed :class:`Generator`: a key and a counter.

    Parameters
    ----------
    seed : None, int, array_like of int or SeedSequence
        As for :class:`numpy.random.Philox`. None takes rank 0's entropy on all ranks of the
        mesh, which is collective; so is a SeedSequence.
    counter : int or array_like of 4 ints, optional
        Where to begin.
    key : int or array_like of 2 ints, optional
        Instead of a seed.
    mesh : DeviceMesh, optional
        The ranks that are to have the same seed; those of the default mesh if not given.

    Attributes
    ----------
    seed_seq : SeedSequence
        What children are spawned from.
    """

    __slots__ = ("_machine", "_position", "lock", "seed_seq")

    def __init__(
        self,
        seed: Any = None,
        *,
        counter: Any = None,
        key: Any = None,
        mesh: DeviceMesh | None = None,
    ) -> None:
        if key is None:
            self.seed_seq = sequence_of(seed, mesh)
            found = np.random.Philox(self.seed_seq, counter=counter)
        else:
            found = np.random.Philox(seed, counter=counter, key=key)
            words = found.state["state"]["key"]
            self.seed_seq = np.random.SeedSequence([int(word) for word in words])
        self._start(found)

    @classmethod
    def of(cls, seed_seq: np.random.SeedSequence, state: Any = None) -> "Philox":
        """A bit generator of a seed that all ranks have already; asks nobody."""
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
        self.lock = RLock()

    # -- drawing ------------------------------------------------------------------------------

    def call(self) -> Call:
        """The numbers of the next call."""
        base = self._position
        self._position = (base + _CALL) % _END
        return Call(self._machine, base)

    def random_raw(self, size: Any = None, output: bool = True) -> Any:
        """Words of 64 bits as NumPy's Philox gives them, in an array that every rank has whole."""
        source: Any = self.call().tile(0).bit_generator
        return source.random_raw(size, output)

    @property
    def state(self) -> dict[str, Any]:
        """Key and counter, in the form that NumPy's Philox has; can be assigned."""
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
        """Bit generators with other keys, from children of the seed sequence."""
        return [type(self).of(child) for child in self.seed_seq.spawn(n_children)]

    def jumped(self, jumps: int = 1) -> "Philox":
        """A bit generator whose numbers follow 2^64 calls (2^192 counters) later, `jumps` times."""
        other = type(self).of(self.seed_seq, self.state)
        other._position = (self._position + jumps * _JUMP) % _END
        return other

    def advance(self, delta: int) -> "Philox":
        """Move the counter on, as NumPy's Philox does; returns itself."""
        self._position = (self._position + delta) % _END
        return self

    def __reduce__(self) -> tuple[Callable[..., "Philox"], tuple[Any, ...]]:
        return type(self).of, (self.seed_seq, self.state)

    def summary(self) -> str:
        """Key and counter in a few words."""
        key = "".join([f"{word:016x}" for word in self._machine.key])
        return f"key {key}, counter {self._position:#x}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"
