"""Settings, each with an environment variable ``DISTARRAY_<NAME>`` for its initial value.

Overrides are stored in a context variable. ``with config.override(...)`` is undone at the end of
its block, also after an exception. A thread does not see the overrides of another thread.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from types import ModuleType
from typing import Any, cast

__all__ = ["WIDEST", "Settings", "config", "current", "elsewhere", "in_force", "on_check"]

#: Size at which an array of two or more dimensions is cut, divided by that of a 1-D array.
_WIDER = 4
#: Bytes per element of the widest common data types (complex128, longdouble).
WIDEST = 16
_CHOICES = {
    "device": ("cpu", "cuda"),
    "fallback": ("warn", "allow", "error"),
    "fuse": ("on", "off"),
    "gpu_messages": ("measured", "nccl", "mpi", "host"),
    "stale": ("warn", "allow", "error"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Immutable set of settings; sizes are in bytes."""

    #: Device of the blocks, for meshes made without `device_type`: "cpu" or "cuda".
    device: str = "cpu"
    #: Size below which arrays are replicated if no placements are given. For arrays of two or more
    #: dimensions the limit is four times as large: fewer operations on them need no message.
    replicate_below: int = 1 << 19
    #: Largest array that ``np.asarray(x)`` gathers; for larger arrays it raises.
    gather_limit: int = 1 << 30
    #: True if the gathered copies of cut arrays are writeable; writes do not change the arrays.
    writeable_copies: bool = False
    #: Reaction to a NumPy function without a distributed form: "warn", "allow" or "error".
    fallback: str = "warn"
    #: Reaction to a write to a cut array of which a library still has a gathered copy (the write
    #: does not change the copy): "warn", "allow" or "error".
    stale: str = "warn"
    #: Transport of messages between GPUs, fixed at a group's first message: "nccl", "mpi" (MPI gets
    #: GPU buffers), "host" (through host memory), or "measured" (the fastest of them).
    gpu_messages: str = "measured"
    #: Largest operand that the fallback gathers.
    fallback_limit: int = 1 << 30
    #: True if floating-point reductions, and the order within partitions, are equal on every mesh.
    reproducible: bool = False
    #: Deferral of elementwise operations on large blocks, to run them together: "on" or "off".
    fuse: str = "on"
    #: Bytes per rank for cut arrays that loops read or write element by element, or row by row.
    #: Every rank fetches such an array, if it has up to half this size, and keeps the copy as long
    #: as nothing else writes to cut arrays. 0 disables the copies.
    keep: int = 1 << 26
    #: Compare the calls of the ranks before each collective operation.
    check: bool = False
    #: Seconds that a rank waits for other ranks before the current lines of all ranks are reported.
    #: The value 0, when the first mesh is made, disables the reports. The setting applies to the
    #: process: ``override`` has no effect.
    wait_limit: float = 60.0
    #: End a job whose ranks are in a deadlock; if off, only report the deadlock.
    end_waits: bool = True
    #: ``str`` and ``repr`` gather (a collective), and return NumPy's text of the whole array.
    print_gathered: bool = False
    #: Keep freed memory in glibc's arena instead of returning it to the kernel.
    arena: bool = True
    #: Divide the BLAS threads of a node among its ranks.
    blas_threads: bool = True
    #: Run calls on small arrays in C, where the package was built with a compiler. The setting is
    #: read when the package is imported.
    speedups: bool = True
    #: Let the ranks of a node share memory for large blocks; if off, they send messages. The
    #: setting is read when a group's first large block is folded.
    shared_memory: bool = True
    #: Wait until a new file is on disk before it gets its final name. If off, a file that is
    #: written without an error may still be lost, or damaged, when the machine fails.
    durable: bool = True
    #: Bytes from which arrays are cut: 1-D arrays; arrays of more dimensions (see `_WIDER`).
    cut_from: tuple[int, int] = field(init=False, repr=False, compare=False)
    #: Elements (of up to `WIDEST` bytes each) below which NumPy computes with whole arrays at
    #: once, whatever their shape; 0 if sums are reproducible, since their order is then fixed.
    at_once: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits = self.replicate_below, _WIDER * self.replicate_below
        object.__setattr__(self, "cut_from", limits)  # computed once: loops read it often
        most = 0 if self.reproducible else self.replicate_below // WIDEST
        object.__setattr__(self, "at_once", most)


_NAMES = tuple([entry.name for entry in fields(Settings) if entry.init])


_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off", ""), False),
}


def _parse(kind: type, text: str) -> Any:
    """Convert the text of an environment variable to the type of its setting."""
    if kind is bool:
        found = _WORDS.get(text.strip().lower())
        if found is None:
            raise ValueError(f"it is 1 or 0 (true, yes, on, false, no, off), not {text!r}")
        return found
    return kind(text)


def _from_environment() -> Settings:
    values = {}
    for name in _NAMES:
        variable = f"DISTARRAY_{name.upper()}"
        text = os.environ.get(variable)
        try:
            if text is not None:
                values[name] = _parse(type(getattr(Settings(), name)), text)
            _check(values)
        except ValueError as error:
            raise ValueError(f"the environment variable {variable}={text}: {error}") from None
    return Settings(**values)


def _check(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name not in _NAMES:
            raise AttributeError(f"config has no setting {name!r}; it has {', '.join(_NAMES)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"config.{name} is one of {_CHOICES[name]}, not {value!r}")


class Config(ModuleType):
    """Module type with the settings in force as attributes; assign an attribute to change one.

    The module `distarray.config` is an instance of this class. Hence ``distarray.config`` and the
    `config` of ``from distarray.config import config`` are the same object.

    Examples
    --------
    >>> from distarray.config import config
    >>> with config.override(fallback="error"):
    ...     config.fallback
    'error'
    >>> config.fallback
    'warn'
    """

    @property
    def settings(self) -> Settings:
        """Settings in force in this context, as one immutable value."""
        return in_force()

    def __getattr__(self, name: str) -> Any:  # existing settings are properties, see below
        raise AttributeError(f"config has no setting {name!r}; it has {', '.join(_NAMES)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):  # set by the import system
            super().__setattr__(name, value)
            return
        _check({name: value})
        _told({name: value})
        if current.get() is None:
            elsewhere[0] = replace(elsewhere[0], **{name: value})
        else:
            current.set(replace(self.settings, **{name: value}))

    @contextmanager
    def override(self, **values: Any) -> Iterator[Settings]:
        """Change settings for the duration of a ``with`` block."""
        _check(values)
        _told(values)
        token = current.set(replace(self.settings, **values))
        try:
            yield self.settings
        finally:
            current.reset(token)

    def __repr__(self) -> str:
        return repr(self.settings).replace("Settings", "config", 1)


def on_check(listener: Callable[[], None]) -> None:
    """Call a function when `check` is switched on, in any context; at once if it is on."""
    _listeners.append(listener)
    if config.check:
        listener()


def _told(values: dict[str, Any]) -> None:
    if values.get("check"):
        for listener in _listeners:
            listener()


def in_force() -> Settings:
    """Return the settings in force in this context; faster than ``config.settings``."""
    here = current.get()
    return elsewhere[0] if here is None else here


def _property_for(name: str) -> property:
    read = attrgetter(name)
    return property(lambda _: read(in_force()), doc=f"The setting {name!r}.")


for _name in _NAMES:
    setattr(Config, _name, _property_for(_name))

#: Functions that are called when `check` is switched on.
_listeners: list[Callable[[], None]] = []
elsewhere = [_from_environment()]
current: ContextVar[Settings | None] = ContextVar("distarray_settings", default=None)
config: Config = cast(Config, sys.modules[__name__])
config.__class__ = Config
