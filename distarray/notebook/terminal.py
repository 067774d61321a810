"""``mpiexec -n N python -m distarray -m IPython``: IPython's own prompt, for all ranks.

Rank 0 reads the terminal, and all ranks execute its input, as cells of a notebook.
"""

import sys
from types import ModuleType
from typing import Any

from distarray.notebook.cells import Rank, Told, make_program
from distarray.notebook.shapes import Shell
from distarray.runner.talk import Line, open_answers, open_line

__all__ = ["prepare"]


def prepare(module: ModuleType) -> None:
    """Make the shells of ``IPython.terminal.interactiveshell`` prompts for all ranks."""
    kind: Any = module.TerminalInteractiveShell
    make = kind.__init__

    def begin(self: Shell, **settings: Any) -> None:
        make(self, **settings)
        _install(self)

    kind.__init__ = begin


def _install(shell: Shell) -> None:
    """Make a shell execute its cells on all ranks; collective."""
    line, answers = open_line(), open_answers()
    make_program(shell, answers)
    run_cell = shell.run_cell
    rank = Rank(shell, line, answers)
    shell.confirm_exit = False
    if line.rank:
        shell.history_manager.enabled = False

    def run(raw_cell: str, store_history: bool = False, **how: bool | str | None) -> Any:
        """Execute a cell on all ranks if the user has typed it."""
        if not store_history:
            return run_cell(raw_cell, store_history, **how)
        _tell(line, rank.run(raw_cell, shell.execution_count))
        if line.any_failed(not shell.keep_running, None, answers.poke):
            shell.keep_running = False
        return rank.result

    shell.run_cell = run


def _tell(line: Line, told: Told) -> None:
    """Print an error once; abort the job if this rank has failed alone."""
    if told.alone:
        stream = sys.__stderr__ or sys.stderr
        stream.write(f"distarray: rank {line.rank} of {line.size} raised:\n{told.text}")
        stream.flush()
        line.abort(1)
    sys.stderr.write("".join([told.text, *[f"distarray: {note}\n" for note in told.notes]]))
    sys.stderr.flush()
