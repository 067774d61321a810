"""Notes that autograd saves in place of gathered parameters.

Between forward and backward the gathered parameters of a unit do not exist. If autograd saves a
tensor that shares their memory, a note is saved instead
(``torch.autograd.graph.saved_tensors_hooks``), and the parameter is gathered again when needed.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from distarray.torch.bridge.plain import local_of
from distarray.torch.sharded.ahead import poke

__all__ = ["Notes", "in_use"]


#: Gathered parameters that a forward is using: by the address of their memory, their `Use` and
#: their index in it.
in_use: dict[int, tuple[Any, int]] = {}


class _Note(NamedTuple):
    """Description of a view of a gathered parameter that autograd has saved."""

    use: Any
    place: int
    strides: tuple[Any, ...]


class Notes:
    """Hooks that save notes instead of gathered parameters.

    Any other tensor is passed to the surrounding hooks, such as those of a checkpoint.
    """

    __slots__ = ("outer",)

    def __init__(self, outer: Any) -> None:
        self.outer = outer

    def pack(self, tensor: Tensor) -> Any:
        """Return the object to save in place of a tensor."""
        poke()
        plain = local_of(tensor)
        own = not hasattr(plain, "_spec")  # a distributed tensor has no memory of its own
        if own and plain.layout is torch.strided and plain.numel():
            found = in_use.get(plain.untyped_storage().data_ptr())
            if found is not None:
                return _Note(*found, (plain.shape, plain.stride(), plain.storage_offset()))
        return tensor if self.outer is None else self.outer[0](tensor)

    def unpack(self, kept: Any) -> Tensor:
        """Return the tensor in place of which `kept` was saved."""
        poke()
        if type(kept) is _Note:
            return local_of(kept.use.again(kept.place)).as_strided(*kept.strides)
        return kept if self.outer is None else self.outer[1](kept)
