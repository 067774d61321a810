"""What tests of parameters share."""

from __future__ import annotations

import pytest


@pytest.fixture
def shared_path(world, tmp_path):
    """One directory for all ranks."""
    if world.name == "threads":
        return tmp_path
    return world.group.broadcast_object(tmp_path)
