"""Saves that are to fail, in every format: the program of :mod:`tests.faults.files`.

``python saving.py full [FORMAT ...]`` saves more than the disk has room for,
``broken CALLS ERRNO RANK SKIP [FORMAT ...]`` while calls fail (``failing_calls.c``),
``killed VICTIM SECONDS FIRST`` until a rank, or with -1 all, is killed. Of the first two the old
file must remain.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import distarray as da
import distarray.io as io
from distarray import Shard


class Format(NamedTuple):
    """How a file is saved and read: `save(path, array)`, `read(path) -> numpy.ndarray`."""

    save: Callable[[str, Any], object]
    read: Callable[[str], Any]


def _stored(path: str) -> Any:
    return io.read(path, "x").full()


def _lines(path: str) -> Any:
    return np.loadtxt(path, ndmin=1)


FORMATS = {
    "a.npy": Format(np.save, np.load),
    "a.npz": Format(lambda path, x: np.savez(path, x=x), lambda path: np.load(path)["x"]),
    "c.npz": Format(
        lambda path, x: np.savez_compressed(path, x=x), lambda path: np.load(path)["x"]
    ),
    "a.txt": Format(lambda path, x: np.savetxt(path, x[: x.size // 4]), _lines),
    "a.txt.gz": Format(lambda path, x: np.savetxt(path, x[: x.size // 4]), _lines),
    "a.raw": Format(lambda path, x: x.tofile(path), np.fromfile),
    "a.words": Format(
        lambda path, x: x[: x.size // 4].tofile(path, sep=" "),
        lambda path: np.fromfile(path, sep=" "),
    ),
    "a.pickle": Format(
        lambda path, x: x.dump(path), lambda path: pickle.loads(Path(path).read_bytes())
    ),
    "w.npy": Format(io.write, np.load),
    "w.npz": Format(lambda path, x: io.write(path, {"x": x}), lambda path: np.load(path)["x"]),
    "a.safetensors": Format(lambda path, x: io.write(path, {"x": x}), _stored),
    "a.h5": Format(lambda path, x: io.write(path, {"x": x}), _stored),
    "a.nc": Format(lambda path, x: io.write(path, {"x": x}), _stored),
    "a.zarr": Format(lambda path, x: io.write(path, {"x": x}), _stored),
}
#: Elements of an array that all ranks write together.
MANY = 300_000
#: What text holds of it.
SHARE = {"a.txt": 4, "a.txt.gz": 4, "a.words": 4}


def made(number: int, size: int = MANY) -> Any:
    """An array, all of whose elements are a number; of no number they can hardly be compressed."""
    mesh = da.default_mesh()
    values = np.full(size, float(number)) if number else np.random.default_rng(0).random(size)
    return da.distribute(values, mesh, [Shard(0)], src=None)


def number_in(directory: Path, name: str, size: int = MANY) -> int | None:
    """The number that a whole file consists of; None if there is no file."""
    path = str(directory / name)
    if not os.path.exists(path):
        return None
    found = FORMATS[name].read(path)
    assert found.shape == (size // SHARE.get(name, 1),), f"{name} has shape {found.shape}"
    assert (found == found[0]).all(), f"{name} mixes {np.unique(found)[:5]}"
    return int(found[0])


def _tried(name: str, x: Any) -> str:
    """What a save says, on all ranks alike."""
    said = "saved"
    try:
        FORMATS[name].save(name, x)
    except OSError as error:
        known = error.filename is None or os.path.basename(error.filename).startswith(name)
        said = f"{errno.errorcode.get(error.errno or 0, 'OSError')}{'' if known else ' elsewhere'}"
    gc.collect()
    told = x.mesh.group.allgather_object(said)
    assert len(set(told)) == 1, f"{name}: {told}"
    return told[0]


def failing(
    names: list[str],
    wanted: list[str],
    arm: Callable[[bool], None],
    size: int,
    may_succeed: bool = False,
) -> None:
    """Save, save twice while something fails, and look at what is there."""
    mesh = da.default_mesh()
    for name in names or list(FORMATS):
        FORMATS[name].save(name, made(1, 50_000))
        mesh.group.barrier()
        arm(True)
        said = [_tried(name, made(0, size)) for _ in range(2)]
        arm(False)
        mesh.group.barrier()
        if "saved" in said and may_succeed:
            found = FORMATS[name].read(name).shape
            assert found == (size // SHARE.get(name, 1),), f"{name}: {said}, now {found}"
        else:
            found = number_in(Path(), name, 50_000)
            assert found == 1, f"{name}: {said}, now {found}"
            assert set(said) <= {*wanted, "OSError"}, f"{name}: {said}, not {wanted}"
        left = [entry for entry in os.listdir() if entry.startswith(".")]
        assert not left, f"{name}: {left}"
        mesh.group.barrier()
        if mesh.rank == 0:
            os.system(f"rm -r {name}")
        mesh.group.barrier()


def broken(calls: str, number: int, rank: str, skip: str, names: list[str]) -> None:
    """Save while calls fail."""
    libc = ctypes.CDLL(None)
    settings = {
        "FAULT_ERRNO": str(number), "FAULT_RANK": rank, "FAULT_SKIP": skip, "FAULT_PATH": "partial",
        "FAULT_CALLS": calls,
    }  # fmt: skip

    def arm(on: bool) -> None:
        for key, value in settings.items():
            if on:
                libc.setenv(key.encode(), value.encode(), 1)
            else:
                libc.unsetenv(key.encode())

    failing(names, [errno.errorcode[number]], arm, MANY, int(skip) > 0)


def killed(victim: int, seconds: float, first: int) -> None:
    """Save in every format, over and over, until a rank is killed."""
    mesh = da.default_mesh()
    for number in range(first, first + 1000):
        x = made(number)
        for name in FORMATS:
            FORMATS[name].save(name, x)
            if mesh.rank == 0:
                print("saved", name, number, flush=True)
            if number == first and name == "a.npy" and victim in (mesh.rank, -1):
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def main() -> None:
    """Run what the arguments name."""
    how, *words = sys.argv[1:]
    if how == "full":
        failing(words, ["ENOSPC"], lambda _: None, 12 * MANY)
    elif how == "broken":
        broken(words[0], int(words[1]), words[2], words[3], words[4:])
    else:
        killed(int(words[0]), float(words[1]), int(words[2]))
    if da.default_mesh().rank == 0:
        print("held")


if __name__ == "__main__":
    main()
