"""Mistakes that are told in words: which file or array, what is wrong, what to do about it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as da
import distarray.io as io
from distarray import DeviceMesh, Replicate, Shard
from distarray.errors import DamagedFileError
from distarray.testing import assert_matches
from tests.io.helpers import chosen, cut_small, tiny

__all__ = ["tiny"]

for module in ("h5py", "netCDF4", "zarr", "safetensors"):
    pytest.importorskip(module)
pytestmark = pytest.mark.filterwarnings("ignore:Object at:UserWarning")

FIELD = np.arange(40.0 * 30).reshape(40, 30)
TREES = (".h5", ".nc", ".zarr")
SUFFIXES = (*TREES, ".npz", ".safetensors")


def mesh_of(group: Any) -> DeviceMesh:
    return DeviceMesh(group, (group.size,))


def cut(values: Any, mesh: DeviceMesh) -> Any:
    return da.distribute(values, mesh, [Shard(0)], src=None)


def alike(group: Any, act: Callable[[], object]) -> Exception:
    """What an act raises, on all ranks with the same words."""
    found: Exception | None = None
    try:
        act()
    except Exception as error:
        found = error
    told = group.allgather_object((type(found).__name__, str(found)))
    assert len(set(told)) == 1, told
    assert found is not None
    return found


def test_a_file_is_the_same_wherever_the_program_goes(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened by a relative path is read after a change of directory."""
    monkeypatch.chdir(shared)

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        for suffix in SUFFIXES:
            io.write(f"x{suffix}", {"x": cut(FIELD, mesh)})
        files = [io.open(f"x{suffix}", mesh=mesh) for suffix in SUFFIXES]
        archive = da.numpy.load("x.npz", mesh=mesh)
        group.barrier()
        os.chdir("/")
        group.barrier()
        for file in files:
            assert file.path.startswith("x.")
            assert_matches(file["x"].read(placements=[Shard(1)]), FIELD)
            file.close()
        assert_matches(archive["x"], FIELD)

    world.run(world.ranks[-1], program)


def changed(path: Path, **entries: Any) -> None:
    """Change the description of an array of Zarr's."""
    about = json.loads(path.read_text())
    about |= entries
    path.write_text(json.dumps({key: value for key, value in about.items() if value is not None}))


def no_chunks(store: Path) -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [0, 0]}}
    changed(store / "x" / "zarr.json", chunk_grid=grid)


def cut_short(store: Path) -> None:
    os.truncate(store / "x" / "zarr.json", 40)


def no_codecs(store: Path) -> None:
    changed(store / "x" / "zarr.json", codecs=None)


def no_description(store: Path) -> None:
    (store / "x" / "zarr.json").unlink()


def odd_group(store: Path) -> None:
    changed(store / "zarr.json", node_type="grape")


def odd_bytes(store: Path) -> None:
    (store / "zarr.json").write_bytes(b'{"a": "\xff"}')


def chunk_flipped(store: Path) -> None:
    chunk = store / "x" / "c" / "0" / "0"
    data = bytearray(chunk.read_bytes())
    data[1] ^= 255
    chunk.write_bytes(data)


def chunk_short(store: Path) -> None:
    os.truncate(store / "x" / "c" / "0" / "0", 9)


ZARR = (
    (no_chunks, r"array 'x' cannot be read .*chunks of shape \(0, 0\)"),
    (cut_short, "is a damaged Zarr store .*JSON"),
    (no_codecs, "'x' has chunks or a description .* damaged or missing"),
    (no_description, "'x' has chunks or a description .* damaged or missing"),
    (odd_group, "is a damaged Zarr store"),
    (odd_bytes, "is a damaged Zarr store"),
    (chunk_flipped, "/x: .*A chunk is damaged"),
    (chunk_short, "/x: .*A chunk is damaged"),
)


@pytest.mark.parametrize(("damage", "words"), ZARR, ids=lambda d: getattr(d, "__name__", None))
@pytest.mark.parametrize("compressor", ["zstd", "gzip"])
def test_damaged_zarr_stores(
    world: Any, shared: Path, damage: Any, words: str, compressor: str
) -> None:
    """No array is left out without a word, either."""
    chosen(world, f"{compressor} {damage.__name__}", "zstd no_chunks", "gzip chunk_flipped")

    def program(group: Any) -> None:
        mesh, path = mesh_of(group), shared / "x.zarr"
        arrays = {"x": cut(FIELD, mesh), "y": np.ones(3)}
        io.write(path, arrays, compressor=compressor, checksum=False, chunks={"x": (40, 30)})
        if group.rank == 0:
            damage(path)
        group.barrier()
        error = alike(group, lambda: io.read(path, mesh=mesh, placements=[Replicate()]))
        assert isinstance(error, ValueError)
        assert str(path) in str(error)
        assert "read a copy" in str(error)
        with pytest.raises(ValueError, match=words):
            raise error

    world.run(world.ranks[-1], program)


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".npy", ".npz", ".safetensors"])
def test_other_damaged_files_are_named(world: Any, shared: Path, suffix: str) -> None:
    chosen(world, suffix, ".h5")

    def program(group: Any) -> None:
        mesh, path = mesh_of(group), shared / f"x{suffix}"
        io.write(path, cut(FIELD, mesh) if suffix == ".npy" else {"x": cut(FIELD, mesh)})
        whole = path.read_bytes()
        for size in (0, 7, 300, len(whole) - 9):
            group.barrier()
            if group.rank == 0:
                path.write_bytes(whole[:size])
            group.barrier()
            error = alike(group, lambda: io.read(path, mesh=mesh))
            assert str(path) in str(error)
            assert isinstance(error, DamagedFileError)
            assert "read a copy" in str(error)

    world.run(world.ranks[-1], program)


def test_an_error_of_the_system_is_no_damage(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: Any) -> None:
        raise OSError(5, "Input/output error")

    def program(group: Any) -> None:
        mesh, path = mesh_of(group), shared / "x.safetensors"
        io.write(path, {"x": cut(FIELD, mesh)})
        group.barrier()
        monkeypatch.setattr(os, "preadv", failing)
        group.barrier()
        error = alike(group, lambda: io.read(path, mesh=mesh))
        assert type(error) is OSError
        assert (error.errno, error.filename) == (5, str(path))
        group.barrier()
        monkeypatch.undo()
        group.barrier()

    world.run(world.ranks[-1], program)


@pytest.mark.parametrize("suffix", TREES)
def test_names_that_make_groups(world: Any, shared: Path, suffix: str) -> None:
    """A name is one array's, or a group's; a slash more at its ends says no more."""

    def program(group: Any) -> None:
        mesh, path = mesh_of(group), shared / f"x{suffix}"
        x = cut(FIELD, mesh)
        for names, words in (
            (("a", "a/b"), "'a/b' is in a group 'a', and an array of that name already exists"),
            (("a/b/c", "a/b"), "'a/b/c' is in a group 'a/b'"),
            (("/a", "a"), "'a' is the same as '/a'"),
            (("/",), "is no name"),
            (("a/./b",), "which means itself"),
        ):
            error = alike(group, lambda names=names: io.write(path, dict.fromkeys(names, x)))
            assert isinstance(error, ValueError)
            assert words in str(error)
            assert str(path) in str(error)
            assert os.listdir(shared) == []
        io.write(path, {"/top/a": x, "b": x})
        assert set(io.read(path, mesh=mesh)) == {"top/a", "b"}
        assert set(io.read(path, ["/b", "top/a"], mesh=mesh)) == {"/b", "top/a"}
        assert_matches(io.read(path, "/top/a", mesh=mesh), FIELD)
        group.barrier()

    world.run(world.ranks[-1], program)


def test_names_that_a_format_does_not_have(world: Any, shared: Path) -> None:
    def program(group: Any) -> None:
        mesh = mesh_of(group)
        x = cut(FIELD, mesh)
        for name, names in (
            ("x.zarr", ("a\\b", "..", "zarr.json", "a/zarr.json", "x" * 300)),
            ("x.nc", ("*", "x" * 300, ".a")),
            ("x.h5", ("\ud800",)),
        ):
            for odd in names:
                error = alike(group, lambda name=name, odd=odd: io.write(shared / name, {odd: x}))
                assert isinstance(error, ValueError)
                assert repr(odd)[1:-1][:8] in str(error)
        assert os.listdir(shared) == []

    world.run(world.ranks[-1], program)


def test_options_that_a_format_does_not_have(world: Any, shared: Path) -> None:
    def program(group: Any) -> None:
        mesh = mesh_of(group)
        x = cut(FIELD, mesh)
        for suffix in (".npy", *SUFFIXES):
            path = shared / f"x{suffix}"
            value = x if suffix == ".npy" else {"x": x}
            error = alike(group, lambda p=path, v=value: io.write(p, v, shuffled=True))
            assert isinstance(error, TypeError)
            assert "shuffled" in str(error)
            assert "option" in str(error).lower()
            assert not path.exists()
            group.barrier()
            io.write(path, value)
            error = alike(group, lambda p=path: io.read(p, mesh=mesh, shuffled=True))
            assert isinstance(error, TypeError)
            assert "shuffled" in str(error)

    world.run(world.ranks[-1], program)


def test_what_is_not_read_is_not_left_out_without_a_word(world: Any, shared: Path) -> None:
    """Arrays of pickled objects, and what lies in other files."""
    import h5py

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        if group.rank == 0:
            np.savez(shared / "x.npz", a=FIELD, o=np.array([None, 1]))
            with h5py.File(shared / "x.h5", "w") as file:
                file["a"], file["nowhere"] = FIELD, h5py.SoftLink("/nowhere")
                file["o"] = h5py.ExternalLink("other.h5", "/x")
        group.barrier()
        for name, words in (("x.npz", "pickled Python objects"), ("x.h5", "external=True")):
            path = shared / name
            error = alike(group, lambda path=path: io.read(path, mesh=mesh))
            assert isinstance(error, ValueError)
            for part in (str(path), "'o'", words, "read(path, ['a'])"):
                assert part in str(error)
            found = io.read(path, ["a"], mesh=mesh)
            assert_matches(found["a"], FIELD)
            with io.open(path, mesh=mesh) as file:
                assert list(file) == ["a"]

    world.run(world.ranks[-1], program)


@pytest.mark.parametrize("src", [None, 0])
def test_fortran_order_is_kept(
    world: Any, ranks: int, shared: Path, src: int | None, tiny, monkeypatch
) -> None:
    """An array that is distributed is saved as it would have been before, byte for byte."""
    cut_small(monkeypatch)
    cube = np.asfortranarray(np.arange(7 * 5 * 4.0).reshape(7, 5, 4))
    values = {"field": np.asfortranarray(FIELD), "cube": cube, "turned": cube[::-1], "c": FIELD}

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        for name, value in values.items():
            np.save(shared / f"{name}-{group.rank}.npy", value)
            wanted = (shared / f"{name}-{group.rank}.npy").read_bytes()
            for placements in (None, [Shard(0)], [Shard(value.ndim - 1)], [Replicate()]):
                x = da.distribute(value, mesh, placements, src=src)
                assert x.placements == tuple(placements or x.placements)
                path = shared / f"{name}.npy"
                np.save(path, x)
                assert path.read_bytes() == wanted
                io.write(path, x)
                assert path.read_bytes() == wanted
                assert_matches(x, value)
                group.barrier()

    world.run(ranks, program)
