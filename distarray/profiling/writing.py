"""Writing of reports, with the reason if it fails."""

import contextlib
import os
from pathlib import Path

__all__ = ["fault", "is_newer", "write"]


def fault(path: Path) -> str:
    """Return why a file cannot be written, as far as known in advance; empty if it can."""
    if path.is_dir():
        return f"{path} is a directory"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if not os.access(path.parent, os.W_OK):
        return f"no permission to write in {path.parent}"
    return ""


def is_newer(path: Path, moment: float) -> bool:
    """Return True if a file was written after a time (s since 1970), to a second."""
    try:
        return path.stat().st_mtime > moment - 1.0
    except OSError:
        return False


def write(path: Path, text: str) -> str:
    """Write a file, completely or not at all; return the reason of a failure, or nothing."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            half.unlink()
        return error.strerror or str(error)
    return ""
