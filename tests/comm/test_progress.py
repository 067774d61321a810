"""Bars of long operations: on rank 0 alone, once, and nothing where nobody watches."""

import io
import re
import sys
from pathlib import Path

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import Shard
from distarray.comm.progress import advance, stage
from distarray.engines.factoring import small
from distarray.ops.linalg import spectra, svd
from tests.launcher import environment, run_job

pytest.importorskip("tqdm")


@pytest.fixture
def shared(world, tmp_path):
    if world.name == "mpi":
        return Path(world.group.broadcast_object(str(tmp_path), 0))
    return tmp_path


@pytest.fixture
def large(monkeypatch):
    """Matrices of any size are decomposed by all ranks."""
    monkeypatch.setattr(small, "SMALL_BYTES", -1)
    monkeypatch.setattr(svd, "SQUARE_BYTES", -1)
    monkeypatch.setattr(spectra, "HERMITIAN_FROM", 0)


def shown(world, ranks, work, after=0.0):
    """What each rank has written while it did some work on arrays that are cut."""

    def program(group):
        file = io.StringIO()
        watched = distarray.progress(after=after, file=file)
        with distarray.config.override(replicate_below=1), watched:
            work()
        return group.rank, file.getvalue()

    return {found[0]: found[1] for found in world.run(ranks, program) if found is not None}


def ends(text):
    """The last state of each bar: its words, what is done, and of how much."""
    found = {}
    for line in re.split(r"[\r\n]", text):
        match = re.match(r"(.*?): +\d+%\|.*\| ([\d.]+\w?)/([\d.]+\w?) ", line)
        if match:
            found[match[1]] = match[2], match[3]
    return found


def sort():
    np.sort(np.random.default_rng(1).random(1000))


def order():
    np.argsort(np.random.default_rng(1).random(1000))


def eigen():
    a = np.random.default_rng(1).random((100, 100))
    np.linalg.eigh(a + a.T)


@pytest.mark.host
@pytest.mark.parametrize(
    ("work", "bars"),
    [
        (sort, {"sorting": ("3", "3")}),
        (order, {"sorting": ("3", "3")}),
        (eigen, {"tridiagonal form", "eigenvalues", "eigenvectors"}),
        (lambda: np.linalg.qr(np.ones((200, 200))), {"QR"}),
    ],
    ids=["sort", "argsort", "eigh", "qr"],
)
def test_rank_0_shows_how_far_it_is(world, ranks, large, work, bars):
    if ranks == 1:
        return
    for rank, text in shown(world, ranks, work).items():
        if rank:
            assert text == ""
            continue
        found = ends(text)
        assert set(found) >= set(bars)
        assert all(done == total for done, total in found.values()), found


@pytest.mark.host
def test_rounds_without_a_known_end_are_counted(world, ranks, large):
    if ranks == 1:
        return
    text = shown(world, ranks, lambda: np.linalg.svd(np.random.default_rng(1).random((60, 60))))
    if 0 in text:
        rounds = [int(n) for n in re.findall(r"singular values: (\d+) rounds", text[0])]
        assert rounds[-1] >= 2 * (2 * ranks - 1), "two sweeps at least"


@pytest.mark.counts(lambda ranks: ranks in (1, 3))
@pytest.mark.parametrize("name", ["x.npy", "x.h5", "x.zarr", "x.nc", "x.safetensors"])
def test_files_are_counted_in_bytes(world, ranks, shared, name):
    pytest.importorskip({"h5": "h5py", "zarr": "zarr", "nc": "netCDF4"}.get(name[2:], "numpy"))
    path = shared / f"{ranks}{name}"

    def work():
        x = np.arange(float(ranks << 18)).reshape(-1, 64)
        arrays = x if name == "x.npy" else {"x": x}
        distarray.io.write(path, arrays)
        found = distarray.io.read(path, placements=[Shard(0)])
        assert (found if name == "x.npy" else found["x"]).shape == x.shape

    for rank, text in shown(world, ranks, work).items():
        if rank:
            assert text == ""
        else:
            found = ends(text)
            assert set(found) == {"writing", "reading"}
            assert found["reading"] == ("2.00M", "2.00M")
            assert found["writing"][0] == found["writing"][1]


def test_checkpoints_show_their_own_bars(world, ranks, shared, capfd):
    def work():
        x = np.arange(100_000.0)
        distarray.checkpoint.save(shared / f"c{ranks}", {"x": x})
        distarray.checkpoint.load(shared / f"c{ranks}")

    found = shown(world, ranks, work)
    if 0 in found:
        said = capfd.readouterr().err
        assert "saving" in said
        assert "loading" in said


def test_short_operations_have_no_bar(world, ranks):
    assert not any(shown(world, ranks, sort, after=60.0).values())


def test_nothing_is_sent_for_it(world, ranks):
    def program(group):
        counts = []
        for watched in (False, True):
            with distarray.config.override(replicate_below=1), distarray.trace() as sent:
                if watched:
                    with distarray.progress(after=0, file=io.StringIO()):
                        sort()
                else:
                    sort()
            counts.append(len(sent.events))
        return counts

    for found in world.run(ranks, program):
        if found is not None:
            assert found[0] == found[1]


def test_parts_of_parts_are_not_counted(own_processes):
    file = io.StringIO()
    with distarray.progress(after=0, file=file), stage("outer", 2):
        advance()
        with stage("inner", 100):
            advance(50)
        advance()
    assert ends(file.getvalue()) == {"outer": ("2", "2")}
    advance()  # of nothing
    with stage("nobody", 1):
        advance()
    assert "nobody" not in file.getvalue()


def test_a_failure_closes_the_bar(own_processes):
    file = io.StringIO()
    watched = distarray.progress(after=0, file=file)
    with pytest.raises(ValueError, match="mine"), watched, stage("first", 2):
        raise ValueError("mine")
    with distarray.progress(after=0, file=file), stage("second", 1):
        advance()
    assert ends(file.getvalue())["second"] == ("1", "1")


def test_without_its_library_the_extra_is_named(world, ranks, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)

    def program(group):
        named = pytest.raises(ImportError, match=r"needs tqdm.*distarray-mpi\[progress\]")
        with named, distarray.progress():
            pass

    world.run(ranks, program)


def test_a_job_shows_one_bar(mpiexec, tmp_path):
    (tmp_path / "sorts.py").write_text(
        "import numpy as np\nimport distarray\n"
        "with distarray.progress(after=0):\n"
        "    x = np.sort(np.random.default_rng(1).random(1_000_000))\n"
    )
    argv = [*mpiexec, "-n", "3", sys.executable, "-m", "distarray", "sorts.py"]
    code, said = run_job(argv, timeout=120, cwd=tmp_path, env=environment())
    assert code == 0, said
    assert ends(said)["sorting"] == ("3", "3")
    assert len(set(re.findall(r"(\w[\w ]*): +\d+%", said))) == 1


def test_numbers_are_those_without(own_processes):
    values = numpy.random.default_rng(5).random(1000)
    with distarray.progress(file=io.StringIO()):
        assert numpy.array_equal(np.sort(values), numpy.sort(values))
