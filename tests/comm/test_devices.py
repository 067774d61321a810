"""GPU buffers, on a stand-in that has memory of its own and refuses to be read by the host."""

import sys
import threading
import types
import weakref
from typing import ClassVar

import numpy as np
import pytest

from distarray.comm import devices
from distarray.config import config
from distarray.layout.placement import Fold


class DeviceArray:
    """Array in a memory that only `get` and `set` cross; every implicit way raises."""

    __cuda_array_interface__ = property(lambda self: pytest.fail("host code read device memory"))

    def __init__(self, data):
        self._data = data

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    nbytes = property(lambda self: self._data.nbytes)
    size = property(lambda self: self._data.size)
    ndim = property(lambda self: self._data.ndim)
    flags = property(lambda self: self._data.flags)

    def __len__(self):
        return len(self._data)

    def __getitem__(self, key):
        return DeviceArray(self._data[key])

    def __setitem__(self, key, value):
        assert isinstance(value, DeviceArray), "a host array was assigned without set()"
        Stream().synchronize()
        self._data[key] = value._data

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion to a host array")

    @property
    def T(self):
        return DeviceArray(self._data.T)

    def get(self, out=None):
        assert self._data.flags.c_contiguous
        assert out.shape == self.shape
        Stream().synchronize()
        out[...] = self._data
        return out

    def set(self, host):
        assert type(host) is np.ndarray
        assert self._data.flags.c_contiguous
        assert host.shape == self.shape
        Stream.begun.append((self._data, weakref.ref(host)))


class Stream:
    """Copies from pinned memory are done later, in order: garbage if the memory is free by then."""

    begun: ClassVar[list] = []
    lock = threading.Lock()

    def synchronize(self):
        with self.lock:
            while self.begun:
                target, host = self.begun.pop(0)
                target[...] = 66 if host() is None else host()


class PinnedMemory(bytearray):
    """Page-locked memory."""


@pytest.fixture
def gpu(monkeypatch):
    """A module with the part of CuPy's interface that staging uses."""
    module = types.ModuleType("gpu_stand_in")
    module.empty = lambda shape, dtype: DeviceArray(np.full(shape, 77).astype(dtype))
    module.ascontiguousarray = lambda a: DeviceArray(np.array(a._data, order="C"))
    module.asarray = lambda a: DeviceArray(np.array(a))
    module.cuda = types.SimpleNamespace(alloc_pinned_memory=PinnedMemory, get_current_stream=Stream)
    monkeypatch.setitem(sys.modules, "gpu_stand_in", module)
    monkeypatch.setattr(DeviceArray, "__module__", "gpu_stand_in")
    with config.override(gpu_messages="host"):
        yield module


def host(array):
    assert type(array) is DeviceArray
    Stream().synchronize()
    return array._data


def test_conversations_are_staged(world, ranks, gpu):
    def program(group):
        size, rank = group.size, group.rank
        up, down = (rank + 1) % size, (rank - 1) % size
        source = np.arange(12.0).reshape(3, 4) + 100 * rank
        block = gpu.asarray(source)
        into = gpu.empty((4, 3), "f8")
        if size > 1:
            group.exchange([(up, block.T[::-1])], [(down, into)])
            assert np.array_equal(host(into), (source + 100 * (down - rank)).T[::-1])
            group.exchange([(up, block)], [(down, into.T)])
            assert np.array_equal(host(into).T, source + 100 * (down - rank))
        total = host(group.allreduce(block, Fold.SUM))
        largest = host(group.allreduce(block[1:, ::2], Fold.MAX))
        stack = host(group.allgather(block))
        below = host(group.exscan(block, Fold.SUM, 0.0))
        parts = group.allgather_varied(block[: rank % 3])
        swapped = group.alltoall_varied([block[: part % 3] for part in range(size)])
        gathered = group.gather_varied(block[:1], 0)
        mine = host(group.reduce_scatter([block] * size, Fold.SUM))
        copied = gpu.asarray(source)
        same = group.broadcast(copied[:, 1:3], size - 1)
        landing = gpu.empty((3, 4), "f8")
        group.scatter([block] * size if rank == 0 else None, landing, 0)
        ranks_below = sum(range(rank))
        everyone = sum(range(size))
        base = np.arange(12.0).reshape(3, 4)
        assert np.array_equal(total, base * size + 100 * everyone)
        assert np.array_equal(mine, total)
        assert np.array_equal(largest, (base + 100 * (size - 1))[1:, ::2])
        assert np.array_equal(stack, [base + 100 * r for r in range(size)])
        assert np.array_equal(below, base * rank + 100 * ranks_below)
        assert [host(part).shape for part in parts] == [(r % 3, 4) for r in range(size)]
        assert all(
            np.array_equal(host(p), (base + 100 * r)[: rank % 3]) for r, p in enumerate(swapped)
        )
        assert (gathered is None) == (rank > 0)
        assert np.array_equal(host(same), (base + 100 * (size - 1))[:, 1:3])
        assert np.array_equal(host(copied)[:, 0], source[:, 0])
        assert np.array_equal(host(landing), base)

    world.run(ranks, program)


def test_transfers_are_counted(world, ranks, gpu):
    def program(group):
        block = gpu.asarray(np.arange(6.0))
        group.barrier()
        before = devices.transfers.to_host, devices.transfers.to_device
        group.barrier()
        group.allreduce(block, Fold.SUM)
        group.barrier()
        after = devices.transfers.to_host, devices.transfers.to_device
        here = group.size if world.name == "threads" else 1
        assert np.subtract(after, before).tolist() == [here, here]

    world.run(ranks, program)


def test_what_the_user_says_about_mpi_counts(monkeypatch):
    for word, aware in [("1", True), ("no", False), ("true", True), ("0", False)]:
        monkeypatch.setattr(devices, "_aware", None)
        monkeypatch.setenv("DISTARRAY_GPU_AWARE", word)
        assert devices.gpu_aware() is aware
    monkeypatch.setattr(devices, "_aware", None)
