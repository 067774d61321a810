"""Open files and directories that are read later, and may be replaced before they are read."""

import os
from typing import BinaryIO

__all__ = ["HeldDirectory", "HeldFile"]

_AGAIN = "has been replaced or changed since it was opened; open it again to read what is there"
#: Number of bytes before an array's elements that are compared to detect a changed file.
_LEAD = 128


class HeldFile:
    """Open file, which stays readable when another file replaces it under its name.

    Parameters
    ----------
    path : str
        The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def lead(self, start: int) -> bytes:
        """Read the bytes before `start`, which are compared later to detect a changed file."""
        count = min(start, _LEAD)
        return os.pread(self._file.fileno(), count, start - count)

    def at(self, start: int, lead: bytes) -> BinaryIO:
        """Return the file, positioned at `start`; raise if the bytes before it have changed."""
        if self.lead(start) != lead:
            raise OSError(f"{self.path} {_AGAIN}")
        self._file.seek(start)
        return self._file

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # the program need not close the file
            self.close()


class HeldDirectory:
    """Directory that is read by its name, unless another directory has replaced it.

    Parameters
    ----------
    path : str
        The directory.
    """

    def __init__(self, path: str) -> None:
        self.path, self._handle = path, -1
        # As long as the directory is open, no new directory can have its inode number.
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def check(self) -> None:
        """Raise if the name now refers to another directory or file, or to none."""
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._handle))
        except FileNotFoundError:
            same = False
        if not same:
            raise OSError(f"{self.path} {_AGAIN}")

    def close(self) -> None:
        """Close the directory."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()
