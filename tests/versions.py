"""The tests on other Pythons and NumPys: the oldest pair supported, and the newest there is.

    python tests/versions.py               the families' tests, on thread ranks and on 3 MPI ranks
    python tests/versions.py --everything  the whole suite, on every Python that this machine has
    python tests/versions.py --torch       torch's tests, on thread ranks, with the oldest torch

Interpreters are those on the PATH, pyenv's and uv's. Each pair gets an environment of its own
under build/versions, which is made anew when pyproject.toml changes.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "versions"
PROJECT = (ROOT / "pyproject.toml").read_text()
OLDEST_PYTHON = tuple(map(int, re.search(r'requires-python = ">=3\.(\d+)"', PROJECT).groups()))
OLDEST_NUMPY = re.search(r'"numpy>=([\d.]+)"', PROJECT)[1]
OLDEST_TORCH = re.search(r'"torch>=([\d.]+)"', PROJECT)[1]
#: What a change to an operation can break on another NumPy.
FAMILIES = [
    *("tests/layout", "tests/plan", "tests/comm", "tests/array", "tests/ops", "tests/profiling"),
]
#: Where interpreters are, besides the PATH.
PLACES = [
    os.path.join(os.environ.get("PYENV_ROOT", "~/.pyenv"), "versions/*/bin/python"),
    os.path.join(
        os.environ.get("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python"), "*/bin/python3"
    ),
]


def interpreters() -> dict[int, str]:
    """The interpreters that are new enough and can make an environment, by their minor version."""
    found = [shutil.which(f"python3.{minor}") for minor in range(OLDEST_PYTHON[0], 30)]
    for place in PLACES:
        found += sorted(glob.glob(os.path.expanduser(place)))
    asked = "import sys, venv, ensurepip; print(*sys.version_info[:2], sys.version_info[3])"
    by_minor: dict[int, str] = {}
    for path in [sys.executable, *filter(None, found)]:
        answer = subprocess.run([path, "-c", asked], capture_output=True, text=True)
        major, minor, level = answer.stdout.split() or ("0", "0", "")
        if major == "3" and int(minor) >= OLDEST_PYTHON[0] and level == "final":
            by_minor.setdefault(int(minor), path)
    return by_minor


def environment(python: str, name: str, library: str, extra: str) -> Path:
    """The directory of an environment's programs, made and filled if it is not there."""
    home = HOME / name
    stamp = home / "made"
    if not stamp.exists() or stamp.read_text() != PROJECT:
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        wanted = [f"{ROOT}[mpich,{extra}]", library]
        subprocess.run([*pip, "--disable-pip-version-check", "-e", *wanted], check=True)
        stamp.write_text(PROJECT)
    return home / "bin"


def run(programs: Path, argv: list[str], title: str, **settings: str) -> bool:
    """Run pytest with an environment's Python; whether it passed."""
    print(f"== {title}", flush=True)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    started = time.monotonic()
    done = subprocess.run(
        [programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *argv],
        cwd=ROOT,
        env={**os.environ, "PATH": path, **settings},
    )
    print(f"== {title}: status {done.returncode}, {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


def families(programs: Path, title: str) -> bool:
    """The families' tests, with few drawn examples: on 1 and 3 threads, then on 3 MPI ranks."""
    few = {"DISTARRAY_TEST_EXAMPLES": "5", "DISTARRAY_TEST_THREADS": "1,3"}
    threads = ["-n", "auto", "--dist", "worksteal", "-m", "not launches and not suite", *FAMILIES]
    names = {Path(family).name for family in FAMILIES}
    left_out = " ".join(
        f"--ignore={path.relative_to(ROOT)}"
        for path in sorted((ROOT / "tests").iterdir())
        if path.name.startswith("test_") or (path.is_dir() and path.name not in names)
    )
    on_ranks = {"DISTARRAY_TEST_RANKS": "3", "DISTARRAY_TEST_RANKS_ARGS": left_out}
    passed = run(programs, threads, f"{title}, ranks as threads", **few)
    jobs = ["tests/test_on_ranks.py"]
    return run(programs, jobs, f"{title}, 3 MPI ranks", **few, **on_ranks) and passed


def everything(programs: Path, title: str) -> bool:
    """The whole suite."""
    threads = ["-n", "auto", "--dist", "worksteal", "-m", "not launches"]
    passed = run(programs, threads, f"{title}, ranks as threads")
    return run(programs, ["-m", "launches"], f"{title}, jobs") and passed


def oldest_torch(python: str) -> bool:
    """torch's tests that need no jobs. The index has torch with CUDA alone: 7 GB, installed.

    Without those of weight_norm: torch 2.9 and the garbage collector of another thread rank take
    tensors of theirs apart at once, now and then (docs/stability.rst).
    """
    oldest = f"torch=={OLDEST_TORCH}.*"
    programs = environment(python, f"torch-{OLDEST_TORCH}", oldest, "test-families")
    families = ("bridge", "collectives", "modules", "parameters", "sharded", "tensor")
    threads = ["-n", "auto", "--dist", "worksteal", "-m", "not launches and not suite"]
    where = [f"tests/torch/{family}" for family in families]
    argv = [*threads, "-k", "not weight_norm", *where]
    return run(programs, argv, f"torch {OLDEST_TORCH}, ranks as threads")


def main() -> int:
    """Run what was asked for; the status for the shell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--everything", action="store_true", help="the whole suite, everywhere")
    parser.add_argument("--torch", action="store_true", help="torch's tests, on the oldest torch")
    asked = parser.parse_args()
    pythons = interpreters()
    oldest, newest = min(pythons), max(pythons)
    if asked.torch:
        return 0 if oldest_torch(pythons[oldest]) else 1
    pairs = [(oldest, f"numpy=={OLDEST_NUMPY}.*"), (newest, "numpy")]
    if asked.everything:
        pairs[1:] = [(minor, "numpy") for minor in sorted(pythons)]
    print("Pythons here:", ", ".join(f"3.{minor}" for minor in sorted(pythons)), flush=True)
    passed = True
    for minor, numpy in pairs:
        name = f"3.{minor}-{re.sub('[^a-z0-9.]+', '-', numpy).rstrip('-.')}"
        extra = "test" if asked.everything else "test-families"
        programs = environment(pythons[minor], f"{name}-{extra}", numpy, extra)
        version = subprocess.run(
            [programs / "python", "-c", "import numpy; print(numpy.__version__)"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        title = f"Python 3.{minor}, NumPy {version}"
        passed = (everything if asked.everything else families)(programs, title) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
