"""Settings, each with an environment variable ``DISTARRAY_<NAME>`` for its start value.

Settings live in a context variable: a block of ``with config.override(...)`` ends where it ends,
also when it is left by an exception, and threads do not see one another's.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

__all__ = ["Settings", "config"]

_CHOICES = {"fallback": ("warn", "allow", "error")}


@dataclass(frozen=True, slots=True)
class Settings:
    """One immutable set of settings; sizes are bytes."""

    #: Arrays smaller than this are replicated unless placements say otherwise.
    replicate_below: int = 1 << 18
    #: ``np.asarray(x)`` gathers up to this size and raises above it.
    gather_limit: int = 1 << 30
    #: What a NumPy function without a distributed form does: "warn", "allow" or "error".
    fallback: str = "warn"
    #: Largest operand that the fallback gathers.
    fallback_limit: int = 1 << 30
    #: Floating-point reductions give the same bits on every mesh.
    reproducible: bool = False
    #: Compare what the ranks are calling before each collective operation.
    check: bool = False
    #: ``str`` and ``repr`` gather (a collective), and print what NumPy prints.
    print_gathered: bool = False
    #: Keep freed memory in glibc's arena instead of returning it to the kernel.
    arena: bool = True
    #: Divide the BLAS threads of a node among its ranks.
    blas_threads: bool = True


def _parse(kind: type, text: str) -> Any:
    if kind is bool:
        return text.strip().lower() in ("1", "true", "yes", "on")
    return kind(text)


def _from_environment() -> Settings:
    values = {}
    for field in fields(Settings):
        text = os.environ.get(f"DISTARRAY_{field.name.upper()}")
        if text is not None:
            values[field.name] = _parse(type(getattr(Settings(), field.name)), text)
    _check(values)
    return Settings(**values)


def _check(values: dict[str, Any]) -> None:
    names = [field.name for field in fields(Settings)]
    for name, value in values.items():
        if name not in names:
            raise AttributeError(f"config has no setting {name!r}; it has {', '.join(names)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"config.{name} is one of {_CHOICES[name]}, not {value!r}")


class Config:
    """The settings in force; assign an attribute to change one.

    Examples
    --------
    >>> from distarray.config import config
    >>> with config.override(fallback="error"):
    ...     config.fallback
    'error'
    >>> config.fallback
    'warn'
    """

    __slots__ = ("_base", "_current")

    def __init__(self) -> None:
        object.__setattr__(self, "_base", _from_environment())
        object.__setattr__(self, "_current", ContextVar[Settings | None]("settings", default=None))

    @property
    def settings(self) -> Settings:
        """The settings in force here, as one immutable value."""
        current: Settings | None = self._current.get()
        base: Settings = self._base
        return base if current is None else current

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _check({name: value})
        if self._current.get() is None:
            object.__setattr__(self, "_base", replace(self._base, **{name: value}))
        else:
            self._current.set(replace(self.settings, **{name: value}))

    @contextmanager
    def override(self, **values: Any) -> Iterator[Settings]:
        """Change settings for the length of a ``with`` block."""
        _check(values)
        token = self._current.set(replace(self.settings, **values))
        try:
            yield self.settings
        finally:
            self._current.reset(token)

    def __repr__(self) -> str:
        return repr(self.settings).replace("Settings", "config", 1)


config = Config()
