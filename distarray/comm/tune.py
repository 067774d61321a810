"""Thin for now: replaced below."""

from typing import Any


def start(comm: Any) -> None:
    """Nothing yet."""
