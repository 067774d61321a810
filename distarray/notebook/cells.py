"""Cells on a rank: all ranks execute each statement, and synchronize after it.

The kernel calls the functions of this module on all engines at once, through ipyparallel, and
receives their return values.
"""

import ast
import dis
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import distarray
from distarray import checkpoint
from distarray.comm.mesh import default_mesh
from distarray.comm.user_lines import add_to_house
from distarray.config import config
from distarray.notebook import names, outputs
from distarray.notebook.shapes import Shell
from distarray.notebook.stopping import CountPasses, Stopping
from distarray.runner import chance, commands, ending, imports, libraries, step, tracebacks
from distarray.runner.answers import Answers
from distarray.runner.sharing import share
from distarray.runner.talk import Line, open_answers, open_line

__all__ = ["Rank", "Told", "complete", "join", "load", "make_program", "pull", "run", "save"]

#: Seconds that a rank that has failed waits for the others to finish the statement.
PATIENCE = 4.0
#: Packages through which a shell executes cells: none of them counts as the program.
_EXECUTORS = ("IPython", "asyncio", "ipykernel", "ipyparallel", "tornado", "traitlets")
_BINDING = ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL")


@dataclass(frozen=True)
class Told:
    """Outcome of a cell on one rank, as it is sent to the kernel.

    Attributes
    ----------
    name, value : str
        Type and text of the exception; empty if no rank raised one.
    text : str
        The traceback or tracebacks, as printed for the user.
    alone : bool
        True if this rank has failed and others have not finished the statement.
    notes : tuple of str
        Further messages for the user.
    """

    name: str = ""
    value: str = ""
    text: str = ""
    alone: bool = False
    notes: tuple[str, ...] = ()


class Rank:
    """This process as one rank of a notebook; made by :func:`join`.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
        The shell of this engine.
    line : Line
    answers : Answers
    """

    def __init__(self, shell: Shell, line: Line, answers: Answers) -> None:
        self.shell = shell
        self.line = line
        self.answers = answers
        self.stopping = Stopping(line, imports.program_builtins.__dict__)
        #: Functions and classes that cells have defined, with their source.
        self.sources: dict[str, str] = {}
        self._error: BaseException | None = None
        self._alone = False
        self._count = 0
        self._named: tuple[str, ...] = ()
        self._bound: tuple[str, ...] = ()
        #: IPython's result of the last cell.
        self.result: Any = None
        self._run_cell, self._run_code = shell.run_cell, shell.run_code
        shell.run_code = self._statement
        shell.showtraceback = shell.showsyntaxerror = lambda *about, **how: self._keep_error()
        shell.ast_transformers.append(CountPasses())
        shell.compile.get_code_name = lambda *about: f"Cell In[{self._count}]"

    def run(self, source: str, count: int) -> Told:
        """Execute a cell; collective."""
        shell = self.shell
        shell.execution_count = count
        self._error, self._named, self._bound, self._alone = None, (), (), False
        self._count = count
        self.stopping.begin(count)
        try:
            self.result = self._run_cell(source, store_history=True)
            self._error = self._first_error() or self.result.error_before_exec
            failed = self._alone or self._meet(self._error is not None)
            if self._alone:
                return replace(self._told(), alone=True)
            if failed:
                return self._report()
            self._learn(source)
            return Told()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            self._error = None
            config.print_gathered = True  # printing an error has turned it off

    # -- one statement ---------------------------------------------------------------------------

    async def _statement(self, code: CodeType, result: Any = None, *, async_: bool = False) -> bool:
        """Execute a statement; return True if any rank has failed in it."""
        failed = False
        self.line.statement = f"{code.co_filename}:{code.co_firstlineno}"
        try:
            self.stopping.open = True
            failed = await self._run_code(code, result, async_=async_)
            self.stopping.open = False
        except KeyboardInterrupt as stopped:  # between the statement and its end
            self._error = stopped
        self.stopping.open = False
        failed = failed or self._error is not None
        if failed:
            self._named, self._bound = code.co_names, _bound(code)
        return self._meet(failed)

    def _first_error(self) -> BaseException | None:
        return self._error

    def _keep_error(self) -> None:
        """Keep the error that is being handled, instead of showing it on each rank."""
        self._error = self._error or sys.exception()

    def _meet(self, failed: bool) -> bool:
        """Return True if any rank has failed; collective."""
        found = self.line.any_failed(failed, PATIENCE if failed else None, self._poke)
        self._alone = found is None
        return found is not False

    def _poke(self) -> None:
        self.answers.poke()
        self.stopping.is_over()

    # -- errors ----------------------------------------------------------------------------------

    def _told(self) -> Told:
        """Return the outcome with this rank's error."""
        error = self._error
        if error is None:
            return Told()
        if isinstance(error, SyntaxError) and error.__traceback__ is not None:
            text = "".join(traceback.format_exception_only(error))
        else:
            text = tracebacks.written(error, _of_program(error))
        return Told(type(error).__name__, str(error), text)

    def _report(self) -> Told:
        """Combine the ranks' errors into one outcome; collective, and equal on all ranks."""
        found = self.line.allgather_object((self._told(), self.stopping.torn))
        tolds, torn = [told for told, _ in found], any(torn for _, torn in found)
        self.answers.finish(self.line)
        first = next((told for told in tolds if told.name), Told())
        if first.name == "KeyboardInterrupt":
            text = first.text
        else:
            text = ending.summary([ending.Outcome(bool(t.name), t.text) for t in tolds])
        alike = len({(told.name, told.value) for told in tolds}) == 1
        notes = () if alike and not torn else self._settle(torn)
        return replace(first, text=text, notes=notes)

    def _settle(self, torn: bool) -> tuple[str, ...]:
        """Make the names equal on all ranks, and return notes on the changes; collective."""
        bound, named = self.line.broadcast_object((self._bound, self._named), 0)
        settled = names.settle(self.line, self.shell, bound)
        cut = names.cut_over_ranks(self.shell, named)
        notes = []
        if settled.common:
            notes.append(f"of {', '.join(settled.common)}, all ranks have rank 0's value now")
        if settled.removed:
            notes.append(f"{', '.join(settled.removed)} differed between ranks, and is removed")
        if cut:
            notes.append(
                f"not all ranks have done the same of the statement: what it changes in place in "
                f"{', '.join(cut)} may be changed on some of them only"
            )
        return tuple(notes)

    def _learn(self, source: str) -> None:
        """Keep the source of the functions and classes that a cell has defined."""
        try:
            body = ast.parse(source).body
        except SyntaxError:  # it has magic commands
            return
        lines = source.splitlines(keepends=True)
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *[part.lineno for part in node.decorator_list]])
                self.sources[node.name] = "".join(lines[first - 1 : node.end_lineno])


def _bound(code: CodeType) -> tuple[str, ...]:
    """Return the names that a statement itself binds or removes."""
    found = [step.argval for step in dis.get_instructions(code) if step.opname in _BINDING]
    return tuple(dict.fromkeys(found))


def _of_program(error: BaseException) -> Any:
    """Return the traceback from the program's first frame on; all of it if there is none."""
    tb = error.__traceback__
    while tb is not None and not imports.belongs_to_program(tb.tb_frame):
        tb = tb.tb_next
    return tb


_here: Rank | None = None


def _rank() -> Rank:
    assert _here is not None
    return _here


def join() -> dict[str, Any]:
    """Make this engine a rank, if it is none yet, and return facts about it; collective."""
    global _here
    if _here is None:
        from IPython import get_ipython

        _here = _install(get_ipython())
    line = _here.line
    return {
        "rank": line.rank,
        "size": line.size,
        "host": socket.gethostname(),
        "order": hash("the order of sets"),
        "version": distarray.__version__,
    }


def _install(shell: Shell) -> Rank:
    """Make the ranks one program, as `python -m distarray` does, without its threads and timers."""
    line, answers = open_line(), open_answers()
    step.begin()
    outputs.install(shell, line.rank)
    share(line, answers)
    if line.size > 1:
        commands.install(answers)
    imports.install(Path.cwd())
    libraries.install()
    chance.join(answers)
    tracebacks.install(False, way="")
    config.print_gathered = True
    imports.program_builtins.__dict__.update(input=_refuse_input)
    shell.set_hook("show_in_pager", lambda shell, page, *how, **more: _print_page(page), 0)
    shell.ask_exit = _refuse_exit
    shell.Completer.use_jedi = False  # Jedi reads the sources of libraries, for seconds
    make_program(shell, answers)
    return Rank(shell, line, answers)


def make_program(shell: Shell, answers: Answers) -> None:
    """Mark the cells of a shell as the program."""
    from IPython.display import display

    add_to_house(*_EXECUTORS)
    builtins = imports.program_builtins.__dict__
    builtins.update(get_ipython=lambda: shell, display=display)
    shell.user_ns["__builtins__"] = builtins
    shell.autoawait = False
    _run_commands_once(shell, answers)


def _print_page(page: dict[str, str] | str) -> None:
    print(page["text/plain"] if isinstance(page, dict) else page)


def _refuse_input(prompt: object = "", /) -> str:
    raise RuntimeError("ranks cannot ask: read it in a cell for the kernel, %%distarray local")


def _refuse_exit() -> None:
    raise SystemExit("the ranks end with the kernel, or by %distarray stop")


def _run_commands_once(shell: Shell, answers: Answers) -> None:
    """Make rank 0 alone run the commands of ``!command`` lines."""

    def once(real: Callable[..., Any], command: str, **how: int) -> Any:
        def act() -> tuple[Any, Any]:
            return real(command, **how), shell.user_ns.get("_exit_code")

        result, shell.user_ns["_exit_code"] = answers.ask(act)
        return result

    for name in ("system", "getoutput"):
        setattr(shell, name, partial(once, getattr(shell, name)))


def run(source: str, count: int) -> Told:
    """Execute a cell on this rank; collective."""
    return _rank().run(source, count)


def complete(text: str, position: int) -> list[tuple[int, str]]:
    """Return the completions at a position of a cell, with their starts; on rank 0 alone."""
    completer = _rank().shell.Completer
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        return [(found.start, found.text) for found in completer.completions(text, position)]


def pull(wanted: Sequence[str]) -> dict[str, Any]:
    """Return values for the kernel, arrays as whole NumPy arrays; collective, rank 0's are used."""
    names_here = _rank().shell.user_ns
    found = {name: names.local(names_here[name]) for name in wanted if name in names_here}
    return found if _rank().line.rank == 0 else {}


def save(path: str) -> dict[str, Any]:
    """Save the names that cells have bound in a checkpoint; collective.

    Returns
    -------
    dict
        The names that are not in the checkpoint: found in libraries, kept as sources, or lost.
    """
    rank = _rank()
    bound = names.variables(rank.shell)
    differ = names.differing(rank.line, bound)
    kept = names.keep({name: value for name, value in bound.items() if name not in differ})
    sources = {name: rank.sources[name] for name in kept.lost if name in rank.sources}
    checkpoint.save(path, kept.state, mesh=default_mesh(), progress=False)
    return {
        "found": kept.found,
        "sources": sources,
        "lost": [name for name in (*kept.lost, *differ) if name not in sources],
    }


def load(path: str, found: dict[str, tuple[str, str]], sources: dict[str, str]) -> None:
    """Bind again the names that `save` has saved; collective."""
    rank = _rank()
    namespace = rank.shell.user_ns
    namespace.update({name: names.find(home) for name, home in found.items()})
    namespace.update(checkpoint.load(path, progress=False))
    for source in sources.values():
        rank.shell.run_cell(source, store_history=False)
    rank.sources.update(sources)
