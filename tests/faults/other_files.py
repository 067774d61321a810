"""Files that lead to other files, and pipes where files are expected."""

from __future__ import annotations

from tests.faults.planting import Fault, Scene, Unavailable

MAKE = r"""
import os, shutil, h5py, netCDF4, zarr, numpy as np
open("secret", "wb").write(b"root:x:0:0:secret" * 4)
os.mkfifo("pipe")
with h5py.File("raw.h5", "w") as f:
    f.create_dataset("hidden", (64,), "u1", external=[("./secret", 0, 64)])
    layout = h5py.VirtualLayout((64,), "u1")
    layout[:] = h5py.VirtualSource(".", "hidden", (64,))
    f.create_virtual_dataset("v", layout)
shutil.copy("raw.h5", "raw.nc")
with h5py.File("links.h5", "w") as f:
    f["good"] = np.arange(3)
    f["g"], f["s"] = h5py.ExternalLink("./pipe", "/"), h5py.SoftLink("/g/x")
shutil.copy("links.h5", "links.nc")
g = zarr.create_group("links.zarr")
g.create_array("x", data=np.arange(3))
os.unlink("links.zarr/x/c/0")
os.symlink("../../../pipe", "links.zarr/x/c/0")
"""
READ = r"""
import distarray as da, distarray.io as io, distarray.numpy as np
for name, format in (
    ("raw.h5", None), ("raw.nc", None), ("links.h5", None), ("links.nc", None),
    ("links.zarr", None),
    ("pipe", "npy"), ("pipe", "npz"), ("pipe", "hdf5"), ("pipe", "netcdf"), ("pipe", "zarr"),
    ("pipe", "safetensors"), ("pipe", np.load), ("pipe", np.fromfile), ("/dev/zero", "npy"),
):
    try:
        print("LEAK", format(name) if callable(format) else io.read(name, format=format))
    except (ValueError, OSError, KeyError) as error:
        assert any(w in str(error) for w in ("external=True", " is a pipe", " is a device")), error
print("refused all", io.read("links.h5", "good").full().tolist(), flush=True)
"""


def _refused(scene: Scene) -> None:
    """Every rank refuses all at once, and reads what is left."""
    for library in ("h5py", "netCDF4", "zarr"):
        try:
            __import__(library)
        except ImportError:
            raise Unavailable(f"{library} is not installed") from None
    (scene.directory / "make.py").write_text(MAKE)
    (scene.directory / "read.py").write_text(READ)
    status, output = scene.run(1, "make.py")
    assert status == 0, output
    status, output = scene.run(3, "read.py")
    assert status == 0, f"status {status}: {output[-800:]}"
    assert output.count("refused all [0, 1, 2]") == 3, output
    assert "LEAK" not in output, output


FAULTS = (Fault("other files: links, virtual data sets, pipes", _refused, quick=True),)
