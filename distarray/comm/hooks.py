"""Thin for now: replaced below."""


def install() -> None:
    """Nothing yet."""
