"""Files and directories that are read later than they are opened, and may be replaced meanwhile."""

import os
from typing import BinaryIO

__all__ = ["HeldDirectory", "HeldFile"]

_AGAIN = "has been replaced or changed since it was opened; open it again to read what is there"
#: Bytes before the elements that are compared.
_LEAD = 128


class HeldFile:
    """An open file, which goes on being what was opened when another one takes its name.

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
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def lead(self, start: int) -> bytes:
        """The bytes before some place, by which a header is known again."""
        count = min(start, _LEAD)
        return os.pread(self._file.fileno(), count, start - count)

    def at(self, start: int, lead: bytes) -> BinaryIO:
        """The file, which stands at some place; raises if other bytes are before it by now."""
        if self.lead(start) != lead:
            raise OSError(f"{self.path} {_AGAIN}")
        self._file.seek(start)
        return self._file

    def close(self) -> None:
        """Give it up."""
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # whoever opens an array to read once need not close it
            self.close()


class HeldDirectory:
    """A directory that is read by its name: refused when another one has taken the name.

    Parameters
    ----------
    path : str
        The directory.
    """

    def __init__(self, path: str) -> None:
        self.path, self._handle = path, -1
        # As long as it is open, no new one can have its number.
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def check(self) -> None:
        """Raise if the name stands for something else by now."""
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._handle))
        except FileNotFoundError:
            same = False
        if not same:
            raise OSError(f"{self.path} {_AGAIN}")

    def close(self) -> None:
        """Give it up."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()
