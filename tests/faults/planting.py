"""A fault and the table of faults: each module here adds its own to it."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tests.faults
from tests.launcher import environment, find_mpiexec, run_job

__all__ = ["Fault", "Outcome", "Scene", "Unavailable", "collect", "plant"]


class Unavailable(Exception):
    """The fault cannot be planted on this machine; the message says why."""


@dataclass(frozen=True)
class Scene:
    """Where a fault is planted.

    Attributes
    ----------
    directory : path
        An empty directory, removed afterwards.
    mpiexec : tuple of str
        The launcher with its options, ``-n`` not among them.
    """

    directory: Path
    mpiexec: tuple[str, ...]

    @property
    def is_openmpi(self) -> bool:
        """True if the launcher is Open MPI's."""
        return "--oversubscribe" in self.mpiexec

    def run(
        self, ranks: int, *program: str, timeout: float = 60.0, **variables: str
    ) -> tuple[int | None, str]:
        """Run ``python *program`` on ranks in the directory.

        Returns
        -------
        status : int or None
            None if the job did not end in time: a hang.
        output : str
            What all ranks wrote, to both streams.
        """
        argv = [*self.mpiexec, "-n", str(ranks), sys.executable, *program]
        env = environment(**variables)
        return run_job(argv, timeout=timeout, cwd=self.directory, env=env)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    name : str
        Such as ``"files: full disk, np.save"``; the part before the colon is its module's subject.
    plant : callable
        Plants the fault and asserts what must come of it. Raises :class:`Unavailable` where that
        cannot be done; returns a line of figures, or None.
    quick : bool
        Part of ``make test``.
    """

    name: str
    plant: Callable[[Scene], str | None]
    quick: bool = False


@dataclass(frozen=True)
class Outcome:
    """Result of planting: a verdict ("held", "FAILED", "not here"), a line about it, seconds."""

    verdict: str
    said: str
    seconds: float


def collect() -> list[Fault]:
    """Every fault of the modules here that have a ``FAULTS``."""
    found: list[Fault] = []
    for module in sorted(entry.name for entry in pkgutil.iter_modules(tests.faults.__path__)):
        if module not in ("__main__", "planting") and not module.startswith("test_"):
            found += getattr(importlib.import_module(f"tests.faults.{module}"), "FAULTS", ())
    assert len({fault.name for fault in found}) == len(found), "two faults have one name"
    return found


def plant(fault: Fault, directory: Path) -> Outcome:
    """Plant a fault in an empty directory."""
    start = time.monotonic()
    try:
        mpiexec = find_mpiexec()
        if not mpiexec:
            raise Unavailable("no mpiexec")
        verdict, said = "held", fault.plant(Scene(directory, mpiexec)) or ""
    except Unavailable as reason:
        verdict, said = "not here", str(reason)
    except AssertionError as error:
        verdict, said = "FAILED", str(error)
    return Outcome(verdict, said, time.monotonic() - start)
