"""Ranks that do not make the same call: an error on all of them that names the difference, or no
difference at all where it is only the order of a dictionary."""

from __future__ import annotations

import io as standard
import os
from pathlib import Path
from typing import Any

import numpy
import pytest

import distarray as da
import distarray.io as io
import distarray.numpy as np
from distarray import DeviceMesh, DistArray, Replicate, Shard, checkpoint
from distarray.comm.alike import Said, same_call
from distarray.errors import ArgumentsDiffer
from tests.io.helpers import cut_small, tiny

__all__ = ["tiny"]

FORMATS = ("h5", "nc", "zarr", "npz", "safetensors")
NAMES = ("alpha", "beta", "gamma")
for module in ("h5py", "netCDF4", "zarr", "google_crc32c"):
    pytest.importorskip(module)


def several(world: Any) -> int:
    if world.ranks[-1] == 1:
        pytest.skip("one rank alone agrees with itself")
    return int(world.ranks[-1])


def fields(mesh: DeviceMesh) -> dict[str, DistArray]:
    """Arrays by name, in an order of each rank's own: as a set of names gives them."""
    values = {name: numpy.arange(50.0) + 1000 * at for at, name in enumerate(NAMES)}
    values["beta"] = values["beta"].reshape(5, 10)
    turn = mesh.rank % 3
    order = [*NAMES[turn:], *NAMES[:turn]]
    return {name: da.distribute(values[name], mesh, [Shard(0)], src=None) for name in order}


@pytest.mark.parametrize("how", [*FORMATS, "savez", "savez_compressed", "checkpoint", "behind"])
def test_dictionaries_have_any_order(world: Any, ranks: int, how: str, shared: Path, tiny) -> None:
    path = shared / f"{how}-{ranks}.{how if how in FORMATS else 'npz'}"

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        made = fields(mesh)
        if how in FORMATS:
            io.write(path, made)
            found = io.read(path, list(made), mesh=mesh)  # in this rank's order, too
        elif how.startswith("savez"):
            getattr(numpy, how)(path, **made)
            found = io.read(path, mesh=mesh)
        else:
            state = {"sum": made["alpha"].sum(), "inner": made, **{n: n for n in made}}
            checkpoint.save(path, state, asynchronous=how == "behind").wait()
            found = checkpoint.load(path, mesh=mesh)["inner"]
        assert set(found) == set(NAMES)
        names = [name for name, _ in sorted(found.items())]
        for name, x in [(name, found[name]) for name in names]:
            numpy.testing.assert_array_equal(x.full(), made[name].full())

    world.run(ranks, program)


def written(directory: Path, mesh: DeviceMesh) -> None:
    """Files that all ranks go on to read."""
    x = {"x": da.distribute(numpy.arange(300.0), mesh, [Shard(0)], src=None)}
    x["y"] = da.distribute(numpy.arange(200.0), mesh, [Shard(0)], src=None)
    io.write(directory / "both.h5", x)
    numpy.savez(directory / "both.npz", **x)
    np.save(directory / "x.npy", x["x"])
    np.save(directory / "z.npy", -x["x"])
    numpy.savez(directory / "none.npz", x=-x["x"], y=x["y"])
    np.savetxt(directory / "x.txt", x["x"])
    checkpoint.save(directory / "run", x, step=1)
    checkpoint.save(directory / "other", x, step=2)


def opened(path: Path, name: str, key: Any = ...) -> DistArray:
    with io.open(path) as file:
        return file[name].read(key)


def loaded(path: Path, name: str) -> DistArray:
    with np.load(path) as archive:
        return archive[name]


#: ``act(d, mesh, one, x, y)``: what all ranks do in a directory, `one` of them otherwise than the
#: others; x and y are arrays of different lengths. With words of the error.
CASES: dict[str, tuple[Any, str]] = {
    f"write {end}, {what}": (
        lambda d, one, x, y, w, end=end, other=other: io.write(
            d / f"new.{end}", {"a": x, **(other(x, y, w) if one else {"b": x})}
        ),
        words,
    )
    for end in FORMATS
    for what, other, words in (
        ("shape", lambda x, y, w: {"b": y}, r"'b' float64 Layout\(\(300,\)(.|\n)*\(200,\)"),
        ("dtype", lambda x, y, w: {"b": x.astype("f4")}, "rank 1  'b' float32"),
        ("layout", lambda x, y, w: {"b": w}, "Replicate"),
        ("name", lambda x, y, w: {"c": x}, "rank 1  no 'b'"),
        ("number", lambda x, y, w: {"b": x, "n": 1}, "rank 1  'n' int64"),
    )
}
CASES |= {
    "write, values": (
        lambda d, one, x, y, w: io.write(d / "new.npz", {"a": x, "n": numpy.full(3, one)}),
        "rank 1  'n' bool .* CRC-32",
    ),
    "write, attributes": (
        lambda d, one, x, y, w: io.write(d / "new.h5", {"a": x}, attrs={"n": one}),
        r"attrs on rank 1 differs(.|\n)*rank 1  \{'n': True\}",
    ),
    "write, path": (
        lambda d, one, x, y, w: io.write(d / f"new{one}.npy", x),
        "the ranks name different files",
    ),
    "write, format": (
        lambda d, one, x, y, w: io.write(d / "new", {"a": x}, format="npz" if one else "h5"),
        "format on rank 1",
    ),
    "write, wrong on one": (
        lambda d, one, x, y, w: io.write(d / "new.npz", {"a": x, "b" if one else 3: x}),
        "names of arrays are str",
    ),
    "save": (lambda d, one, x, y, w: np.save(d / "new", y if one else x), r"\(300,\)"),
    "save, kind": (
        lambda d, one, x, y, w: np.save(standard.BytesIO() if one else d / "new", x),
        "rank 1  an open file",
    ),
    "save, none": (lambda d, one, x, y, w: np.save(None if one else d / "new", x), "not NoneType"),
    "savez": (
        lambda d, one, x, y, w: np.savez(d / "new", **{"a": x, "bc"[one]: y}),
        "rank 1  no 'b'",
    ),
    "savez_compressed": (
        lambda d, one, x, y, w: np.savez_compressed(d / "new", x, *([y] * one)),
        "no 'arr_1'",
    ),
    "savetxt": (
        lambda d, one, x, y, w: np.savetxt(d / "new", x, fmt="%d" if one else "%f"),
        "fmt on rank 1",
    ),
    "savetxt, dimensions": (
        lambda d, one, x, y, w: np.savetxt(d / "new", w[None, None] if one else x),
        "Expected 1D or 2D array, got 3D",
    ),
    "tofile": (lambda d, one, x, y, w: x.tofile(d / "new", sep="," * one), "sep on rank 1"),
    "read, name": (
        lambda d, one, x, y, w: io.read(d / "both.h5", "xy"[one]),
        "'x' wanted(.|\n)*rank 1  no 'x'",
    ),
    "read, names": (
        lambda d, one, x, y, w: io.read(d / "both.h5", ["x"] if one else ["x", "y"]),
        "rank 1  no 'y'",
    ),
    "read, all": (
        lambda d, one, x, y, w: io.read(d / "both.h5", ["x", "y"] if one else None),
        "names on rank 1",
    ),
    "read, key": (
        lambda d, one, x, y, w: io.read(d / "both.h5", "x", key=slice(5 + one)),
        "key on rank 1",
    ),
    "read, placements": (
        lambda d, one, x, y, w: io.read(
            d / "both.h5", "x", placements=lambda n, s: [Shard(0)] if one else [Replicate()]
        ),
        r"read different arrays or parts(.|\n)*rank 1  .*Shard\(0\)",
    ),
    "open, path": (
        lambda d, one, x, y, w: io.open(d / ("both.h5" if one else "x.npy")),
        "the ranks name different files",
    ),
    "open, missing on one": (
        lambda d, one, x, y, w: io.open(7 if one else d / "x.npy"),
        "not int",
    ),
    "variable": (
        lambda d, one, x, y, w: opened(d / "both.h5", "xy"[one]),
        "read different arrays or parts",
    ),
    "variable, key": (
        lambda d, one, x, y, w: opened(d / "both.h5", "x", slice(5) if one else ...),
        r"rank 1  'x' of .*slice\(None, 5, None\)",
    ),
    "variable, wrong key": (
        lambda d, one, x, y, w: opened(d / "both.h5", "x", [1, 2] if one else ...),
        "read by slices and integers",
    ),
    "archive": (
        lambda d, one, x, y, w: np.load(d / "both.npz")["xy"[one]],
        r"rank 1  'y\.npy'",
    ),
    "archive, wrong name": (
        lambda d, one, x, y, w: np.load(d / "both.npz")["xq"[one]],
        "q is not a file in the archive",
    ),
    "load, files": (
        lambda d, one, x, y, w: np.load(d / ("z.npy" if one else "x.npy")),
        "the ranks read different values",
    ),
    "load, open files": (
        lambda d, one, x, y, w: np.load(
            standard.BytesIO((d / ("z.npy" if one else "x.npy")).read_bytes())
        ),
        r"different values(.|\n)*rank 1  float64 \(300,\), CRC-32",
    ),
    "load, archives": (
        lambda d, one, x, y, w: loaded(d / ("none.npz" if one else "both.npz"), "x"),
        "the ranks read different values",
    ),
    "load, placements": (
        lambda d, one, x, y, w: np.load(d / "x.npy", placements=[Shard(0)] if one else None),
        "placements on rank 1",
    ),
    "load, mapped": (
        lambda d, one, x, y, w: np.load(d / "x.npy", mmap_mode="r" if one else None),
        "mmap_mode on rank 1",
    ),
    "memmap": (
        lambda d, one, x, y, w: np.memmap(d / "x.npy", "f4" if one else "f8", "r"),
        "dtype float32",
    ),
    "fromfile": (
        lambda d, one, x, y, w: np.fromfile(d / "x.npy", "f8", sep="," * one),
        "sep on rank 1",
    ),
    "loadtxt": (
        lambda d, one, x, y, w: np.loadtxt(d / "x.txt", skiprows=int(one)),
        "skiprows on rank 1",
    ),
    "loadtxt, lines": (
        lambda d, one, x, y, w: np.loadtxt(["1 2"] * (1 + one)),
        "the ranks read different values",
    ),
    "checkpoint, path": (
        lambda d, one, x, y, w: checkpoint.save(d / f"new{one}", {"x": x}),
        "checkpoint.save: path on rank 1 differs",
    ),
    "checkpoint, step": (
        lambda d, one, x, y, w: checkpoint.save(d / "new", {"x": x}, step=5 + one),
        r"step on rank 1 differs(.|\n)*  5\n    rank 1  6",
    ),
    "checkpoint, keep": (
        lambda d, one, x, y, w: checkpoint.save(d / "new", {"x": x}, step=5, keep=1 + one),
        "keep on rank 1",
    ),
    "checkpoint, asynchronous": (
        lambda d, one, x, y, w: checkpoint.save(d / "new", {"x": x}, asynchronous=one),
        "asynchronous on rank 1",
    ),
    "checkpoint, wrong on one": (
        lambda d, one, x, y, w: checkpoint.save(d / "new", {"x": x}, step=5, keep=1 - one),
        "keep at least one checkpoint, not 0",
    ),
    "checkpoint, layout": (
        lambda d, one, x, y, w: checkpoint.save(d / "new", {"x": w if one else x}),
        "the structure, numbers or layouts of the state on rank 1 differ from those on rank 0",
    ),
    "checkpoint, load": (
        lambda d, one, x, y, w: checkpoint.load(d / ("other" if one else "run")),
        "rank 1  checkpoint.load: .*other",
    ),
    "checkpoint, load step": (
        lambda d, one, x, y, w: checkpoint.load(d / "run", step=None if one else 1),
        "rank 1  checkpoint.load: .*step=None",
    ),
    "checkpoint, latest": (
        lambda d, one, x, y, w: checkpoint.latest(d / ("other" if one else "run")),
        "rank 1  checkpoint.latest: .*other",
    ),
    "checkpoint, steps": (
        lambda d, one, x, y, w: checkpoint.steps(d / ("other" if one else "run")),
        "rank 1  checkpoint.steps: .*other",
    ),
    "checkpoint, verify": (
        lambda d, one, x, y, w: checkpoint.verify(d / ("other" if one else "run")),
        "rank 1  checkpoint.verify: .*other",
    ),
}


def test_what_differs_is_named_on_all_ranks(
    world: Any, shared: Path, monkeypatch: pytest.MonkeyPatch, tiny
) -> None:
    """And nothing is written, read or waited for."""
    cut_small(monkeypatch)
    n = several(world)

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (n,))
        written(shared, mesh)
        names = sorted(os.listdir(shared))
        x = da.distribute(numpy.arange(300.0), mesh, [Shard(0)], src=None)
        y = da.distribute(numpy.arange(200.0), mesh, [Shard(0)], src=None)
        w = x.redistribute(placements=[Replicate()])
        for case, (act, words) in CASES.items():
            with mesh, pytest.raises((ArgumentsDiffer, TypeError, ValueError, LookupError)) as got:
                act(shared, group.rank == 1, x, y, w)
            assert got.match(words), case
            told = group.allgather_object((type(got.value).__name__, str(got.value)))
            assert len(set(told)) == 1, (case, told)
            assert sorted(os.listdir(shared)) == names, case

    world.run(n, program)


def test_what_is_said_alike(world: Any, ranks: int) -> None:
    """Long texts are shown where they differ; errors come before differences."""

    def program(group: Any) -> None:
        odd = group.rank == group.size - 1 > 0
        assert same_call(group, "f", [Said("w", "t")], {"b": "1", "a": "2"}).order == ["b", "a"]
        assert same_call(group, "f", [], own=str(odd)).one == (group.size == 1)
        if group.size == 1:
            return
        text = f"{'x' * 900}{int(odd)}xxx"
        with pytest.raises(ArgumentsDiffer, match=r"\n    rank \d+  \.\.\.x*1xxx\n  a cure$"):
            same_call(group, "f", [Said("what on {rank}", text, "a cure")])
        with pytest.raises(ArgumentsDiffer, match=r"f: only on one:(.|\n)*nothing"):
            same_call(group, "f", [Said("only on one", "x")] * odd)
        with pytest.raises(KeyError, match="mine"):
            same_call(group, "f", [Said("w", str(odd))], error=KeyError("mine") if odd else None)

    world.run(ranks, program)
