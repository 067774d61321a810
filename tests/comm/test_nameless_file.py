"""Files without a name: all ranks of a node open the same one, and what cannot be had is told."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from distarray import Fold
from distarray.comm import nameless_file
from distarray.comm.nameless_file import create_file
from distarray.config import config

LARGE = np.arange(1 << 15, dtype=float)


class Near:
    """A communicator of one process."""

    def Get_rank(self):
        return 0

    def bcast(self, value):
        return value

    def allgather(self, value):
        return [value]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def blind(monkeypatch):
    """No rank finds another's files in memory, as in PID namespaces of their own."""

    def readlink(path):
        raise FileNotFoundError(errno.ENOENT, "not here")

    monkeypatch.setattr(nameless_file.os, "readlink", readlink)


def test_the_file_has_no_name_and_takes_any_size():
    before = descriptors()
    descriptor = nameless_file.open_together(Near())
    os.ftruncate(descriptor, 1 << 40)
    assert os.fstat(descriptor).st_nlink == 0
    os.close(descriptor)
    assert descriptors() == before


def test_mapped_memory_lives_as_long_as_its_views():
    """And keeps no descriptor."""
    before = descriptors()
    descriptor = nameless_file.open_together(Near())
    os.ftruncate(descriptor, 1 << 20)
    whole = nameless_file.mapped(descriptor, 1 << 20)
    os.close(descriptor)
    assert descriptors() == before
    part = whole.view(np.int64)[5:]
    address = part.ctypes.data
    del whole
    part[0] = 7
    assert hex(address - 40)[2:] in Path("/proc/self/maps").read_text()
    del part
    gc.collect()
    assert f"{address - 40:012x}-" not in Path("/proc/self/maps").read_text()
    with pytest.raises(OSError, match="Bad file descriptor"):
        nameless_file.mapped(descriptor, 1 << 20)


def test_without_files_in_memory_the_name_is_removed(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(nameless_file, "_SHM", str(tmp_path))
    descriptor = nameless_file.open_together(Near())
    assert os.fstat(descriptor).st_nlink == 0
    os.close(descriptor)
    assert not list(tmp_path.iterdir())


def test_without_a_directory_in_memory_only_a_file_on_disk_is_left(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(nameless_file, "_SHM", str(tmp_path / "missing"))
    monkeypatch.setattr(nameless_file.tempfile, "gettempdir", lambda: str(tmp_path))
    assert nameless_file.open_together(Near()) == -errno.ENOENT
    descriptor = nameless_file.open_together(Near(), on_disk=True)
    assert descriptor >= 0
    os.close(descriptor)


def test_what_killed_jobs_have_left_is_removed(tmp_path):
    old, new = tmp_path / "distarray-node-old", tmp_path / "distarray-node-new"
    foreign = tmp_path / "something-else"
    for path in (old, new, foreign):
        path.touch()
    for path in (old, foreign):
        os.utime(path, (0, 0))
    descriptor, made = create_file(str(tmp_path))
    os.close(descriptor)
    left = {name.name for name in tmp_path.iterdir()}
    assert left == {"distarray-node-new", "something-else", Path(made).name}


def seen_by_all(group):
    """Whether each rank reads what every rank writes to one file."""
    descriptor = nameless_file.open_together(group.comm)
    os.pwrite(descriptor, bytes([group.rank]), group.rank)
    group.barrier()
    found = os.pread(descriptor, group.size, 0)
    group.barrier()
    os.close(descriptor)
    return found == bytes(range(group.size))


@pytest.mark.mpi
def test_all_ranks_open_the_same_file(world, ranks):
    assert all(world.run(ranks, seen_by_all))


@pytest.mark.mpi
def test_ranks_that_do_not_see_one_another_take_a_name(world, ranks, blind):
    assert all(world.run(ranks, seen_by_all))


def said_of(group, monkeypatch, capfd):
    """What is said when a large block is folded where memory cannot be shared."""
    from distarray.comm import shared_memory

    monkeypatch.setattr(shared_memory, "_told", False)
    before = descriptors()
    group.__dict__.pop("_memory", None)
    found = group.allreduce(LARGE + group.rank, Fold.SUM)
    group.__dict__.pop("_memory", None)  # later tests share it again
    group.barrier()
    assert (found == group.size * LARGE + sum(range(group.size))).all()
    assert descriptors() == before
    return capfd.readouterr().err


@pytest.mark.mpi
def test_memory_that_one_rank_cannot_have_is_not_shared(world, ranks, monkeypatch, capfd):
    """It was written to, and the process killed by SIGBUS."""

    def refuse(descriptor, offset, length):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def program(group):
        if group.rank == group.size - 1:
            monkeypatch.setattr(os, "posix_fallocate", refuse)
        said = said_of(group, monkeypatch, capfd)
        tells = group.rank == 0 and group.size > 1 and group.nodes is None
        assert (f"rank {group.size - 1} of {group.size} on this node" in said) == tells, said
        assert ("--shm-size" in said) == tells

    world.run(ranks, program)


@pytest.mark.mpi
def test_ranks_in_containers_of_their_own_send_messages(
    world, ranks, monkeypatch, capfd, blind, tmp_path
):
    monkeypatch.setattr(nameless_file, "_SHM", str(tmp_path / "missing"))

    def program(group):
        said = said_of(group, monkeypatch, capfd)
        tells = group.rank == 0 and group.size > 1 and group.nodes is None
        assert ("--ipc=host" in said) == tells, said

    world.run(ranks, program)


@pytest.mark.mpi
def test_messages_can_be_asked_for(world, ranks, monkeypatch, capfd):
    """By one rank for all: they agree."""

    def program(group):
        with config.override(shared_memory=group.rank > 0):
            assert said_of(group, monkeypatch, capfd) == ""

    world.run(ranks, program)
