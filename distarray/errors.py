"""The exceptions and warnings of the library.

Each derives from the built-in type that NumPy would raise for the same mistake, so that
``except ValueError`` in an existing program keeps working.
"""

__all__ = [
    "ArgumentsDiffer",
    "ChanceError",
    "CheckpointError",
    "CommunicationForbidden",
    "CopyRequiredError",
    "DamagedFileError",
    "DistArrayError",
    "DivergenceError",
    "GatherLimitError",
    "LayoutError",
    "MeshError",
    "MessageError",
    "NotDistributedError",
    "OtherFileError",
    "PerformanceWarning",
    "StaleCopyWarning",
]


class DistArrayError(Exception):
    """Base class of the library's own exceptions."""


class LayoutError(DistArrayError, ValueError):
    """A placement, layout or local block does not fit the array or the mesh."""


class MeshError(DistArrayError, ValueError):
    """A mesh does not fit its communicator, or operands live on different meshes."""


class MessageError(DistArrayError, RuntimeError):
    """Messages between GPUs cannot be sent in the way that was asked for, or were lost."""


class DivergenceError(DistArrayError, RuntimeError):
    """The ranks are not making the same call."""


class ArgumentsDiffer(DivergenceError, ValueError):
    """The ranks make the same call with arguments that must be equal and are not."""


class CopyRequiredError(DistArrayError, ValueError, BufferError):
    """Memory cannot be shared, and a copy was not allowed.

    By the array API standard consumers of DLPack expect ValueError or BufferError.
    """


class DamagedFileError(DistArrayError, ValueError, OSError):
    """A file is damaged, incomplete, or not of the expected format."""


class OtherFileError(DistArrayError, ValueError):
    """A file leads to another file, which is only read if the caller allows it."""


class CommunicationForbidden(DistArrayError, RuntimeError):
    """A message would have been sent where none is allowed.

    That is inside ``forbid_communication()``, in a thread other than the one that communicates, and
    in a child process, which is no rank.
    """


class ChanceError(CommunicationForbidden):
    """A generator was used inside a function that each rank calls, and made outside, or vice versa.

    Parameters
    ----------
    shared : bool
        Whether it was made outside of the function, so that all ranks share it.
    """

    def __init__(self, shared: bool = True) -> None:
        self.shared = shared
        super().__init__(
            "each rank calls this function for its own part, and a random generator from outside "
            "is shared by all ranks: draw the numbers before the call and pass them as an array "
            "(rng.random(x.shape)), or make a generator in the function, "
            "default_rng([seed, first index])"
            if shared
            else "this random generator was made in a function that each rank called for its own "
            "part, so that it differs between ranks: make it before that call, on all ranks"
        )

    def __reduce__(self) -> tuple[type["ChanceError"], tuple[bool]]:
        return type(self), (self.shared,)


class NotDistributedError(DistArrayError, TypeError):
    """The operation has no distributed form and falling back is not allowed here."""


class GatherLimitError(DistArrayError, ValueError):
    """An implicit gather would exceed the configured limit."""


class PerformanceWarning(UserWarning):
    """The operation works, at a cost that the message states."""


class StaleCopyWarning(UserWarning):
    """A copy that a library has of a cut array does not see what is written to the array now.

    It is raised as an error under ``config.check`` or ``config.stale = "error"``.
    """


class CheckpointError(DistArrayError, ValueError):
    """A checkpoint is damaged, of another kind, or does not fit its destination."""
