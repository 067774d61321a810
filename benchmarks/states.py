"""A state of many arrays, saved and loaded by each library in its own way."""

import os
import pathlib
from collections.abc import Callable
from shutil import rmtree
from typing import Any

import numpy

from benchmarks.plain import scratch

__all__ = ["state"]


def state(names: dict[str, Any], count: int, rows: int) -> Any:
    """The state of the library whose names these are: `count` arrays of `rows` x 1024 doubles.

    It has been saved once.
    """
    place = names["place"]
    arrays = [place(numpy.full((rows, 1024), number + 0.5)) for number in range(count)]
    if "torch" in names:
        kind: Callable[..., Any] = _Torch
    elif names.get("np") is numpy:
        kind = _NumPy
    else:
        kind = _Dask if names["np"].__name__.startswith("dask") else _Ours
    made = kind(arrays, scratch() + "/" + kind.__name__)
    made.save()
    return made


class _NumPy:
    """A file an array."""

    def __init__(self, arrays: list[Any], path: str) -> None:
        self.arrays, self.path = arrays, path
        pathlib.Path(path).mkdir(exist_ok=True)

    def save(self) -> None:
        for number, array in enumerate(self.arrays):
            numpy.save(os.path.join(self.path, f"{number}.npy"), array)

    def load(self) -> list[Any]:
        names = (os.path.join(self.path, f"{number}.npy") for number in range(len(self.arrays)))
        return [numpy.load(name) for name in names]

    def copy(self) -> list[Any]:
        return [array.copy() for array in self.arrays]


class _Ours:
    """A checkpoint."""

    def __init__(self, arrays: list[Any], path: str) -> None:
        from distarray import Shard, checkpoint

        self._checkpoint, self._columns = checkpoint, [Shard(1)]
        self.state, self.path = _layers(arrays), path
        self._saving: Any = None

    def save(self) -> None:
        self._checkpoint.save(self.path, self.state)

    def save_behind(self) -> None:
        self._saving = self._checkpoint.save(self.path, self.state, asynchronous=True)

    def wait(self) -> None:
        if self._saving is not None:
            self._saving.wait()

    def load(self) -> Any:
        return self._checkpoint.load(self.path)

    def load_columns(self) -> Any:
        return self._checkpoint.load(self.path, placements=self._columns)

    def copy(self) -> list[Any]:
        return [layer["weight"].to_local().copy() for layer in self.state.values()]


class _Torch:
    """PyTorch's distributed checkpoint."""

    def __init__(self, arrays: list[Any], path: str) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.tensor import Shard

        self._dcp, self.path = dcp, path
        self.state = _layers(arrays)
        self._columns = _layers([array.redistribute(placements=[Shard(1)]) for array in arrays])

    def save(self) -> None:
        self._dcp.save(self.state, checkpoint_id=self.path)

    def load(self) -> None:
        self._dcp.load(self.state, checkpoint_id=self.path)

    def load_columns(self) -> None:
        self._dcp.load(self._columns, checkpoint_id=self.path)


class _Dask:
    """A Zarr store an array."""

    def __init__(self, arrays: list[Any], path: str) -> None:
        self.arrays, self.path = arrays, path

    def save(self) -> None:
        import dask

        rmtree(self.path, ignore_errors=True)
        dask.compute(
            [
                array.to_zarr(os.path.join(self.path, str(number)), compute=False)
                for number, array in enumerate(self.arrays)
            ]
        )

    def load(self) -> Any:
        import dask
        import dask.array

        names = (os.path.join(self.path, str(number)) for number in range(len(self.arrays)))
        return dask.compute([dask.array.from_zarr(name) for name in names])


def _layers(arrays: list[Any]) -> dict[str, Any]:
    return {f"layer{number}": {"weight": array} for number, array in enumerate(arrays)}
