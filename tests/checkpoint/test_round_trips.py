"""States that are saved on one mesh and loaded on any other; each byte is read once."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as da
from distarray import DeviceMesh, DistArray, Replicate, Shard, checkpoint
from distarray.checkpoint import chunk_files, shared_chunks
from distarray.errors import CheckpointError
from distarray.io import chunk_grids
from distarray.layout import Fold
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes
from tests.checkpoint.states import TABLE, assert_same, few, grid_of, line_of, small_chunks
from tests.io.helpers import hidden
from tests.waiting import everything_is_kept

__all__ = ["few", "small_chunks"]

pytest.importorskip("google_crc32c")
zarr = pytest.importorskip("zarr")
ml_dtypes = pytest.importorskip("ml_dtypes")

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


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


def test_a_loaded_state_is_freed_when_it_is_not_used(few: int, world: Any, shared: Path) -> None:
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
            state["table"][...] = -1.0  # the copy has been made
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
        into = target.build(np.zeros_like(values), mesh).plain()
        found = checkpoint.load(Path(directory) / "x", {"x": into})["x"]
        assert_matches(found, values)
        placements = Replicate() if not values.ndim else Shard(values.ndim - 1)
        fresh = checkpoint.load(
            Path(directory) / "x", mesh=mesh, placements=[placements] * len(after)
        )
        np.testing.assert_array_equal(fresh["x"].full(), values)

    with patch.object(shared_chunks, "_ROUND", room):  # chunks have 256 bytes: whole, or in pieces
        world.run(ranks, program)


def test_each_byte_is_read_once_and_nothing_is_sent_in_vain(
    world: Any, ranks: int, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_grids, "LEAST", 1)
    n = 6 * ranks
    values = np.arange(n * 24.0).reshape(n, 24)
    path = shared / str(ranks)
    monkeypatch.setattr(chunk_grids, "CHUNK", 24 * 16)

    def counted(group: Any, placement: Any) -> tuple[int, da.comm.ledger.Trace]:
        before = chunk_files.counted["read"]
        group.barrier()
        with da.trace() as book:
            checkpoint.load(path, mesh=line_of(group), placements=[placement])
        group.barrier()
        read = chunk_files.counted["read"] - before
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
            ({"list": {}}, "is of kind 'dict', but 'list' was saved"),
            ({"step": np.zeros(())}, "is of kind 'array', but 'value'"),
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


def test_loops_see_what_is_loaded(world, ranks, shared, monkeypatch):
    """Elements that the ranks have kept of an array are fetched again when it has been filled."""
    everything_is_kept(monkeypatch.setattr)

    def program(group):
        path, mesh = shared / f"kept-{ranks}", DeviceMesh(group, (group.size,))
        x = da.numpy.array(da.distribute(np.arange(9.0), mesh, [Shard(0)], src=None))
        checkpoint.save(path, {"x": x})
        x *= 2
        before = [float(x[i]) for i in range(9)]
        checkpoint.load(path, {"x": x})
        return before, [float(x[i]) for i in range(9)]

    for before, after in world.run(ranks, program):
        assert before == [2.0 * i for i in range(9)]
        assert after == [float(i) for i in range(9)]
