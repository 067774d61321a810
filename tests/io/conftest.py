"""What the tests of files share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shared(world: Any, tmp_path: Path) -> Path:
    """A new directory that all ranks of the world know: rank 0's."""
    if world.name == "mpi":
        return Path(world.group.broadcast_object(str(tmp_path), 0))
    return tmp_path
