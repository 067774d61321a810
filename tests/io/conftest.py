"""The directory that tests of files write to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shared(world: Any, tmp_path: Path) -> Path:
    """A new directory, the same for all ranks of the world."""
    if world.name == "mpi":
        return Path(world.group.broadcast_object(str(tmp_path), 0))
    return tmp_path
