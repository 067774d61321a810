"""Fixtures of the tests of checkpoints: those of files."""

from __future__ import annotations

from tests.io.conftest import shared

__all__ = ["shared"]
