"""Random numbers that are the same on all ranks, for programs that set no seed.

Only one seed is sent, at the start. A drawn number depends on the seed, on the place in the
program, and on the number of draws that this place has made. So a rank may draw alone
(``if rank == 0:``), and its later draws still equal those of the other ranks.
"""

import os
import pickle
import random
import sys
from collections.abc import Callable
from hashlib import shake_256
from typing import Any

from distarray.runner.answers import Answers
from distarray.runner.caller import Caller, caller
from distarray.runner.standing import put_in_place
from distarray.runner.step import in_step, place

__all__ = ["install", "join"]

Seed = int | float | str | bytes | bytearray | None

_real_urandom = os.urandom
_real_seed = random.Random.seed


class _Chance:
    """Source of random bytes that are the same on all ranks."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._turns: dict[tuple[Any, ...], int] = {}

    def take(self, count: int) -> bytes:
        """Return random bytes, as ``os.urandom``."""
        if count < 0 or caller() is not Caller.PROGRAM:
            return _real_urandom(count)
        return self.draw(count)

    def draw(self, count: int) -> bytes:
        """Return the next bytes for the place in the program that draws."""
        where = place(sys._getframe(1))
        turn = self._turns[where] = self._turns.get(where, 0) + 1
        return shake_256(self._seed + repr((where, turn)).encode()).digest(count)


def install(seed: bytes) -> None:
    """Make `os`, `random`, and modules that use them (`secrets`, `uuid`) equal on all ranks."""
    import numpy as np  # after `open` has been replaced, which NumPy keeps in tables

    chance = _Chance(seed)

    def urandom(size: int, /) -> bytes:
        return chance.take(size)

    def getrandom(size: int, flags: int = 0) -> bytes:
        return chance.take(size)

    def reseed(self: random.Random, a: Seed = None, version: int = 2) -> None:
        """Initialize internal state from a seed."""
        if a is None and caller() is Caller.PROGRAM:
            a = int.from_bytes(chance.draw(128), "big")
        _real_seed(self, a, version)

    def randbits(k: int) -> int:
        # Libraries create generators, too. Their other random bytes, for file names, stay
        # different.
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


def join(answers: Answers) -> None:
    """Let the program and its libraries share the state behind ``np.random.rand()``, as in NumPy.

    A function that the ranks call unequally often is detected if it draws from this state or from
    `random` (:mod:`distarray.comm.chance`).
    """
    from distarray.comm.chance import watched
    from distarray.ops.random import legacy

    def settled(place: Any) -> Any:
        return answers.settled(place) if in_step() else place

    legacy.join(settled)
    if answers.size > 1:
        watched[:] = [_Pythons(), _Libraries()]


class _Pythons:
    """Generator behind the functions of `random`."""

    def mark(self) -> Any:
        """Return the state."""
        return random.getstate()

    def restore(self, mark: Any) -> None:
        """Restore a state."""
        random.setstate(mark)


class _Libraries:
    """State behind NumPy's functions, from which libraries draw."""

    def mark(self) -> Any:
        """Return the state."""
        import numpy as np

        return pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002

    def restore(self, mark: Any) -> None:
        """Restore a state."""
        import numpy as np

        np.random.set_state(pickle.loads(mark))  # noqa: NPY002
