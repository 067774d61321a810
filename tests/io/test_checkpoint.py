"""Checkpoints: what is saved on one mesh is loaded on any other, whole and once."""

from __future__ import annotations

import gc
import os
import weakref
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as da
from distarray import DeviceMesh, DistArray, Partial, Replicate, Shard, checkpoint, comm
from distarray.checkpoint import background, files, saving, sharing, writing
from distarray.errors import CheckpointError, DivergenceError
from distarray.io import directories, flushing, grids
from distarray.layout import Fold
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes

pytest.importorskip("google_crc32c")
zarr = pytest.importorskip("zarr")
ml_dtypes = pytest.importorskip("ml_dtypes")

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


def hidden(directory: Path) -> list[str]:
    """What has been left of unfinished stores, once removing has had its time."""
    directories.finish_removing()
    return [name for name in os.listdir(directory) if name.startswith(".")]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny arrays in several files of several chunks, in several rounds; fsync does not wait."""
    monkeypatch.setattr(grids, "CHUNK", 256)
    monkeypatch.setattr(grids, "LEAST", 64)
    monkeypatch.setattr(sharing, "_ROUND", 600)
    monkeypatch.setattr(sharing, "PAGE", 64)
    monkeypatch.setattr(writing, "_SLAB", 600)
    monkeypatch.setattr(comm.files, "_WORTH", 0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(flushing, "_sync_system", lambda handle: None)


@pytest.fixture(params=["one", "several"])
def few(request: pytest.FixtureRequest, world: Any) -> int:
    """Numbers of ranks for what does not depend on layouts."""
    if world.name == "mpi":
        if request.param == "one":
            pytest.skip("mpiexec has started as many as it has")
        return int(world.ranks[-1])
    return 1 if request.param == "one" else 3


TABLE = np.arange(37 * 11.0).reshape(37, 11)
CUBE = (np.arange(3 * 50 * 7).reshape(3, 50, 7) % 19).astype("c8")
PLAIN: dict[str, Any] = {
    "day": np.datetime64("2020-01-01"),
    "days": np.array(["2020-01-01", "NaT"], "M8[D]"),
    "records": np.array([(1, [2.0, 3.0])], [("x", "i4"), ("y", "f8", (2,))]),
    "words": np.array(["ä", "bcd"]),
    "bytes": np.array([b"ab", b"c"]),
    "big endian": np.arange(5, dtype=">i4"),
    "long": np.arange(3, dtype=np.longdouble),
    "bfloat16": np.arange(40).astype(ml_dtypes.bfloat16),
    "fp8": np.arange(8).astype(ml_dtypes.float8_e4m3fn),
    "flags": np.array([True, False]),
    "fortran": np.asfortranarray(TABLE),
    "0-d": np.array(2.5),
    "none": np.zeros((0, 3)),
    "numbers": [1, -(10**30), 2.5, float("nan"), float("-inf"), 1 + 2j, True, None, np.float32(3)],
    "texts": ("x", "", "ü\ud800", b"ab\0"),
    5: {"5": [], "nested": [[{}]]},
    "5": (),
}


def grid_of(group: Any) -> DeviceMesh:
    n = group.size
    return DeviceMesh(group, (n // 2, 2) if n % 2 == 0 else (1, n), ("down", "across"))


def line_of(group: Any) -> DeviceMesh:
    return DeviceMesh(group, (group.size,))


def state_on(group: Any) -> dict[Any, Any]:
    line, grid = line_of(group), grid_of(group)
    table = da.distribute(TABLE, line, [Shard(0)], src=None)
    return {
        "table": table,
        "blocks": da.distribute(CUBE, grid, [Shard(1), Shard(2)], src=None),
        "twice": da.distribute(CUBE, grid, [Shard(1), Shard(1)], src=None),
        "columns": da.distribute(TABLE, grid, [Shard(1), Replicate()], src=None),
        "copies": da.distribute(TABLE, line, [Replicate()], src=None),
        "view": table[3:30:2, ::-1],
        "row": table[2],
        "element": table[1, 1],
        "total": table.sum(),
        "pending": table.sum(axis=0),
        "plain": PLAIN,
        "same again": table,
    }


def assert_same(found: Any, expected: Any, where: str = "state") -> None:
    assert type(found) is type(expected), where
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected)):
            assert_same(one, other, f"{where}[{number}]")
    elif isinstance(expected, (DistArray, np.ndarray, np.generic)):
        one, other = (v.full() if isinstance(v, DistArray) else v for v in (found, expected))
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if other.dtype.names or other.dtype.char in "gG":  # padding means nothing
            assert (one == other).all(), where
        else:
            assert one.tobytes() == other.tobytes(), where
    else:
        assert found == expected or (found != found and expected != expected), where


def test_what_was_loaded_goes_when_nobody_holds_it(few: int, world: Any, shared: Path) -> None:
    """Without waiting for the garbage collector: two states may not fit into memory."""

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (few,))
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        checkpoint.save(shared / "run", {"x": x, "n": np.arange(9)}, mesh=mesh)
        for kinds in ([Shard(0)], [Shard(1)]):
            found = checkpoint.load(shared / "run", mesh=mesh, placements=kinds)
            blocks = [weakref.ref(found["x"].to_local()), weakref.ref(found["n"])]
            del found
            assert [block() for block in blocks] == [None, None]

    gc.disable()
    try:
        world.run(few, program)
    finally:
        gc.enable()


def cleared(state: Any) -> Any:
    """The same structure without the values."""
    if isinstance(state, dict):
        return {key: cleared(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(cleared(value) for value in state)
    if isinstance(state, DistArray) and state.shape:
        other = state + 0 if state.layout.partials else np.zeros_like(state)
        other[...] = 0
        return other.redistribute(placements=[Replicate()] * other.mesh.ndim)
    if isinstance(state, np.ndarray):
        return np.zeros_like(state)
    return None


def test_a_state_is_what_it_was(world: Any, ranks: int, shared: Path) -> None:
    path, asynchronous = shared / str(ranks), ranks % 3 == 0

    def program(group: Any) -> None:
        state, mesh = state_on(group), line_of(group)
        saving = checkpoint.save(path, state, asynchronous=asynchronous)
        if asynchronous:
            state["table"][...] = -1.0  # the copy has been taken
        assert saving.wait() == path
        state = state_on(group)
        found = checkpoint.load(path, mesh=mesh)
        assert_same(found, state)
        assert found["same again"] is found["table"]
        assert found["table"].placements == (Shard(0),)
        last = checkpoint.load(path, mesh=mesh, placements=lambda n, s: [Shard(len(s) - 1)])
        assert_same(last, state)
        patterns = {"plain*": None, "t*": [Replicate()], "*": [Shard(0)]}
        found = checkpoint.load(path, mesh=mesh, placements=patterns)
        assert_same(found, state)
        assert found["table"].placements == (Replicate(),)
        into = cleared(state)
        table = into["table"]
        assert checkpoint.load(path, into) is into
        assert_same(into, state)
        assert into["table"] is table
        checkpoint.verify(path, mesh=mesh)

    world.run(ranks, program)
    assert hidden(shared) == []


def test_on_any_number_of_ranks(world: Any, shared: Path) -> None:
    most = world.ranks[-1]

    def program(group: Any) -> None:
        for saved in {1, max(1, most // 2), most}:
            few = DeviceMesh(group, (saved,), ranks=range(saved))
            path = shared / str(saved)
            x = da.distribute(TABLE, few, [Shard(0)], src=None)
            state = {"x": x, "view": x[5::3], "n": np.arange(100)}
            checkpoint.save(path, state)
            group.barrier()
            for loaded in range(1, most + 1):
                mesh = DeviceMesh(group, (loaded,), ranks=range(most - loaded, most))
                for dim in (0, 1):
                    found = checkpoint.load(
                        path, mesh=mesh, placements={"x": [Shard(dim)], "view": [Shard(1 - dim)]}
                    )
                    if mesh.coords is None:
                        assert found is None
                        continue
                    assert_matches(found["x"], TABLE)
                    assert_matches(found["view"], TABLE[5::3])
                    np.testing.assert_array_equal(found["n"], np.arange(100))

    world.run(most, program)


@given(data=st.data())
@settings(max_examples=15)
def test_any_layout_to_any_other(world: Any, tmp_path_factory: Any, data: Any) -> None:
    ranks = data.draw(st.sampled_from(world.ranks), label="ranks")
    values = data.draw(array_values(dtypes=("f8", "u1", "c16")), label="values")
    before, after = (data.draw(mesh_shapes(ranks), label="mesh") for _ in range(2))
    source = data.draw(recipes(values.shape, before, values.dtype), label="from")
    target = data.draw(recipes(values.shape, after, values.dtype), label="to")
    room = data.draw(st.sampled_from((40, 100, 600)), label="bytes a round")
    directory = tmp_path_factory.mktemp("any") if world.name == "threads" else None
    if world.name == "mpi":
        first = world.group.rank == 0
        directory = world.group.broadcast_object(
            str(tmp_path_factory.mktemp("any")) if first else None, 0
        )

    def program(group: Any) -> None:
        x = source.build(values, DeviceMesh(group, before))
        checkpoint.save(Path(directory) / "x", {"x": x})
        mesh = DeviceMesh(group, after)
        into = target.build(np.zeros_like(values), mesh)._plain()
        found = checkpoint.load(Path(directory) / "x", {"x": into})["x"]
        assert_matches(found, values)
        placements = Replicate() if not values.ndim else Shard(values.ndim - 1)
        fresh = checkpoint.load(
            Path(directory) / "x", mesh=mesh, placements=[placements] * len(after)
        )
        np.testing.assert_array_equal(fresh["x"].full(), values)

    with patch.object(sharing, "_ROUND", room):  # chunks have 256 bytes: whole, or in pieces
        world.run(ranks, program)


def test_each_byte_is_read_once_and_nothing_is_sent_in_vain(
    world: Any, ranks: int, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "LEAST", 1)
    n = 6 * ranks
    values = np.arange(n * 24.0).reshape(n, 24)
    path = shared / str(ranks)
    monkeypatch.setattr(grids, "CHUNK", 24 * 16)

    def counted(group: Any, placement: Any) -> tuple[int, da.comm.ledger.Trace]:
        before = files.counted["read"]
        group.barrier()
        with da.trace() as book:
            checkpoint.load(path, mesh=line_of(group), placements=[placement])
        group.barrier()
        read = files.counted["read"] - before
        if world.name == "mpi":
            read = int(group.allreduce(np.array(read), Fold.SUM))
        return read, book

    def program(group: Any) -> None:
        x = da.distribute(values, line_of(group), [Shard(0)], src=None)
        with da.trace() as book:
            checkpoint.save(path, {"x": x})
        assert book.count("exchange") == 0
        group.barrier()
        on_disk = sum(f.stat().st_size for f in (path / "x").glob("c.*"))
        assert on_disk < values.nbytes * 1.1
        for placement in (Shard(0), Shard(1), Replicate()):
            read, book = counted(group, placement)
            indices = 0 if placement == Shard(0) else ranks * ranks * 1024
            assert values.nbytes <= read <= on_disk + indices
            own = values.nbytes // ranks
            bytes_sent = sum(event.bytes for event in book if event.kind == "exchange")
            lower = {Shard(0): 0, Shard(1): own * (ranks - 1) // ranks}
            assert bytes_sent <= 1.3 * lower.get(placement, own * (ranks - 1)) + 8 * 24 * 24

    world.run(ranks, program)


def test_other_programs_read_arrays_and_slices(world: Any, shared: Path) -> None:
    def program(group: Any) -> None:
        checkpoint.save(shared / "x", state_on(group), step=7)

    world.run(world.ranks[-1], program)
    if world.name == "mpi" and world.group.rank:
        return
    group = zarr.open(shared / "x" / "step-00000007", mode="r")
    np.testing.assert_array_equal(group["table"][:], TABLE)
    np.testing.assert_array_equal(group["blocks"][1:2, 3:9], CUBE[1:2, 3:9])
    np.testing.assert_array_equal(group["view"][:], TABLE[3:30:2, ::-1])
    for name in ("days", "words", "bytes", "flags", "fortran", "none", "big%20endian"):
        np.testing.assert_array_equal(
            group["plain"][name][:], PLAIN[name.replace("%20", " ")], name
        )
    half = group["plain"]["bfloat16"]
    assert half[:].tobytes() == PLAIN["bfloat16"].tobytes()
    alone = zarr.open_array(shared / "x" / "step-00000007" / "table", mode="r")
    np.testing.assert_array_equal(alone[30:, 2], TABLE[30:, 2])


def test_keys_become_names_that_are_safe(world: Any, shared: Path) -> None:
    keys = [
        "../x",
        "a/b",
        "",
        ".",
        "..",
        "zarr.json",
        "__x",
        "n" * 300,
        "c.0",
        "~",
        "%2E",
        "ä",
        "\0",
    ]

    def program(group: Any) -> None:
        mesh = line_of(group)
        state: Any = {key: np.full(3, i) for i, key in enumerate(keys)}
        state = {"top": state, 1: {"1": np.ones(2)}, "1": da.distribute(np.arange(3), mesh)}
        checkpoint.save(shared / "deep" / "names", state)
        assert_same(checkpoint.load(shared / "deep" / "names", mesh=mesh), state)

    world.run(world.ranks[-1], program)
    if world.name == "threads":
        assert os.listdir(shared) == ["deep"]
        assert os.listdir(shared / "deep") == ["names"]
        assert len(list(zarr.open(shared / "deep" / "names", mode="r")["top"].array_keys())) == len(
            keys
        )


def test_parts_of_a_state(world: Any, few: int, shared: Path) -> None:
    path = shared / str(few)

    def program(group: Any) -> None:
        mesh = line_of(group)
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        checkpoint.save(path, {"model": {"w": x, "b": np.arange(4)}, "list": [x, 1], "step": 3})
        wide = da.distribute(np.zeros((74, 11)), mesh, [Shard(0)], src=None)
        into: dict[str, Any] = {"step": None, "model": {"w": wide[::2]}, "list": [None, None]}
        found = checkpoint.load(path, into)
        assert found["step"] == 3
        assert_matches(wide, np.kron(TABLE, [[1], [0]]))
        assert_matches(found["list"][0], TABLE)
        for wrong, words in (
            ({"model": {"v": None}}, r"state\['model'\]: the checkpoint has no 'v'"),
            ({"model": {"w": wide}}, r"state\['model'\]\['w'\] is float64 \(74, 11\)"),
            ({"model": {"b": np.zeros(4)}}, r"float64 \(4,\), but int64 \(4,\)"),
            ({"list": [None]}, "has 1 entries, but 2"),
            ({"list": {}}, "is a dict, but a list was saved"),
            ({"step": np.zeros(())}, "is a array, but a value"),
            ({"model": {"b": np.broadcast_to(np.int64(0), 4)}}, "read-only"),
        ):
            with pytest.raises(CheckpointError, match=words):
                checkpoint.load(path, wrong, mesh=mesh)
        with pytest.raises(da.errors.LayoutError):
            checkpoint.load(path, mesh=mesh, placements=[Shard(2)])

    world.run(few, program)


def test_steps(world: Any, few: int, shared: Path) -> None:
    path = shared / str(few)

    def program(group: Any) -> None:
        mesh = line_of(group)
        x = da.distribute(TABLE, mesh, [Shard(0)], src=None)
        assert checkpoint.latest(path, mesh=mesh) is None
        with pytest.raises(FileNotFoundError, match="does not exist"):
            checkpoint.load(path, mesh=mesh)
        for step in (10, 20, 30, 5, 40):
            saving = checkpoint.save(
                path, {"x": x + step, "step": step}, step=step, keep=3, asynchronous=step != 5
            )
        assert saving.path.name == "step-00000040"
        assert checkpoint.steps(path, mesh=mesh) == [20, 30, 40]
        assert checkpoint.latest(path, mesh=mesh) == path / "step-00000040"
        assert checkpoint.load(path, mesh=mesh)["step"] == 40
        assert_matches(checkpoint.load(path, mesh=mesh, step=20)["x"], TABLE + 20)
        with pytest.raises(FileNotFoundError, match=r"step 10 .*20, 30, 40"):
            checkpoint.load(path, mesh=mesh, step=10)
        checkpoint.save(path, {"x": x, "step": -1}, step=40)
        assert checkpoint.load(path, mesh=mesh)["step"] == -1
        with pytest.raises(FileExistsError, match="itself a checkpoint"):
            checkpoint.save(path / "step-00000040", {"x": x}, step=1)
        with pytest.raises(FileExistsError, match="holds checkpoints of 3 steps"):
            checkpoint.save(path, {"x": x})
        for wrong, words in (
            ({"step": -1}, "negative"),
            ({"keep": 2}, "needs step"),
            ({"step": 1, "keep": 0}, "at least one"),
        ):
            with pytest.raises(ValueError, match=words):
                checkpoint.save(path, {"x": x}, **wrong)
        with pytest.raises(TypeError, match="integers"):
            checkpoint.save(path, {"x": x}, step=1.5)  # type: ignore[arg-type]

    world.run(few, program)


def test_what_cannot_be_saved(world: Any, few: int, shared: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)

    def program(group: Any) -> None:
        for wrong, words in (
            ({"a": [object()]}, r"state\['a'\]\[0\] is a object, which cannot be saved"),
            ({"a": np.array([None])}, r"state\['a'\] has dtype object"),
            ({1.5: 1}, "has the key 1.5"),
            ({"a": np.ma.masked_array([1], [True])}, "is a MaskedArray"),
            (loop, "contains itself"),
        ):
            with pytest.raises((TypeError, ValueError), match=words):
                checkpoint.save(shared / "x", wrong, mesh=line_of(group))
        if group.size > 1:
            for differing in (group.rank, {"r": np.full(3, group.rank)}, ["x"] * group.rank):
                with pytest.raises(DivergenceError, match="on rank 1 differs from that on rank 0"):
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
        with pytest.raises(CheckpointError, match="is a adapter, but a dict was saved"):
            checkpoint.load(path, {"other": clock})

    world.run(few, program)


def test_a_failure_behind_the_scenes_is_raised_by_the_next_call(
    world: Any, few: int, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared / str(few)
    write = files._write_all

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

        monkeypatch.setattr(files, "_write_all", fails)
        group.barrier()
        saving = checkpoint.save(path, {"x": x + 1}, asynchronous=True)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.load(path, mesh=mesh)
        assert saving.done
        group.barrier()
        monkeypatch.setattr(files, "_write_all", write)
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
