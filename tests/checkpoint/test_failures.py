"""Checkpoints: what cannot be saved, what fails, and what is said meanwhile."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as da
from distarray import Partial, Shard, checkpoint
from distarray.checkpoint import background, chunk_files, saving
from distarray.errors import CheckpointError, DivergenceError
from distarray.testing import assert_matches
from tests.checkpoint.states import TABLE, assert_same, few, line_of, small_chunks
from tests.io.helpers import hidden

__all__ = ["few", "small_chunks"]

pytest.importorskip("google_crc32c")
pytest.importorskip("zarr")

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


def test_what_cannot_be_saved(world: Any, few: int, shared: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)

    def program(group: Any) -> None:
        for wrong, words in (
            ({"a": [object()]}, r"state\['a'\]\[0\] is of type object, which cannot be saved"),
            ({"a": np.array([None])}, r"state\['a'\] has dtype object"),
            ({1.5: 1}, "has the key 1.5"),
            ({"a": np.ma.masked_array([1], [True])}, "is of type MaskedArray"),
            (loop, "contains itself"),
        ):
            with pytest.raises((TypeError, ValueError), match=words):
                checkpoint.save(shared / "x", wrong, mesh=line_of(group))
        if group.size > 1:
            for differing in (group.rank, {"r": np.full(3, group.rank)}, ["x"] * group.rank):
                words = "on rank 1 differs? from (that|those) on rank 0"
                with pytest.raises(DivergenceError, match=words):
                    checkpoint.save(shared / "x", {"a": differing}, mesh=line_of(group))
        x = da.distribute(TABLE, line_of(group), [Shard(0)], src=None)
        (shared / "mine").mkdir(exist_ok=True)
        (shared / "mine" / "thesis.tex").touch()
        with pytest.raises(FileExistsError, match="is no checkpoint; nothing has been written"):
            checkpoint.save(shared / "mine", {"x": x})
        group.barrier()
        assert sorted(os.listdir(shared)) == ["mine"]

    world.run(few, program)


def test_numbers_and_names_that_are_odd(world: Any, few: int, shared: Path) -> None:
    """Integers with more digits than Python reads, steps of NumPy's, names that saving itself has,
    and a dict whose update adds."""

    def program(group: Any) -> None:
        mesh, path = line_of(group), shared / "odd"
        state: Any = {".rank-0.done": np.arange(3), ".rank-x": {".y": np.ones(2)}, "n": -(10**5000)}
        state["count"] = {3: 1}
        for step, late in ((np.int64(7), False), (8, True)):
            checkpoint.save(path, state, step=step, asynchronous=late, mesh=mesh).wait()  # type: ignore[arg-type]
            assert_same(checkpoint.load(path, step=int(step), mesh=mesh), state)
        counter = Counter({3: 5})
        checkpoint.load(path, {"count": counter}, mesh=mesh)
        assert counter == {3: 1}

    world.run(few, program)


def test_no_memory_for_a_copy_on_one_rank(
    world: Any, few: int, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(group: Any) -> None:
        def staged(shards: Any) -> Any:
            if group.size == 1 or any(shard.place != (0, 0) for shard in shards):
                raise MemoryError("no room for a copy")
            return real(shards)

        monkeypatch.setattr(saving, "staged", staged)
        x = da.distribute(TABLE, line_of(group), [Shard(0)], src=None)
        group.barrier()
        with pytest.raises(MemoryError, match="no room"):
            checkpoint.save(shared / "x", {"x": x}, asynchronous=True)
        group.barrier()
        assert hidden(shared) == []

    real = saving.staged
    world.run(few, program)


def test_a_failure_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    monkeypatch.setattr(background.atexit, "register", registered.append)
    monkeypatch.setattr(background.atexit, "unregister", lambda act: registered.clear())
    for step in range(3):
        checkpoint.save(tmp_path, {}, step=step, asynchronous=True).wait()
    assert len(registered) == 1


class Clock:
    """Something of a program's own."""

    def __init__(self, time: float, hands: Any) -> None:
        self.time, self.hands = time, hands


def test_objects_with_an_adapter(world: Any, few: int, shared: Path) -> None:
    def state(clock: Clock) -> dict[str, Any]:
        return {"time": clock.time, "hands": clock.hands}

    def restore(clock: Clock, found: dict[str, Any]) -> None:
        assert found["hands"] is clock.hands
        clock.time = found["time"]

    checkpoint.register(Clock, "clock", state, restore)

    class Tower(Clock):
        pass

    path = shared / str(few)

    def program(group: Any) -> None:
        mesh = line_of(group)
        hands = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        checkpoint.save(path, {"clock": Tower(3.5, hands), "other": {}})
        clock = Clock(0.0, np.zeros_like(hands))
        assert checkpoint.load(path, {"clock": clock})["clock"] is clock
        assert clock.time == 3.5
        assert_matches(clock.hands, TABLE)
        assert checkpoint.load(path, mesh=mesh)["clock"]["time"] == 3.5
        with pytest.raises(CheckpointError, match="is of kind 'adapter', but 'dict' was saved"):
            checkpoint.load(path, {"other": clock})

    world.run(few, program)


def test_a_failure_behind_the_scenes_is_raised_by_the_next_call(
    world: Any, few: int, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared / str(few)
    write = chunk_files._write_all

    def program(group: Any) -> None:
        mesh = line_of(group)
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        checkpoint.save(path, {"x": x})
        group.barrier()
        last = str(path.parent / ".")

        def fails(handle: int, buffers: Any) -> None:
            where = os.readlink(f"/proc/self/fd/{handle}")
            if where.startswith(last[:-1]) and where.endswith(
                f"c.{len(os.listdir(path / 'x')) - 2}.0"
            ):
                raise OSError(28, "No space left on device")
            write(handle, buffers)

        monkeypatch.setattr(chunk_files, "_write_all", fails)
        group.barrier()
        saving = checkpoint.save(path, {"x": x + 1}, asynchronous=True)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.load(path, mesh=mesh)
        assert saving.done
        group.barrier()
        monkeypatch.setattr(chunk_files, "_write_all", write)
        group.barrier()
        assert_matches(checkpoint.load(path, mesh=mesh)["x"], TABLE)  # the old one; raised once

    world.run(few, program)
    assert hidden(shared) == []


def test_progress(world: Any, shared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")

    def program(group: Any) -> None:
        mesh = line_of(group)
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        checkpoint.save(shared / "x", {"x": x}, progress=True)
        checkpoint.load(shared / "x", mesh=mesh, progress=True)

    world.run(world.ranks[-1], program)
    said = capfd.readouterr().err
    if world.name == "threads" or world.group.rank == 0:
        assert "saving x" in said
        assert "loading x" in said
        assert "B/s" in said
    else:
        assert "saving" not in said


def test_progress_without_its_library(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 alone would show it: all ranks raise."""

    def program(group: Any, missing: bool) -> None:
        state = {"x": da.distribute(TABLE, line_of(group), [Shard(0)], src=None)}
        if not missing:
            checkpoint.save(shared / "x", state)
            return
        for act in (checkpoint.save, checkpoint.load):
            with pytest.raises(ImportError, match="needs tqdm"):
                act(shared / "x", state, progress=True)
        checkpoint.save(shared / "y", state)  # no message of before is left
        assert_matches(checkpoint.load(shared / "y", mesh=line_of(group))["x"], TABLE)

    world.run(world.ranks[-1], lambda group: program(group, False))
    monkeypatch.setitem(sys.modules, "tqdm", None)
    world.run(world.ranks[-1], lambda group: program(group, True))


def test_pending_folds_are_carried_out(world: Any, few: int, shared: Path) -> None:
    path = shared / str(few)

    def program(group: Any) -> None:
        mesh = line_of(group)
        x = da.from_local(TABLE, mesh, [Partial()])
        checkpoint.save(path, {"x": x})
        found = checkpoint.load(path, mesh=mesh)["x"]
        assert_matches(found, TABLE * group.size)
        if group.size > 1:
            with pytest.raises(CheckpointError, match="pending fold"):
                checkpoint.load(path, {"x": da.from_local(TABLE, mesh, [Partial()])})

    world.run(few, program)
