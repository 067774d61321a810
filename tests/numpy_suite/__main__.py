"""The launcher: one job for each file and number of ranks, and counts of what came of it.

::

    python -m tests.numpy_suite --ranks 1,3 --files _core/tests/test_numeric.py lib/tests --cut

A number of ranks of 0 runs the tests with NumPy itself, which tells what fails on this machine
anyhow.
"""

import argparse
import collections
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy

from tests.launcher import environment, find_mpiexec, run_job
from tests.numpy_suite import left_out
from tests.numpy_suite.plugin import END, PARTED, PLAIN, RECORD, TESTS

HOME = Path(numpy.__file__).parent
#: Jobs that one file may need, each begun after a test that hung, died or parted the ranks.
JOBS = 40
#: Seconds that a test must have been running to have used up a job's time by itself.
LONG = 60.0
KINDS = ("passed", "failed", "left out", "skipped")
Outcomes = dict[str, tuple[str, str]]


def files(names: list[str]) -> list[str]:
    """The test files below the given directories of NumPy's, or all."""
    found = sorted(str(path.relative_to(HOME)) for path in HOME.glob("**/tests/test_*.py"))
    return [file for file in found if not names or any(file.startswith(name) for name in names)]


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.numpy_suite")
    parser.add_argument("--ranks", default="1,3", help="numbers of ranks; 0 is NumPy itself")
    parser.add_argument("--files", nargs="*", default=[], help="files or directories of NumPy's")
    parser.add_argument("--tests", default="", help="only tests whose name has this in it")
    parser.add_argument("--cut", action="store_true", help="cut small arrays, too")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one job")
    parser.add_argument("--wait", type=float, default=20.0, help="seconds a rank waits for others")
    parser.add_argument("--out", type=Path, help="a file for the texts of the failures")
    return parser.parse_args()


def settings(options: argparse.Namespace, ranks: int, place: Path) -> dict[str, str]:
    """The environment of a job."""
    more = {
        RECORD: str(place),
        TESTS: options.tests,
        "DISTARRAY_FALLBACK": "allow",
        "DISTARRAY_PRINT_GATHERED": "1",
        "DISTARRAY_WAIT_LIMIT": str(options.wait),
        "DISTARRAY_WRITEABLE_COPIES": "1",
        "PYTHONHASHSEED": "0",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(place),
    }
    if options.cut:
        more["DISTARRAY_REPLICATE_BELOW"] = "0"
    if not ranks:
        more[PLAIN] = "1"
    return environment(**more)


def outcomes(place: Path) -> Outcomes:
    """What has been written down: the last word on each test."""
    found: Outcomes = {}
    for line in (place / "record").read_text().splitlines():
        entry = json.loads(line)
        found[entry["test"]] = entry["came"], entry.get("text", "")
    return found


def run_file(file: str, ranks: int, options: argparse.Namespace) -> Outcomes:
    """Run one file, by as many jobs as it takes."""
    why = left_out.reason(file, ranks)
    if why is not None and ranks:
        return {file: ("left out", why)}
    place = Path(tempfile.mkdtemp(prefix="numpy-suite-"))
    (place / "record").touch()
    argv = [*find_mpiexec(), "-n", str(max(ranks, 1)), sys.executable, "-m", "pytest"]
    argv += ["-c", "/dev/null", f"--rootdir={HOME}", "-p", "tests.numpy_suite.plugin", "-q"]
    argv += ["--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist"]
    argv += ["-W", "ignore:Passing a non-Collection iterable", str(HOME / file)]
    status: int | None = None
    said = ""
    for _ in range(JOBS):
        before = len(outcomes(place))
        status, said = run_job(
            argv,
            timeout=options.timeout,
            cwd=place,
            env=settings(options, ranks, place),
        )
        if END in outcomes(place):
            break
        if not close(place, status) and status != PARTED:
            said = re.sub(r"\s+", " ", said[-800:])
            if len(outcomes(place)) == before:
                break
    found = outcomes(place)
    if found.pop(END, None) is None and found:
        found[f"{file}::the rest"] = "failed", f"has not run, status {status}: {said[-800:]}"
    shutil.rmtree(place, ignore_errors=True)
    return found or {file: ("failed", f"no test has run: {said[-800:]}")}


def close(place: Path, status: int | None) -> bool:
    """Write down a test that has not come back; whether there is one."""
    if status is None:
        forget_late(place)
    begun = [name for name, (came, _) in outcomes(place).items() if came == "begun"]
    how = "hung" if status is None else f"the job ended with status {status}"
    with (place / "record").open("a") as record:
        for name in begun:
            record.write(json.dumps({"test": name, "came": "failed", "text": how}) + "\n")
    return bool(begun)


def forget_late(place: Path) -> None:
    """Take a test out of the record that had just begun when the job's time was up."""
    *lines, last = (place / "record").read_text().splitlines() or [""]
    if last and time.time() - json.loads(last).get("at", 0.0) < LONG:
        (place / "record").write_text("".join(f"{line}\n" for line in lines))


def main() -> int:
    """Run, and print; the exit status says whether all has passed."""
    options = parsed()
    numbers = [int(number) for number in options.ranks.split(",")]
    failures = []
    total: collections.Counter[tuple[int, str]] = collections.Counter()
    print(f"{'file':44} ranks " + " ".join(f"{kind:>8}" for kind in KINDS), flush=True)
    for file in files(options.files):
        for ranks in numbers:
            found = run_file(file, ranks, options)
            counts = collections.Counter(came for came, _ in found.values())
            total.update({(ranks, kind): counts[kind] for kind in KINDS})
            print(line_of(file, ranks, [counts[kind] for kind in KINDS]), flush=True)
            wrong = [(name, text) for name, (came, text) in found.items() if came == "failed"]
            failures += [f"{ranks}\t{name}\t{text!r}" for name, text in wrong]
            if options.out is not None:
                options.out.write_text("\n".join(failures) + "\n")
    for ranks in numbers:
        print(line_of("all", ranks, [total[ranks, kind] for kind in KINDS]))
    for why, patterns in left_out.listed(max(numbers, default=1)).items():
        print(f"left out: {why}: {len(patterns)} patterns")
    return os.EX_OK if not any(total[ranks, "failed"] for ranks in numbers) else 1


def line_of(file: str, ranks: int, counts: list[int]) -> str:
    """One line of the table."""
    return f"{file:44} {ranks:5} " + " ".join(f"{count:8}" for count in counts)


if __name__ == "__main__":
    sys.exit(main())
