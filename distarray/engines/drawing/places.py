"""Positions in a stream: moving to a position, and the distance between two positions.

The unit is the half word of 32 bits. The generators of 64-bit words keep the upper half of a word
whose lower half has been taken (``has_uint32``); a word of MT19937 is a half word itself.

PCG64 and PCG64DXSM step by ``x -> x * multiplier + inc`` modulo 2^128. The number of steps between
two states is found bit by bit, the lowest first (M. E. O'Neill, *PCG: A family of simple fast
space-efficient statistically good algorithms for random number generation*, HMC-CS-2014-0905): 2^k
steps change no bit below the k-th, and always the k-th. Philox counts its blocks of four words.
MT19937 jumps far by a polynomial (:mod:`~distarray.engines.drawing.mersenne`), and draws and
discards the words of a shorter distance. The distance between two of its states is found by
comparing words.
"""

from typing import Any

import numpy as np

from distarray.engines.drawing.mersenne import moved

__all__ = ["LostError", "Source", "State", "Walker", "bits_of", "copied", "put", "state_of"]

State = dict[str, Any]
#: NumPy's generators, of the new and of the legacy kind.
Source = np.random.Generator | np.random.RandomState

_ALL = (1 << 128) - 1
_MULTIPLIERS = {
    "PCG64": 0x2360ED051FC65DA44385DF649FCCF645,
    "PCG64DXSM": 0xDA942042E4DD58B5,
}
_KINDS: dict[str, Any] = {
    "PCG64": np.random.PCG64,
    "PCG64DXSM": np.random.PCG64DXSM,
    "Philox": np.random.Philox,
    "MT19937": np.random.MT19937,
}
#: From this many words of MT19937 on, a polynomial is faster than discarding words.
_FAR = 1 << 21
#: Words that distinguish one position of MT19937 from all others.
_TRACE = 24


class LostError(Exception):
    """Exception raised if two states are not near one another."""


def bits_of(source: Any) -> Any:
    """Return the bit generator of a generator."""
    return source._bit_generator


def state_of(source: Source) -> State:
    """Return a generator's state; a RandomState's includes its cached normal number."""
    if isinstance(source, np.random.RandomState):
        return dict(source.get_state(legacy=False))
    return dict(source.bit_generator.state)


def put(source: Source, state: State) -> None:
    """Set a generator's state."""
    if isinstance(source, np.random.RandomState):
        source.set_state(state)
    else:
        source.bit_generator.state = state


def copied(source: Source) -> Source | None:
    """Make a generator of the same kind, which can be set to any state.

    None if the bit generator is not one of NumPy's that can be advanced.
    """
    bits = bits_of(source)
    kind = _KINDS.get(type(bits).__name__)
    if kind is None or not isinstance(bits, kind):
        return None
    made = kind(0)
    return type(source)(made)


class Walker:
    """Stepper along a stream, with a generator of its own.

    Parameters
    ----------
    source : Generator or RandomState
        A NumPy generator with a bit generator that can be advanced; its state is overwritten.
    """

    def __init__(self, source: Source) -> None:
        self._bits = bits_of(source)
        self.kind = type(self._bits).__name__
        self.jumps = self.kind != "MT19937"

    # -- moving ---------------------------------------------------------------------------------

    def on(self, state: State, halves: int, words: bool) -> State:
        """Return the state a number of half words further on.

        Parameters
        ----------
        state : dict
            The state to start from.
        halves : int
            The number of half words; even if elements take whole words.
        words : bool
            True if elements take whole words: a leftover half word then stays in the state.
        """
        if not halves:
            return state
        own = {name: value for name, value in state.items() if name not in ("has_gauss", "gauss")}
        kept: State = {name: state[name] for name in ("has_gauss", "gauss") if name in state}
        self._bits.state = own
        if self.kind == "MT19937":
            if halves < _FAR:
                self._bits.random_raw(halves, output=False)
            else:
                moved(self._bits, halves)
        elif words:
            self._skip(own, halves // 2)
            kept |= {name: own[name] for name in ("has_uint32", "uinteger")}
        else:
            self._skip_halves(own, halves)
        return dict(self._bits.state) | kept

    def _skip(self, state: State, words: int) -> None:
        """Advance by whole words; no half word is left over."""
        if self.kind != "Philox":
            self._bits.advance(words)
            return
        left = 4 - state["buffer_pos"]
        if words > left:
            blocks = (words - left - 1) // 4
            self._bits.advance(blocks)
            words -= left + 4 * blocks
        self._bits.random_raw(words, output=False)

    def _skip_halves(self, state: State, halves: int) -> None:
        """Advance by half words; drawing the last two leaves the state as NumPy does."""
        taker = np.random.Generator(self._bits)
        fresh = halves - state["has_uint32"]
        if fresh <= 2:
            taker.random(halves, dtype=np.float32)
            return
        words = (fresh - 1) // 2
        self._skip(state, words)
        at = dict(self._bits.state) | {"has_uint32": 0}
        self._bits.state = at
        taker.random(fresh - 2 * words, dtype=np.float32)

    # -- distances ----------------------------------------------------------------------------

    def ahead(self, old: State, new: State, limit: int) -> int:
        """Return how many half words `new` is ahead of `old`; negative if it is behind.

        Raises
        ------
        LostError
            If the two states are further apart than `limit` (MT19937 only), or belong to two
            streams.
        """
        if self.kind == "MT19937":
            return self._compared(old, new, limit)
        words = _counted(old, new) if self.kind == "Philox" else self._stepped(old, new)
        return 2 * words + int(old["has_uint32"]) - int(new["has_uint32"])

    def _stepped(self, old: State, new: State) -> int:
        multiplier = _MULTIPLIERS[self.kind]
        first, last = old["state"], new["state"]
        if first["inc"] != last["inc"]:
            raise LostError
        forth = _distance(first["state"], last["state"], multiplier, first["inc"], 62)
        if forth is None:
            back = _distance(last["state"], first["state"], multiplier, first["inc"], 62)
            if back is None:
                raise LostError
            return -back
        return forth

    def _compared(self, old: State, new: State, limit: int) -> int:
        for sign, first, last in ((1, old, new), (-1, new, old)):
            trace, line = self._words(last, _TRACE), self._words(first, limit + _TRACE)
            for place in np.flatnonzero(line[:limit] == trace[0]).tolist():
                if np.array_equal(line[place : place + _TRACE], trace):
                    return int(sign * place)
        raise LostError

    def _words(self, state: State, count: int) -> Any:
        """Return the next words of MT19937."""
        self._bits.state = {name: state[name] for name in ("bit_generator", "state")}
        return self._bits.random_raw(count)


def _distance(old: int, new: int, multiplier: int, plus: int, bits: int) -> int | None:
    """Return the steps from one state to another, or None if they are 2^bits or more."""
    steps, bit = 0, 1
    while old != new:
        if bit >> bits:
            return None
        if (old ^ new) & bit:
            old, steps = (old * multiplier + plus) & _ALL, steps | bit
        bit <<= 1
        plus, multiplier = (multiplier + 1) * plus & _ALL, multiplier * multiplier & _ALL
    return steps


def _counted(old: State, new: State) -> int:
    """Return the number of words between two states of Philox."""
    if list(old["state"]["key"]) != list(new["state"]["key"]):
        raise LostError
    places = []
    for state in (old, new):
        words = [int(word) << 64 * place for place, word in enumerate(state["state"]["counter"])]
        places.append(4 * sum(words) + int(state["buffer_pos"]))
    difference = (places[1] - places[0]) % (1 << 258)
    difference -= difference >> 257 << 258
    if abs(difference) >> 64:
        raise LostError
    return difference
