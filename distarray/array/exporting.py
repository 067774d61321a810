"""DLPack: a replicated array handed to other libraries without copying."""

from typing import TYPE_CHECKING, Any

from distarray.comm import devices
from distarray.errors import CopyRequiredError

if TYPE_CHECKING:
    from distarray.array.core import DistArray

__all__ = ["capsule"]


def capsule(
    x: "DistArray",
    block: Any,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The DLPack capsule of an array of which every rank holds the whole.

    What consumers are known to get wrong is exported as a copy unless that is ruled out: torch
    ends the process at negative strides, and writes to memory that is flagged as read-only.
    """
    if not x._layout.is_replicated:
        raise BufferError(
            f"{x._summary()} is partitioned; export this rank's block, x.to_local(), "
            "or the whole array, x.full()"
        )
    if copy is not True and not devices.on_device(block):
        why = _what_torch_gets_wrong(block)
        if why and copy is False:
            raise CopyRequiredError(f"{x._summary()} has {why}; export a copy (copy=True)")
        copy = True if why else copy
    asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    return block.__dlpack__(**{name: value for name, value in asked.items() if value is not None})


def _what_torch_gets_wrong(block: Any) -> str:
    if not block.flags.writeable:
        return "read-only memory, which consumers write to all the same"
    if any(stride < 0 for stride in block.strides):
        return f"negative strides {block.strides}, at which consumers crash"
    return ""
