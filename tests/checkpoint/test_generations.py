"""A load sees one save: chunks are bound to it, and what is replaced stays until the next one."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import distarray as da
import distarray.io as io
from distarray import DeviceMesh, Replicate, Shard, checkpoint
from distarray.checkpoint import catalog, generations, held_checkpoint, loading
from distarray.comm import run_threads
from distarray.errors import CheckpointError
from distarray.io import directories
from tests.checkpoint.killing import save_one
from tests.checkpoint.states import TABLE, line_of, small_chunks
from tests.io.helpers import hidden

__all__ = ["small_chunks"]

pytest.importorskip("google_crc32c")
OLDER = catalog.OLDER


def save_state(group: Any, path: Path, number: float, **options: Any) -> None:
    """Save two tables of one shape, all whose elements depend on a number."""
    mesh = DeviceMesh(group, (group.size,))
    x = da.distribute(TABLE + number, mesh, [Shard(0)], src=None)
    state = {"n": number, "x": x, "y": -x, "z": np.arange(7) + number}
    checkpoint.save(path, state, mesh=mesh, **options).wait()


def saved(path: Path, number: float, ranks: int = 3, **options: Any) -> None:
    run_threads(ranks, lambda group: save_state(group, path, number, **options))


def number_of(state: dict[str, Any]) -> float:
    """The number of a loaded state; fails if it is not of one save."""
    n = state["n"]
    np.testing.assert_array_equal(state["x"].full(), TABLE + n)
    np.testing.assert_array_equal(state["y"].full(), -TABLE - n)
    np.testing.assert_array_equal(state["z"], np.arange(7) + n)
    return float(n)


def loaded(path: Path, ranks: int = 2, **options: Any) -> float:
    def program(group: Any) -> float:
        return number_of(checkpoint.load(path, mesh=line_of(group), **options))

    (number,) = set(run_threads(ranks, program))
    return number


def exchange(one: Path, other: Path) -> None:
    """Exchange two files, or two directories."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def of_another_step(path: Path) -> None:
    shutil.copy(path / "step-00000001/x/c.0.0", path / "step-00000002/x/c.0.0")


def exchanged_files(path: Path) -> None:
    exchange(path / "step-00000002/x/c.0.0", path / "step-00000002/y/c.0.0")


def exchanged_arrays(path: Path) -> None:
    exchange(path / "step-00000002/x", path / "step-00000002/y")


def exchanged_parts(path: Path) -> None:
    exchange(path / "step-00000002/x/c.0.0", path / "step-00000002/x/c.1.0")


def exchanged_in_the_index(path: Path) -> None:
    """Two chunks of one file, by an index whose checksum is right."""
    file = path / "step-00000002/x/c.0.0"
    data = bytearray(file.read_bytes())
    chunks = (len(data) - 4) // (88 + 4 + 16)  # of a row each
    index = np.frombuffer(data[-4 - 16 * chunks : -4], "<u8").reshape(-1, 2).copy()
    index[[0, 1]] = index[[1, 0]]
    data[-4 - 16 * chunks : -4] = index.tobytes()
    data[-4:] = np.array(catalog.checksum(index.tobytes()), "<u4").tobytes()
    file.write_bytes(data)


MISPLACED = (
    of_another_step,
    exchanged_files,
    exchanged_arrays,
    exchanged_parts,
    exchanged_in_the_index,
)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("misplace", MISPLACED, ids=lambda m: m.__name__)
def test_a_chunk_of_another_checkpoint_or_place_is_refused(
    world: Any, shared: Path, misplace: Callable[[Path], None], asynchronous: bool
) -> None:
    path, n = shared / "run", world.ranks[-1]
    if misplace is exchanged_parts and n == 1:
        pytest.skip("one rank writes one file")

    def program(group: Any) -> None:
        mesh = line_of(group)
        for step in (1, 2):
            save_state(group, path, step, step=step, asynchronous=asynchronous)
        assert checkpoint.verify(path, step=2, mesh=mesh) == 2 * TABLE.nbytes + 7 * 8
        group.barrier()
        if group.rank == 0:
            misplace(path)
        group.barrier()
        words = "of another checkpoint or from another place"
        if misplace is exchanged_parts and group.size == 2:
            words = "the file is truncated"  # 19 and 18 rows; on more ranks both are of one size
        for placement in (Shard(0), Shard(1), Replicate()):
            with pytest.raises(CheckpointError, match=f"array '[xy]'(, chunk |: ).*{words}"):
                checkpoint.load(path, step=2, mesh=mesh, placements=[placement])
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        with pytest.raises(CheckpointError, match=words):
            checkpoint.load(path, {"x": x}, step=2, mesh=mesh)
        with pytest.raises(CheckpointError, match=words):
            checkpoint.verify(path, step=2, mesh=mesh)
        z = checkpoint.load(path, {"z": None}, step=2, mesh=mesh)["z"]  # is not touched
        assert z[0] == 2
        group.barrier()

    with small_rows():
        world.run(n, program)


def small_rows() -> Any:
    """Chunks of one row, several in a file."""
    from distarray.io import chunk_grids

    return patch.multiple(chunk_grids, CHUNK=100, LEAST=600)


def put(path: Path, number: int, aside: Path) -> None:
    """Put a checkpoint, saved elsewhere before, in the place of another, as a save does."""
    name = path.parent / f".run~elsewhere~1~{number}.partial"
    aside.rename(name)
    directories.commit(name, path, OLDER)


def meanwhile(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], None]) -> None:
    """Do things while loads go on: one in each load, after the files have been checked."""
    check, left = loading.check_files, list(acts)

    def checked(*args: Any) -> None:
        check(*args)
        if left:
            left.pop(0)()

    monkeypatch.setattr(loading, "check_files", checked)


@pytest.mark.parametrize("two_steps", [False, True])
def test_a_load_goes_on_with_what_it_has_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_steps: bool
) -> None:
    if two_steps:  # a system that cannot exchange names at once
        monkeypatch.setattr(directories, "_exchange_at_once", lambda a, b: False)
    path, later = tmp_path / "run", tmp_path / "later"
    saved(path, 1)
    saved(later, 2)
    meanwhile(monkeypatch, lambda: put(path, 2, later))
    assert loaded(path, ranks=1) == 1
    assert loaded(path) == 2
    assert hidden(tmp_path) == []
    assert sorted(os.listdir(tmp_path)) == ["run"]


def test_a_load_that_finds_files_gone_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also into arrays that have been filled in part, and whatever the new checkpoint is like."""
    path, places = tmp_path / "run", [tmp_path / f"later-{n}" for n in range(2)]
    saved(path, 1)
    for n, place in enumerate(places):
        saved(place, n + 2, ranks=n + 1)

    def both() -> None:
        for n, place in enumerate(places):
            put(path, n + 2, place)

    meanwhile(monkeypatch, both)

    def program(group: Any) -> float:
        into = {"n": 0, "z": np.zeros(7, int), "y": None, "x": None}
        into["x"] = da.distribute(0 * TABLE, line_of(group), [Shard(1)], src=None)
        return number_of(checkpoint.load(path, into))

    assert run_threads(1, program) == [3.0]


def test_verify_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    saved(path, 1)
    hold, left = held_checkpoint._held, [2, 3]

    def held(found: Any) -> int:
        handle = hold(found)
        while left:
            saved_elsewhere = tmp_path / "later"
            n = left.pop(0)
            save_one(saved_elsewhere, n, 1, None, False)
            put(path, n, saved_elsewhere)
        return handle

    monkeypatch.setattr(held_checkpoint, "_held", held)
    (size,) = run_threads(1, lambda group: checkpoint.verify(path, mesh=line_of(group)))
    assert size == 45 * 8 + 4 * 8


def test_ranks_that_come_late_find_what_the_first_has_found(tmp_path: Path) -> None:
    path = tmp_path / "run"
    saved(path, 1)
    found = catalog.parse_catalog(path, catalog.read_catalog(path))
    saved(path, 2)
    with held_checkpoint.HeldCheckpoint(found) as held:
        assert held.read("zarr.json") == catalog.read_catalog(path / OLDER)
    saved(path, 3)
    with pytest.raises(CheckpointError, match="another save has replaced"):
        held_checkpoint.HeldCheckpoint(found)


def test_a_checkpoint_that_is_always_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    saved(path, 1)
    monkeypatch.setattr(generations, "_ATTEMPTS", 3)

    def replaced() -> None:
        saved(path, 2)
        raise FileNotFoundError("a chunk is gone")

    meanwhile(monkeypatch, *[replaced] * 3)
    with pytest.raises(CheckpointError, match="replaced 3 times while it was loaded; save less"):
        loaded(path, ranks=1)
    assert loaded(path) == 2


def test_the_last_step_goes_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With keep=1 the step before the last stays, without a name, until the next save."""
    path = tmp_path / "run"
    saved(path, 1, step=1, keep=1)
    meanwhile(monkeypatch, lambda: saved(path, 2, step=2, keep=1))
    assert loaded(path, ranks=1) == 1

    def both() -> None:
        for step in (3, 4):
            saved(path, step, step=step, keep=1)

    meanwhile(monkeypatch, both)
    assert loaded(path, ranks=1) == 4
    assert os.listdir(path) == ["step-00000004"]
    meanwhile(monkeypatch, lambda: [saved(path, step, step=step, keep=1) for step in (5, 6)])
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 4 .*the last: 6"):
        loaded(path, ranks=1, step=4)


@pytest.mark.parametrize("two_steps", [False, True])
def test_there_is_always_a_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_steps: bool
) -> None:
    """Whenever another job takes away the name that has just been seen, a look is taken again."""
    path = tmp_path / "run"
    if two_steps:
        saved(path, 1)
        saved(tmp_path / "later", 2)
        aside, seen = tmp_path / ".run~elsewhere~1~7.previous", catalog.steps

        def moved(place: Path) -> list[int]:
            """As if the job that exchanges were between its two steps."""
            monkeypatch.setattr(catalog, "steps", seen)
            path.rename(aside)
            found = seen(place)
            (tmp_path / "later").rename(path)
            return found

        monkeypatch.setattr(catalog, "steps", moved)
        lexists = os.path.lexists
        monkeypatch.setattr(
            os.path,
            "lexists",
            lambda p: lexists(p) and (catalog.steps is seen or p != path / "zarr.json"),
        )
    else:
        saved(path, 1, step=1, keep=1)
        listed, left = catalog.step_directories, [2, 3]

        def replaced(place: Path) -> list[Path]:
            found = listed(place)
            if left:
                step = left.pop(0)
                with monkeypatch.context() as patched:
                    patched.setattr(catalog, "step_directories", listed)
                    saved(path, step, step=step, keep=1)
            return found

        monkeypatch.setattr(catalog, "step_directories", replaced)
    (found,) = run_threads(1, lambda group: checkpoint.latest(path, mesh=line_of(group)))
    assert found == (path if two_steps else path / "step-00000003")


def kept(path: Path) -> list[str]:
    """The older checkpoints below a directory."""
    return sorted(str(found.relative_to(path)) for found in path.rglob(OLDER))


def test_one_older_checkpoint_stays_until_the_next_save(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for number in range(3):
        saved(run, number)
        assert kept(run) == [OLDER] * bool(number)
    assert loaded(run / OLDER) == 1
    assert checkpoint.latest(run) == run
    steps = tmp_path / "steps"
    for step in (1, 2, 3):
        saved(steps, step, step=step, keep=2)
    assert kept(steps) == []  # the last but one has its name
    saved(steps, 33, step=3, keep=2)  # the same again
    assert kept(steps) == [f"step-00000003/{OLDER}"]
    saved(steps, 4, step=4, keep=2)
    assert kept(steps) == []
    saved(steps, 5, step=5, keep=1)
    assert kept(steps) == [f"step-00000005/{OLDER}"]
    assert os.listdir(steps) == ["step-00000005"]
    assert loaded(steps / "step-00000005" / OLDER) == 4
    for directory in (tmp_path, run, steps):
        assert hidden(directory) == []


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("step", [None, 7])
def test_the_older_checkpoint_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int | None, asynchronous: bool
) -> None:
    """It goes when the next save begins if the last is long ago, or the disk too full for both."""
    path = tmp_path / "run"
    final = catalog.step_path(path, step)
    seen: list[list[str]] = []
    describe = catalog.make_directories

    def looked(*args: Any) -> None:
        time.sleep(0.05)  # of rank 0's thread, which makes room first
        seen.append(kept(path))
        describe(*args)

    monkeypatch.setattr("distarray.checkpoint.background.make_directories", looked)

    def save(number: int) -> list[str]:
        seen.clear()
        saved(path, number, ranks=1, step=step, asynchronous=asynchronous)
        return seen[0]

    assert save(1) == []
    assert save(2) == []
    older = [str((final / OLDER).relative_to(path))]
    assert save(3) == older
    then = time.time() - 2 * generations._GRACE
    os.utime(final / "zarr.json", (then, then))
    assert save(4) == []
    full = os.statvfs_result((4096, 4096, 1000, 0, 0, 10, 10, 10, 0, 255))
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda place: full)
        assert save(5) == []
    assert save(6) == older
    assert kept(path) == older


def as_saved_by_0_1(path: Path) -> None:
    """Make a checkpoint one without a list of chunks."""
    whole = json.loads((path / "zarr.json").read_bytes())
    del whole["attributes"]["distarray"]["chunks"]
    (path / "zarr.json").write_bytes(catalog.sealed(json.dumps(whole).encode()))


def test_checkpoints_of_version_0_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    saved(path, 1)
    as_saved_by_0_1(path)
    assert loaded(path) == 1

    def verify(group: Any) -> int:
        with pytest.warns(UserWarning, match=r"early distarray 0\.1, .*load it, and save it"):
            return checkpoint.verify(path, mesh=line_of(group))

    assert run_threads(1, verify) == [2 * TABLE.nbytes + 56]
    saved(tmp_path / "later", 2)
    meanwhile(monkeypatch, lambda: put(path, 2, tmp_path / "later"))
    assert loaded(path, ranks=1) == 1  # held by its directory


def test_what_a_description_lists(tmp_path: Path) -> None:
    """A list of chunks that is not one is refused before anything is believed."""
    path = tmp_path / "run"
    saved(path, 1)
    good = (path / "zarr.json").read_bytes()
    for wrong in ([], "00", 7, {}, {"x": "00"}, {"x": 5}, {"x": "zz" * 4}):
        whole = json.loads(good)
        listed = whole["attributes"]["distarray"]["chunks"]
        if isinstance(wrong, dict) and "zz" in str(wrong):
            wrong = {"x": "z" * len(listed["x"])}
        whole["attributes"]["distarray"]["chunks"] = wrong
        (path / "zarr.json").write_bytes(catalog.sealed(json.dumps(whole).encode()))
        for ask in (checkpoint.load, checkpoint.verify):
            with pytest.raises(CheckpointError, match=r"list of (its )?chunks is malformed"):
                run_threads(2, lambda group, ask=ask: ask(path, mesh=line_of(group)))


def test_other_readers_see_the_new_checkpoint_alone(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "run"
    for number in (1, 2):
        saved(path, number)
    store = zarr.open(path, mode="r")
    assert sorted(store) == ["x", "y", "z"]
    np.testing.assert_array_equal(store["x"][:], TABLE + 2)

    def program(group: Any) -> Any:
        return {k: v.full() for k, v in io.read(path, format="zarr", mesh=line_of(group)).items()}

    (found,) = run_threads(1, program)
    assert sorted(found) == ["x", "y", "z"]
    np.testing.assert_array_equal(found["y"], -TABLE - 2)


def test_a_store_that_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads a checkpoint as a Zarr store gets an error, and not chunks of two."""
    pytest.importorskip("zarr")
    from distarray.io import zarr as ours

    path = tmp_path / "run"
    saved(path, 1)
    decode = ours._Stored._decode

    def slow(self: Any, section: Any, out: Any) -> None:
        decode(self, section, out)
        saved(path, 2, ranks=1)

    monkeypatch.setattr(ours._Stored, "_decode", slow)
    with pytest.raises(OSError, match="has been replaced"):
        run_threads(1, lambda group: io.read(path, "x", format="zarr", mesh=line_of(group)))
