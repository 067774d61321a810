"""The signal that the program has handled last, for the day on which ranks wait for one another.

A signal comes at another place of the program on each rank. What a handler changes, such as a flag
that the program's loop asks, may then part the ranks.
"""

from signal import Signals
from types import CodeType, FrameType

from distarray.comm.user_lines import place, program_frame

__all__ = ["handled", "in_words"]

_last: tuple[int, CodeType, int] | None = None


def handled(number: int, frame: FrameType | None) -> None:
    """Note that the program handles a signal, and where it has come."""
    global _last
    if frame is not None:
        line = program_frame(frame)
        _last = number, line.f_code, line.f_lasti


def in_words() -> str:
    """The signal and the line at which it has come; empty if there was none."""
    if _last is None:
        return ""
    number, code, instruction = _last
    return f"{Signals(number).name} at {place(code, instruction)}"
