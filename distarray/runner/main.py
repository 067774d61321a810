"""Command line: the choice of the program, and its run."""

import io
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn, TextIO

import distarray
from distarray.comm import process_traits
from distarray.comm.hooks import AgreedExit
from distarray.comm.processes import mpi_is_the_parents
from distarray.comm.talkers import threads_take_turns
from distarray.config import config
from distarray.errors import DivergenceError
from distarray.lazy import RANK_VARIABLES
from distarray.runner import (
    alarms,
    chance,
    children,
    commands,
    imports,
    jobs,
    libraries,
    locks,
    loops,
    measuring,
    output,
    pools,
    step,
    tracebacks,
    turns,
)
from distarray.runner.answers import Answers
from distarray.runner.console import Console
from distarray.runner.ending import Outcome, conclude
from distarray.runner.sharing import share
from distarray.runner.talk import Line, open_answers, open_line

__all__ = ["HELP", "Program", "main", "parse"]

HELP = """\
usage: mpiexec -n P python -m distarray [options] script.py [arguments]
       python -m distarray --scaling 1,2,4,8 [options] script.py [arguments]
       mpiexec -n P python -m distarray -i    (or -m IPython)
       mpiexec -n P python -m distarray [options] -m module [arguments]
       mpiexec -n P python -m distarray [options] -c "code" [arguments]

Run an unmodified NumPy program on P ranks. Every rank executes the program. In its modules (the
script and those in its directory or below) `import numpy` gives distarray.numpy, whose arrays are
distributed over the ranks; libraries keep the real NumPy, and get an ordinary array, gathered,
where they are handed a distributed one.

  Standard output    comes once, from rank 0, and prints what NumPy prints; so do warnings, at the
                     end those of NumPy's that only other ranks have met.
  Standard input     is read by rank 0 and handed to all.
  Files              opened for writing are written by rank 0 alone; reading one that the program
                     has written waits for that. Directories are made, files removed, and commands
                     run once. So it is for libraries, and for temporary files, which have one name
                     on all ranks. Files that a library writes past Python's open() (sqlite3, h5py,
                     netCDF4) or from threads of its own (zarr) are not covered; distarray.io
                     writes HDF5, NetCDF and Zarr.
  Clock and chance   are rank 0's: time.time(), datetime.now() and their like, generators without a
                     seed, random, secrets, uuid, os.urandom(), os.getpid(), directories, and the
                     order of sets of text. Sets of objects that have no hash of their own are not
                     covered: do not branch on their order.
  Threads            that the program starts, and those of its pools (concurrent.futures,
                     multiprocessing.pool.ThreadPool), run one at a time, each until it waits or
                     ends. Those of libraries may use what needs no other rank. The event loop of
                     asyncio has rank 0's timers, until it waits for files or sockets.
  Processes          that the program starts are each rank's own, and compute alone; the program
                     receives what rank 0's have sent (multiprocessing, concurrent.futures,
                     joblib). Only rank 0's print; files they write are written by each rank's.
  Timers             (signal.alarm, signal.setitimer) whose signal the program handles end the job
                     when they go off: they do at another place on each rank. So do other
                     signals: ask distarray.job.preemption() instead of a flag of a handler's.
  An exception       ends all ranks with one traceback, and names the rank if it was one alone.

options:
  -h, --help         this text
  -V, --version      the version
  -i                 afterwards, or without a program, a prompt: rank 0 reads, all ranks execute
  --full-traceback   show this library's own frames in tracebacks, which are folded otherwise
  --profile[=FILE]   measure what each line costs on each rank; at the end a table on standard
                     error and a page, profile.html or FILE; FILE.json gets all figures
  --scaling N,N,...  first of all options, without mpiexec: run the program on each number of ranks,
                     and report what grows how, and what 64 to 16,384 ranks would do. Its own:
                     --machine LATENCY,BANDWIDTH,MEMORY of a rank there (1.5us,12GB/s,8GB/s; else
                     as measured here), --memory SIZE that a rank may have, --cores N ranks that
                     have a core each, --mpiexec COMMAND, --output FILE (scaling.html)
  --include PACKAGE  an installed package that is the program's own: in it, too, `import numpy`
                     gives distarray.numpy; may be given several times, or as PACKAGE,PACKAGE
  --coverage         how many of NumPy's functions are distributed, composed of such, or fall back
  --array-api        compare with the array API standard (needs array-api-strict), on all ranks

Settings are environment variables: DISTARRAY_FALLBACK=error (warn, allow) for functions that have
no distributed form, DISTARRAY_REPRODUCIBLE=1 for sums that are equal bit for bit on any number of
ranks, DISTARRAY_REPLICATE_BELOW=bytes for the size below which arrays are replicated.
"""


@dataclass(frozen=True)
class Program:
    """Program to run: a script's path, a module's name or code, and its arguments.

    The kind is "prompt" if there is no program. `prompts` requests a prompt afterwards, `full`
    requests tracebacks with the frames of this library.
    """

    kind: str
    target: str
    arguments: tuple[str, ...] = ()
    prompts: bool = False
    full: bool = False
    #: Installed packages that belong to the program.
    included: tuple[str, ...] = ()
    #: Path of the page of a profile; empty for no profile.
    profile: str = ""


#: Options that may come before the program.
_FLAGS = {"-i": "prompts", "--full-traceback": "full"}
#: Error texts for options that ``__main__`` handles, if they are used in another form.
_ELSEWHERE = {
    "--coverage": "{} takes no arguments",
    "--array-api": "{} takes no arguments",
    "--scaling": "--scaling comes before all other options",
}
#: Default path of the page of a profile.
_PAGE = "profile.html"


def parse(arguments: Sequence[str]) -> Program | str:
    """Return the program that a command line requests, or the text to print instead.

    Raises
    ------
    ValueError
        If the command line names no program that can be run.
    """
    flags, included, arguments = _options(arguments)
    if "prompts" in flags and not arguments:
        found: Program | str = Program("prompt", "")
    elif (included or "profile" in flags) and not arguments:
        option = "--include" if included else "--profile"
        raise ValueError(f"no program after {option}; try python -m distarray --help")
    else:
        found = _program(arguments)
    return found if isinstance(found, str) else replace(found, included=included, **flags)


def _options(
    arguments: Sequence[str],
) -> tuple[dict[str, Any], tuple[str, ...], Sequence[str]]:
    """Parse the options before the program: flags, packages to include, and remaining arguments."""
    flags: dict[str, Any] = {}
    names: list[str] = []
    while arguments:
        option, equals, value = arguments[0].partition("=")
        if arguments[0] in _FLAGS:
            flags[_FLAGS[option]] = True
            arguments = arguments[1:]
        elif option == "--profile":
            flags["profile"] = value if equals else _PAGE
            if not flags["profile"]:
                raise ValueError("argument expected for --profile=: the file of the page")
            arguments = arguments[1:]
        elif option == "--include":
            if not equals:
                value = arguments[1] if len(arguments) > 1 else ""
            packages = value.split(",")
            if not all(name.isidentifier() for name in packages):
                raise ValueError(
                    f"argument expected for {option}: top-level packages, not {value!r}"
                )
            names += packages
            arguments = arguments[1 if equals else 2 :]
        else:
            break
    return flags, tuple(names), arguments


def _program(arguments: Sequence[str]) -> Program | str:
    if not arguments or arguments[0] in ("-h", "--help"):
        return HELP
    first, rest = arguments[0], tuple(arguments[1:])
    if first in ("-V", "--version"):
        return f"distarray {distarray.__version__}\n"
    if first in ("-m", "-c"):
        if not rest:
            raise ValueError(f"argument expected for the {first} option")
        return Program(first, rest[0], rest[1:])
    if first[:2] in ("-m", "-c"):
        return Program(first[:2], first[2:], rest)
    if first == "--" and rest:
        return Program("script", rest[0], rest[1:])
    if first.startswith("-"):
        fault = _ELSEWHERE.get(first.partition("=")[0], "unknown option {}").format(first)
        raise ValueError(f"{fault}; try python -m distarray --help")
    return Program("script", first, rest)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program of the command line, and exit with its status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of ``sys.argv[1:]``.
    """
    try:
        program = parse(sys.argv[1:] if arguments is None else arguments)
    except ValueError as error:
        _answer(f"distarray: {error}\n", sys.stderr)
        sys.exit(2)
    if isinstance(program, str):
        _answer(program, sys.stdout)
        sys.exit(0)
    raise AgreedExit(run(program))


def run(program: Program) -> int:
    """Run a program on all ranks of this job; collective.

    Returns
    -------
    int
        The exit status, the same on all ranks.
    """
    ending = _meet(program)
    line, answers = open_line(), open_answers()
    outcome, hook = Outcome(), sys.excepthook
    try:
        _prepare(program)
        tracebacks.install(program.full)
        _share(line, answers)
        config.print_gathered = True
        _execute(program, ending, answers)
        pools.finish()
        _finish()
    except BaseException as error:
        outcome = Outcome.of(error, None if sys.excepthook is hook else sys.excepthook)
    measuring.end(outcome)
    if mpi_is_the_parents():
        _leave(outcome)
    with turns.TURNS.kept():  # threads of pools must not run before all ranks have arrived
        return conclude(ending, answers, replace(outcome, warned=tuple(output.WARNED)))


def _meet(program: Program) -> Line:
    """Connect to the other ranks; exit on all ranks if they run different programs."""
    options = f"{program.kind} prompts={program.prompts} include={','.join(program.included)}"
    process_traits.introduce(program.kind, program.target, program.arguments, options)
    try:
        return open_line()
    except DivergenceError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None


def _share(line: Line, answers: Answers) -> None:
    """Make the ranks one program: with one set of streams and files, one clock, one random seed."""
    step.begin()
    output.install(line)
    share(line, answers)
    if line.size > 1:
        if threads_take_turns():
            turns.install()
            pools.install()
            locks.install()
            loops.install(answers)
        alarms.install(line.rank)
        commands.install(answers)
        children.install(answers)
        jobs.install(answers)


def _leave(outcome: Outcome) -> NoReturn:
    """End a forked child process that has reached the program's end."""
    sys.stdout.flush()
    sys.stderr.write(outcome.text)
    raise SystemExit(outcome.code)


def _finish() -> None:
    """Wait for checkpoints that are saved in the background; raises their errors."""
    background = sys.modules.get("distarray.checkpoint.background")
    if background is not None:
        background.finish()


def _prepare(program: Program) -> None:
    """Set ``sys.argv`` and ``sys.path`` as ``python`` does."""
    sys.argv = [program.target, *program.arguments]
    first = os.getcwd()
    if program.kind == "-c":
        sys.argv[0], first = "-c", ""
    elif program.kind == "prompt":
        first = ""
    elif program.kind == "script":
        target = Path(program.target)
        first = str((target if target.is_dir() else target.parent).resolve())
    if not sys.flags.safe_path:
        sys.path[0] = first


def _execute(program: Program, ending: Line, answers: Answers) -> None:
    """Run the program as ``__main__``, and then the statements typed at the prompt."""
    names = _new_module(program)
    chance.join(answers)
    if not program.prompts:
        # A program that cannot be read or compiled is not measured: an earlier page remains.
        code = None if program.kind == "-m" else _code(program, names)
        measuring.begin(program.profile)
        exec(_code(program, names) if code is None else code, names)
        return
    measuring.begin(program.profile)
    console = Console(names, ending, answers)
    if program.kind != "prompt":
        console.attempt(lambda: exec(_code(program, names), names), ends=False)
    console.run(banner=program.kind == "prompt")


def _new_module(program: Program) -> dict[str, Any]:
    """Return the namespace of a new ``__main__``; its program gets distarray.numpy as numpy."""
    home = Path.cwd()
    package = None
    if program.kind == "script":
        target = Path(program.target).resolve()
        home = target if target.is_dir() else target.parent
    elif program.kind == "-m":
        package = program.target.partition(".")[0]
        package = None if package == "IPython" else package  # its statements are the program
    packages = [package] if package is not None else []
    imports.install(home, [*packages, *program.included])
    libraries.install()
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    names = module.__dict__
    names["__builtins__"] = imports.program_builtins
    return names


def _code(program: Program, names: dict[str, Any]) -> CodeType:
    """Compile the program, and give its module the attributes that ``python`` gives it."""
    if program.kind == "-c":
        return compile(program.target, "<string>", "exec", dont_inherit=True)
    if program.kind == "-m":
        return _module_code(program.target, names)
    path = os.path.abspath(program.target)
    if os.path.isdir(path):
        path = os.path.join(path, "__main__.py")
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        raise SystemExit(_cannot_open(path, error)) from None
    names["__file__"] = path
    names["__cached__"] = None
    return compile(source, path, "exec", dont_inherit=True)


def _module_code(name: str, names: dict[str, Any]) -> CodeType:
    """Find a module's code as ``python -m`` does."""
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = _find(name)
    loader: Any = spec.loader if spec is not None else None
    code: CodeType | None = loader.get_code(name) if hasattr(loader, "get_code") else None
    if spec is None or code is None:
        raise SystemExit(f"distarray: no module named {name} that has code")
    names.update(__file__=spec.origin, __spec__=spec, __package__=spec.parent, __loader__=loader)
    names["__cached__"] = spec.cached
    sys.argv[0] = spec.origin or name
    return code


def _find(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError) as error:
        raise SystemExit(f"distarray: cannot run module {name}: {error}") from error


def _cannot_open(path: str, error: OSError) -> str:
    return f"distarray: can't open file {path!r}: {error.strerror}"


def _answer(text: str, stream: TextIO) -> None:
    """Print a text without starting MPI; once where a launcher numbers the processes."""
    number = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
    if number == "0":
        stream.write(text)
        stream.flush()
    else:
        time.sleep(1.0)  # a launcher may end the job as soon as one process exits
