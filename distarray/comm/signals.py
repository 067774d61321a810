"""Last signal that the program has handled, for reports on ranks that wait for each other.

A signal arrives at another line of the program on each rank. A change by its handler, such as a
flag that the program's loop reads, may then make the ranks diverge.
"""

from signal import Signals
from types import CodeType, FrameType

from distarray.comm.user_lines import place, program_frame

__all__ = ["handled", "in_words"]

_last: tuple[int, CodeType, int] | None = None


def handled(number: int, frame: FrameType | None) -> None:
    """Record that the program handles a signal, and the line at which it arrived."""
    global _last
    if frame is not None:
        line = program_frame(frame)
        _last = number, line.f_code, line.f_lasti


def in_words() -> str:
    """Return the signal and the line at which it arrived, as text; empty if there was none."""
    if _last is None:
        return ""
    number, code, instruction = _last
    return f"{Signals(number).name} at {place(code, instruction)}"
