"""What is done for large arrays or long loops alone, done always, so that small tests see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["everything_is_kept", "everything_waits", "messages_come_late", "nothing_is_watched"]


def everything_waits(replace: Any = setattr) -> None:
    """Put off what can be, also where warnings would be noticed to come late."""
    from distarray.array import casting, deferred, operators, temporaries

    for module in (casting, operators, temporaries):
        replace(module, "LARGE", 0)
    replace(deferred, "LEAST", 0)
    replace(deferred, "is_observed", lambda: False)


def messages_come_late(replace: Any = setattr, tell: Any = lambda what: None) -> None:
    """Let what an exchange receives be there only when it is waited for; before, it is garbage.

    `tell` is called with "begun" and "arrived".
    """
    from distarray.comm.group import Group
    from distarray.comm.pending import Finishing

    begin = Group.begin_exchange

    def begin_late(self: Any, sends: Any, receives: Any, note: Any = None, kind: str = "") -> Any:
        landing = [(peer, np.empty_like(view)) for peer, view in receives]
        pending = begin(self, sends, landing, note, kind)
        for _, view in receives:
            view.reshape(-1).view(np.uint8)[...] = 0xA5
        tell("begun")

        def finish() -> None:
            for (_, view), (_, part) in zip(receives, landing, strict=True):
                view[...] = part
            tell("arrived")

        return Finishing(pending, finish)

    replace(Group, "begin_exchange", begin_late)


def everything_is_kept(replace: Any = setattr) -> None:
    """Fetch and keep cut arrays from the second access on, also if the code names blocks."""
    from distarray.array import mirroring

    replace(mirroring, "FEW", 1)
    replace(mirroring, "WORTH", 0)
    replace(mirroring, "names_blocks", lambda: False)


@contextmanager
def nothing_is_watched() -> Iterator[None]:
    """As if no test before had overridden operators, or compared calls, which is remembered."""
    from distarray.array import ladder
    from distarray.array.floaterrors import NORMAL

    watched = ladder.usual, ladder.unwatched
    before, basic = [state[0] for state in watched], set(ladder.basic_keys)
    ladder.usual[0], ladder.unwatched[0] = NORMAL, True
    ladder.basic_keys |= {int, slice, type(None), type(Ellipsis), np.int64}
    yield
    for state, value in zip(watched, before, strict=True):
        state[0] = value
    ladder.basic_keys &= basic
