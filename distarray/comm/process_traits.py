"""Traits of a process that must be the same on all ranks: program, settings, versions, threads.

Ranks that differ in a trait compute wrong numbers without an error, since each rank assumes that
the other ranks do the same. Properties of the processor that change last digits are separate
(`processor`).
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from hashlib import sha256
from io import open_code
from typing import NamedTuple

import numpy as np

from distarray.comm import tune
from distarray.comm.user_lines import is_installed, is_ours
from distarray.config import in_force

__all__ = ["Trait", "introduce", "modules", "processor", "settings", "traits"]

_START = "start the same script, with the same arguments, on all ranks; programs of a launch of "
_START += "several make their meshes on communicators of their own (MPI.COMM_WORLD.Split)"
_SET = "give all ranks the same: mpiexec -genv NAME VALUE (MPICH), -x NAME (Open MPI), "
_SET += "srun --export; change config on all ranks at the same place of the program"
_INSTALL = "use one environment, or equal ones, on all nodes"
#: Variables whose values change results: methods of GPU messages, threads, the order of sets.
_VARIABLES = ("DISTARRAY_GPU_AWARE", "PYTHONHASHSEED", *tune.USER_CHOICES)
#: Variables by which a BLAS chooses its loops.
_KERNELS = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE")


class Trait(NamedTuple):
    """Trait of a process that is compared between ranks.

    Attributes
    ----------
    value : str
        The value that is compared.
    shown : str
        The text of the trait for messages.
    cure : str
        The remedy if it differs.
    """

    value: str
    shown: str
    cure: str


class _Program(NamedTuple):
    """Program as the runner describes it; see `introduce`."""

    kind: str
    target: str
    arguments: tuple[str, ...]
    options: str


_introduced: list[_Program] = []


def introduce(kind: str, target: str, arguments: Sequence[str], options: str) -> None:
    """Set the program that this process will run, which is not the runner's ``__main__``.

    Parameters
    ----------
    kind : str
        "script" if `target` is the path of a script; otherwise `target` is code or a name.
    target : str
    arguments : sequence of str
        The arguments of the program.
    options : str
        The options of the runner.
    """
    _introduced[:] = [_Program(kind, target, tuple(arguments), options)]
    _program.cache_clear()


def traits() -> dict[str, Trait]:
    """Return the traits of this process by name; a trait that a rank lacks is not compared."""
    found = _program() | settings()
    for name in _VARIABLES:
        value = os.environ.get(name, "not set")
        found[name] = Trait(value, value, _SET)
    return found | _versions() | modules()


def settings() -> dict[str, Trait]:
    """Return the settings in force here."""
    here = in_force()
    values = {each.name: repr(getattr(here, each.name)) for each in fields(here) if each.init}
    return {f"config.{name}": Trait(text, text, _SET) for name, text in values.items()}


@lru_cache(maxsize=1)
def _program() -> dict[str, Trait]:
    """Return the program and its arguments; read once, since a file may change while it runs."""
    if _introduced:
        kind, target, arguments, options = _introduced[0]
        main = _content(target) if kind == "script" else f"{kind} {target}"
        arguments_shown = repr(list(arguments))
        started = {"options of the runner": Trait(options, options, _START)}
    else:
        target = getattr(sys.modules.get("__main__"), "__file__", None) or ""
        main = _content(target) if target else " ".join(sys.orig_argv[1:])
        arguments_shown, started = repr(sys.argv[1:]), {}
    shown = f"{target} ({main})" if target and main.startswith("sha256") else main
    started["the program"] = Trait(main, shown, _START)
    started["its arguments"] = Trait(arguments_shown, arguments_shown, _START)
    return started


def _content(path: str) -> str:
    """Return the digest of a program's text, or its name if the text cannot be read."""
    path = os.path.join(path, "__main__.py") if os.path.isdir(path) else path
    try:
        with open_code(os.path.abspath(path)) as file:
            text = file.read()
    except OSError:
        return os.path.basename(path)
    if text.startswith(b"#!"):  # the interpreter's path, which differs between equal installations
        text = text.partition(b"\n")[2]
    return f"sha256 {sha256(text).hexdigest()[:16]}, {len(text)} bytes"


def modules() -> dict[str, Trait]:
    """Return the program's own modules imported so far, in the script's directory and below."""
    return {f"module {name}": Trait(text, text, _START) for name, text in _modules()}


def _modules() -> Iterator[tuple[str, str]]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if _introduced:
        script = _introduced[0].target if _introduced[0].kind == "script" else None
    if not script:
        return
    home = os.path.dirname(os.path.abspath(script)) + os.sep
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__dict__", {}).get("__file__")  # a lazy module remains lazy
        if not isinstance(path, str) or not path.startswith(home) or name == "__main__":
            continue
        if path.endswith(".py") and not is_installed(path) and not is_ours(path):
            yield name, _module(path)


@cache
def _module(path: str) -> str:
    return _content(path)


@lru_cache(maxsize=1)
def _versions() -> dict[str, Trait]:
    python = f"{sys.implementation.name} {sys.version.split()[0]}"
    ours = getattr(sys.modules["distarray"], "__version__", "")
    flags = f"-O {sys.flags.optimize}, -W {sys.warnoptions}"
    digits = np.finfo(np.longdouble).nmant
    numbers = f"{sys.byteorder}-endian, long double of {np.dtype('g').itemsize} bytes"
    numbers += f" ({digits} bits), pointers of {np.dtype(np.intp).itemsize}"
    found = {
        "Python": python, "NumPy": np.__version__, "distarray": ours, "mpi4py": _version("mpi4py"),
        "data types": numbers,
    }  # fmt: skip
    both = {name: Trait(text, text, _INSTALL) for name, text in found.items()}
    return both | {"options of Python": Trait(flags, flags, _SET)}


def _version(package: str) -> str:
    return str(getattr(sys.modules.get(package), "__version__", "unknown"))


def processor() -> frozenset[str]:
    """Return the causes of differing last digits here, as text: instructions, BLAS, threads."""
    core = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
    features = getattr(core, "__cpu_features__", {})
    found = {name for name, there in features.items() if there}
    found.add(os.uname().machine)
    found.update([f"{name}={os.environ[name]}" for name in _KERNELS if name in os.environ])
    libraries = tune.libraries()
    for library in libraries:
        kind = getattr(library, "architecture", None) or ""
        found.add(f"{library.internal_api} {library.version} {kind}".strip())
    if not tune.own_threads():
        found.update([f"{library.num_threads} threads of BLAS" for library in libraries])
    if not libraries:
        found.add(f"BLAS on {tune.allowed_cores()} cores")
    return frozenset(found)
