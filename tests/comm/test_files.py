"""Files that ranks share: each its bytes, and one rank's failure is everybody's."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from distarray.comm import files
from distarray.comm.files import PAGE, landing, open_file
from distarray.config import config


def common(group, tmp_path):
    return str(Path(group.broadcast_object(str(tmp_path), 0)) / "file")


def made(group, path, size):
    """Make a file on rank 0."""
    if group.rank == 0:
        Path(path).write_bytes(bytes(size))
    group.barrier()


def test_each_rank_writes_and_reads_its_stretch(world, ranks, tmp_path):
    def program(group):
        path = common(group, tmp_path)
        own = np.full(3 + group.rank, group.rank, ">u2")
        place = sum(2 * (3 + rank) for rank in range(group.rank))
        total = 2 * sum(3 + rank for rank in range(group.size))
        made(group, path, total)
        with open_file(group, path, "w", total) as file:
            assert file.size == total
            file.write_at(place, own)
            if group.rank == 0:  # what one rank writes need not be written by all
                file.write_at(0, b"\x07")
            if group.rank == group.size - 1:
                file.write_at(total, own[:1])
        assert os.path.getsize(path) == total + 2
        with open_file(group, path) as file:
            found = np.empty_like(own)
            file.read_at(place, found)
        with pytest.raises(OSError), open_file(group, path, "w", total + 2) as file:
            file.read_at(0, np.empty_like(own))
        if group.rank == 0:
            own[0] = 0x700
        assert found.tolist() == own.tolist()

    world.run(ranks, program)


def test_a_file_that_ends_too_early(world, ranks, tmp_path):
    def program(group):
        path = common(group, tmp_path)
        made(group, path, 2)
        with pytest.raises(OSError, match="the file ends at byte 2"):
            read_three(group, path)

    world.run(ranks, program)


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_written_is_on_disk(world, ranks, tmp_path, durable, monkeypatch):
    """A rank whose bytes cannot be brought to disk fails for all."""
    synced = []

    def program(group):
        path = common(group, tmp_path)
        made(group, path, 0)
        found = None
        with config.override(durable=durable):
            try:
                with open_file(group, path, "w") as file:
                    last[file.descriptor] = group.rank == group.size - 1
                    file.write_at(0, b"x")
            except OSError as error:
                found = error.errno, error.filename == path
        assert found == ((errno.EIO, True) if durable else None)

    def fsync(descriptor):
        synced.append(descriptor)
        if last[descriptor]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    last = {}
    monkeypatch.setattr(os, "fsync", fsync)
    world.run(ranks, program)
    assert bool(synced) == durable


def read_three(group, path):
    with open_file(group, path) as file:
        last = group.rank == group.size - 1
        file.read_at(0, np.empty(3, np.uint8) if last else None)


def test_a_rank_that_does_not_see_the_file(world, ranks, tmp_path, monkeypatch):
    plain, followed, here = files._opened, files._followed, threading.local()
    missing = FileNotFoundError(2, "No such file or directory", "file")
    answers = {"missing": (-1, 0, missing), "short": None}

    def program(group):
        path = common(group, tmp_path)
        if group.rank == 0:
            Path(path).write_bytes(b"12345")
        group.barrier()
        words = {"missing": "does not exist", "short": "has 3 bytes"}
        for kind, text in words.items():
            chosen.kind = kind
            group.barrier()
            if group.size == 1:
                continue
            with pytest.raises(OSError, match=text) as found:
                open_file(group, path)
            assert "rank 0 has one of 5 bytes; give a path on a file system" in str(found.value)
            assert f"on rank {group.size - 1}" in str(found.value) or group.size > 2
            group.barrier()

    class chosen:
        kind = ""

    def follow(*args):
        here.follows = True
        try:
            return followed(*args)
        finally:
            here.follows = False

    def opened(path, mode):
        if not getattr(here, "follows", False):
            return plain(path, mode)
        if chosen.kind == "missing":
            return answers["missing"]
        descriptor, _, error = plain(path, mode)
        return descriptor, 3, error

    monkeypatch.setattr(files, "_followed", follow)
    monkeypatch.setattr(files, "_opened", opened)
    world.run(ranks, program)


@pytest.mark.parametrize("offset", [0, 128, 5000, 3])
def test_memory_lies_in_its_pages_as_the_file_does(offset):
    for shape, dtype in (((1 << 19,), "u1"), ((300, 700), "c16"), ((1 << 18,), "S3")):
        found = landing(shape, dtype, offset)
        assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert found.flags.aligned
        assert (offset - found.ctypes.data) % PAGE < 64
    assert landing((3, 0), "f8").shape == (3, 0)


def test_what_cannot_be_opened(world, ranks, tmp_path):
    def program(group):
        path = common(group, tmp_path)
        for name, mode, kind in (
            (path + "/no", "r", FileNotFoundError),
            (path, "r", FileNotFoundError),
            (os.path.dirname(path), "r", IsADirectoryError),
            (os.path.dirname(path), "w", IsADirectoryError),
        ):
            with pytest.raises(kind):
                open_file(group, name, mode)
        if group.size == 1:
            with pytest.raises(FileNotFoundError):
                open_file(group, path, "w")

    world.run(ranks, program)
