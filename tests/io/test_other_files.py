"""Files that lead to other files: refused before those are opened, unless the caller allows it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as da
import distarray.io as io
import distarray.numpy as dnp
from distarray import DeviceMesh
from distarray.errors import OtherFileError
from distarray.io.netcdf_guard import check_netcdf
from distarray.testing import assert_matches
from tests.io.watching import unopened

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
zarr = pytest.importorskip("zarr")

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
VALUES = np.arange(6.0)
ALLOW = "other files are read only if you allow it: distarray.io.open"
EVERYTHING = h5py.h5s.UNLIMITED


def mesh_of(group: Any) -> DeviceMesh:
    return DeviceMesh(group, (group.size,))


# -- HDF5 and NetCDF --------------------------------------------------------------------------


def raw(file: Any, name: str, place: Path) -> None:
    """A dataset whose elements are in another file."""
    file.create_dataset(name, (6,), "f8", external=[(str(place / "secret"), 0, 48)])


def virtual(file: Any, name: str, source: str, path: str) -> None:
    layout = h5py.VirtualLayout((6,), "f8")
    layout[:] = h5py.VirtualSource(source, path, (6,))
    file.create_virtual_dataset(name, layout)


def growing(file: Any, name: str, source: str, path: str) -> None:
    """A virtual dataset as long as its source is, or its sources are, whose names have a number."""
    every = h5py.h5s.create_simple((6,), (EVERYTHING,))
    part = h5py.h5s.create_simple((6,), (EVERYTHING,))
    if "%b" in source + path:
        every.select_hyperslab((0,), (EVERYTHING,), (6,), (6,))
        part = h5py.h5s.create_simple((6,))
    else:
        for space in (every, part):
            space.select_hyperslab((0,), (EVERYTHING,), None, (1,))
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_virtual(every, source.encode(), path.encode(), part)
    kind = h5py.h5t.NATIVE_DOUBLE
    h5py.h5d.create(file.id, name.encode(), kind, every, properties)


def all_ways(file: Any, place: Path) -> None:
    """Every way to another file, each under a name that says which."""
    other = str(place / "other.h5")
    file["good"] = VALUES
    raw(file, "raw", place)
    file["hard to raw"] = file["raw"]
    file["soft to raw"] = h5py.SoftLink("/raw")
    virtual(file, "virtual", other, "x")
    virtual(file, "virtual over raw", ".", "raw")
    virtual(file, "virtual over virtual", ".", "/virtual over raw")
    growing(file, "unlimited", other, "x")
    growing(file, "unlimited over raw", ".", "raw")
    growing(file, "pattern of files", str(place / "other%b.h5"), "x")
    file["d0"] = VALUES
    file["d1"] = file["raw"]
    growing(file, "pattern of datasets", ".", "d%b")
    file.create_group("g0")["x"] = file["raw"]
    growing(file, "pattern of groups", ".", "g%b/x")
    file["external"] = h5py.ExternalLink(other, "/x")
    file["external group"] = h5py.ExternalLink(other, "/")
    file["soft to external"] = h5py.SoftLink("external")
    file["soft through external"] = h5py.SoftLink("/external group/x")
    file["soft to soft"] = h5py.SoftLink("soft through external")
    virtual(file, "virtual over external", ".", "external")
    virtual(file, "virtual through soft", ".", "/soft to soft")
    growing(file, "unlimited through soft", ".", "soft to soft")
    deep = file.create_group("deep/er")
    deep["relative"] = h5py.SoftLink("./up/x")
    deep["up"] = h5py.SoftLink("/external group")
    raw(deep, "raw", place)
    virtual(file, "itself", ".", "itself")


def harmless(file: Any) -> None:
    """What leads to places of the same file."""
    file["good"] = VALUES
    file["group/good"] = VALUES
    file["soft"] = h5py.SoftLink("group/./good")
    file["soft to group"] = h5py.SoftLink("/group")
    file["two soft"] = h5py.SoftLink("soft to group/good")
    virtual(file, "virtual", ".", "good")
    virtual(file, "virtual over soft", ".", "two soft")
    virtual(file, "virtual over nothing", ".", "nothing")
    virtual(file, "virtual over virtual", ".", "/virtual")
    growing(file, "unlimited", ".", "good")
    file["d0"] = VALUES
    growing(file, "pattern", ".", "d%b")
    file["round"], file["nowhere"] = h5py.SoftLink("/round"), h5py.SoftLink("/group/nowhere/x")


def others(place: Path) -> list[Path]:
    """The other files that these lead to."""
    VALUES.tofile(place / "secret")
    with h5py.File(place / "other.h5", "w") as file:
        file["x"] = VALUES
    shutil.copy(place / "other.h5", place / "other0.h5")
    return [place / "secret", place / "other.h5", place / "other0.h5"]


def alone(world: Any) -> bool:
    """Whether this process makes the files: under mpiexec rank 0's does."""
    return bool(world.name == "threads" or world.group.rank == 0)


def made_by_one(world: Any, make: Callable[[], list[Path]]) -> list[Path]:
    """Make files in one process; those of them to watch, in every process, when all are there."""
    if world.name == "threads":
        return make()
    watched = make() if alone(world) else []
    watched = world.group.broadcast_object(watched, 0)
    return list(watched)


def test_every_way_to_another_file_is_refused(world: Any, shared: Path) -> None:
    """By its name, before any other file is opened, on all ranks; the others are read."""
    path = shared / "ways.h5"

    def make() -> list[Path]:
        ways = others(shared)
        with h5py.File(path, "w") as file:
            all_ways(file, shared)
        return ways

    ways = made_by_one(world, make)

    def program(group: Any) -> set[str]:
        mesh = mesh_of(group)
        with io.open(path, mesh=mesh) as file:
            assert set(file) == {"good", "d0"}
            assert_matches(file["good"][...], VALUES)
            refused = set(file._contents.refused)
            for name in sorted(refused):  # as on the other ranks
                with pytest.raises(KeyError, match=f"'{name}' .*({ALLOW}|from itself)"):
                    file[name]
                with pytest.raises(KeyError, match=name):
                    io.read(path, [name], mesh=mesh)
        with pytest.raises(ValueError, match=ALLOW):
            io.read(path, mesh=mesh)
        return refused

    with unopened(*ways):
        (refused,) = set(map(frozenset, world.run(world.ranks[-1], program)))
    world.run(world.ranks[-1], lambda group: group.barrier())  # all have looked
    with h5py.File(path, "r") as file:
        names = {name for name in file if not isinstance(file.get(name, getclass=True), type)}
        links = {*file, *(f"deep/er/{name}" for name in ("relative", "raw", "up"))}
    links -= {"good", "d0", "deep", "g0", *names}
    assert refused == links | {"g0/x"}


def test_ways_within_the_file_are_followed(world: Any, shared: Path) -> None:
    path = shared / "inside.h5"
    if alone(world):
        with h5py.File(path, "w") as file:
            harmless(file)

    def program(group: Any) -> None:
        group.barrier()
        with io.open(path, mesh=mesh_of(group)) as file:
            assert set(file._contents.refused) == set()
            assert set(file._contents.missing) == {"round", "nowhere"}
            for name in sorted(set(file) - {"virtual over nothing"}):
                assert_matches(file[name][...], VALUES)
            assert_matches(file["virtual over nothing"][...], 0 * VALUES)
            assert set(file) >= {"soft", "two soft", "unlimited", "pattern", "virtual over soft"}

    world.run(world.ranks[-1], program)


ALLOWED = ("raw", "virtual over virtual", "unlimited", "pattern of files", "soft to soft")


def test_other_files_are_read_when_they_are_allowed(world: Any, shared: Path) -> None:
    if alone(world):
        others(shared)
        with h5py.File(shared / "ways.h5", "w") as file:
            all_ways(file, shared)
            file["pipe"], file["directory"] = (
                h5py.ExternalLink(name, "/x") for name in ("a pipe", "a directory")
            )
            file["soft pipe"] = h5py.SoftLink("pipe")
        os.mkfifo(shared / "a pipe")
        (shared / "a directory").mkdir()

    def program(group: Any) -> None:
        group.barrier()
        mesh = mesh_of(group)
        with io.open(shared / "ways.h5", mesh=mesh, external=True) as file:
            for name in ALLOWED:
                assert_matches(file[name][...], VALUES)
            for name in ("pipe", "directory", "soft pipe"):
                words = f"which is a {name.removeprefix('soft ')} and no HDF5 file"
                with pytest.raises(KeyError, match=words):
                    file[name]

    world.run(world.ranks[-1], program)


def netcdf_of(way: str) -> Callable[[Any, Path], None]:
    """A NetCDF-4 file with one way to another file."""

    def made(file: Any, place: Path) -> None:
        with h5py.File(place / "all.h5", "w") as source:
            all_ways(source, place)
        if "link" in way:
            file["group/below"] = h5py.ExternalLink(str(place / "other.h5"), "/x")
        elif "soft" in way:
            file["away"] = h5py.ExternalLink(str(place / "other.h5"), "/")
            file["x"] = h5py.SoftLink("/away/x")
        elif "unlimited" in way:
            growing(file, "x", str(place / "other.h5"), "x")
        elif "virtual" in way:
            virtual(file, "x", str(place / "other.h5"), "x")
        elif "scales" in way:
            file["x"] = VALUES
            numbers = np.empty(1, object)
            numbers[0] = np.arange(2)
            kind = h5py.vlen_dtype("i8")  # not references
            file["x"].attrs.create("DIMENSION_LIST", numbers, dtype=kind)
        else:
            raw(file, "x", place)

    return made


@pytest.mark.parametrize("way", ["raw", "virtual", "unlimited", "link", "soft", "scales"])
def test_a_netcdf_file_that_leads_elsewhere_is_refused(world: Any, shared: Path, way: str) -> None:
    """Whole, for its library opens everything; what else is in it is read as HDF5."""
    path = shared / f"{way}.nc"

    def make() -> list[Path]:
        watched = others(shared)
        with netCDF4.Dataset(path, "w") as new:
            new.createDimension("t", 6)
            new.createVariable("good", "f8", ("t",))[:] = VALUES
        with h5py.File(path, "r+") as file:
            netcdf_of(way)(file, shared)
        return watched

    watched = made_by_one(world, make)

    def program(group: Any) -> None:
        mesh = mesh_of(group)
        words = f"{way}.nc: '(x|away|group/below)' .*{ALLOW}.*format='hdf5' reads what else"
        for ask in (io.open, io.read):
            with pytest.raises(OtherFileError, match=words):
                ask(path, mesh=mesh)
        assert_matches(io.read(path, "good", mesh=mesh, format="hdf5"), VALUES)

    with unopened(*watched):
        world.run(world.ranks[-1], program)

    def allowed(group: Any) -> None:
        group.barrier()  # nobody watches any more
        if way in ("raw", "virtual"):
            assert_matches(io.read(path, "x", mesh=mesh_of(group), external=True), VALUES)

    world.run(world.ranks[-1], allowed)


def test_urls_of_netcdf(world: Any) -> None:
    for url in ("http://h/x", "https://h/d/x.nc?u[0:1:2]", "dap4://h/x", "https://h/x#mode=dap4"):
        check_netcdf(url)
    refused = (
        "https://h/x.nc#mode=bytes", "http://h/x#bytes", "s3://b/x", "https://h/x#mode=nczarr,s3",
        "[mode=bytes]https://h/x", "https://h/x.zarr#mode=zarr&x=1",
    )  # fmt: skip

    def program(group: Any) -> None:
        for url in refused:
            with pytest.raises(OtherFileError, match="of URLs, NetCDF reads those of OPeNDAP"):
                io.open(url, mesh=mesh_of(group), format="netcdf")

    world.run(world.ranks[-1], program)


def test_an_hdf4_file(tmp_path: Path) -> None:
    (tmp_path / "x.nc").write_bytes(b"\x0e\x03\x13\x01" + bytes(100))
    with pytest.raises(OtherFileError, match="is an HDF4 file"):
        io.open(tmp_path / "x.nc")


# -- Zarr -------------------------------------------------------------------------------------


def store_at(path: Path, version: int) -> None:
    """A store with arrays in groups, and another one beside."""
    for name in (path, path.with_name("secret")):
        root = zarr.create_group(name, zarr_format=version)
        for array in ("good", "x", "group/x", "group/good"):
            root.create_array(array, data=VALUES, chunks=(2,))


def linked(name: str) -> Callable[[Path], list[Path]]:
    """Replaces something in a store by a link to the same of the other store."""

    def link(path: Path) -> list[Path]:
        here, there = path / name, path.with_name("secret") / name
        if here.is_dir():
            shutil.rmtree(here)
        else:
            here.unlink()
        here.symlink_to(there)
        return [file for file in there.rglob("*") if file.is_file()] if there.is_dir() else [there]

    return link


LINKS = {
    "x": ("x", "'x' is a symbolic link to"),
    "group": ("group", "'group' is a symbolic link to"),
    "group/x": ("group/x", "'group/x' is a symbolic link to"),
    "x/zarr.json": ("x", "'x' is a symbolic link to"),
    "x/c": ("x", "'x/c/0' lies in 'x/c', which is a symbolic link"),
    "x/c/1": ("x", "'x/c/1' is a symbolic link"),
}


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("name", LINKS)
def test_links_in_a_zarr_store_are_refused(
    world: Any, shared: Path, name: str, consolidated: bool
) -> None:
    path, watched = shared / "run.zarr", []
    if alone(world):
        store_at(path, 3)
        if consolidated:
            zarr.consolidate_metadata(path)
        watched = linked(name)(path)
    array, words = LINKS[name]
    if consolidated and name.endswith(".json"):
        return  # is not read

    def program(group: Any) -> None:
        group.barrier()
        mesh = mesh_of(group)
        assert_matches(io.read(path, "good", mesh=mesh), VALUES)
        with pytest.raises((KeyError, ValueError), match=f"{words}.*{ALLOW}"):
            io.read(path, [array], mesh=mesh)
        with pytest.raises(ValueError, match=ALLOW):
            io.read(path, mesh=mesh)
        group.barrier()

    with unopened(*watched):
        world.run(world.ranks[-1], program)

    def allowed(group: Any) -> None:
        group.barrier()  # nobody watches any more
        found = io.read(path, mesh=mesh_of(group), external=True)
        assert set(found) == {"good", "x", "group/x", "group/good"}
        for x in found.values():
            assert_matches(x, VALUES)

    world.run(world.ranks[-1], allowed)


@pytest.mark.parametrize("name", ["x/.zarray", "x/1", "x"])
def test_links_in_a_store_of_version_2(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.zarr"
    store_at(path, 2)
    watched = linked(name)(path)
    with unopened(*watched):
        assert_matches(io.read(path, "good"), VALUES)
        with pytest.raises((KeyError, ValueError), match=f"is a symbolic link to.*{ALLOW}"):
            io.read(path, "x")
    assert_matches(io.read(path, "x", external=True), VALUES)


def test_a_store_whose_root_is_described_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    store_at(path, 3)
    watched = linked("zarr.json")(path)
    with unopened(*watched), pytest.raises(ValueError, match=f"'zarr.json' is a symbo.*{ALLOW}"):
        io.open(path)
    (tmp_path / "link").symlink_to(tmp_path / "secret")  # the caller names it
    assert_matches(io.read(tmp_path / "link", "x"), VALUES)


def test_names_that_lead_out_of_a_store(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    store_at(path, 3)
    zarr.consolidate_metadata(path)
    whole = json.loads((path / "zarr.json").read_text())
    members = whole["consolidated_metadata"]["metadata"]
    for name in ("../secret/x", "group/../../secret/x"):
        members[name] = members["x"]
        (path / "zarr.json").write_text(json.dumps(whole))
        elsewhere = tmp_path / "secret/x/zarr.json", tmp_path / "secret/x/c/0"
        with unopened(*elsewhere), pytest.raises((ValueError, OSError)):
            io.read(path)
        del members[name]


# -- what is no file --------------------------------------------------------------------------

FORMATS = ("npy", "npz", "hdf5", "netcdf", "zarr", "safetensors")


def test_pipes_devices_and_directories_are_refused_at_once(world: Any, shared: Path) -> None:
    """No rank waits for a pipe that nobody writes to."""
    if alone(world):
        os.mkfifo(shared / "pipe")
        (shared / "directory").mkdir()
        store_at(shared / "run.zarr", 3)
        (shared / "run.zarr/x/c/0").unlink()
        os.mkfifo(shared / "run.zarr/x/c/0")
        index = {"weight_map": {"x": "pipe"}}
        (shared / "m.safetensors.index.json").write_text(json.dumps(index))

    def program(group: Any) -> None:
        group.barrier()
        mesh = mesh_of(group)
        for name in FORMATS:
            for place, kind in (("pipe", "a pipe"), ("/dev/zero", "a device")):
                with pytest.raises(OSError, match=f"is {kind}, which ranks cannot read together"):
                    io.open(shared / place, mesh=mesh, format=name)
            if name != "zarr":
                with pytest.raises(IsADirectoryError, match="is a directory, not a file"):
                    io.read(shared / "directory", mesh=mesh, format=name)
        with pytest.raises(OSError, match="pipe is a pipe"):
            io.open(shared / "m.safetensors.index.json", mesh=mesh)
        with pytest.raises(OtherFileError, match="'x/c/0' is a pipe, where a file is expected"):
            io.read(shared / "run.zarr", "x", mesh=mesh)
        group.barrier()

    world.run(world.ranks[-1], program)


@pytest.mark.usefixtures("own_processes")
def test_numpy_reads_text_from_pipes_and_refuses_the_rest(tmp_path: Path) -> None:
    """Where NumPy reads from a pipe, so do we; where it cannot seek, nobody waits."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for refused in (
        lambda: dnp.load(pipe),
        lambda: dnp.load(str(pipe), mmap_mode="r"),
        lambda: dnp.fromfile(pipe, "u1"),
        lambda: dnp.fromfile(pipe, sep=" "),
        lambda: dnp.memmap(pipe, "u1", "r"),
    ):
        with pytest.raises(OSError, match="pipe is a pipe, which is not seekable"):
            refused()
    assert dnp.fromfile("/dev/zero", "u1", 4).tolist() == [0] * 4
    assert dnp.fromfile("/dev/null", "u1").tolist() == []
    with pytest.raises(EOFError):
        dnp.load("/dev/null")


STREAMS = r"""
import os, sys, threading
import distarray as da, distarray.numpy as np

mesh = da.default_mesh()
for name, read in (("loadtxt", np.loadtxt), ("genfromtxt", np.genfromtxt)):
    if mesh.rank == 0:
        os.mkfifo(name)
        threading.Thread(target=lambda: open(name, "w").write("1 2\n3 4\n"), daemon=True).start()
    mesh.group.barrier()
    assert read(name).full().tolist() == [[1, 2], [3, 4]]
    mesh.group.barrier()
assert np.fromfile("/dev/zero", "u1", 4).tolist() == [0] * 4
assert np.loadtxt("/dev/stdin").full().tolist() == [5, 6, 7]
try:
    np.load("loadtxt")
except OSError as error:
    sys.stdout.write(f"refused {error}\n")
"""


def test_rank_zero_reads_a_pipe_for_all(mpiexec: tuple[str, ...], tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.launcher import environment

    run = subprocess.run(
        [*mpiexec, "-n", "3", sys.executable, "-c", STREAMS], cwd=tmp_path, env=environment(),
        input="5\n6\n7\n", capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("refused loadtxt is a pipe") == 3, run.stdout


def test_an_array_that_is_written_stays_what_it_is(tmp_path: Path) -> None:
    """What this library writes leads nowhere."""
    x = da.distribute(VALUES)
    for name in ("x.h5", "x.nc", "x.zarr"):
        io.write(tmp_path / name, {"x": x, "g/y": x} if name != "x.nc" else {"x": x})
        assert_matches(io.read(tmp_path / name, "x"), VALUES)
