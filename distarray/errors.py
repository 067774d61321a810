"""Exceptions and warnings of the library.

Each exception derives from the built-in type that NumPy would raise for the same mistake, so that
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
    """Error: a placement, layout or local block does not fit the array or the mesh."""


class MeshError(DistArrayError, ValueError):
    """Error: a mesh does not fit its communicator, or operands are on different meshes."""


class MessageError(DistArrayError, RuntimeError):
    """Error: the requested transport of messages between GPUs fails, or messages were lost."""


class DivergenceError(DistArrayError, RuntimeError):
    """Error: the ranks do not make the same call."""


class ArgumentsDiffer(DivergenceError, ValueError):
    """Error: the ranks make the same call, but arguments differ that must be equal."""


class CopyRequiredError(DistArrayError, ValueError, BufferError):
    """Error: memory cannot be shared, and the caller does not allow a copy.

    By the array API standard, consumers of DLPack expect ValueError or BufferError.
    """


class DamagedFileError(DistArrayError, ValueError, OSError):
    """Error: a file is damaged, incomplete, or not of the expected format."""


class OtherFileError(DistArrayError, ValueError):
    """Error: a file refers to another file, which is only read if the caller allows it."""


class CommunicationForbidden(DistArrayError, RuntimeError):
    """Error: a message would have been sent where no message is allowed.

    No message is allowed inside ``forbid_communication()``, in any thread but the one that
    communicates, and in a child process, which is no rank.
    """


class ChanceError(CommunicationForbidden):
    """Error: a random generator crosses the boundary of a function that each rank calls.

    The generator was made outside of such a function and used inside, or vice versa.

    Parameters
    ----------
    shared : bool
        True if the generator was made outside of the function, so that all ranks share it.
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
    """Error: the operation has no distributed form, and falling back is not allowed here."""


class GatherLimitError(DistArrayError, ValueError):
    """Error: an implicit gather would exceed the configured limit."""


class PerformanceWarning(UserWarning):
    """Warning: the operation works, at a cost that the text of the warning states."""


class StaleCopyWarning(UserWarning):
    """Warning: a library has a copy of a cut array, which this write to the array does not change.

    The warning is raised as an error under ``config.check`` or ``config.stale = "error"``.
    """


class CheckpointError(DistArrayError, ValueError):
    """Error: a checkpoint is damaged, of another kind, or does not fit its destination."""
