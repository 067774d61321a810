"""``.npy`` files that are not plain arrays: damaged, pickled, of other versions; full disks."""

from __future__ import annotations

import io
import resource
import warnings

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import Shard
from tests.io.helpers import VALUES, common, content, raised, reference, tiny

__all__ = ["tiny"]


def test_errors_are_numpys_and_everybodys(world, ranks, tmp_path, tiny):
    def program(group):
        directory = common(group, tmp_path)
        mesh = distarray.DeviceMesh(group, (group.size,))
        if group.rank == 0:
            numpy.save(directory / "whole.npy", VALUES["matrix"])
            data = (directory / "whole.npy").read_bytes()
            (directory / "short.npy").write_bytes(data[:-9])
            (directory / "other").write_bytes(b"no array at all")
            (directory / "empty").write_bytes(b"")
            (directory / "version").write_bytes(data[:6] + b"\x09\x00" + data[8:])
            (directory / "eval.npy").write_bytes(data.replace(b"(13, 9)", b"exit(1)"))
            (directory / "huge.npy").write_bytes(data.replace(b"(13, 9), }", b"(99999,9)}"))
            numpy.save(directory / "objects.npy", numpy.array([None, 1]), allow_pickle=True)
        group.barrier()
        names = ["missing", "short.npy", "other", "empty", "version", "eval.npy", "huge.npy"]
        for name in [*names, "objects.npy", ""]:
            path = directory / name
            wanted = raised(lambda path=path: numpy.load(path))
            found = raised(lambda path=path: np.load(path, mesh=mesh))
            assert found is not None, name
            assert found[0] is wanted[0], name
            assert found[1] == wanted[1] or name == "eval.npy", name
        x = distarray.distribute(VALUES["matrix"], mesh, [Shard(0)], src=None)
        for act in (lambda: numpy.save(directory / "no" / "where", x), lambda: numpy.save(7, x)):
            assert raised(act)[0] in (FileNotFoundError, TypeError)
        full = raised(lambda: _into_full(x))
        assert full == (OSError, "[Errno 28] No space left on device"), full
        negative = (directory / "whole.npy").read_bytes().replace(b"(13, 9), }", b"(-13, 9),}")
        found = raised(lambda: np.load(io.BytesIO(negative), mesh=mesh))
        assert found == (ValueError, "shape is not valid: (-13, 9)")

    world.run(ranks, program)


def _into_full(x):
    with open("/dev/full", "wb", buffering=0) as file:
        numpy.save(file, x)


def test_a_file_that_may_not_grow(world, ranks, tmp_path, tiny):
    """The limit on file sizes stands for a full disk: the second half cannot be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def program(group):
        path = common(group, tmp_path) / "x.npy"
        x = distarray.distribute(
            numpy.zeros(1 << 16), distarray.DeviceMesh(group, (group.size,)), [Shard(0)], src=None
        )
        group.barrier()
        return raised(lambda: numpy.save(path, x))

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, before[1]))
    try:
        found = world.run(ranks, program)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for error in found:
        assert error is not None
        assert error[0] is OSError
        assert "File too large" in error[1]


def test_objects_are_pickled_as_numpy_does(world, ranks, tmp_path):
    values = numpy.array([{"a": 1}, None, "text"], dtype=object)

    def program(group):
        directory = common(group, tmp_path)
        mesh = distarray.DeviceMesh(group, (group.size,))
        x = distarray.distribute(values, mesh, src=None)
        wanted = reference(group, directory / "n.npy", lambda p: numpy.save(p, values))
        numpy.save(directory / "x.npy", x)
        assert content(group, directory / "x.npy") == wanted
        assert (
            np.load(directory / "x.npy", mesh=mesh, allow_pickle=True).tolist() == values.tolist()
        )
        refused = raised(lambda: numpy.save(directory / "y.npy", x, allow_pickle=False))
        assert refused == (ValueError, "Object arrays cannot be saved when allow_pickle=False")
        assert not (directory / "y.npy").exists()

    world.run(ranks, program)


@pytest.mark.host
def test_headers_of_all_versions(world, ranks, tmp_path):
    long = numpy.zeros(2, [(f"field{i}" + "x" * 30, "i1") for i in range(1500)])
    wide = numpy.zeros(2, [("\u4e2d", "i4"), ("b", "f8")])

    def program(group):
        directory = common(group, tmp_path)
        for number, values in enumerate((long, wide)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                name = f"n{number}.npy"
                wanted = reference(group, directory / name, lambda p, v=values: numpy.save(p, v))
                x = distarray.distribute(
                    values, distarray.DeviceMesh(group, (group.size,)), src=None
                )
                numpy.save(directory / "x.npy", x)
            assert content(group, directory / "x.npy") == wanted
            found = np.load(
                directory / "x.npy",
                max_header_size=200_000,
                mesh=distarray.DeviceMesh(group, (group.size,)),
            )
            assert found.dtype == values.dtype

    if ranks == 1 or world.name == "mpi":  # warnings belong to all threads
        world.run(ranks, program)
