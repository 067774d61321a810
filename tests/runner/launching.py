"""Start programs under the runner, and under plain Python to compare with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.launcher import SETTINGS, find_mpiexec

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 180
# What Open MPI's launcher has to say about a status that is not 0.
BANNER = re.compile(r"^-{20,}\n.*?^-{20,}\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Run:
    """How a program ended."""

    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    places = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings = dict(os.environ, PYTHONPATH=places, MPLBACKEND="Agg", PYTHONWARNINGS="")
    return settings | SETTINGS


def run(argv: list[str], cwd: Path, stdin: str = "", timeout: float = TIMEOUT) -> Run:
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Run(done.returncode, done.stdout, BANNER.sub("", done.stderr))


def write_script(directory: Path, source: str, name: str = "program.py") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(textwrap.dedent(source))
    return path


def on_ranks(
    ranks: int, *arguments: str, cwd: Path, stdin: str = "", timeout: float = TIMEOUT
) -> Run:
    """`mpiexec -n ranks python -m distarray arguments`."""
    argv = [*find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "distarray", *arguments]
    return run(argv, cwd, stdin, timeout)


def compare(tmp_path: Path, source: str, *arguments: str, ranks: int = 3, stdin: str = "") -> Run:
    """Run a program plainly and on ranks, each in a directory of its own; what they print and
    the files they leave are the same."""
    plain, spread = tmp_path / "plain", tmp_path / "spread"
    for directory in (plain, spread):
        write_script(directory, source)
    expected = run([sys.executable, "program.py", *arguments], plain, stdin)
    assert expected.code == 0, expected.err
    actual = on_ranks(ranks, "program.py", *arguments, cwd=spread, stdin=stdin)
    assert actual.code == 0, actual.err
    assert actual.out == expected.out
    assert contents(spread) == contents(plain)
    return actual


def contents(directory: Path) -> dict[str, bytes | None]:
    """Every file below a directory, and the directories."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
        if "__pycache__" not in path.parts
    }
