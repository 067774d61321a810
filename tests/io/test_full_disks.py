"""Disks that are full, and files that may not grow: one error, the old file, and no crash."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distarray.io.deferred_errors import ErrorDeferringFile
from tests.io.jobs import ROOT

for module in ("h5py", "netCDF4", "zarr", "google_crc32c"):
    pytest.importorskip(module)

PROGRAM = r"""
import gc, os, resource, signal, sys
import numpy as np
import distarray as da, distarray.io as io
from distarray import DeviceMesh, Shard, checkpoint
from distarray.comm import run_threads
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def write(how, x):
    if how == "checkpoint": checkpoint.save("x." + how, {"x": x})
    elif how == "behind": checkpoint.save("x." + how, {"x": x}, asynchronous=True).wait()
    elif how == "save": np.save("x.npy", x)
    elif how == "savez": np.savez("x.npz", x)
    elif how == "savetxt": np.savetxt("x.txt", x)
    elif how == "tofile": x.tofile("x.raw")
    else: io.write(f"new.{how}", x if how == "npy" else {"x": x, "y": x[:10]})
def program(group):
    mesh = DeviceMesh(group, (group.size,))
    rng = np.random.default_rng(3)
    few = da.distribute(rng.random((20, 50)), mesh, [Shard(0)], src=None)
    many = da.distribute(rng.random((4000, 50)), mesh, [Shard(1)], src=None)
    for how in sys.argv[1:]:
        if how not in ("save", "savez", "savetxt", "tofile"):
            write(how, few)
        group.barrier()
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, -1))
        group.barrier()
        for turn in range(2):
            try:
                write(how, many)
                said = "written"
            except OSError as error:
                said = f"{error.errno} {os.path.basename(str(error.filename))}"
                if "NetCDF: HDF error: new.nc could not be written" in str(error):
                    said = "27 new.nc"  # its library has no numbers of errors
            told = group.allgather_object(said)
            if group.rank == 0:
                print(how, *set(told), flush=True)
            gc.collect()
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        group.barrier()
        if how in ("checkpoint", "behind"):
            assert checkpoint.load("x." + how, mesh=mesh)["x"].shape == (20, 50)
        elif how not in ("save", "savez", "savetxt", "tofile", "npy"):
            assert io.read(f"new.{how}", "x", mesh=mesh).shape == (20, 50)
for ranks in (1, 3):
    run_threads(ranks, program)
assert not [name for name in os.listdir(".") if name.startswith(".")]
print("the end")
"""
NAMES = {
    "h5": "new.h5", "nc": "new.nc", "zarr": "new.zarr", "npz": "new.npz", "npy": "new.npy",
    "safetensors": "new.safetensors", "checkpoint": "x.checkpoint", "behind": "x.behind",
    "save": "x.npy", "savez": "x.npz", "savetxt": "x.txt", "tofile": "x.raw",
}  # fmt: skip


@pytest.mark.usefixtures("own_processes")
def test_one_error_and_the_old_file(tmp_path: Path) -> None:
    """On any number of ranks. HDF5 would crash when its objects are freed."""
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, *NAMES],
        cwd=tmp_path, capture_output=True, text=True, timeout=170,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    wanted = [f"{how} {errno.EFBIG} {name}" for how, name in NAMES.items() for _ in range(2)]
    assert run.stdout.splitlines() == [*wanted, *wanted, "the end"]


def test_a_file_that_takes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the library's own records can still be read back."""
    file = ErrorDeferringFile(str(tmp_path / "x"), "shown")
    assert (file.write(b"abcdef"), file.tell(), file.seek(0, os.SEEK_END)) == (6, 6, 6)

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        file.seek(4)
        assert file.write(b"gh") == 2
    assert file.write(b"i" * (1 << 21)) == 1 << 21
    assert file.truncate(10) == 10
    file.seek(-10, os.SEEK_END)
    assert file.read(6) == b"abcdgh"[:4] + b"ef"
    file.seek(4)
    buffer = bytearray(2)
    assert file.readinto(buffer) == 2
    assert bytes(buffer) == b"gh"
    file.flush()
    file.close()
    with pytest.raises(OSError, match="No space left on device: 'shown'"):
        file.check()
    assert (tmp_path / "x").read_bytes() == b"abcdef"
    ErrorDeferringFile(str(tmp_path / "x"), "shown").close()
    assert (tmp_path / "x").read_bytes() == b""
