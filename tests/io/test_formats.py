"""HDF5, NetCDF and safetensors files; open, read and write, whatever the format."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray.io as io
from distarray import DeviceMesh, Partial, Replicate, Shard, distribute, from_local
from distarray.testing import assert_matches

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
safetensors = pytest.importorskip("safetensors.numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

NUMBERS = {
    "field": np.linspace(0, 1, 41 * 30).reshape(41, 30),
    "small": np.arange(7, dtype="i4"),
    "scalar": np.array(3.5),
    "none": np.zeros((0, 3)),
    "cube": np.arange(5 * 4 * 3, dtype="f4").reshape(5, 4, 3),
}
#: Values for some formats only.
MORE = {
    ".h5": {
        "group/big_endian": np.arange(7, dtype=">i4"),
        "days": np.arange(5).astype("M8[D]"),
        "complex": np.arange(6).reshape(2, 3) * 1j,
        "flags": np.array([True, False, True]),
        "half": np.arange(9, dtype="f2"),
        "records": np.array([(1.5, 2), (2.5, 3)], [("x", "f4"), ("y", "i8")]),
        "bytes": np.array([b"ab", b"c"]),
    },
    ".nc": {"group/below": np.arange(7, dtype="u2")},
    ".safetensors": {
        "layers.0.weight": np.arange(12).astype(ml_dtypes.bfloat16).reshape(3, 4),
        "fp8": np.arange(8).astype(ml_dtypes.float8_e4m3fn),
        "flags": np.array([True, False, True]),
        "half": np.arange(9, dtype="f2"),
    },
}
SUFFIXES = tuple(MORE)


def mesh_of(group: Any) -> DeviceMesh:
    return DeviceMesh(group, (group.size,))


def placed(values: Any, mesh: DeviceMesh, dim: int = 0) -> Any:
    placements = [Shard(dim % values.ndim) if values.ndim else Replicate()]
    return distribute(values, mesh, placements, src=None)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read(world: Any, ranks: int, suffix: str, shared: Path) -> None:
    values = NUMBERS | MORE[suffix]
    path = shared / f"{ranks}{suffix}"

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        arrays = {name: placed(value, mesh, -1) for name, value in values.items()}
        io.write(path, arrays, attrs={"title": "a test"})
        found = io.read(path, mesh=mesh, placements=lambda n, s: [Shard(0)] if s else None)
        with io.open(path, mesh=mesh) as file:
            assert set(file) == set(values)
            assert file.attrs["title"] == "a test"
            field = file["field"]
            assert (field.shape, field.dtype, field.nbytes) == ((41, 30), np.float64, 41 * 30 * 8)
            part = field.read(np.s_[30:2:-3, ::7], placements=[Shard(0)])
            row = field[5]
            none = field[4:4]
        assert set(found) == set(values)
        for name, value in values.items():
            if value.dtype.kind == "V" and value.dtype.names is None:
                assert found[name].dtype == value.dtype  # NumPy's comparisons do not know them
                assert found[name].full().tobytes() == value.tobytes()
            else:
                assert_matches(found[name], value)
        assert_matches(part, values["field"][30:2:-3, ::7])
        assert_matches(row, values["field"][5])
        assert_matches(none, values["field"][4:4])

    world.run(ranks, program)
    assert [name for name in os.listdir(shared) if name.startswith(".")] == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_placements_and_meshes(world: Any, ranks: int, suffix: str, shared: Path) -> None:
    cube = NUMBERS["cube"]
    path = shared / f"{ranks}{suffix}"
    shape = (2, ranks // 2) if ranks % 2 == 0 else (1, ranks)

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, shape, ("a", "b"))
        shares = np.full(cube.shape, 0.5, "f4") if group.rank else cube - 0.5 * (group.size - 1)
        pending = from_local(shares.astype("f4"), mesh, [Partial(), Partial()])
        view = distribute(np.repeat(cube, 2, 0), mesh, [Shard(0), Shard(2)], src=None)[::-2][::-1]
        io.write(path, {"pending": pending, "view": view, "numpy": cube})
        for placements in ([Shard(2), Replicate()], [Shard(1), Shard(1)], [Replicate()] * 2):
            found = io.read(path, mesh=mesh, placements=placements)
            for x in found.values():
                assert x.placements == tuple(placements)
            assert_matches(found["pending"], cube)
            assert_matches(found["view"], cube)
            assert_matches(found["numpy"], cube)

    world.run(ranks, program)


def test_other_programs_read_what_was_written(world: Any, shared: Path) -> None:
    n = world.ranks[-1]

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        arrays = {name: placed(value, mesh) for name, value in NUMBERS.items()}
        dims = {"field": ("y", "x")}
        for suffix in SUFFIXES:
            more = {} if suffix == ".safetensors" else {"dims": dims}
            io.write(shared / f"all{suffix}", arrays, **more)

    world.run(n, program)
    if world.name == "mpi" and world.group.rank:
        return
    with h5py.File(shared / "all.h5") as file:
        assert [dim.label for dim in file["field"].dims] == ["y", "x"]
        for name, value in NUMBERS.items():
            np.testing.assert_array_equal(file[name][()], value)
    with netCDF4.Dataset(shared / "all.nc") as data:
        assert data["field"].dimensions == ("y", "x")
        for name, value in NUMBERS.items():
            np.testing.assert_array_equal(data[name][...], value)
    for name, value in safetensors.load_file(shared / "all.safetensors").items():
        np.testing.assert_array_equal(value, NUMBERS[name])


def test_xarray_opens_it_and_packed_values_mean_what_it_says(world: Any, shared: Path) -> None:
    if world.name == "mpi":
        pytest.skip("thread ranks have read it, and importing xarray takes longer than all else")
    xarray = pytest.importorskip("xarray")
    path = shared / "packed.nc"
    packings: dict[str, tuple[str, dict[str, Any]]] = {
        "both": ("i2", {"scale_factor": np.float32(0.5), "add_offset": np.float32(3)}),
        "filled": ("i2", {"scale_factor": 0.25, "_FillValue": np.int16(7)}),
        "wide": ("i4", {"scale_factor": np.float32(0.25), "add_offset": np.float32(1)}),
        "missing": ("i1", {"missing_value": np.int8(3)}),
        "unsigned": ("i1", {"_Unsigned": "true", "scale_factor": 0.1}),
        "single": ("f4", {"_FillValue": np.float32(7)}),
        "long": ("i8", {"_FillValue": np.int64(2)}),
        "offset": ("i2", {"add_offset": 2.0}),
        "plain": ("i4", {"units": "m"}),
    }
    with netCDF4.Dataset(path, "w") as data:
        data.createDimension("t", 100)
        for name, (dtype, attrs) in packings.items():
            rest = dict(attrs)
            fill = rest.pop("_FillValue", None)
            variable = data.createVariable(name, dtype, ("t",), fill_value=fill)
            variable.set_auto_maskandscale(False)
            variable.setncatts(rest)
            variable[:] = np.arange(100) - 50
    with xarray.open_dataset(path, decode_times=False) as data:
        with_xarray = {name: data[name].values for name in packings}

    def program(group: Any) -> None:
        found = io.read(path, mesh=mesh_of(group), placements=[Shard(0)])
        stored = io.read(path, "both", mesh=mesh_of(group), decode=False)
        for name, values in with_xarray.items():
            assert_matches(found[name], values)
        assert_matches(stored, np.arange(-50, 50, dtype="i2"))

    world.run(world.ranks[-1], program)


def read_bytes() -> int:
    """Bytes that this process has read so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar"):
            return int(line.split()[1])
    return 0


@pytest.mark.mpi
@pytest.mark.parametrize("suffix", [".h5", ".safetensors"])
def test_no_more_bytes_are_read_than_needed(world: Any, shared: Path, suffix: str) -> None:
    path, size = shared / f"large{suffix}", world.group.size
    values = np.arange(1200 * 1000.0).reshape(1200, 1000)

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        io.write(path, {"x": placed(values, mesh)})
        read = {}
        with io.open(path, mesh=mesh) as file:
            for what, key in (("all", np.s_[:]), ("rows", np.s_[100:220]), ("row", np.s_[7])):
                for placements in ([Shard(0)], [Replicate()]):
                    before = read_bytes()
                    x = file["x"].read(key, placements=placements)
                    read[what, placements[0]] = read_bytes() - before, values[key].nbytes
                    assert_matches(x, values[key])
        for (what, placement), (found, needed) in read.items():
            all_ranks = sum(group.allgather_object(found))
            assert all_ranks <= needed + 70_000 * size, (what, placement, all_ranks)
            if what != "row":
                assert found <= needed / size * 1.1 + 70_000, (what, placement, found)

    world.run(size, program)


def test_a_model_in_several_files(world: Any, ranks: int, shared: Path) -> None:
    index = shared / "model.safetensors.index.json"
    values = {"a": np.arange(12.0).reshape(3, 4), "b": np.arange(5), "c": np.ones((2, 2), "f4")}
    places = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}
    if world.name == "threads" or world.group.rank == 0:
        for place in set(places.values()):
            part = {name: values[name] for name, where in places.items() if where == place}
            safetensors.save_file(part, shared / place)
        index.write_text(json.dumps({"metadata": {"total_size": 152}, "weight_map": places}))
    if world.name == "mpi":
        world.group.barrier()

    def program(group: Any) -> None:
        with io.open(index, mesh=mesh_of(group)) as file:
            assert (list(file), file.attrs["total_size"]) == (list(values), 152)
        for name, x in io.read(index, mesh=mesh_of(group)).items():
            assert_matches(x, values[name])
        assert_matches(io.read(index, "a", key=np.s_[:, 1], mesh=mesh_of(group)), values["a"][:, 1])

    world.run(ranks, program)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_ranks_outside_of_the_mesh_do_not_take_part(
    world: Any, ranks: int, suffix: str, shared: Path
) -> None:
    path = shared / f"{ranks}{suffix}"
    values = NUMBERS["cube"]

    def program(group: Any) -> None:
        some = max(1, group.size - 1)
        mesh = DeviceMesh(group, (some,), ranks=range(some))
        io.write(path, {"x": placed(values, mesh)})
        group.barrier()  # ranks outside of the mesh do not wait for the writers
        x = io.read(path, "x", mesh=mesh, placements=[Shard(1)])
        assert (x.shape, x.dtype) == (values.shape, values.dtype)
        assert_matches(x, values)

    world.run(ranks, program)


def test_chunks_and_compression(world: Any, ranks: int, shared: Path) -> None:
    field = NUMBERS["field"]

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        arrays = {"field": placed(field, mesh), "small": NUMBERS["small"], "scalar": np.float64(2)}
        for name, packed in ((f"{ranks}.h5", "gzip"), (f"{ranks}.nc", "zlib")):
            io.write(shared / name, arrays, chunks=(7, 4), compression=packed)
            with io.open(shared / name, mesh=mesh) as file:
                assert file["field"].chunks == (7, 4)
                for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
                    assert_matches(file["field"].read(placements=placements), field)
                assert_matches(file["field"][14:, 3:9], field[14:, 3:9])
                assert_matches(file["small"][...], NUMBERS["small"])

    world.run(ranks, program)


def test_urls_are_read_by_fsspec(world: Any) -> None:
    fsspec = pytest.importorskip("fsspec")
    content = BytesIO()
    with h5py.File(content, "w") as file:
        file["x"] = np.arange(10)
    fsspec.filesystem("memory").pipe("/x.h5", content.getvalue())

    def program(group: Any) -> None:
        assert_matches(io.read("memory://x.h5", "x", mesh=mesh_of(group)), np.arange(10))

    world.run(world.ranks[-1], program)


@pytest.mark.parametrize("suffix", [".npy", ".npz", *SUFFIXES])
def test_urls_of_this_machine_are_paths(world: Any, shared: Path, suffix: str) -> None:
    def program(group: Any) -> None:
        values = np.arange(10)
        url = f"file://{shared}/x{suffix}"
        x = placed(values, mesh_of(group))
        io.write(url, x if suffix == ".npy" else {"x": x})
        assert os.listdir(shared) == [f"x{suffix}"]
        found = io.read(url, mesh=mesh_of(group))
        assert_matches(found if suffix == ".npy" else found["x"], values)

    world.run(world.ranks[-1], program)


def test_classic_files_are_told_by_their_first_bytes(world: Any, shared: Path) -> None:
    kinds = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")
    if world.name == "threads" or world.group.rank == 0:
        for kind in kinds:
            with netCDF4.Dataset(shared / kind, "w", format=kind) as file:
                file.createDimension("t", None)
                file.createVariable("x", "f8", ("t",))[:] = np.arange(5)

    def program(group: Any) -> None:
        group.barrier()
        for kind in kinds:
            assert_matches(io.read(shared / kind, "x", mesh=mesh_of(group)), np.arange(5.0))

    world.run(world.ranks[-1], program)


def write_links(shared: Path, one: Any, other: Any) -> None:
    """A file with every kind of link, within it and to another file."""
    with h5py.File(shared / "other.h5", "w") as file:
        file["x"] = other
    other.tofile(shared / "raw")
    with h5py.File(shared / "links.h5", "w") as file:
        file["here"], file["group/below"] = one, one
        file["hard"], file["soft"] = file["here"], h5py.SoftLink("/here")
        file["group/top"], file["again"] = (
            file["/"],
            file["group"],
        )  # a loop, and the same group twice
        file["nowhere"], file["round"] = h5py.SoftLink("/nowhere at all"), h5py.SoftLink("/round")
        file["external"] = h5py.ExternalLink("other.h5", "/x")
        file["by two"] = h5py.SoftLink("/external")
        file.create_dataset("raw", 5, "f8", external=[(str(shared / "raw"), 0, 40)])
        for name, source in (("virtual", "other.h5"), ("turned", ".")):
            layout = h5py.VirtualLayout((5,), "f8")
            layout[:] = h5py.VirtualSource(source, "x" if source != "." else "here", (5,))
            file.create_virtual_dataset(name, layout)


def test_links_are_followed_within_the_file_only(world: Any, shared: Path) -> None:
    """Soft and hard links are names of their own; other files are read only on request."""
    one, other = np.arange(5.0), np.arange(5.0) + 10
    inside = ["here", "hard", "soft", "turned"]
    outside = ["by two", "external", "raw", "virtual"]

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        if group.rank == 0:
            write_links(shared, one, other)
        group.barrier()
        with io.open(shared / "links.h5", mesh=mesh) as file:
            assert set(file) - {"again/below", "group/below"} == set(inside)
            for name in inside:
                assert_matches(file[name][...], one)
            for names, words in (
                (outside, "other files are read only if"),
                (["nowhere", "round"], "where nothing is to be found"),
                (["never"], "has no array 'never'"),
            ):
                for name in names:
                    with pytest.raises(KeyError, match=words):
                        file[name]
        with io.open(shared / "links.h5", mesh=mesh, external=True) as file:
            for name in outside:
                assert_matches(file[name][...], other)

    world.run(world.ranks[-1], program)


def test_elements_of_varying_length_are_refused(world: Any, shared: Path) -> None:
    """The error names the array, for all types and meshes; other arrays of the file can be read."""

    def program(group: Any) -> None:
        if group.rank == 0:
            with netCDF4.Dataset(shared / "ragged.nc", "w") as file:
                file.createDimension("x", 2)
                lists = file.createVLType("i4", "list of i4")
                for name, kind in (("words", str), ("lists", lists), ("numbers", "i4")):
                    file.createVariable(name, kind, ("x",))
                file["numbers"][:] = [1, 2]
        group.barrier()
        for _ in range(20):  # HDF5 could not bear that some ranks closed it while others opened it
            with io.open(shared / "ragged.nc", mesh=mesh_of(group), format="hdf5") as file:
                assert "words" in file
            with io.open(shared / "ragged.nc", mesh=mesh_of(group)):
                pass
        with io.open(shared / "ragged.nc", mesh=mesh_of(group)) as file:
            assert_matches(file["numbers"][...], np.array([1, 2], "i4"))
            for name in ("words", "lists"):
                for placements in (None, [Shard(0)]):
                    with pytest.raises(TypeError, match="varying length"):
                        file[name].read(placements=placements)

    world.run(world.ranks[-1], program)
