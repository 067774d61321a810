"""The parts in C under gcc's sanitizers of addresses and of undefined behaviour.

    python tests/sanitized.py --seconds 600

A copy of the package is built under build/sanitize, where it disturbs nothing. The tests of what is
in C run there, then programs of the explorer, on MPI ranks, for so long. The status is not 0 if a
test fails, a program goes wrong, or a sanitizer reports anything in any process.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "sanitize"
REPORTS = HOME / "reports"
COPIED = ["distarray", "tests", "benchmarks", "examples"]
COPIED += ["conftest.py", "pyproject.toml", "hatch_build.py"]
TESTS = ["tests/array/test_speedups.py", "tests/array/test_speedups_safety.py"]
TESTS += ["tests/array/test_steps.py", "tests/comm/test_outbox.py", "tests/ops/indexing"]
SANITIZERS = "-fsanitize=address,undefined"
#: What warns when the module is compiled, besides.
WARNINGS = "-Wall -Wextra -Werror"


def copied() -> None:
    """Copy the package and its tests, without what is compiled, in place of an older copy."""
    shutil.rmtree(HOME, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, HOME / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, HOME / name)


def built() -> bool:
    """Compile the copy's module; whether that was done."""
    flags = f"-g -fno-omit-frame-pointer {SANITIZERS} -fno-sanitize-recover=undefined {WARNINGS}"
    code = "import hatch_build, pathlib; hatch_build.build(pathlib.Path.cwd())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HOME,
        env={**os.environ, "CFLAGS": flags, "LDFLAGS": SANITIZERS},
        capture_output=True,
        text=True,
    )
    made = list((HOME / "distarray/array/speedups").glob("_ways*.so"))
    if done.returncode or not made:
        print(done.stdout, done.stderr, sep="\n")
    return bool(made) and not done.returncode


def environment() -> dict[str, str]:
    """The environment of processes that load the module.

    The library of the sanitizer has to be there before Python itself. Python's own arena would hide
    from it where an object ends; and Python leaves memory to the end of the process on purpose.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))[0]
    asked = [compiler, "-print-file-name=libasan.so"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(library):
        raise SystemExit(f"{compiler} has no libasan: nothing can be sanitized here")
    path = f"log_path={REPORTS / 'report'}"
    return {
        **os.environ,
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": f"detect_leaks=0:{path}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{path}",
        "PYTHONMALLOC": "malloc",
        "DISTARRAY_TEST_EXAMPLES": "3",
        "DISTARRAY_TEST_THREADS": "1,3",
    }


def main() -> int:
    """Build, run and look; the status for the shell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=600, help="of the explorer")
    parser.add_argument("--ranks", default="1,2,3")
    asked = parser.parse_args()
    variables = environment()
    copied()
    if not built():
        return 1
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "worksteal"]
    seconds = ["--ranks", asked.ranks, "--seconds", str(asked.seconds)]
    status = 0
    for argv in ([*pytest, *TESTS], ["-m", "tests.explore", *seconds]):
        print("== sanitized:", *argv[1:], flush=True)
        status |= subprocess.run([sys.executable, *argv], cwd=HOME, env=variables).returncode
    for report in sorted(REPORTS.iterdir()):
        print(report.read_text(errors="replace")[:20_000])
        status |= 1
    print(f"== sanitized: status {status}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
