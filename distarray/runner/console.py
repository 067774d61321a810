"""Prompt of ``python -m distarray -i``: rank 0 reads statements, and all ranks execute them."""

import builtins
import linecache
import sys
import traceback
from code import InteractiveConsole
from collections.abc import Callable
from dataclasses import replace
from types import CodeType
from typing import Any

import distarray
from distarray.comm.processes import mpi_is_the_parents
from distarray.config import config
from distarray.runner import output, turns
from distarray.runner.answers import Answers
from distarray.runner.ending import Outcome, meet
from distarray.runner.imports import program_builtins
from distarray.runner.talk import Line

__all__ = ["Console"]


class Console(InteractiveConsole):
    """Prompt for all ranks; its calls are collective.

    Parameters
    ----------
    names : dict
        Namespace of the program's module.
    ending : Line
        Communicator that is used only to end statements and the job.
    answers : Answers
        The `Answers` of the program.
    """

    def __init__(self, names: dict[str, Any], ending: Line, answers: Answers) -> None:
        super().__init__(names)
        self._names = names
        self._ending = ending
        self._answers = answers
        self._count = 0

    def run(self, banner: bool) -> None:
        """Read and execute statements until the input ends or one of them exits."""
        plain = sys.displayhook

        def show(value: object) -> None:
            plain(value)
            if value is not None:  # the program has builtins of its own
                vars(program_builtins)["_"] = vars(builtins).get("_")

        sys.displayhook = show
        size = self._ending.size
        head = (
            f"distarray {distarray.__version__}, Python {sys.version.split()[0]}: "
            f"each statement is executed on {size} rank{'s' * (size != 1)}"
        )
        if self._ending.size == 1 and sys.stdin is not None and sys.stdin.isatty():
            __import__("readline")
        raw = getattr(getattr(sys.stdin, "buffer", None), "raw", None)
        if isinstance(raw, output.SharedInput):
            raw.before = lambda: self._ending.all_arrive(None, self._answers.poke)
        self.interact(head if banner else "", "")

    def raw_input(self, prompt: str = "") -> str:
        """Return the next line of the standard input, which rank 0 reads."""
        if self._ending.size == 1:
            return input(prompt)
        sys.stdout.write(prompt)
        sys.stdout.flush()
        try:
            line = self._next_line()
        except KeyboardInterrupt:  # the launcher sends it to all ranks, at different places
            raise SystemExit(130) from None
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def _next_line(self) -> str:
        """Return the next line of the shared input, which all ranks read together."""
        return sys.stdin.readline()

    def runsource(self, source: str, filename: str = "", symbol: str = "single") -> bool:
        """Execute a statement if it is complete; `place` requires a distinct file name for each."""
        name = f"<python-input-{self._count}>"
        linecache.cache[name] = len(source), None, (source + "\n").splitlines(True), name
        more = super().runsource(source, name, symbol)
        self._count += not more
        return more

    def showsyntaxerror(self, filename: str | None = None, **kwargs: str) -> None:
        """Print the syntax error of a statement, bypassing the hook that would end the job."""
        self.write("".join(traceback.format_exception_only(sys.exception())))

    def runcode(self, code: CodeType) -> None:
        """Execute the code of a statement."""
        self.attempt(lambda: exec(code, self._names))

    def attempt(self, act: Callable[[], object], ends: bool = True) -> None:
        """Call a function, print its exception, and report which ranks have raised it.

        Parameters
        ----------
        act : callable
            The statement, or the program.
        ends : bool
            True if a SystemExit ends the job.

        Raises
        ------
        SystemExit
            On all ranks, if it is raised on any; and in a forked child.
        """
        outcome = Outcome()
        try:
            act()
        except BaseException as error:
            sys.last_value = error
            sys.last_type, sys.last_traceback = type(error), error.__traceback__
            leaves = isinstance(error, SystemExit) and ends
            stopped = isinstance(error, KeyboardInterrupt) and self._ending.size > 1
            outcome = replace(Outcome.of(error), ends=leaves or stopped)
        if mpi_is_the_parents():  # a child that the statement has forked ends here
            raise SystemExit(_in_child(outcome))
        outcome = replace(outcome, warned=tuple(output.WARNED))
        output.WARNED.clear()
        with turns.TURNS.kept():
            outcomes = meet(self._ending, self._answers, outcome)
        config.print_gathered = True  # printing an error has turned it off
        if any(outcome.ends for outcome in outcomes):
            raise SystemExit(next((o.code for o in outcomes if o.code), 0))


def _in_child(outcome: Outcome) -> int:
    sys.stderr.write(outcome.text)
    return outcome.code
