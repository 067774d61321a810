"""Files that are overwritten while they are open: the old values or an error, never a mixture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray.io as io
from distarray import DeviceMesh, Shard, distribute
from distarray.testing import assert_matches

OLD = np.arange(12.0).reshape(4, 3)
NEWER = {"alike": -OLD, "other": np.arange(7, dtype="i2")}
LIBRARIES = {".h5": "h5py", ".nc": "netCDF4", ".zarr": "zarr"}


@pytest.mark.parametrize("new", NEWER.values(), ids=NEWER.keys())
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", *LIBRARIES])
def test_an_open_file_that_is_replaced(world: Any, shared: Path, suffix: str, new: Any) -> None:
    pytest.importorskip(LIBRARIES.get(suffix, "numpy"))
    path = shared / f"x{suffix}"

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))

        def write(values: Any) -> None:
            x = distribute(values, mesh, [Shard(0)], src=None)
            io.write(path, x if suffix == ".npy" else {"x": x})

        write(OLD)
        opened = io.open(path, mesh=mesh)
        with opened:
            variable = opened if isinstance(opened, io.Variable) else opened["x"]
            assert_matches(variable[1:3], OLD[1:3])
            write(new)
            if suffix == ".zarr":  # a directory, whose chunks are read by their names
                with pytest.raises(OSError, match=r"x\.zarr has been replaced"):
                    variable.read()
            else:
                assert_matches(variable[...], OLD)
        found = io.read(path, mesh=mesh)
        assert_matches(found if suffix == ".npy" else found["x"], new)

    world.run(world.ranks[-1], program)


def test_an_open_file_that_is_written_over(world: Any, shared: Path) -> None:
    path = shared / "x.npy"

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        if mesh.rank == 0:
            np.save(path, OLD)
        group.barrier()
        with io.open(path, mesh=mesh) as variable:
            group.barrier()
            if mesh.rank == 0:
                np.save(path, OLD.astype("i8").T)
            group.barrier()
            with pytest.raises(OSError, match=r"x\.npy has been replaced or changed"):
                variable.read()

    world.run(world.ranks[-1], program)
