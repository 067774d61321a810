"""Settings, each with an environment variable ``DISTARRAY_<NAME>`` for its initial value.

Settings live in a context variable: ``with config.override(...)`` is undone at the end of its
block, also after an exception, and threads do not see one another's overrides.
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

#: How many times as large as a line an array of two or more dimensions is when it is cut.
_WIDER = 4
#: Bytes per element of the widest types but two.
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
    """One immutable set of settings; sizes are bytes."""

    #: Where blocks live, for meshes made without `device_type`: "cpu" or "cuda".
    device: str = "cpu"
    #: Arrays smaller than this are replicated unless placements say otherwise; arrays of two or
    #: more dimensions up to four times as large, since they are less often used without a message.
    replicate_below: int = 1 << 19
    #: ``np.asarray(x)`` gathers up to this size and raises above it.
    gather_limit: int = 1 << 30
    #: Whether those gathered copies of cut arrays are writeable; writes do not reach the arrays.
    writeable_copies: bool = False
    #: What a NumPy function without a distributed form does: "warn", "allow" or "error".
    fallback: str = "warn"
    #: What a write to a cut array does of which a library still has a gathered copy, that does not
    #: see it: "warn", "allow" or "error".
    stale: str = "warn"
    #: How messages between GPUs travel, from a group's first one on: "nccl", "mpi" (which takes GPU
    #: buffers), by way of the "host"; or, "measured", in the way that proves fastest.
    gpu_messages: str = "measured"
    #: Largest operand that the fallback gathers.
    fallback_limit: int = 1 << 30
    #: Whether floating-point reductions, and the order within partitions, are equal on every mesh.
    reproducible: bool = False
    #: Whether elementwise operations on large blocks are deferred and run together: "on" or "off".
    fuse: str = "on"
    #: Bytes a rank of cut arrays that loops read or write element by element, or row by row: such
    #: an array, of up to half as much, is fetched by every rank and kept while nothing else writes
    #: to cut arrays; 0 turns that off.
    keep: int = 1 << 26
    #: Compare what the ranks are calling before each collective operation.
    check: bool = False
    #: Seconds that a rank waits for others before the lines of all ranks are reported; 0 when the
    #: first mesh is made turns that off. It holds for the process: ``override`` has no effect.
    wait_limit: float = 60.0
    #: End a job whose ranks wait for one another in vain; if off, only report it.
    end_waits: bool = True
    #: ``str`` and ``repr`` gather (a collective), and print what NumPy prints.
    print_gathered: bool = False
    #: Keep freed memory in glibc's arena instead of returning it to the kernel.
    arena: bool = True
    #: Divide the BLAS threads of a node among its ranks.
    blas_threads: bool = True
    #: Answer calls on small arrays in C, where the package was built with a compiler. It is read
    #: when the package is imported.
    speedups: bool = True
    #: Let the ranks of a node share memory for large blocks; if off, they send messages. It is read
    #: when a group's first large block is folded.
    shared_memory: bool = True
    #: Wait until a new file is on disk before it takes its name. If off, a file that is written
    #: without an error may still be lost, or damaged, when the machine fails.
    durable: bool = True
    #: Bytes from which arrays are cut: lines, and those of two or more dimensions (`_WIDER`).
    cut_from: tuple[int, int] = field(init=False, repr=False, compare=False)
    #: Elements (of up to `WIDEST` bytes each) below which NumPy computes with whole arrays at
    #: once, whatever their shape; 0 if sums have an order of their own.
    at_once: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits = self.replicate_below, _WIDER * self.replicate_below
        object.__setattr__(self, "cut_from", limits)  # found once, as loops ask for it
        most = 0 if self.reproducible else self.replicate_below // WIDEST
        object.__setattr__(self, "at_once", most)


_NAMES = tuple([entry.name for entry in fields(Settings) if entry.init])


_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off", ""), False),
}


def _parse(kind: type, text: str) -> Any:
    """The value that a variable's text stands for."""
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
    """The settings in force; assign an attribute to change one.

    The module `distarray.config` has this class, so that ``distarray.config`` and the `config` of
    ``from distarray.config import config`` are the same object.

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
        """The settings in force here, as one immutable value."""
        return in_force()

    def __getattr__(self, name: str) -> Any:  # the settings themselves are properties, see below
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
    """Call a function when `check` is switched on, in any context, or now if it already is."""
    _listeners.append(listener)
    if config.check:
        listener()


def _told(values: dict[str, Any]) -> None:
    if values.get("check"):
        for listener in _listeners:
            listener()


def in_force() -> Settings:
    """The settings in force here, for callers to whom ``config.settings`` is too slow."""
    here = current.get()
    return elsewhere[0] if here is None else here


def _property_for(name: str) -> property:
    read = attrgetter(name)
    return property(lambda _: read(in_force()), doc=f"The setting {name!r}.")


for _name in _NAMES:
    setattr(Config, _name, _property_for(_name))

#: Called when `check` is set.
_listeners: list[Callable[[], None]] = []
elsewhere = [_from_environment()]
current: ContextVar[Settings | None] = ContextVar("distarray_settings", default=None)
config: Config = cast(Config, sys.modules[__name__])
config.__class__ = Config
