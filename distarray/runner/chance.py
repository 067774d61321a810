"""One chance for all ranks: what the program draws without a seed is drawn from rank 0's.

Nothing is sent but one seed at the start. What is drawn depends on it, on the place in the program
and on how often something has been drawn there; so a rank may draw alone (``if rank == 0:``) and
goes on with what the others draw, too.
"""

import os
import random
import sys
from collections.abc import Callable
from hashlib import shake_256
from typing import Any

from distarray.runner.caller import Caller, caller
from distarray.runner.standing import put_in_place
from distarray.runner.step import in_step, place

__all__ = ["install"]

_real_urandom = os.urandom
_real_seed = random.Random.seed


class _Chance:
    """Bytes that are the same on all ranks."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._turns: dict[tuple[Any, ...], int] = {}

    def take(self, count: int) -> bytes:
        """As ``os.urandom``."""
        if count < 0 or caller() is not Caller.PROGRAM:
            return _real_urandom(count)
        return self.draw(count)

    def draw(self, count: int) -> bytes:
        """The next bytes of the place in the program that is asking."""
        where = place(sys._getframe(1))
        turn = self._turns[where] = self._turns.get(where, 0) + 1
        return shake_256(self._seed + repr((where, turn)).encode()).digest(count)


def install(seed: bytes) -> None:
    """Let `os`, `random`, and what draws from them (`secrets`, `uuid`), draw alike."""
    import numpy as np  # not before `open` has been replaced, which NumPy keeps in tables

    chance = _Chance(seed)

    def urandom(size: int, /) -> bytes:
        return chance.take(size)

    def getrandom(size: int, flags: int = 0) -> bytes:
        return chance.take(size)

    def reseed(self: random.Random, a: Any = None, version: int = 2) -> None:
        """Initialize internal state from a seed."""
        if a is None and caller() is Caller.PROGRAM:
            a = int.from_bytes(chance.draw(128), "big")
        _real_seed(self, a, version)

    def randbits(k: int) -> int:
        # Libraries make generators, too. Their other bytes stay each rank's own: they name files.
        if not in_step():
            return real_bits(k)
        return int.from_bytes(chance.draw(k // 8 + 1), "big") & ((1 << k) - 1)

    seeding: Any = np.random.bit_generator
    real_bits: Callable[[int], int] = seeding.randbits
    seeding.randbits = randbits
    put_in_place(os, "urandom", urandom)
    put_in_place(os, "getrandom", getrandom)
    random._urandom = urandom  # type: ignore[attr-defined]
    random.Random.seed = reseed  # type: ignore[method-assign]
    random.seed = random._inst.seed
    random.seed(seed)
    np.random.seed(np.frombuffer(seed, np.uint32))  # noqa: NPY002 (what libraries draw from)
