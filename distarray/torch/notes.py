"""What autograd keeps of gathered parameters: notes of what they were.

Between forward and backward the gathered parameters of a unit do not exist. What autograd wants to
save of them is replaced by a note (``torch.autograd.graph.saved_tensors_hooks``), and made again
when it is asked for.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from distarray.torch.ahead import poke
from distarray.torch.parts import local_of

__all__ = ["Notes", "in_use"]


#: Gathered parameters that a forward is using, by the address of their memory: whose they are
#: (something with a method ``again(place)``), and which place they have there.
in_use: dict[int, tuple[Any, int]] = {}


class _Note(NamedTuple):
    """A view of a gathered parameter that autograd will ask for."""

    use: Any
    place: int
    strides: tuple[Any, ...]


class Notes:
    """What autograd keeps instead of what it saves of gathered parameters.

    Everything else is kept as the hooks around these want it, such as a checkpoint's.
    """

    __slots__ = ("outer",)

    def __init__(self, outer: Any) -> None:
        self.outer = outer

    def pack(self, tensor: Tensor) -> Any:
        """What is kept of a tensor that autograd saves."""
        poke()
        plain = local_of(tensor)
        if plain.layout is torch.strided and plain.numel():
            found = in_use.get(plain.untyped_storage().data_ptr())
            if found is not None:
                return _Note(*found, (plain.shape, plain.stride(), plain.storage_offset()))
        return tensor if self.outer is None else self.outer[0](tensor)

    def unpack(self, kept: Any) -> Tensor:
        """The tensor of which `kept` was kept."""
        poke()
        if type(kept) is _Note:
            return local_of(kept.use.again(kept.place)).as_strided(*kept.strides)
        return kept if self.outer is None else self.outer[1](kept)
