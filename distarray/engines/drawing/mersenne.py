"""Jumps along the stream of MT19937, which NumPy only has for 2^128 words.

The words satisfy a linear recurrence over GF(2) of 19937 terms. So the word n positions further on
is the exclusive or of some of the next 19937 words: of the words whose powers occur in the
polynomial t^n modulo the characteristic polynomial (H. Haramoto, M. Matsumoto, T. Nishimura, F.
Panneton, P. L'Ecuyer, *Efficient jump ahead for F2-linear random number generators*, INFORMS
Journal on Computing 20, 2008). The characteristic polynomial is that of M. Matsumoto and T.
Nishimura, *Mersenne twister*, ACM TOMACS 8, 1998, appendix A. Polynomials are Python integers, with
one bit per coefficient.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from distarray.typing import Array

__all__ = ["moved"]

_DEGREE = 19937
_BLOCK = 624
_MIDDLE = 397
#: The matrix of the generator's twist, without the highest bit.
_MATRIX = 0x1908B0DF
#: Bits by which the degree falls when the highest bits of a polynomial are reduced.
_FALL = _BLOCK - 1
#: Bits of a polynomial that are looked up together.
_GROUP = 6
#: The bits of each byte, with a zero before each bit.
_SPREAD = np.array([int(f"{byte:b}", 4) for byte in range(256)], "<u2")


def moved(bits: Any, words: int) -> None:
    """Advance a NumPy bit generator by a number of words.

    Parameters
    ----------
    bits : MT19937
        The bit generator.
    words : int
        The number of words, at least one.

    Cost
    ----
    Some milliseconds for any distance; less for a distance that is in the cache.
    """
    state = bits.state
    blocks, place = divmod(int(state["state"]["pos"]) + words - 1, _BLOCK)
    if blocks:
        state["state"]["key"] = _raw(_later(_line(bits, state), _power(blocks * _BLOCK - 1)))
    state["state"]["pos"] = place + 1
    bits.state = state


def _line(bits: Any, state: dict[str, Any]) -> Array:
    """Return the words of a state's block and the next words, which determine later blocks."""
    state["state"]["pos"] = 0
    bits.state = state
    words: Array = bits.random_raw(_DEGREE + _BLOCK + _GROUP).astype(np.uint32)
    return words


def _raw(words: Array) -> Array:
    """Invert the tempering: return the state words from which a generator makes these words."""
    words = words ^ words >> 18
    words ^= words << 15 & 0xEFC60000
    mixed = words
    for _ in range(4):
        mixed = words ^ mixed << 7 & 0x9D2C5680
    raw: Array = mixed ^ mixed >> 11 ^ mixed >> 22
    return raw


def _later(line: Array, power: int) -> Array:
    """Compute a later block from a line's words.

    Of the first word, only one bit is part of the recurrence.
    """
    bits = np.unpackbits(np.frombuffer(_bytes(power), np.uint8), bitorder="little")
    chosen = bits[: (_DEGREE // _GROUP + 1) * _GROUP].reshape(-1, _GROUP)
    groups = chosen @ (1 << np.arange(_GROUP))
    sums = np.zeros((1 << _GROUP, len(line) - _GROUP), np.uint32)
    for group in range(1, 1 << _GROUP):
        first = group.bit_length()
        rest = sums[group - (1 << first - 1)]
        np.bitwise_xor(rest, line[first : first + sums.shape[1]], out=sums[group])
    block = np.zeros(_BLOCK, np.uint32)
    for number, group in enumerate(groups.tolist()):
        if group:
            first = number * _GROUP
            block ^= sums[group, first : first + _BLOCK]
    return block


@lru_cache(maxsize=64)
def _power(exponent: int) -> int:
    """Compute a power of t modulo the characteristic polynomial, by squaring."""
    below = max(0, exponent.bit_length() - _DEGREE.bit_length() + 1)
    found = 1 << (exponent >> below)
    for place in reversed(range(below)):
        spread = _SPREAD[np.frombuffer(_bytes(found), np.uint8)]
        found = _reduced(int.from_bytes(spread.tobytes(), "little") << (exponent >> place & 1))
    return found


def _bytes(polynomial: int) -> bytes:
    return polynomial.to_bytes(_DEGREE // 8 + 1, "little")


def _reduced(polynomial: int) -> int:
    """Reduce a polynomial of less than twice the degree, from the highest bits down."""
    while (more := polynomial.bit_length() - _DEGREE) > 0:
        shift = max(0, more - _FALL)
        high = polynomial >> _DEGREE + shift
        polynomial ^= _characteristic(high) << shift
    return polynomial


def _characteristic(factor: int) -> int:
    """Multiply the characteristic polynomial, t (q^32 + a30 q + ... + a0 q^31) + 1, by a factor.

    Here q is t^623 + t^396, and a are the bits of the twist's matrix. Four of these bits are
    processed at a time: the square of a sum is the sum of the squares.
    """
    multiples = [factor]
    for _ in range(3):
        multiples.append(multiples[-1] << _BLOCK - 1 ^ multiples[-1] << _MIDDLE - 1)
    total = factor
    for place in range(0, 32, 4):
        total = total << 4 * (_BLOCK - 1) ^ total << 4 * (_MIDDLE - 1)
        for power, multiple in enumerate(multiples):
            if _MATRIX >> place + 3 - power & 1:
                total ^= multiple
    return (total << 1) ^ factor
