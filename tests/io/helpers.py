"""Helpers of the tests of files: small limits, values, meshes, placements."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distarray import DeviceMesh, Replicate, Shard
from distarray.comm import files
from distarray.io import (
    chunk_grids,
    contiguous,
    contiguous_reading,
    flushing,
    numpy_savez,
    output_files,
    text,
    text_lines,
)


@pytest.fixture
def tiny(monkeypatch):
    """Limits so low that a few elements take the paths of large arrays."""
    for module in (output_files, contiguous_reading, numpy_savez):
        monkeypatch.setattr(module, "ALONE", 0)
    monkeypatch.setattr(files, "_WORTH", 0)
    monkeypatch.setattr(contiguous, "_ROUND", 96)
    monkeypatch.setattr(contiguous, "_RUN", 160)
    monkeypatch.setattr(contiguous, "STRETCH", 128)
    monkeypatch.setattr(contiguous_reading, "_PIECE", 64)
    monkeypatch.setattr(text, "_BATCH", 5)
    monkeypatch.setattr(text_lines, "_WORTH", 1)


def hidden(directory: Path) -> list[str]:
    """Names of unfinished stores that are left in a directory."""
    return [name for name in os.listdir(directory) if name.startswith(".")]


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut tiny arrays into several files of several chunks; fsync does not wait."""
    monkeypatch.setattr(chunk_grids, "CHUNK", 256)
    monkeypatch.setattr(chunk_grids, "LEAST", 64)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(flushing, "_sync_system", lambda handle: None)


def common(group: Any, tmp_path: Path) -> Path:
    """One directory for all ranks."""
    return Path(group.broadcast_object(str(tmp_path), 0))


def meshes(group: Any) -> list[DeviceMesh]:
    """A mesh in one dimension, and one in two if there are ranks for it; under MPI the last."""
    shapes = [(group.size,)] + ([(2, group.size // 2)] if group.size % 2 == 0 else [])
    under_mpi = hasattr(group, "comm")
    return [DeviceMesh(group, shape) for shape in shapes[-1 if under_mpi else 0 :]]


def chosen(world: Any, name: str, *names: str) -> None:
    """Skip a row of a table under MPI, except those that differ from thread ranks."""
    if world.name == "mpi" and name not in names:
        pytest.skip("this row is tested on thread ranks alone")


def placements(mesh: DeviceMesh, ndim: int) -> list[list[Any]]:
    """Placements that are as different as possible."""
    kinds: list[Any] = [Replicate(), *[Shard(dim) for dim in range(ndim)]]
    if mesh.ndim == 1:
        return [[kind] for kind in kinds]
    return [[kind, kinds[-1]] for kind in kinds] + [[kinds[-1], Replicate()]]


def reference(group: Any, path: Path, write: Any) -> bytes:
    """The bytes of the file that NumPy writes, on every rank."""
    if group.rank == 0:
        write(path)
    group.barrier()
    return path.read_bytes()


def content(group: Any, path: Path) -> bytes:
    """A file's bytes; no rank writes it again before all have read it."""
    found = path.read_bytes()
    group.barrier()
    return found


RNG = np.random.default_rng(7)
VALUES: dict[str, np.ndarray] = {
    "matrix": RNG.random((13, 9)),
    "line": np.arange(31, dtype=">i2"),
    "deep": RNG.integers(0, 99, (2, 3, 17)),
    "few rows": RNG.random((2, 60)),
    "cell": np.array(2.5),
    "nothing": np.empty((0, 3), np.float32),
    "complex": RNG.random((5, 5)) * (1 + 2j),
    "dates": np.array(["2020-02-29", "NaT"], "M8[D]"),
    "records": np.array(
        [(1, 2.5, b"x"), (3, 4.5, b"yz")], [("a", "<i4"), ("b", "f8"), ("c", "S3")]
    ),
    "text": np.array(["a", "beta", "\u00e9"]),
    "bools": np.arange(40).reshape(4, 10) % 3 == 0,
}


def raised(act):
    """Type and text of the error that a call raises."""
    try:
        act()
    except Exception as error:
        return type(error), str(error)
    return None
