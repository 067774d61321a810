"""Transfer methods for messages between GPUs, and the choice between them by measurement.

A group of ranks chooses once, when its blocks in GPU memory first take part in a collective.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distarray.comm import nccl
from distarray.comm.devices import gpu_aware
from distarray.comm.nccl import Nccl, Seat
from distarray.config import config
from distarray.errors import DivergenceError, MessageError
from distarray.layout.placement import Fold

if TYPE_CHECKING:
    from distarray.comm.device_blocks import DeviceBlocks

__all__ = ["EXCHANGE", "HOST", "MPI", "NCCL", "TOGETHER", "Line", "Ways", "chosen"]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

#: Transfer methods: by NCCL, by MPI from GPU memory, by MPI from copies on the host.
NCCL, MPI, HOST = "nccl", "mpi", "host"
#: Value of the setting with which the measured times decide.
MEASURED = "measured"
#: Kinds of communication: between two ranks, and of all ranks together.
EXCHANGE, TOGETHER = "exchange", "together"
#: Bytes of the messages that are timed.
SIZES = (1 << 12, 1 << 22)
#: Number of times that each message is timed; the fastest counts.
TRIES = 3


class Line(NamedTuple):
    """Seconds that a message takes: a constant, and seconds per byte."""

    start: float = 0.0
    each: float = 0.0


class Ways:
    """Choice of one group, the same on all of its ranks.

    Parameters
    ----------
    communicator : Nccl or None
        NCCL's communicator, if NCCL is possible.
    lines : dict
        For each kind of communication, the possible transfer methods, each with its time.
    """

    __slots__ = ("lines", "nccl")

    def __init__(self, communicator: Nccl | None, lines: dict[str, dict[str, Line]]) -> None:
        self.nccl, self.lines = communicator, lines

    def way(self, kind: str, nbytes: int) -> str:
        """Return the transfer method of a message of `nbytes` bytes: the fastest one."""
        lines = self.lines[kind]
        if len(lines) == 1:
            return next(iter(lines))
        return min(lines, key=lambda way: lines[way].start + lines[way].each * nbytes)


class _Facts(NamedTuple):
    """Facts that all ranks exchange: setting, NCCL ability, GPU buffers in MPI, and CuPy."""

    wanted: str
    seat: Seat
    aware: bool
    has_cupy: bool


def chosen(group: "DeviceBlocks", xp: Any) -> Ways:
    """Choose the transfer methods of a group of several ranks; collective, not in the ledger.

    Parameters
    ----------
    group : Group
    xp : module or None
        CuPy; None if it is missing.

    Raises
    ------
    MessageError
        On all ranks, if ``config.gpu_messages`` asks for a method that is not possible.
    """
    wanted = config.gpu_messages
    aware = group.takes_device_buffers and gpu_aware()
    mine = nccl.seat(xp) if wanted in (MEASURED, NCCL) else Seat("", "")
    told = group._allgather_object(_Facts(wanted, mine, aware, xp is not None))
    if len({each.wanted for each in told}) > 1:
        settings = [each.wanted for each in told]
        raise DivergenceError(f"config.gpu_messages differs between the ranks: {settings}")
    found = _nccl(group, xp, told)
    obstacles = {
        NCCL: found if isinstance(found, str) else "",
        MPI: _unaware(group, told),
        HOST: "",
    }
    ways = [way for way, obstacle in obstacles.items() if not obstacle]
    if wanted != MEASURED:
        if obstacles[wanted]:
            raise MessageError(f"config.gpu_messages is {wanted!r}, but {obstacles[wanted]}")
        ways = [wanted]
    # Collectives by MPI go through the host, because MPI folds on the host's processors.
    together = dict.fromkeys([HOST if way == MPI else way for way in ways], Line())
    lines = {EXCHANGE: dict.fromkeys(ways, Line()), TOGETHER: together}
    choice = Ways(None if isinstance(found, str) else found, lines)
    return _measured(group, xp, choice) if all(each.has_cupy for each in told) else choice


def _nccl(group: "DeviceBlocks", xp: Any, told: Sequence[_Facts]) -> Nccl | str:
    """Return NCCL between the ranks, or the reason why they cannot use it."""
    if told[0].wanted not in (MEASURED, NCCL):
        return "another way was asked for"
    obstacle = nccl.obstacle([each.seat for each in told], group.nodes)
    return obstacle or nccl.meet(group, xp)


def _unaware(group: "DeviceBlocks", told: Sequence[_Facts]) -> str:
    """Return the reason why MPI cannot take GPU buffers; empty if it can."""
    ranks = [rank for rank, each in enumerate(told) if not each.aware]
    if not ranks:
        return ""
    if not group.takes_device_buffers:
        return "these ranks are threads, which send nothing by MPI"
    return (
        f"MPI does not say on rank {ranks[0]} that it takes GPU buffers; "
        "DISTARRAY_GPU_AWARE=1 says so in its place"
    )


def _measured(group: "DeviceBlocks", xp: Any, choice: Ways) -> Ways:
    """Return the choice with the measured times, if there are several methods."""
    trials: dict[tuple[str, str], list[Callable[[], object]]] = {}
    for kind, ways in choice.lines.items():
        for way in ways if len(ways) > 1 else ():
            only = Ways(choice.nccl, {**choice.lines, kind: {way: Line()}})
            trials[kind, way] = [_trial(group, only, kind, xp, nbytes) for nbytes in SIZES]
    if not trials:
        return choice
    mine = [[_seconds(group, xp, call) for call in calls] for calls in trials.values()]
    times = group._allreduce(np.array(mine), Fold.MAX).tolist()
    lines = {kind: dict(ways) for kind, ways in choice.lines.items()}
    for (kind, way), (short, long) in zip(trials, times, strict=True):
        each = max(0.0, (long - short) / (SIZES[1] - SIZES[0]))
        lines[kind][way] = Line(max(0.0, short - each * SIZES[0]), each)
    return Ways(choice.nccl, lines)


def _trial(
    group: "DeviceBlocks", ways: Ways, kind: str, xp: Any, nbytes: int
) -> Callable[[], object]:
    """Return a call of one kind of communication in which each rank sends `nbytes` bytes."""
    block = xp.zeros((nbytes // 4,), np.float32)
    if kind == TOGETHER:
        return lambda: group._fold_on_device(block, Fold.SUM, ways)
    landing, after, before = xp.empty_like(block), group.rank + 1, group.rank - 1
    sends, receives = [(after % group.size, block)], [(before % group.size, landing)]
    return lambda: group._exchange_on_device(sends, receives, ways)


def _seconds(group: "DeviceBlocks", xp: Any, call: Callable[[], object]) -> float:
    """Return the seconds of a call, from when all ranks have come to its end on this rank."""
    taken = []
    for _ in range(1 + TRIES):  # the first call makes the connections
        group._barrier()
        start = perf_counter()
        call()
        xp.cuda.get_current_stream().synchronize()
        taken.append(perf_counter() - start)
    return min(taken[1:])
