"""The kernel's side of a notebook: ``%distarray``, and cells that are sent to the ranks."""

import atexit
from collections.abc import Callable
from typing import Any

from distarray.notebook.session import Session
from distarray.notebook.shapes import Context, Shell

__all__ = ["HELP", "install", "remove"]

HELP = """\
%distarray                how many ranks there are, and where
%distarray ranks N        go on with N ranks: what is distributed is saved, and loaded again
%distarray pull x y ...   bring values to the kernel: arrays by full(), as NumPy's
%distarray restart        new ranks, without variables
%distarray stop           end the ranks; the next cell starts others
%distarray local ...      a statement for the kernel alone
%%distarray local         a cell for the kernel alone; so is one that begins with %distarray local
"""
#: Lines at the beginning of a cell that the kernel executes; the ranks execute the rest.
_LINES = ("%distarray", "%load_ext", "%unload_ext", "%reload_ext", "%config", "#")
#: Cells that the kernel executes: they start programs, write files or contain no Python.
_CELLS = (
    *("%%bash", "%%html", "%%javascript", "%%js", "%%latex", "%%markdown", "%%perl", "%%ruby"),
    *("%%script", "%%sh", "%%svg", "%%system", "%%sx", "%%writefile", "%%!"),
)
_LOCAL = "local"
_MAGIC = "distarray"


class Magics:
    """Commands and hooks that ``%load_ext distarray`` adds to a kernel's shell.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
    """

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.session = Session(shell)
        self.undo: list[Callable[[], None]] = []

    def redirect(self, lines: list[str]) -> list[str]:
        """Rewrite a cell so that it sends itself to the ranks, except the lines for the kernel."""
        first = next((line for line in lines if line.strip()), "").split()
        if first[:2] == [f"%%{_MAGIC}", _LOCAL] or first == [f"%{_MAGIC}", _LOCAL]:
            return lines[1 + next(i for i, line in enumerate(lines) if line.strip()) :]
        if not first or first[0].startswith(_CELLS):
            return lines
        count = 0
        for number, line in enumerate(lines):
            if line.strip() and not line.startswith(_LINES):
                break
            count = number + 1 if line.startswith("%") else count
        mine, others = lines[:count], "".join(lines[count:])
        mine = [_without_local(line) for line in mine]
        if not others.strip():
            return mine
        return [*mine, f"get_ipython().run_cell_magic({_MAGIC!r}, 'cell', {others!r})\n"]

    def command(self, line: str, cell: str | None = None) -> None:
        """Execute a line of ``%distarray``, or a cell on the ranks."""
        word, _, rest = line.strip().partition(" ")
        session = self.session
        acts: dict[str, Callable[[], object]] = {
            "": lambda: print(session.status()),
            "ranks": lambda: self._change(rest.strip()),
            "pull": lambda: self.shell.user_ns.update(session.pull(rest.split())),
            "restart": self._restart,
            "stop": session.stop,
        }
        if cell is not None and word == "cell":
            session.run(cell)
        elif cell is not None or word not in acts:
            raise _usage(f"%distarray has no {line!r}; it has\n\n{HELP}")
        else:
            acts[word]()

    def complete(self, context: Context) -> dict[str, Any]:
        """Return the ranks' completions, which suppress the kernel's own if there are any."""
        from IPython.core.completer import SimpleCompletion

        text = context.full_text
        lines = text.splitlines(keepends=True)[: context.cursor_line]
        position = sum([len(line) for line in lines]) + context.cursor_position
        found = [] if text.lstrip().startswith("%") else self.session.complete(text, position)
        first = position - len(context.token)
        words = [text[first:start] + word for start, word in found if start >= first]
        return {
            "completions": [SimpleCompletion(text=word) for word in words],
            "suppress": bool(found),
        }

    def _change(self, word: str) -> None:
        if not word.isdecimal() or int(word) < 1:
            raise _usage(f"%distarray ranks takes a number of ranks, not {word!r}")
        self.session.change(int(word))
        print(self.session.status())

    def _restart(self) -> None:
        self.session.stop()
        self.session.engines()
        print(self.session.status())


def _without_local(line: str) -> str:
    """Remove the magic from a statement for the kernel alone."""
    words = line.split(None, 2)
    return words[2] if words[:2] == [f"%{_MAGIC}", _LOCAL] and len(words) == 3 else line


def _usage(text: str) -> Exception:
    from IPython.core.error import UsageError

    error: Exception = UsageError(text)
    return error


#: Magics of each shell, by its id.
_installed: dict[int, Magics] = {}


def install(shell: Shell) -> None:
    """Make the cells of a shell run on ranks; repeated calls have no effect."""
    from IPython.core.completer import context_matcher

    if id(shell) in _installed:
        return
    magics = _installed[id(shell)] = Magics(shell)

    def redirect(lines: list[str]) -> list[str]:
        return magics.redirect(lines)

    @context_matcher()  # type: ignore[untyped-decorator]
    def matcher(context: Context) -> dict[str, Any]:
        return magics.complete(context)

    redirect.has_side_effects = True  # type: ignore[attr-defined] # not for text that is typed
    shell.input_transformers_cleanup.append(redirect)
    shell.Completer.custom_matchers.append(matcher)
    shell.register_magic_function(magics.command, "line_cell", _MAGIC)
    atexit.register(magics.session.stop)
    magics.undo = [
        lambda: shell.input_transformers_cleanup.remove(redirect),
        lambda: shell.Completer.custom_matchers.remove(matcher),
    ]


def remove(shell: Shell) -> None:
    """Let cells run in the kernel again, and end the ranks."""
    magics = _installed.pop(id(shell), None)
    if magics is not None:
        for act in magics.undo:
            act()
        magics.session.stop()
        atexit.unregister(magics.session.stop)
