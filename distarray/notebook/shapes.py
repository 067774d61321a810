"""What is used of IPython and ipyparallel, which are loaded only with the extension."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

__all__ = ["Argument", "Client", "Cluster", "Context", "Pending", "Shell"]

#: What the kernel hands to functions of the ranks.
Argument: TypeAlias = str | int | list[str] | dict[str, str] | dict[str, tuple[str, str]]


class Shell(Protocol):
    """An ``IPython.core.interactiveshell.InteractiveShell``."""

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
    """An ``IPython.core.completer.CompletionContext``."""

    token: str
    full_text: str
    cursor_position: int
    cursor_line: int


class Cluster(Protocol):
    """An ``ipyparallel.Cluster``."""

    engines: dict[str, Any]
    cluster_id: str
    profile_dir: str
    stop_cluster_sync: Callable[[], None]


class Client(Protocol):
    """An ``ipyparallel.Client``."""

    ids: list[int]
    close: Callable[..., None]
    send_signal: Callable[..., Any]

    def __getitem__(self, which: slice | list[int]) -> Any:
        """A view of some engines."""


class Pending(Protocol):
    """An ``ipyparallel.AsyncResult``."""

    _children: list[Any]
    ready: Callable[[], bool]
    wait: Callable[[float], bool]
    wait_for_output: Callable[[float], bool]
    get: Callable[..., list[Any]]
