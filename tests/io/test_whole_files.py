"""New files take their names when they are whole, and are as Python's ``open`` makes them.

Every function that makes a file of a path, on several ranks as on one, below a mebibyte (rank 0
writes) and above (all do).
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray.io as io
from distarray import DeviceMesh, Shard, distribute
from distarray.config import config
from distarray.io import (
    atomic_file,
    contiguous,
    directories,
    leftovers,
    numpy_savez,
    output_files,
    text,
)
from tests.io.helpers import common

Save = Callable[[str, Any], None]

SAVES: dict[str, Save] = {
    ".npy": np.save,
    ".npz": lambda path, x: np.savez(path, x=x),
    "c.npz": lambda path, x: np.savez_compressed(path, x=x),
    ".txt": np.savetxt,
    ".raw": lambda path, x: x.tofile(path),
    ".words": lambda path, x: x.tofile(path, sep=" "),
    ".pickle": lambda path, x: x.dump(path),
    "w.npy": io.write,
    "w.npz": lambda path, x: io.write(path, {"x": x}),
    ".safetensors": lambda path, x: io.write(path, {"x": x}),
    ".h5": lambda path, x: io.write(path, {"x": x}),
    ".nc": lambda path, x: io.write(path, {"x": x}),
}
LIBRARIES = {".h5": "h5py", ".nc": "netCDF4"}
OLD, NEW = np.arange(60.0).reshape(20, 3), -np.arange(90.0).reshape(30, 3)


@pytest.fixture
def little(world: Any, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks write arrays of any size together."""
    if world.name == "threads" and ranks not in (1, 3):
        pytest.skip("thread ranks write as one or as several")
    for module in (contiguous, numpy_savez, output_files):
        monkeypatch.setattr(module, "ALONE", 0)
    monkeypatch.setattr(text, "_BATCH", 30)


def cut(group: Any, values: Any) -> Any:
    return distribute(values, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)


def entries(group: Any, directory: Path) -> list[str]:
    """Names in a directory, when all ranks are done."""
    group.barrier()
    return sorted(first(group, lambda: os.listdir(directory)))


def first(group: Any, act: Callable[[], Any]) -> Any:
    """Act on rank 0 while the others wait."""
    return group.broadcast_object(act() if group.rank == 0 else None, 0)


def told(group: Any, act: Callable[[], Any]) -> Any:
    """The error of a call, as (type, errno, name of the file); equal on all ranks."""
    found: Any = None
    try:
        act()
    except OSError as error:
        found = type(error).__name__, error.errno, error.filename
    everybody = group.allgather_object(found)
    assert len(set(everybody)) == 1, everybody
    return found


@pytest.mark.parametrize("suffix", SAVES)
@pytest.mark.usefixtures("little")
def test_failures_leave_the_old_file(
    world: Any, ranks: int, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank's bytes do not get to the disk, or the file does not get its name."""
    pytest.importorskip(LIBRARIES.get(suffix, "numpy"))
    failing, save = threading.Event(), SAVES[suffix]
    fsync = os.fsync

    def broken(descriptor: int) -> None:
        if failing.is_set() and stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    def program(group: Any) -> None:
        directory = common(group, tmp_path)
        path = str(directory / f"x{suffix}")
        save(path, cut(group, OLD))
        old = Path(path).read_bytes()
        group.barrier()
        failing.set()
        assert told(group, lambda: save(path, cut(group, NEW))) == ("OSError", errno.EIO, path)
        group.barrier()
        assert Path(path).read_bytes() == old
        assert entries(group, directory) == [f"x{suffix}"]
        with config.override(durable=False):
            save(path, cut(group, NEW))
        assert Path(path).read_bytes() != old
        group.barrier()
        failing.clear()

    monkeypatch.setattr(os, "fsync", broken)
    world.run(ranks, program)


@pytest.mark.parametrize("suffix", SAVES)
@pytest.mark.usefixtures("little")
def test_owner_rights_and_links(world: Any, ranks: int, tmp_path: Path, suffix: str) -> None:
    """A new file has the rights of one that is opened, a replaced one those that it had."""
    pytest.importorskip(LIBRARIES.get(suffix, "numpy"))
    save = SAVES[suffix]

    def program(group: Any) -> None:
        directory = common(group, tmp_path)
        path, other, link = (directory / f"{name}{suffix}" for name in ("x", "other", "link"))
        save(str(path), cut(group, OLD))
        plain = first(group, lambda: (directory / "plain").touch() or os.stat(directory / "plain"))
        group.barrier()
        assert path.stat().st_mode == plain.st_mode
        group.barrier()
        mine = (1234, 2345) if os.geteuid() == 0 else (plain.st_uid, plain.st_gid)
        first(group, lambda: (os.chown(path, *mine), path.chmod(0o640), link.symlink_to(path.name)))
        save(str(link), cut(group, NEW))
        found = path.stat()
        group.barrier()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o640, *mine)
        assert link.is_symlink()
        new = path.read_bytes()
        group.barrier()
        first(group, lambda: os.link(path, other))
        save(str(other), cut(group, OLD))
        assert path.samefile(other)
        assert path.read_bytes() == other.read_bytes() != new
        assert entries(group, directory) == sorted(["plain", path.name, other.name, link.name])

    world.run(ranks, program)


@pytest.mark.parametrize("suffix", SAVES)
@pytest.mark.usefixtures("little")
def test_what_cannot_be_written(world: Any, ranks: int, tmp_path: Path, suffix: str) -> None:
    """The errors are those of ``open``; a name of any length that the system takes is taken."""
    pytest.importorskip(LIBRARIES.get(suffix, "numpy"))
    save = SAVES[suffix]

    def program(group: Any) -> None:
        directory = common(group, tmp_path)
        longest = str(directory / ("ä" * 110 + "x" * (35 - len(suffix)) + suffix))
        save(longest, cut(group, OLD))
        save(longest, cut(group, NEW))
        assert entries(group, directory) == [os.path.basename(longest)]
        first(group, (directory / f"d{suffix}").mkdir)
        first(group, lambda: (directory / f"loop{suffix}").symlink_to(f"loop{suffix}"))
        for name, kind, number in (
            ("y" * (256 - len(suffix)) + suffix, "OSError", errno.ENAMETOOLONG),
            (f"no/x{suffix}", "FileNotFoundError", errno.ENOENT),
            (f"d{suffix}", "IsADirectoryError", errno.EISDIR),
            (f"loop{suffix}", "OSError", errno.ELOOP),
            (f"{os.path.basename(longest)}/x{suffix}", "NotADirectoryError", errno.ENOTDIR),
        ):
            path = str(directory / name)
            found = told(group, lambda path=path: save(path, cut(group, OLD)))
            assert found == (kind, number, path)

    world.run(ranks, program)


@pytest.mark.parametrize("suffix", [".npy", ".npz", "c.npz", ".txt", ".raw", ".safetensors"])
@pytest.mark.usefixtures("little")
def test_what_is_written_as_it_comes(world: Any, ranks: int, tmp_path: Path, suffix: str) -> None:
    """A FIFO gets the bytes that NumPy writes; a descriptor's file stays the same one."""
    save = SAVES[suffix]

    def program(group: Any) -> None:
        directory = common(group, tmp_path)
        plain, fifo = directory / f"plain{suffix}", directory / f"fifo{suffix}"
        save(str(plain), cut(group, NEW))
        first(group, lambda: os.mkfifo(fifo))
        read: list[bytes] = []
        reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
        if group.rank == 0:
            reader.start()
        save(str(fifo), cut(group, NEW))
        if group.rank == 0:
            reader.join(60)
            if not suffix.endswith(".npz"):  # zipfile marks members that it cannot go back to
                assert read[0] == plain.read_bytes()
            assert len(read[0]) >= plain.stat().st_size
            assert stat.S_ISFIFO(fifo.stat().st_mode)
        group.barrier()
        if suffix == ".raw":  # NumPy's other functions add an ending to the name
            held = (directory / "held").open("wb")
            before = os.fstat(held.fileno()).st_ino
            name = first(group, lambda: f"/proc/{os.getpid()}/fd/{held.fileno()}")
            group.barrier()
            save(name, cut(group, NEW))
            assert os.stat(directory / "held").st_ino == before
            assert (directory / "held").read_bytes() == plain.read_bytes()
            group.barrier()
            held.close()

    world.run(ranks, program)


@pytest.mark.usefixtures("little")
def test_each_rank_its_own_file(world: Any, ranks: int, tmp_path: Path) -> None:
    """Where ranks hand over different paths none is replaced unless all can be."""

    def program(group: Any) -> None:
        directory = common(group, tmp_path)
        own = directory / f"{group.rank}.npy"
        np.save(own, cut(group, OLD))
        last = group.rank == group.size - 1
        path = directory / "no" / "x.npy" if last else own
        found = told(group, lambda: np.save(path, cut(group, NEW)))
        assert found[:2] == ("FileNotFoundError", errno.ENOENT)
        assert np.load(own).tolist() == OLD.tolist()
        np.save(own, cut(group, NEW))
        assert np.load(own).tolist() == NEW.tolist()
        assert entries(group, directory) == [f"{rank}.npy" for rank in range(group.size)]

    world.run(ranks, program)


@pytest.mark.usefixtures("little")
def test_a_directory_that_vanishes(
    world: Any, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the file is written: its name in the error is the one that the caller knows."""
    plain = atomic_file.finish

    def finish(place: Any) -> None:
        shutil.move(os.path.dirname(place.target), os.path.dirname(place.target) + "-gone")
        plain(place)

    def program(group: Any) -> None:
        place = common(group, tmp_path) / "runs"
        first(group, place.mkdir)
        path = str(place / "x.npy")
        found = told(group, lambda: np.save(path, cut(group, OLD)))
        assert found == ("FileNotFoundError", errno.ENOENT, path)

    monkeypatch.setattr(atomic_file, "finish", finish)
    monkeypatch.setattr(output_files, "finish", finish)
    world.run(ranks, program)


def test_compressed_text_is_numpys(world: Any, ranks: int, tmp_path: Path) -> None:
    """The name aside does not get into the file, and does not choose how it is compressed."""
    opens = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".lzma": lzma.open}

    def program(group: Any) -> None:
        directory = common(group, tmp_path)
        for ending, opener in opens.items():
            path = directory / f"x.txt{ending}"
            np.savetxt(path, cut(group, OLD), header="ä", encoding="utf-8")
            wanted = directory / f"{group.rank}.txt"
            np.savetxt(wanted, OLD, header="ä", encoding="utf-8")
            with opener(path) as file:
                assert file.read() == wanted.read_bytes()
        assert b"x.txt\x00" in (directory / "x.txt.gz").read_bytes()[:20]

    world.run(ranks, program)


def test_the_next_save_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    program = (
        "import os, sys, numpy as np, distarray as da\n"
        "os.replace = lambda *names: os._exit(9)\n"
        "np.save(sys.argv[1], da.distribute(np.zeros(9)))\n"
    )
    path = tmp_path / "x.npy"
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
        assert run.returncode == 9
        names = os.listdir(tmp_path)
        assert len(names) == 1
        assert leftovers.leftovers(tmp_path)[0].of == "x.npy"
    np.save(path, distribute(OLD))
    assert os.listdir(tmp_path) == ["x.npy"]


def test_large_directories_are_looked_through_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    monkeypatch.setattr(directories, "tidy", looked.append)
    for many, count in ((1, 3), (100, 6)):  # two saves before there are two entries, one after
        monkeypatch.setattr(directories, "_MANY", many)
        place = tmp_path / str(many)
        place.mkdir()
        looked.clear()
        for number in range(6):
            np.save(place / f"{number}.npy", distribute(OLD))
        assert looked == [place] * count


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another owner's file")
def test_an_owner_that_cannot_be_given_away() -> None:
    """The file gets the content and stays what it is; so it does where none can be made beside."""
    program = (
        "import os, sys, numpy as np, distarray as da\n"
        "np.save(sys.argv[1] + '.npy', da.distribute(np.arange(4.0)))\n"  # loads all it needs
        "os.remove(sys.argv[1] + '.npy')\n"
        "os.setgroups([77]), os.setgid(77), os.setuid(77)\n"
        "np.save(sys.argv[1], da.distribute(np.arange(4.0)))\n"
    )
    for mode in (0o777, 0o755):
        place = Path(tempfile.mkdtemp())  # above pytest's directories, which others may not enter
        place.chmod(mode)
        path = place / "x.npy"
        np.save(path, OLD)
        path.chmod(0o666)
        before = path.stat()
        run = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, timeout=60, check=False
        )
        assert run.returncode == 0, run.stderr
        found = path.stat()
        assert (found.st_ino, found.st_uid, found.st_mode) == (
            before.st_ino, before.st_uid, before.st_mode,
        )  # fmt: skip
        assert np.load(path).tolist() == [0.0, 1.0, 2.0, 3.0]
        assert os.listdir(place) == ["x.npy"]
        shutil.rmtree(place)
