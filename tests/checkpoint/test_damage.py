"""Damaged checkpoints, full disks, killed saves: no loss, no wrong data, no hang."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as da
from distarray import DeviceMesh, Replicate, Shard, checkpoint
from distarray.checkpoint import chunk_files, loading
from distarray.comm import run_threads, thread_start
from distarray.errors import CheckpointError
from distarray.io import chunk_grids, flushing
from distarray.testing import assert_matches
from tests.checkpoint.damage import CLAIMS, DAMAGES, HOSTILE, Bomb, claimed
from tests.checkpoint.killing import killed_job, leftover, load_one, save_one

HERE = Path(__file__).parent
#: Saves that are killed at random; the figure for a release is 100.
SAVES = os.environ.get("DISTARRAY_TEST_SAVES", "20")

pytest.importorskip("google_crc32c")

TABLE = np.arange(37 * 11.0).reshape(37, 11)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut tiny arrays into several files of several chunks."""
    monkeypatch.setattr(chunk_grids, "CHUNK", 300)
    monkeypatch.setattr(chunk_grids, "LEAST", 400)


def saved_at(path: Path, asynchronous: bool = False) -> None:
    """A checkpoint of 7 files, made by as many ranks."""

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (7,))
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        state = {"table": x, "time": 1.5, "other": np.arange(100)}
        checkpoint.save(path, state, asynchronous=asynchronous).wait()

    run_threads(7, program)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undamaged checkpoint; each process has its own."""
    path = tmp_path_factory.mktemp("good") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_grids, "CHUNK", 300)
        patch.setattr(chunk_grids, "LEAST", 400)
        saved_at(path)
    return path


def refused(world: Any, shared: Path, good: Path, damage: Any, words: str) -> None:
    """Damage a copy; loading it must raise the same error on all ranks, and change nothing."""
    n = world.ranks[-1]
    path = shared / "run"
    if world.name == "threads" or world.group.rank == 0:
        shutil.copytree(good, path)
        damage(path)
        assert not (path.parent / "exploded").exists()

    def program(group: Any) -> None:
        group.barrier()
        mesh = DeviceMesh(group, (n,))
        before = listing(path.parent)
        untouched = np.full(100, -7)
        with pytest.raises((CheckpointError, OSError), match=f"(?s){words}"):
            checkpoint.load(path, mesh=mesh, placements=[Replicate()])
        with pytest.raises((CheckpointError, OSError)):
            checkpoint.load(path, {"other": untouched, "table": None}, mesh=mesh)
        with pytest.raises((CheckpointError, OSError)):
            checkpoint.verify(path, mesh=mesh)
        group.barrier()
        assert listing(path.parent) == before
        if damage in HOSTILE:
            assert (untouched == -7).all()

    world.run(n, program)


def listing(directory: Path) -> list[tuple[str, int]]:
    """All names below a directory, with sizes."""
    return sorted(
        (os.path.join(place, name), os.lstat(os.path.join(place, name)).st_size)
        for place, _, names in os.walk(directory)
        for name in names
    )


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_damage_is_found_and_named(world: Any, shared: Path, good: Path, damage: Any) -> None:
    refused(world, shared, good, damage, DAMAGES[damage])


@pytest.mark.parametrize("damage", HOSTILE, ids=lambda d: d.__name__)
def test_hostile_checkpoints_are_refused(
    world: Any, shared: Path, good: Path, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = shared / "exploded"
    monkeypatch.setenv("DISTARRAY_TEST_BOMB", str(bomb))
    refused(world, shared, good, damage, HOSTILE[damage])
    assert not bomb.exists()


@pytest.mark.parametrize(("where", "value", "words"), CLAIMS)
def test_what_a_description_claims(
    good: Path, tmp_path: Path, where: str, value: Any, words: str
) -> None:
    path = tmp_path / "run"
    shutil.copytree(good, path)
    claimed(path, where, value)
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("happened", "words"),
    [("missing", "is missing"), ("linked_file", "symbolic link"), ("emptied", "has 0 bytes")],
)
def test_damage_after_files_were_checked(
    good: Path, tmp_path: Path, happened: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files may change between the check of names and sizes and the reading."""
    path = tmp_path / "run"
    shutil.copytree(good, path)
    next(damage for damage in (*DAMAGES, *HOSTILE) if damage.__name__ == happened)(path)
    monkeypatch.setattr(loading, "check_files", lambda *args: None)

    def program(group: Any) -> None:
        with pytest.raises(CheckpointError, match=words):
            checkpoint.load(path, mesh=DeviceMesh(group, (group.size,)))

    run_threads(3, program)


def test_what_is_no_checkpoint(world: Any, shared: Path) -> None:
    places = {
        "a pickle": (lambda p: p.write_bytes(pickle.dumps(Bomb())), "is a file, not a checkpoint"),
        "nothing": (lambda p: p.mkdir(), "is not a checkpoint, and has none of any step"),
        "zarr": (foreign_group, "is not one that distarray.checkpoint.save"),
        "notes": (lambda p: (p.mkdir(), (p / "zarr.json").write_text("to do")), "is damaged"),
    }
    if world.name == "threads" or world.group.rank == 0:
        for name, (make, _) in places.items():
            make(shared / name)

    def program(group: Any) -> None:
        group.barrier()
        mesh = DeviceMesh(group, (group.size,))
        for name, (_, words) in places.items():
            with pytest.raises(CheckpointError, match=words):
                checkpoint.load(shared / name, mesh=mesh)
            if name != "nothing":
                with pytest.raises(FileExistsError):
                    checkpoint.save(shared / name, {"a": 1}, mesh=mesh)

    world.run(world.ranks[-1], program)


def foreign_group(path: Path) -> None:
    """A Zarr group that is not a checkpoint."""
    path.mkdir()
    (path / "zarr.json").write_text(
        json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}})
    )


def test_any_flipped_bit_is_found(good: Path, tmp_path: Path) -> None:
    """Of all bits of all files, except the arrays' zarr.json, which are not read."""
    rng, path = random.Random(3), tmp_path / "run"
    shutil.copytree(good, path)
    whole = [
        f for f in path.rglob("*") if f.is_file() and f.parent.name + f.name != "tablezarr.json"
    ]
    whole = [file for file in whole if file == path / "zarr.json" or file.name != "zarr.json"]

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (1,))
        found = checkpoint.load(path, mesh=mesh)
        assert_matches(found["table"], TABLE)
        assert found["time"] == 1.5
        np.testing.assert_array_equal(found["other"], np.arange(100))

    refusals = 0
    for _ in range(150):
        file = rng.choice(whole)
        before = file.read_bytes()
        data = bytearray(before)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
        try:
            run_threads(1, program)
        except CheckpointError:
            refusals += 1
        file.write_bytes(before)
    run_threads(1, program)
    assert refusals > 130  # other bits have no meaning: the time of saving, white space
    for file in path.rglob("*/zarr.json"):  # for other readers of Zarr
        before = file.read_bytes()
        file.write_bytes(before.replace(b"3", b"2", 1))
        run_threads(1, program)
        with pytest.raises(CheckpointError, match=f"{file.parent.name}.*is not what was saved"):
            run_threads(1, lambda group: checkpoint.verify(path, mesh=DeviceMesh(group, (1,))))
        file.write_bytes(before)


def test_a_full_disk(world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, path = world.ranks[-1], shared / "run"
    written, room = [0], 3000
    write = chunk_files._write_all

    def until_full(handle: int, buffers: Any) -> None:
        written[0] += sum(buffer.size for buffer in buffers)
        if written[0] > room // (n if world.name == "mpi" else 1):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(handle, buffers)

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (n,))
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        checkpoint.save(path, {"table": x})
        group.barrier()
        monkeypatch.setattr(chunk_files, "_write_all", until_full)
        group.barrier()
        for asynchronous in (False, True):
            written[0] = 0
            group.barrier()
            with pytest.raises(OSError, match="No space left on device"):
                checkpoint.save(path, {"table": x + 1}, asynchronous=asynchronous).wait()
            group.barrier()  # rank 0 has removed the unfinished files
            assert sorted(os.listdir(shared)) == ["run"]
            group.barrier()
        monkeypatch.setattr(chunk_files, "_write_all", write)
        group.barrier()
        assert_matches(checkpoint.load(path, mesh=mesh)["table"], TABLE)
        checkpoint.save(path, {"table": x + 2})
        assert_matches(checkpoint.load(path, mesh=mesh)["table"], TABLE + 2)

    world.run(n, program)


LIMITED = r"""
import os, resource, signal, sys
import numpy as np
import distarray as da
from distarray import DeviceMesh, checkpoint
from distarray.comm import run_threads
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def program(group):
    mesh = DeviceMesh(group, (2,))
    x = da.distribute(np.arange(1000000.0), mesh, [da.Shard(0)], src=None)
    checkpoint.save(sys.argv[1] + "/run", {"x": x[:10]})
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000000, -1))
    try:
        checkpoint.save(sys.argv[1] + "/run", {"x": x})
    except OSError as error:
        sys.stdout.write(f"refused {error.strerror}\n")
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    assert checkpoint.load(sys.argv[1] + "/run", mesh=mesh)["x"].shape == (10,)
    os.seteuid(65534)
    for path in ("/run", "/other"):
        try:
            checkpoint.save(sys.argv[1] + path, {"x": x})
        except PermissionError as error:
            sys.stdout.write(f"refused {error.strerror}\n")
    os.seteuid(0)
run_threads(2, program)
print("\n" + " ".join(sorted(os.listdir(sys.argv[1]))))
"""


@pytest.mark.parametrize("asynchronous", [False, True])
def test_where_one_call_does_not_bring_all_to_disk(
    tmp_path: Path, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Lustre and NFS: every file and every directory gets an fsync of its own."""
    flushed: list[str] = []
    monkeypatch.setattr(flushing, "_syncfs", None)
    monkeypatch.setattr(os, "fsync", lambda n: flushed.append(os.readlink(f"/proc/self/fd/{n}")))
    saved_at(tmp_path / "run", asynchronous)
    found = [path for path in tmp_path.rglob("*") if path.name != "run"]
    names = {name.partition(".partial")[2].strip("/") for name in flushed}
    assert {str(path.relative_to(tmp_path / "run")) for path in found} <= names
    assert str(tmp_path) in flushed  # the parent directory


@pytest.mark.parametrize("refused", [{0}, {3}, {0, 6}, set(range(7))])
def test_ranks_without_a_thread_save_at_once(
    tmp_path: Path, refused: set[int], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """Such a rank raised, and the others waited for it."""
    start = thread_start.try_start

    def try_start(thread: threading.Thread) -> Exception | None:
        rank = threading.current_thread().name.removeprefix("rank-")
        saves = thread.name.startswith("saving")
        none = saves and rank in map(str, refused)
        return RuntimeError("can't start new thread") if none else start(thread)

    monkeypatch.setattr(thread_start, "try_start", try_start)
    saved_at(tmp_path / "run", asynchronous=True)
    assert (checkpoint.load(tmp_path / "run")["table"].full() == TABLE).all()
    assert capfd.readouterr().err.count("can't start new thread") == len(refused)


@pytest.mark.usefixtures("own_processes")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_limits_of_the_system(tmp_path: Path) -> None:
    """A limit on file sizes, and a directory that is not writable."""
    os.chmod(tmp_path, 0o755)
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True, text=True, timeout=60, cwd=HERE.parents[1],
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    refusals = run.stdout.splitlines()
    assert refusals.count("refused File too large") == 2
    assert refusals.count("refused Permission denied") == 4
    assert refusals[-1] == "run"


@pytest.mark.usefixtures("own_processes")
def test_killed_at_every_place_and_at_any_time(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(HERE / "killing.py"), str(tmp_path), SAVES],
        capture_output=True, text=True, timeout=170,
        cwd=HERE.parents[1], env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )  # fmt: skip
    print(run.stdout)
    assert run.returncode == 0, run.stderr
    places = [int(line.split()[2]) for line in run.stdout.splitlines() if line.startswith("stop")]
    assert len(places) == 3
    assert min(places) > 40


@pytest.mark.parametrize("victim", [0, 1, None])
def test_killed_under_mpi(tmp_path: Path, mpiexec: tuple[str, ...], victim: int | None) -> None:
    """One rank is killed, or the whole job."""
    saved = killed_job(mpiexec, tmp_path / "run", victim, 0.2)
    found = load_one(tmp_path / "run") or 0
    print(f"killed after {found} saves")
    assert found >= max(saved, default=0)
    save_one(tmp_path / "run", found + 1, 1, found + 1, False)
    assert leftover(tmp_path / "run") == []
