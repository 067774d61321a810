"""Attributes of IPython and ipyparallel that are used; these load only with the extension."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

__all__ = ["Argument", "Client", "Cluster", "Context", "Pending", "Shell"]

#: Arguments that the kernel sends to functions of the ranks.
Argument: TypeAlias = str | int | list[str] | dict[str, str] | dict[str, tuple[str, str]]


class Shell(Protocol):
    """Subset of ``IPython.core.interactiveshell.InteractiveShell``."""

    user_ns: dict[str, Any]
    user_ns_hidden: dict[str, Any]
    run_cell: Callable[..., Any]
    run_code: Callable[..., Any]
    showtraceback: Callable[..., Any]
    showsyntaxerror: Callable[..., Any]
    set_hook: Callable[..., Any]
    ask_exit: Callable[..., Any]
    register_magic_function: Callable[..., Any]
    ast_transformers: list[Any]
    input_transformers_cleanup: list[Any]
    compile: Any
    display_pub: Any
    displayhook: Any
    history_manager: Any
    Completer: Any
    execution_count: int
    autoawait: bool
    confirm_exit: bool
    keep_running: bool


class Context(Protocol):
    """Subset of ``IPython.core.completer.CompletionContext``."""

    token: str
    full_text: str
    cursor_position: int
    cursor_line: int


class Cluster(Protocol):
    """Subset of ``ipyparallel.Cluster``."""

    engines: dict[str, Any]
    cluster_id: str
    profile_dir: str
    stop_cluster_sync: Callable[[], None]


class Client(Protocol):
    """Subset of ``ipyparallel.Client``."""

    ids: list[int]
    close: Callable[..., None]
    send_signal: Callable[..., Any]

    def __getitem__(self, which: slice | list[int]) -> Any:
        """Return a view of some engines."""


class Pending(Protocol):
    """Subset of ``ipyparallel.AsyncResult``."""

    _children: list[Any]
    ready: Callable[[], bool]
    wait: Callable[[float], bool]
    wait_for_output: Callable[[float], bool]
    get: Callable[..., list[Any]]
