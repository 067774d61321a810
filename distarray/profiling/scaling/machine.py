"""Machine model of three numbers, given by the user or measured on this machine."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from time import perf_counter

import numpy as np

from distarray.comm import Group, default_mesh
from distarray.comm.ledger import size_text

__all__ = ["Machine", "byte_count", "measure", "parsed"]

_NUMBER = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)(?:/s)?\s*", re.IGNORECASE)
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES = {
    "": 1.0,
    **{f"{letter}b": 1000.0**power for power, letter in enumerate(("", "k", "m", "g", "t"))},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
#: Bytes of the message and of the copied array that measure the bandwidths.
_MESSAGE, _COPY = 8 << 20, 32 << 20
_ROUNDS, _SMALL_ROUNDS = 9, 200


@dataclass(frozen=True)
class Machine:
    """Costs of sending and copying on one rank.

    Attributes
    ----------
    latency : float
        Seconds of an empty message.
    bandwidth : float
        Bytes per second that a rank sends.
    memory : float
        Bytes per second that a rank reads and writes while the other cores do the same.
    """

    latency: float
    bandwidth: float
    memory: float

    def seconds(self, messages: float, collectives: float, nbytes: float, ranks: int) -> float:
        """Return the seconds of one rank's messages; a collective is a tree of messages."""
        depth = ceil(log2(ranks)) if ranks > 1 else 0
        return self.latency * (messages + depth * collectives) + nbytes / self.bandwidth

    def __str__(self) -> str:
        return (
            f"latency {1e6 * self.latency:.3g} us, bandwidth {size_text(int(self.bandwidth))}/s, "
            f"memory {size_text(int(self.memory))}/s"
        )


def parsed(text: str) -> Machine:
    """Parse a machine such as ``1.5us,12GB/s,8GB/s``.

    Parameters
    ----------
    text : str
        Latency, message bandwidth and memory bandwidth of one rank.

    Raises
    ------
    ValueError
        If the text is not three positive quantities.
    """
    parts = text.split(",")
    if len(parts) != 3:
        raise ValueError(
            f"a machine is latency, bandwidth and memory bandwidth of a rank, such as "
            f"1.5us,12GB/s,8GB/s, not {text!r}"
        )
    return Machine(_quantity(parts[0], _SECONDS), *[_quantity(part, _BYTES) for part in parts[1:]])


def byte_count(text: str) -> float:
    """Parse a number of bytes such as ``4GiB``."""
    return _quantity(text, _BYTES)


def _quantity(text: str, units: dict[str, float]) -> float:
    found = _NUMBER.fullmatch(text)
    unit = units.get(found[2].lower()) if found else None
    try:
        value = float(found[1]) * unit if found and unit is not None else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        known = ", ".join([name for name in units if name])
        raise ValueError(f"{text.strip()!r} is no quantity above 0 in one of {known}")
    return value


def measure(path: str) -> None:
    """Measure the machine of this job, and write the numbers to a file; collective.

    Parameters
    ----------
    path : str
        File to which rank 0 writes the three numbers, as JSON.
    """
    group = default_mesh().group
    source, target = np.ones(_COPY // 8), np.zeros(_COPY // 8)
    group.barrier()
    copying = _least(lambda: np.copyto(target, source), _ROUNDS)
    slowest = float(np.max(group.allgather(np.array([copying]))))
    latency, sending = 0.0, 0.0
    if group.size > 1:
        latency = _to_and_fro(group, 1, _SMALL_ROUNDS)
        sending = _to_and_fro(group, _MESSAGE // 8, _ROUNDS)
    if group.rank == 0:
        bandwidth = _MESSAGE / max(sending - latency, 1e-9)
        numbers = [latency, bandwidth, 2 * _COPY / slowest]
        Path(path).write_text(json.dumps(numbers), encoding="utf-8")


def _least(work: Callable[[], object], rounds: int) -> float:
    """Return the seconds of the fastest run, since other processes may use the machine, too."""
    taken = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        taken.append(perf_counter() - start)
    return min(taken)


def _to_and_fro(group: Group, length: int, rounds: int) -> float:
    """Return the seconds of a message from rank 0 to rank 1: half a round trip."""
    mine, theirs = np.ones(length), np.zeros(length)
    peer = 1 - group.rank

    def once() -> None:
        if group.rank == 0:
            group.exchange([(peer, mine)], [])
            group.exchange([], [(peer, theirs)])
        else:
            group.exchange([], [(peer, theirs)])
            group.exchange([(peer, mine)], [])

    found = _least(once, rounds) / 2 if group.rank < 2 else 0.0
    group.barrier()
    return found


if __name__ == "__main__":
    measure(sys.argv[1])
