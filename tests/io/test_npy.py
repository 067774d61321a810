"""``.npy``: byte for byte NumPy's, on any layout; read by any number of ranks."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import random

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import DistArray, Replicate, Shard
from distarray.comm.files import SharedFile
from distarray.io.numpy_functions import HOMES
from tests.io.helpers import (
    VALUES,
    chosen,
    common,
    content,
    meshes,
    placements,
    raised,
    reference,
    tiny,
)

__all__ = ["tiny"]


@pytest.mark.parametrize("name", VALUES)
def test_saved_and_loaded_as_numpy_does(world, ranks, tmp_path, tiny, name):
    chosen(world, name, "matrix", "deep", "cell", "records")
    values = VALUES[name]

    def program(group):
        directory = common(group, tmp_path)
        path = directory / "x.npy"
        wanted = reference(group, directory / "n.npy", lambda p: numpy.save(p, values))
        for mesh in meshes(group):
            for placed in placements(mesh, values.ndim):
                x = distarray.distribute(values, mesh, placed, src=None)
                numpy.save(path, x)
                assert content(group, path) == wanted, placed
                y = np.load(path, mesh=mesh, placements=placed)
                assert y.dtype == values.dtype
                assert y.placements == x.placements
                numpy.testing.assert_array_equal(y.full(), values)

    world.run(ranks, program)


@pytest.mark.parametrize("shape", [None, (2, 3), (3, 1)], ids=["matrix", "thin", "column"])
def test_fortran_order_is_kept(world, ranks, tmp_path, tiny, shape):
    values = numpy.asfortranarray(VALUES["matrix"])
    if shape is not None:  # blocks of one row, which have both orders, and empty ones
        values = numpy.asfortranarray(numpy.arange(numpy.prod(shape)).reshape(shape))

    def program(group):
        directory = common(group, tmp_path)
        path = directory / "x.npy"
        wanted = reference(group, directory / "n.npy", lambda p: numpy.save(p, values))
        for mesh in meshes(group):
            for placed in placements(mesh, 2):
                x = distarray.distribute(values.T.copy(), mesh, placed, src=None).T
                numpy.save(path, x)
                assert content(group, path) == wanted, placed
                y = np.load(directory / "n.npy", mesh=mesh, placements=placed)
                numpy.testing.assert_array_equal(y.full(), values)
                numpy.save(path, x[1:, 1:])
                numpy.testing.assert_array_equal(numpy.load(path), values[1:, 1:])
                group.barrier()

    world.run(ranks, program)


def test_file_objects(world, ranks, tmp_path, tiny):
    values = VALUES["matrix"]

    def program(group):
        directory = common(group, tmp_path)
        mesh = distarray.DeviceMesh(group, (group.size,))
        x = distarray.distribute(values, mesh, [Shard(1)], src=None)
        memory = io.BytesIO()
        numpy.save(memory, x)
        wanted = io.BytesIO()
        numpy.save(wanted, values)
        assert memory.getvalue() == wanted.getvalue()  # every rank has its own file
        with open(directory / "two", "wb") as file:  # one file for all ranks
            numpy.save(file, x)
            numpy.save(file, x[:2])
            place = file.tell()
        assert place == os.path.getsize(directory / "two")
        with open(directory / "two", "ab") as file:
            numpy.save(file, x)
        with open(directory / "two", "rb") as file:
            for part in (values, values[:2], values):
                found = np.load(file, mesh=mesh, placements=[Shard(0)])
                numpy.testing.assert_array_equal(found.full(), part)
            assert raised(lambda: np.load(file, mesh=mesh)) == (EOFError, "No data left in file")
        group.barrier()
        own = directory / f"own{group.rank}.npy"
        numpy.save(own, x)  # another path on each rank: each writes all
        numpy.testing.assert_array_equal(numpy.load(own), values)
        found = np.load(own, mesh=mesh, placements=[Shard(0)])
        numpy.testing.assert_array_equal(found.full(), values)
        memory = io.BytesIO()
        numpy.savez(memory, x)
        memory.seek(0)
        numpy.testing.assert_array_equal(np.load(memory, mesh=mesh)["arr_0"].full(), values)

    world.run(ranks, program)


def test_more_than_two_to_the_31_elements(world, ranks, tmp_path):
    """A file with a hole, of which only a part is read."""
    count = 2**31 + 24

    def program(group):
        path = common(group, tmp_path) / "x.npy"
        if group.rank == 0:
            with open(path, "wb") as file:
                numpy.lib.format.write_array_header_1_0(
                    file, {"descr": "<i2", "fortran_order": False, "shape": (count,)}
                )
                file.truncate(file.tell() + 2 * count)
                file.seek(-4, os.SEEK_END)
                file.write(b"\x05\x00\x07\x00")
        x = np.load(
            path,
            mmap_mode="r",
            mesh=distarray.DeviceMesh(group, (group.size,)),
            placements=[Shard(0)],
        )
        assert x.shape == (count,)
        return x[-3:].full().tolist()

    for found in world.run(ranks, program):
        assert found == [0, 5, 7]


def test_each_byte_is_read_and_written_once(world, ranks, tmp_path, tiny, monkeypatch):
    values = VALUES["deep"]
    counted = []
    for name in ("read_at", "write_at"):
        plain = getattr(SharedFile, name)

        def counting(self, offset, data, plain=plain):
            counted.append(len(data) if isinstance(data, bytes) else getattr(data, "nbytes", 0))
            plain(self, offset, data)

        monkeypatch.setattr(SharedFile, name, counting)

    def program(group):
        path = common(group, tmp_path) / "x.npy"
        total = []
        for mesh in meshes(group):
            for placed in placements(mesh, 3):
                x = distarray.distribute(values, mesh, placed, src=None)
                for act in (
                    lambda x=x: numpy.save(path, x),
                    lambda m=mesh, p=placed: np.load(path, mesh=m, placements=p),
                ):
                    group.barrier()
                    if group.rank == 0 or world.name == "mpi":
                        counted.clear()
                    group.barrier()
                    act()
                    group.barrier()
                    shares = group.allgather_object(sum(counted))
                    total.append(sum(shares) if world.name == "mpi" else shares[0])
                    group.barrier()
        return total, path.stat().st_size

    if ranks == 1:
        return  # one rank has no use for shared files
    for total, size in world.run(ranks, program):
        assert set(total) == {size, values.nbytes}


def test_rows_are_saved_and_loaded_without_sending_any(world, ranks, tmp_path, tiny):
    def program(group):
        path = common(group, tmp_path) / "x.npy"
        mesh = distarray.DeviceMesh(group, (group.size,))
        x = distarray.distribute(VALUES["matrix"], mesh, [Shard(0)], src=None)
        with distarray.trace() as trace:
            numpy.save(path, x)
            np.load(path, mesh=x.mesh, placements=[Shard(0)])
        columns = distarray.distribute(VALUES["matrix"], x.mesh, [Shard(1)], src=None)
        with distarray.trace() as other:
            numpy.save(path, columns)
        sent = sum(event.bytes for event in other if event.kind == "exchange")
        return trace.count("exchange"), sent <= columns.to_local().nbytes

    assert set(world.run(ranks, program)) == {(0, True)}


def test_bare_elements(world, ranks, tmp_path, tiny):
    def program(group):
        directory = common(group, tmp_path)
        path = directory / "x"
        mesh = distarray.DeviceMesh(group, (group.size,))
        for values in (VALUES["matrix"], VALUES["line"], VALUES["records"], VALUES["dates"]):
            x = distarray.distribute(values, mesh, [Shard(values.ndim - 1)], src=None)
            x.tofile(path)
            assert content(group, path) == values.tobytes()
            for keywords in ({}, {"count": 2}, {"count": 10**6}, {"offset": values.itemsize}):
                found = np.fromfile(
                    path, values.dtype, mesh=mesh, placements=[Shard(0)], **keywords
                )
                wanted = numpy.fromfile(path, values.dtype, **keywords)
                numpy.testing.assert_array_equal(found.full(), wanted)
            group.barrier()
        for sep, form in ((", ", "%.3f"), ("\n", "%s"), (" ", "")):
            values = VALUES["matrix"]
            wanted = reference(
                group, directory / "n", lambda p, v=values, s=sep, f=form: v.tofile(p, s, f)
            )
            x = distarray.distribute(values, mesh, [Shard(1)], src=None)
            x.tofile(path, sep, form)
            assert content(group, path) == wanted
            found = np.fromfile(path, sep=sep, mesh=mesh)
            numpy.testing.assert_array_equal(found.full(), numpy.fromfile(path, sep=sep))
            group.barrier()
        assert raised(lambda: np.fromfile(directory / "no", mesh=mesh))[0] is FileNotFoundError

    world.run(ranks, program)


def test_as_formats_of_open_read_and_write(world, ranks, tmp_path, tiny):
    values = VALUES["matrix"]

    def program(group):
        directory = common(group, tmp_path)
        mesh = distarray.DeviceMesh(group, (group.size,))
        x = distarray.distribute(values, mesh, [Shard(1)], src=None)
        distarray.io.write(directory / "x.npy", x)
        assert content(group, directory / "x.npy") == reference(
            group, directory / "n.npy", lambda p: numpy.save(p, values)
        )
        numpy.save(directory / "f.npy", x.T)
        for name, wanted in (("x.npy", values), ("f.npy", values.T)):
            found = distarray.io.read(directory / name, mesh=mesh, placements=[Shard(0)])
            numpy.testing.assert_array_equal(found.full(), wanted)
            with distarray.io.open(directory / name, mesh=mesh) as stored:
                part = stored[2:7, ::-2]
                numpy.testing.assert_array_equal(part.full(), wanted[2:7, ::-2])
        for compressed in (False, True):
            path = directory / f"{compressed}.npz"
            distarray.io.write(path, {"a": x, "b": x[3]}, compressed=compressed)
            found = distarray.io.read(path, mesh=mesh)
            assert set(found) == {"a", "b"}
            numpy.testing.assert_array_equal(found["b"].full(), values[3])
            with numpy.load(path) as plain:
                numpy.testing.assert_array_equal(plain["a"], values)
            with distarray.io.open(path, mesh=mesh) as file:
                numpy.testing.assert_array_equal(file["a"][4:, 1].full(), values[4:, 1])
        assert raised(lambda: distarray.io.write(directory / "y.npy", {"a": x}))[0] is ValueError

    world.run(ranks, program)


@pytest.mark.parametrize("function", HOMES, ids=lambda function: function.__name__)
def test_signatures_are_numpys(function):
    """Signatures of the implementations, which are imported at the first call."""
    if function is DistArray.tofile:
        function = numpy.ndarray.tofile
    found = getattr(
        importlib.import_module(HOMES.get(function, "distarray.io.raw_binary")), function.__name__
    )
    ours = inspect.signature(found).parameters
    assert ours["placements"].default is None if "placements" in ours else True
    if function is numpy.ndarray.tofile:
        return
    wanted = dict(inspect.signature(function).parameters)
    if "self" in wanted:  # a method; the array has a name of its own in the implementation
        wanted = {next(iter(ours)) if name == "self" else name: p for name, p in wanted.items()}
    assert [name for name in ours if name not in ("mesh", "placements")] == list(wanted)
    for name, parameter in wanted.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default)


def test_ranks_outside_of_the_mesh_take_no_part(world, ranks, tmp_path, tiny):
    def program(group):
        directory = common(group, tmp_path)
        members = list(range(max(1, group.size - 1)))
        mesh = distarray.DeviceMesh(group, (len(members),), ranks=members)
        x = distarray.distribute(VALUES["matrix"], mesh, [Shard(1)], src=None)
        numpy.save(directory / "x.npy", x)
        numpy.savez(directory / "x.npz", x)
        numpy.savetxt(directory / "x.txt", x)
        x.tofile(directory / "x.raw")
        group.barrier()  # a rank outside of the mesh looks for itself
        for y in (
            np.load(directory / "x.npy", mesh=mesh, placements=[Shard(0)]),
            np.load(directory / "x.npz", mesh=mesh, placements=[Shard(0)])["arr_0"],
            np.loadtxt(directory / "x.txt", mesh=mesh, placements=[Shard(0)]),
            np.fromfile(directory / "x.raw", mesh=mesh, placements=[Shard(0)]).reshape(13, 9),
            np.load(directory / "x.npy", "r", mesh=mesh, placements=[Shard(0)]),
        ):
            assert y.shape == (13, 9)
            if mesh.coords is not None:
                numpy.testing.assert_array_equal(y.full(), VALUES["matrix"])
            else:
                assert y.to_local().size == 0

    world.run(ranks, program)


@pytest.mark.parametrize("seed", range(8))
def test_views_of_any_layout(world, ranks, tmp_path, tiny, seed):
    """Slices with steps, transposed, of arrays in one to three dimensions, some of them empty."""
    chosen(world, str(seed), "0", "1")
    draw = random.Random(8 * ranks + seed)
    shape = [draw.choice([0, 1, 2, 5, 8, 13]) for _ in range(draw.randrange(1, 4))]
    values = (
        numpy.random.default_rng(seed)
        .integers(0, 100, shape)
        .astype(draw.choice(["f8", ">i4", "c8", "S3", "?"]))
    )
    key = tuple(
        [
            slice(draw.choice([None, 1]), draw.choice([None, -1]), draw.choice([1, 2, -1]))
            for _ in shape
        ]
    )
    kinds = [Replicate(), *[Shard(dim) for dim in range(len(shape))]]
    ways = [[draw.choice(kinds) for _ in range(2)] for _ in range(2)]
    turned = draw.random() < 0.5
    wanted = values[key].T if turned else values[key]

    def program(group):
        path = common(group, tmp_path) / "x"
        mesh = meshes(group)[-1]
        x = distarray.distribute(values, mesh, ways[0][: mesh.ndim], src=None)[key]
        x = x.T if turned else x
        numpy.save(f"{path}.npy", x)
        numpy.savez(f"{path}.npz", x)
        x.tofile(path)
        assert content(group, path) == wanted.tobytes()
        numpy.testing.assert_array_equal(numpy.load(f"{path}.npy"), wanted)
        y = np.load(f"{path}.npy", mesh=mesh, placements=ways[1][: mesh.ndim])
        numpy.testing.assert_array_equal(y.full(), wanted)
        with np.load(f"{path}.npz", mesh=mesh, placements=ways[1][: mesh.ndim]) as archive:
            numpy.testing.assert_array_equal(archive["arr_0"].full(), wanted)

    world.run(ranks, program)
