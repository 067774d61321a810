"""Arrays in files of other formats, written and read by the libraries whose formats they are."""

from shutil import rmtree
from typing import Any

__all__ = ["READ", "WRITE"]


def _write_hdf5(path: str, a: Any) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["x"] = a


def _read_hdf5(path: str) -> Any:
    import h5py

    with h5py.File(path) as file:
        return file["x"][...]


def _write_safetensors(path: str, a: Any) -> None:
    from safetensors.numpy import save_file

    save_file({"x": a}, path)


def _read_safetensors(path: str) -> Any:
    from safetensors.numpy import load_file

    return load_file(path)["x"]


def _write_zarr(path: str, a: Any) -> None:
    import zarr

    rmtree(path, ignore_errors=True)
    chunks = tuple([-(-extent // 32) for extent in a.shape])
    group = zarr.create_group(path)
    group.create_array("x", shape=a.shape, chunks=chunks, dtype=a.dtype)[...] = a


def _read_zarr(path: str) -> Any:
    import zarr

    return zarr.open(path, mode="r")["x"][...]


#: By the ending of the file's name.
WRITE = {"h5": _write_hdf5, "safetensors": _write_safetensors, "zarr": _write_zarr}
READ = {"h5": _read_hdf5, "safetensors": _read_safetensors, "zarr": _read_zarr}
