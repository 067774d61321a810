"""Zarr stores: written in parallel, read by zarr, and the other way round."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as da
import distarray.io as io
from distarray import DeviceMesh, Partial, Replicate, Shard
from distarray.io import box_pieces, chunk_grids
from distarray.layout import Layout
from distarray.testing import assert_matches
from tests.io.helpers import cut_small, hidden

zarr = pytest.importorskip("zarr")
fsspec = pytest.importorskip("fsspec")

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
]

FIELD = np.arange(41 * 30.0).reshape(41, 30)
NUMBERS = {
    "field": FIELD,
    "group/below": np.arange(7, dtype=">i4"),
    "scalar": np.array(3.5),
    "none": np.zeros((0, 3)),
    "days": np.arange(5).astype("M8[D]"),
    "complex": np.arange(6).reshape(2, 3) * 1j,
    "flags": np.array([True, False]),
    "long long": np.arange(3, dtype="q"),  # another type than int64, with the same values
    "words": np.array(["ä", "bcd"]),
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny arrays in shards of several chunks, which are read in several pieces."""
    cut_small(monkeypatch)
    monkeypatch.setattr(chunk_grids, "FILE", 600)
    monkeypatch.setattr(box_pieces, "PIECE", 600)


class Elsewhere(fsspec.get_filesystem_class("local")):  # type: ignore[misc]
    """A store that seems to be reached by a URL."""

    protocol = "elsewhere"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(os.fspath(path).removeprefix("elsewhere://"))


fsspec.register_implementation("elsewhere", Elsewhere)


def placed(values: Any, mesh: DeviceMesh, dim: int) -> Any:
    placements = [Shard(dim % values.ndim) if values.ndim else Replicate()]
    return da.distribute(values, mesh, placements, src=None)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"chunks": {"field": (7, 9)}, "compressor": None},
    {"chunks": {"field": (5, 5)}, "shards": {"field": (10, 15)}, "compressor": "gzip"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["layout", "chunks", "shards"])
def test_what_is_written_is_read(
    world: Any, ranks: int, options: dict[str, Any], shared: Path
) -> None:
    path = shared / f"{ranks}.zarr"

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        arrays = {name: placed(value, mesh, -1) for name, value in NUMBERS.items()}
        io.write(path, {"old": arrays["field"]})
        io.write(path, arrays, attrs={"title": "a test"}, dims={"field": ("y", "x")}, **options)
        found = io.read(path, mesh=mesh, placements=lambda n, s: [Shard(0)] if s else None)
        with io.open(path, mesh=mesh) as file:
            assert file.attrs["title"] == "a test"
            assert file["field"].dims == ("y", "x")
            part = file["field"][30:2:-3, ::7]
        assert set(found) == set(NUMBERS)
        for name, value in NUMBERS.items():
            np.testing.assert_array_equal(found[name].full(), value, name)
        assert_matches(part, FIELD[30:2:-3, ::7])

    world.run(ranks, program)
    assert hidden(shared) == []
    store = zarr.open(path, mode="r")
    for name, value in NUMBERS.items():
        np.testing.assert_array_equal(store[name][()], value, name)
    if options:
        assert store["field"].chunks == options["chunks"]["field"]
    elif ranks < 4:
        assert store["field"].shards is not None
        assert store["field"].shards[1] == -(-30 // ranks)


def test_stores_of_other_kinds(world: Any, shared: Path) -> None:
    """Stores behind fsspec, single arrays, version 2, and paths that are not stores."""
    n = world.ranks[-1]
    if world.name == "threads" or world.group.rank == 0:
        old = zarr.create_array(
            shared / "old.zarr", shape=FIELD.shape, chunks=(10, 7), dtype="f8", zarr_format=2
        )
        old[...] = FIELD
        words = zarr.create_array(shared / "old.zarr" / "words.zarr", shape=(2,), dtype=str)
        words[...] = np.array(["a", "longer"])
        with zarr.storage.ZipStore(shared / "packed.zarr.zip", mode="w") as packed:
            zarr.create_group(packed).create_array("x", data=FIELD, chunks=(10, 7))
        zarr.create_group(shared / "told by what is in it").create_array("x", data=FIELD)
        (shared / "mine").mkdir()
        (shared / "mine" / "thesis.tex").touch()

    def program(group: Any) -> None:
        group.barrier()
        mesh = DeviceMesh(group, (n,))
        pending = da.from_local(FIELD, mesh, [Partial()])
        url = f"elsewhere://{shared}/remote.zarr"
        io.write(url, {"x": pending}, storage_options={"auto_mkdir": True})
        assert_matches(io.read(url, "x", mesh=mesh, placements=[Shard(1)]), FIELD * n)
        for wrong in ({"chunks": (0, 2)}, {"chunks": (2, 2), "shards": (2, 0)}):
            with pytest.raises(ValueError, match="of one element at least"):
                io.write(shared / "wrong.zarr", pending, **wrong)
        for scheme in ("file", "local"):  # unfinished stores of directories
            io.write(f"{scheme}://{shared}/{scheme}.zarr", pending[::2])
            with pytest.raises(FileExistsError, match="is no Zarr store"):
                io.write(f"{scheme}://{shared}/mine", {"x": pending}, format="zarr")
            for name in (shared / f"{scheme}.zarr", f"{scheme}://{shared}/{scheme}.zarr"):
                found = io.read(name, mesh=mesh, placements=[Replicate()])
                assert_matches(found, FIELD[::2] * n)
        assert_matches(io.read(shared / "old.zarr", mesh=mesh, placements=[Shard(0)]), FIELD)
        assert_matches(io.read(shared / "packed.zarr.zip", "x", mesh=mesh), FIELD)
        assert_matches(io.read(shared / "told by what is in it", "x", mesh=mesh), FIELD)
        for kind in ([("pairs", "i2", (2,))], "g"):
            with pytest.raises(TypeError, match=r"x has dtype .* which Zarr has no type for"):
                io.write(shared / "wrong.zarr", {"x": np.zeros(4, kind)}, mesh=mesh)
        with pytest.raises(ValueError, match="which a zip file cannot be"):
            io.write(shared / "new.zarr.zip", {"x": pending})
        with io.open(shared / "old.zarr" / "words.zarr", mesh=mesh) as words:
            assert words.shape == (2,)
            with pytest.raises(TypeError, match="varying length"):
                words.read(placements=[Shard(0)])
        with pytest.raises(FileExistsError, match="is no Zarr store; nothing has been written"):
            io.write(shared / "mine", {"x": pending}, format="zarr")
        with pytest.raises(FileNotFoundError):
            io.read(shared / "nowhere.zarr", mesh=mesh)
        with pytest.raises(ValueError, match="one of zstd"):
            io.write(shared / "x.zarr", {"x": pending}, compressor="zip")
        with pytest.raises(ValueError, match="has 2 dimensions"):
            io.write(shared / "x.zarr", {"x": pending}, chunks=(3,))

    world.run(n, program)
    assert not (shared / "x.zarr").exists()
    assert hidden(shared) == []


def test_a_damaged_chunk_is_an_error_on_all_ranks(world: Any, shared: Path) -> None:
    n = world.ranks[-1]

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (n,))
        x = da.distribute(FIELD, mesh, [Shard(0)], src=None)
        io.write(shared / "x.zarr", {"x": x}, compressor=None, chunks=(41, 30))
        if group.rank == 0:
            chunk = shared / "x.zarr" / "x" / "c" / "0" / "0"
            data = bytearray(chunk.read_bytes())
            data[100] ^= 1
            chunk.write_bytes(data)
        group.barrier()
        with pytest.raises(ValueError, match=r"x\.zarr/x: .*checksum"):
            io.read(shared / "x.zarr", "x", mesh=mesh, placements=[Shard(0)])
        if group.rank == 0:
            (shared / "x.zarr" / "zarr.json").write_text("{")
        group.barrier()
        with pytest.raises(ValueError, match=r"x\.zarr is a damaged Zarr store"):
            io.open(shared / "x.zarr", mesh=mesh)

    world.run(n, program)


def test_only_the_bytes_needed_are_read(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.name == "mpi":
        pytest.skip("counts the reads of one process, which thread ranks share")
    from zarr.storage import LocalStore

    read: list[str] = []
    get = LocalStore.get

    async def counted(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        read.append(key)
        return await get(self, key, *args, **kwargs)

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (3,))
        x = da.distribute(FIELD, mesh, [Shard(0)], src=None)
        io.write(shared / "x.zarr", {"x": x}, chunks=(5, 10))
        group.barrier()
        monkeypatch.setattr(LocalStore, "get", counted)
        group.barrier()
        with io.open(shared / "x.zarr", mesh=mesh) as file:
            part = file["x"].read(np.s_[11:19, :10], placements=[Replicate()])
        assert_matches(part, FIELD[11:19, :10])

    world.run(3, program)
    chunks = sorted(key for key in read if "/c/" in key)
    assert chunks == ["x/c/2/0", "x/c/3/0"]  # each once, of 27


def test_reading_takes_little_more_than_the_block(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zarr needs memory for the chunks of each request, however many are on their way."""
    monkeypatch.setattr(chunk_grids, "FILE", 1 << 17)
    monkeypatch.setattr(box_pieces, "PIECE", 1 << 17)
    values = np.arange(3 << 18, dtype="f8")  # blocks end with files on up to four ranks

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        io.write(shared / "x.zarr", {"x": placed(values, mesh, 0)}, compressor=None)
        io.read(
            shared / "x.zarr", "x", mesh=mesh, placements=[Shard(0)]
        )  # what is kept from the first time on
        tracemalloc.start()
        try:
            found = io.read(shared / "x.zarr", "x", mesh=mesh, placements=[Shard(0)])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert_matches(found, values)
        assert peak < values.nbytes // group.size + (1 << 20)

    world.run(world.ranks[0], program)


def test_writing_takes_little_besides_the_block(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file at a time is assembled, also where blocks do not end with files."""
    monkeypatch.setattr(chunk_grids, "FILE", 1 << 17)
    monkeypatch.setattr(box_pieces, "PIECE", 1 << 17)
    monkeypatch.setattr(chunk_grids, "LEAST", 1 << 20)
    values = np.random.default_rng(3).integers(0, 255, (4 * 1021, 1000), "u1")

    def program(group: Any) -> None:
        x = placed(values, DeviceMesh(group, (group.size,)), 0)
        io.write(shared / "x.zarr", {"x": x[:9]})  # what is kept from the first time on
        tracemalloc.start()
        try:
            io.write(shared / "x.zarr", {"x": x})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        group.barrier()
        stored = zarr.open(shared / "x.zarr", mode="r")["x"]
        assert stored.shards is not None
        np.testing.assert_array_equal(stored[...], values)
        assert peak < 1 << 20

    world.run(world.ranks[0], program)


def test_shards_follow_the_layout() -> None:
    for layout, itemsize in (
        (Layout.chunked((1000, 7), (4,), [Shard(0)]), 8),
        (Layout.chunked((1000, 70), (2, 3), [Shard(0), Shard(1)]), 4),
        (Layout.chunked((1000, 70), (2, 3), [Shard(0), Shard(0)]), 1),
        (Layout.chunked((5, 70), (4, 2), [Shard(1), Replicate()]), 8),
        (Layout.replicated((300, 5), (6,)), 8),
        (Layout.chunked((3,), (6,), [Shard(0)]), 8),
    ):
        grid, writing = chunk_grids.plan_shards(layout, itemsize)
        assert all(s % c == 0 for s, c in zip(grid.shard, grid.chunk))
        assert itemsize * np.prod(grid.chunk) <= 256
        found = np.zeros(layout.shape, int)
        for rank in np.ndindex(*layout.mesh_shape):
            section = writing.section(rank)
            found[tuple([slice(*ends) for ends in section])] += writing.holds(rank)
            starts = [start for start, stop in section if start < stop]
            if len(starts) == layout.ndim and writing.holds(rank):
                shard = tuple([start // s for start, s in zip(starts, grid.shard)])
                assert grid.shard_box(shard) == section
        assert (found == 1).all()


def test_planning_costs_no_more_on_very_many_ranks() -> None:
    layout = Layout.chunked((1 << 40,), (1 << 12,), [Shard(0)])
    grid, writing = chunk_grids.plan_shards(layout, 8)
    assert grid.shards == (1 << 12,)
    assert writing is layout
