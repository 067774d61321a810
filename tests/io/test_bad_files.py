"""Damaged and foreign files, and writing that fails: clear errors on every rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray.io as io
from distarray import DeviceMesh, Shard, distribute
from distarray.errors import LayoutError
from distarray.io import output_files
from tests.io.helpers import chosen

h5py = pytest.importorskip("h5py")
pytest.importorskip("netCDF4")

ROOT = Path(__file__).resolve().parents[2]


def run_alike(world: Any, act: Any) -> None:
    """Run a function on the mesh of all ranks; errors must have the same type and text."""

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        error = None
        try:
            act(mesh)
        except Exception as caught:
            error = caught
        told = group.allgather_object(f"{type(error).__name__}: {error}")
        assert len(set(told)) == 1, told
        if error is not None:
            raise error

    world.run(world.ranks[-1], program)


def on_first(world: Any, act: Any) -> None:
    """Prepare files on one rank."""
    if world.name == "threads" or world.group.rank == 0:
        act()
    if world.name == "mpi":
        world.group.barrier()


def tensor_file(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def tensor(shape: Any = (2,), first: Any = 0, last: Any = 16, dtype: Any = "F64") -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


B = bytes(16)
HOSTILE = {
    "nothing": (b"", "truncated"),
    "text": (b"once upon a time", "no safetensors"),
    "a pickle": (b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix", "truncated"),
    "huge header": (tensor_file({}, length=1 << 62), "truncated"),
    "no JSON": (tensor_file(b"{]"), "no safetensors"),
    "deep JSON": (tensor_file(b"[" * 100_000), "no safetensors"),
    "a list": (tensor_file([1, 2]), "no object"),
    "truncated": (tensor_file({"a": tensor()}, B[:9]), "truncated"),
    "trailing": (tensor_file({"a": tensor()}, B + B), "truncated"),
    "absurd shape": (tensor_file({"a": tensor((1 << 60, 1 << 60))}, B), "does not have 16 bytes"),
    "negative": (tensor_file({"a": tensor((-2, -1))}, B), "has shape"),
    "no integers": (tensor_file({"a": tensor((2.0,))}, B), "has shape"),
    "true": (tensor_file({"a": tensor((True, 2))}, B), "has shape"),
    "wrong size": (tensor_file({"a": tensor((3,))}, B), "does not have 16 bytes"),
    "backwards": (tensor_file({"a": tensor((2,), 16, 0)}, B), "does not have -16 bytes"),
    "before": (tensor_file({"a": tensor((2,), -16, 0)}, B), "has shape"),
    "overlap": (tensor_file({"a": tensor(), "b": tensor()}, B), "overlap"),
    "hole": (tensor_file({"a": tensor((1,), 8, 16)}, B), "hole"),
    "type": (tensor_file({"a": tensor(dtype="PICKLE")}, B), "has type 'PICKLE'"),
    "no type": (tensor_file({"a": tensor(dtype=[])}, B), "has type"),
    "no entry": (tensor_file({"a": 7}, B), "nothing sensible"),
    "twice": (tensor_file(b'{"a":' + json.dumps(tensor()).encode() + b',"a":1}', B), "twice"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tensors_are_refused(world: Any, shared: Path, name: str) -> None:
    chosen(world, name, "truncated", "overlap")
    content, words = HOSTILE[name]
    path = shared / "x.safetensors"
    on_first(world, lambda: path.write_bytes(content))
    with pytest.raises(ValueError, match=words):
        run_alike(world, lambda mesh: io.read(path, mesh=mesh))


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"weight_map": {"a": "../outside.safetensors"}}, "file of this directory"),
        ({"weight_map": {"a": "/etc/passwd"}}, "file of this directory"),
        ({"weight_map": {"a": ".."}}, "file of this directory"),
        ({"weight_map": {"a": 5}}, "file of this directory"),
        ({"weight_map": ["a"]}, "weight_map"),
        ({}, "weight_map"),
        ({"weight_map": {"b": "part.safetensors"}}, "no tensor 'b'"),
    ],
)
def test_an_index_names_files_beside_it(world: Any, shared: Path, index: Any, words: str) -> None:
    chosen(world, words, "no tensor 'b'")
    path = shared / "x.safetensors.index.json"

    def prepare() -> None:
        (shared / "part.safetensors").write_bytes(tensor_file({"a": tensor()}, B))
        path.write_text(json.dumps(index))

    on_first(world, prepare)
    with pytest.raises(ValueError, match=words):
        run_alike(world, lambda mesh: io.read(path, mesh=mesh))


@pytest.mark.parametrize("suffix", [".h5", ".nc"])
@pytest.mark.parametrize("content", [b"", b"garbage" * 100, b"\x89HDF\r\n\x1a\n" + bytes(40)])
def test_foreign_files_are_refused(world: Any, shared: Path, suffix: str, content: bytes) -> None:
    chosen(world, content[:7].decode("latin1"), "garbage")
    path = shared / f"x{suffix}"
    on_first(world, lambda: path.write_bytes(content))
    with pytest.raises(OSError):
        run_alike(world, lambda mesh: io.read(path, mesh=mesh))


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".safetensors", ".safetensors.index.json"])
def test_files_that_are_not_there(world: Any, shared: Path, suffix: str) -> None:
    with pytest.raises(FileNotFoundError):
        run_alike(world, lambda mesh: io.open(shared / f"none{suffix}", mesh=mesh))
    path = shared / "no" / "such" / f"x{suffix.removesuffix('.index.json')}"
    with pytest.raises(FileNotFoundError):
        run_alike(world, lambda mesh: io.write(path, {"x": np.zeros(3)}, mesh=mesh))


def test_a_truncated_dataset_is_no_hang(world: Any, shared: Path) -> None:
    path = shared / "x.h5"

    def prepare() -> None:
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(100_000.0)
        os.truncate(path, 400_000)

    on_first(world, prepare)
    with pytest.raises(OSError, match="truncated"):
        run_alike(world, lambda mesh: io.read(path, mesh=mesh))


def test_formats_and_names(world: Any, shared: Path) -> None:
    path = shared / "x.h5"

    def prepare() -> None:
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(10)
            file["words"] = "text of no fixed length"
            file["link"] = h5py.ExternalLink("/etc/passwd", "/")
        (shared / "content").write_bytes(path.read_bytes())

    on_first(world, prepare)
    cases: list[tuple[Any, Any, str]] = [
        (lambda m: io.read(shared / "x.abc", mesh=m), ValueError, "format="),
        (lambda m: io.read(path, mesh=m, format="abc"), ValueError, "the formats are"),
        (lambda m: io.read(path, "y", mesh=m), KeyError, "it has 'words', 'x'"),
        (lambda m: io.read(path, "link", mesh=m), KeyError, "other files are read"),
        (lambda m: io.read(path, "words", mesh=m), TypeError, "varying length"),
        (lambda m: io.read(path, "x", key=[1, 2], mesh=m), IndexError, "read a slice"),
        (lambda m: io.read(path, "x", key=10, mesh=m), IndexError, "out of bounds"),
        (lambda m: io.read(path, "x", mesh=m, placements=[Shard(1)]), LayoutError, "Shard"),
        (lambda m: io.write(shared, {"x": np.zeros(2)}, mesh=m, format="hdf5"), OSError, "direc"),
        (lambda m: io.write(path, np.zeros(2), mesh=m), TypeError, "have names"),
        (lambda m: io.write(path, {"": np.zeros(2)}, mesh=m), TypeError, "not empty"),
        (lambda m: io.write(path, {"a\0b": np.zeros(2)}, mesh=m), ValueError, "null character"),
        (lambda m: io.write(path, {"x": 1}, mesh=m, dims={"x": "a"}), ValueError, "names 1 dim"),
        (lambda m: io.write(path, {"x": 1}, mesh=m, dims={"y": "a"}), ValueError, "no such array"),
        (lambda m: io.write(path, {"x": np.array(["é"])}, mesh=m), TypeError, "no type"),
        (lambda m: io.write(path, {"x": np.array([{}])}, mesh=m), TypeError, "Python objects"),
        (
            lambda m: io.write(path, {"x": np.ones(2), "x/y": np.ones(2)}, mesh=m),
            Exception,
            "already exists",
        ),
        (lambda m: io.write(path, {"x": np.ones(9)}, mesh=m, compression="no"), Exception, "no"),
    ]
    for act, kind, words in cases:
        with pytest.raises(kind, match=words):
            run_alike(world, act)

    def good(mesh: DeviceMesh) -> None:
        x = io.read(shared / "content", "x", mesh=mesh)
        with io.open(path, mesh=mesh) as file:
            variable = file["x"]
        with pytest.raises(ValueError, match="closed"):
            variable[...]
        np.testing.assert_array_equal(x.full(), np.arange(10))

    run_alike(world, good)
    assert sorted(os.listdir(shared)) == ["content", "x.h5"]


def test_what_a_format_has_no_place_for(world: Any, shared: Path) -> None:
    nc, tensors, pickled = shared / "x.nc", shared / "x.safetensors", shared / "objects.npy"
    packed, one, two = shared / "objects.npz", np.ones(3), np.ones((3, 2))

    def prepare() -> None:
        np.save(pickled, np.array([{}]), allow_pickle=True)
        np.savez_compressed(packed, one=one, objects=np.array([{}]), two=two)

    on_first(world, prepare)
    named = {"a": ("t",), "b": ("t", "y")}
    cases: list[tuple[Any, Any, str]] = [
        (lambda m: io.write(nc, one, mesh=m), TypeError, "have names"),
        (lambda m: io.write(nc, {"b": two}, mesh=m, dims={"b": ("t",)}), ValueError, "names 1 dim"),
        (
            lambda m: io.write(nc, {"a": one[:2], "b": two}, mesh=m, dims=named),
            ValueError,
            "'t' has length 2 in one array and 3 in 'b'",
        ),
        (lambda m: io.write(nc, {"b": two}, mesh=m, array_attrs={"a": {}}), ValueError, "no such"),
        (lambda m: io.write(nc, {"a": one * 1j}, mesh=m), TypeError, r"x\.real and x\.imag"),
        (lambda m: io.write(tensors, one, mesh=m), TypeError, "tensors have names"),
        (lambda m: io.write(tensors, {"a": one * 1j}, mesh=m), TypeError, "has no type for"),
        (lambda m: io.write(tensors, {"a": one}, mesh=m, attrs={"n": 1}), TypeError, "are text"),
        (lambda m: io.write("/dev/null", {"a": one}, mesh=m, format="hdf5"), OSError, "no regular"),
        (lambda m: io.read(pickled, mesh=m), ValueError, "if you trust it"),
        (lambda m: io.read(packed, "objects", mesh=m), KeyError, "if you trust it"),
        (lambda m: io.read(shared, mesh=m, format="npy"), IsADirectoryError, "directory"),
    ]
    for act, kind, words in cases:
        with pytest.raises(kind, match=words):
            run_alike(world, act)
    run_alike(world, lambda m: np.testing.assert_array_equal(io.read(packed, "two", mesh=m), two))
    assert sorted(os.listdir(shared)) == ["objects.npy", "objects.npz"]


def test_all_ranks_name_one_file(world: Any, shared: Path) -> None:
    """A path of each rank's own is refused: the ranks read and write one file together."""
    if world.ranks[-1] == 1:
        pytest.skip("one rank has no other whose path could differ")
    on_first(world, lambda: [np.save(shared / f"{rank}.npy", np.ones(4)) for rank in range(8)])
    for act in (
        lambda m: io.read(shared / f"{m.rank}.npy", mesh=m),
        lambda m: io.write(shared / f"x{m.rank}.npy", np.ones(3), mesh=m),
    ):
        with pytest.raises(ValueError, match="name different files"):
            run_alike(world, act)
    assert not [name for name in os.listdir(shared) if name.startswith("x")]


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".safetensors"])
def test_a_full_disk_leaves_the_old_file(
    world: Any, shared: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared / f"x{suffix}"
    run_alike(world, lambda mesh: io.write(path, {"x": np.arange(10)}, mesh=mesh))

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    if suffix == ".safetensors":
        monkeypatch.setattr(output_files, "put", full)
    else:
        module = __import__(f"distarray.io.{'hdf5' if suffix == '.h5' else 'netcdf'}")
        target = getattr(module.io, "hdf5" if suffix == ".h5" else "netcdf")._Target
        monkeypatch.setattr(target, "write", full)

    def write(mesh: DeviceMesh) -> None:
        x = distribute(np.zeros((50, 40)), mesh, [Shard(0)], src=None)
        io.write(path, {"x": x, "y": x})

    with pytest.raises(OSError, match="No space left"):
        run_alike(world, write)
    monkeypatch.undo()
    assert os.listdir(shared) == [path.name]

    def whole(mesh: DeviceMesh) -> None:
        np.testing.assert_array_equal(io.read(path, "x", mesh=mesh).full(), np.arange(10))

    run_alike(world, whole)


def test_a_missing_library_names_its_extra(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    for act in (
        lambda mesh: io.read(shared / "x.h5", mesh=mesh),
        lambda mesh: io.write(shared / "x.h5", {"x": np.zeros(3)}, mesh=mesh),
    ):
        with pytest.raises(ImportError, match=r"pip install 'distarray-mpi\[io\]'"):
            run_alike(world, act)
    assert os.listdir(shared) == []


def test_importing_loads_no_library_of_any_format(own_processes: None) -> None:
    names = ["h5py", "netCDF4", "zarr", "safetensors", "ml_dtypes", "fsspec", "tqdm", "torch"]
    lines = (
        f"import sys, distarray.io, distarray.job; print([n for n in {names} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_killed_writer_leaves_the_old_file_and_no_litter(
    own_processes: None, world: Any, shared: Path
) -> None:
    path = shared / "x.h5"
    run_alike(world, lambda mesh: io.write(path, {"x": np.arange(10)}, mesh=mesh))
    lines = (
        "import os, numpy, distarray.io as io, distarray.io.hdf5 as hdf5\n"
        "hdf5._Target.write = lambda *args: os.kill(os.getpid(), 9)\n"
        f"io.write({str(path)!r}, {{'x': numpy.zeros(5)}})\n"
    )
    done = subprocess.run([sys.executable, "-c", lines], timeout=60, cwd=ROOT)
    assert done.returncode == -9
    assert len(os.listdir(shared)) == 2
    run_alike(world, lambda mesh: check(io.read(path, "x", mesh=mesh), np.arange(10)))
    run_alike(world, lambda mesh: io.write(path, {"x": np.ones(3)}, mesh=mesh))
    assert os.listdir(shared) == ["x.h5"]


def check(x: Any, values: Any) -> None:
    np.testing.assert_array_equal(x.full(), values)


def test_netcdf_errors_of_writing_say_what_may_be_wrong() -> None:
    """The library does not pass on the system's error."""
    from distarray.io import netcdf

    with pytest.raises(OSError, match=r"HDF error.*room left"), netcdf._written():
        raise RuntimeError("NetCDF: HDF error")
