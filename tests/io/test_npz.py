"""``.npz``: NumPy's structure byte for byte, checksums verified."""

from __future__ import annotations

import zipfile

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import DistArray, Shard
from tests.io.helpers import VALUES, common, content, meshes, raised, reference, tiny

__all__ = ["tiny"]


@pytest.mark.parametrize("compressed", [False, True])
def test_archives(world, ranks, tmp_path, tiny, compressed):
    function = numpy.savez_compressed if compressed else numpy.savez

    def program(group):
        directory = common(group, tmp_path)
        path = directory / "x.npz"
        plain = {"\u00fc": VALUES["matrix"], "b": VALUES["records"], "c": VALUES["cell"]}
        wanted = reference(
            group, directory / "n.npz", lambda p: function(p, VALUES["deep"], 7, **plain)
        )
        for mesh in meshes(group):
            placed = [Shard(0)] * mesh.ndim
            spread = {
                key: distarray.distribute(value, mesh, None if not value.ndim else placed, src=None)
                for key, value in plain.items()
            }
            first = distarray.distribute(VALUES["deep"], mesh, [Shard(2)] * mesh.ndim, src=None)
            function(path, first, 7, **spread)
            assert content(group, path) == wanted
            with np.load(path, mesh=mesh) as archive:
                assert archive.files == numpy.load(path).files
                for key, value in plain.items():
                    found = archive[key]
                    assert isinstance(found, DistArray)
                    numpy.testing.assert_array_equal(found.full(), value)
                assert int(archive.f.arr_1) == 7
                assert raised(lambda archive=archive: archive["no"])[0] is KeyError
            group.barrier()

    world.run(ranks, program)


def test_an_archive_that_was_damaged_is_refused(world, ranks, tmp_path, tiny):
    def program(group):
        path = common(group, tmp_path) / "x.npz"
        numpy.savez(
            path,
            distarray.distribute(
                VALUES["matrix"], distarray.DeviceMesh(group, (group.size,)), src=None
            ),
        )
        if group.rank == 0:
            data = bytearray(path.read_bytes())
            data[300] ^= 4
            path.write_bytes(data)
        group.barrier()
        archive = np.load(
            path, mesh=distarray.DeviceMesh(group, (group.size,)), placements=[Shard(0)]
        )
        return raised(lambda: archive["arr_0"])

    for found in world.run(ranks, program):
        assert found == (zipfile.BadZipFile, "Bad CRC-32 for file 'arr_0.npy'")


def test_many_members_and_long_ones_have_numpys_structure(world, ranks, tmp_path, tiny):
    def program(group):
        directory = common(group, tmp_path)
        many = {f"m{i}": numpy.full(3, i) for i in range(40)}
        wanted = reference(group, directory / "n.npz", lambda p: numpy.savez(p, **many))
        mesh = distarray.DeviceMesh(group, (group.size,))
        numpy.savez(
            directory / "x.npz",
            **{k: distarray.distribute(v, mesh, src=None) for k, v in many.items()},
        )
        assert content(group, directory / "x.npz") == wanted

    world.run(ranks, program)


def test_an_open_archive_is_numpys(world, tmp_path):
    """What can be asked of it, and what is in it besides arrays that lie as they are."""

    def program(group):
        path = common(group, tmp_path) / "x.npz"
        objects = numpy.array([{"a": 1}, None])
        if group.rank == 0:
            many = {f"m{i}": numpy.arange(i) for i in range(6)}
            numpy.savez(path, o=objects, **many)
            with zipfile.ZipFile(path, "a") as archive:
                archive.writestr("notes.txt", "read me")
        group.barrier()
        mesh = distarray.DeviceMesh(group, (group.size,))
        ours = np.load(path, mesh=mesh, allow_pickle=True)
        theirs = numpy.load(path, allow_pickle=True)
        for ask in (len, list, repr, lambda a: ("m1" in a, "m1.npy" in a, "no" in a)):
            assert ask(ours) == ask(theirs)
        assert sorted(dir(ours.f)) == sorted(theirs.files)
        assert ours["notes.txt"] == theirs["notes.txt"]
        assert ours["o"].tolist() == objects.tolist()
        assert raised(lambda: ours.f.no) == raised(lambda: theirs.f.no) == (AttributeError, "no")
        refused = np.load(path, mesh=mesh)
        theirs.close()
        with numpy.load(path) as plain:
            assert raised(lambda: refused["o"]) == raised(lambda: plain["o"])
        ours.close()
        assert raised(lambda: ours["m1"]) == (ValueError, "the archive is closed")
        with open(path, "rb") as file:  # which each rank has opened for itself
            opened = np.load(file, mesh=mesh)
            assert opened["m5"].full().tolist() == list(range(5))
            opened.close()
        x = distarray.distribute(numpy.arange(3), mesh, src=None)
        clash = raised(lambda: numpy.savez(path.with_name("y.npz"), x, arr_0=x))
        assert clash == raised(lambda: numpy.savez(path.with_name("z.npz"), 1, arr_0=2))

    world.run(world.ranks[-1], program)
