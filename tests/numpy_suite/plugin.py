"""The plugin of pytest's on each rank: rebinds the files, keeps the ranks in step, writes down.

What a test came to is compared after each of its phases. A rank that is alone with its outcome may
have left a conversation early, so that the next test would begin out of step: the job then ends,
and the launcher starts another one with the tests that are left.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from mpi4py import MPI

from tests.numpy_suite import left_out, rebinding

#: Where rank 0 writes one line for the beginning and for the end of each test.
RECORD = "NUMPY_SUITE_RECORD"
PLAIN = "NUMPY_SUITE_PLAIN"
TESTS = "NUMPY_SUITE_TESTS"

_world = MPI.COMM_WORLD.Dup()


class Step:
    """The ranks' tests, one after the other."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.number = 0
        self.outcome: tuple[str, str] = ("", "")
        self.out: TextIO | None = None if _world.rank else (place / "record").open("a")

    def say(self, **what: Any) -> None:
        """Write a line, on rank 0."""
        if self.out is not None:
            self.out.write(json.dumps(what) + "\n")
            self.out.flush()

    def directory(self) -> Path:
        """A new directory, the same on all ranks."""
        self.number += 1
        return Path(_world.bcast(tempfile.mkdtemp(dir=self.place) if not _world.rank else None))


_step: list[Step] = []


def pytest_configure(config: pytest.Config) -> None:
    _step.append(Step(Path(os.environ[RECORD])))
    if PLAIN not in os.environ:
        rebinding.install()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if _world.rank and reporter is not None:
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has been run by an earlier job, and what is not meant to pass."""
    bare = {item.module.__name__ for item in items if not rebinding.is_rebound(item.module)}
    if bare and PLAIN not in os.environ:
        raise pytest.UsageError(f"not rebound: {bare}")
    done = {
        json.loads(line)["test"]
        for line in (Path(os.environ[RECORD]) / "record").read_text().splitlines()
    }
    done = _world.bcast(done)
    chosen = os.environ.get(TESTS, "")
    kept = []
    for item in items:
        name = item.nodeid
        if name in done or chosen not in name:
            continue
        reason = None if PLAIN in os.environ else left_out.reason(name, _world.size)
        if reason is not None:
            _step[0].say(test=name, came="left out", text=reason)
        elif item.get_closest_marker("slow") is None:
            kept.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept][:1])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    step = _step[0]
    step.outcome = ("passed", "")
    step.say(test=item.nodeid, came="begun", at=time.time())
    result = yield
    meet()
    all_came = _world.allgather(step.outcome)
    worst = next((came for came in all_came if came[0] == "failed"), all_came[0])
    alike = len({came for came, _ in all_came}) == 1
    text = worst[1] if alike else f"on ranks {_ranks(all_came)} alone: {worst[1]}"
    step.say(test=item.nodeid, came=worst[0], text=text)
    if not alike:
        pytest.exit("the ranks have parted", returncode=PARTED)
    return result


def pytest_sessionfinish(exitstatus: int) -> None:
    """Say that the last test has been: a rank that dies may end the job with a status of these."""
    if exitstatus in ENDED:
        _step[0].say(test=END, came="")


def meet() -> None:
    """Wait for all ranks; not for ever, since one may wait for another in the test itself."""
    here, until = _world.Ibarrier(), time.monotonic() + PATIENCE
    while not here.Test():
        if time.monotonic() > until:
            _world.Abort(PARTED)
        time.sleep(0.0002)


#: Seconds that a rank waits at the end of a test for those that are still in it.
PATIENCE = 40.0
#: How pytest ends when it has come to the last test, and the record's last entry then.
ENDED = (0, 1, 5)
END = "the end"
#: Exit status of a job whose ranks have parted.
PARTED = 77


def _ranks(all_came: list[tuple[str, str]]) -> list[int]:
    return [rank for rank, (came, _) in enumerate(all_came) if came == "failed"]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    step = _step[0]
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message if crash else str(report.longrepr)
        step.outcome = ("failed", f"{_place(report)}{said}")
    elif report.skipped and step.outcome[0] == "passed":
        step.outcome = ("skipped", "")


def _place(report: pytest.TestReport) -> str:
    entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", [])
    places = [getattr(entry, "reprfileloc", None) for entry in entries]
    here = [place for place in places if place is not None]
    return " < ".join(f"{Path(place.path).name}:{place.lineno}" for place in here[::-1][:4]) + " | "


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """One directory for all ranks, as in a program."""
    return _step[0].directory()


@pytest.fixture
def tmpdir(tmp_path: Path) -> Any:
    import py

    return py.path.local(tmp_path)
