"""Blocks in GPU memory beside tensors on the host; on the stand-in for CuPy, or on CuPy."""

import numpy as np
import pytest

import distarray
from distarray import Shard
from distarray.comm import DeviceMesh
from distarray.errors import CopyRequiredError
from distarray.testing import assert_matches

torch = pytest.importorskip("torch")

import distarray.torch as bridge  # noqa: E402


def test_gpu_blocks_and_host_tensors(world, ranks, request):
    if request.config.option.device == "cpu":
        pytest.skip("needs blocks on a GPU")
    values = np.arange(7.0)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (group.size,)), Shard(0))
        nbytes = x.to_local().nbytes
        with bridge.transfers() as log:
            t = bridge.to_torch(x, device="cpu")
        assert (log.d2h, log.d2h_bytes, log.h2d, log.copied) == (1, nbytes, 0, 0)
        assert t.tolist() == x.to_local().get().tolist()
        assert bridge.to_torch(x, device="cpu", dtype=torch.float32).dtype == torch.float32
        with bridge.transfers() as log:
            y = bridge.from_torch(t + 1, mesh=x.mesh)
        assert (log.h2d, log.h2d_bytes, log.d2h, log.copied) == (1, nbytes, 0, 0)
        assert type(y.to_local()) is type(x.to_local())
        assert_matches(y, values + 1)
        assert not bridge.shares_memory(x, t)
        with pytest.raises(CopyRequiredError, match="copy=False"):
            bridge.to_torch(x, device="cpu", copy=False)
        with pytest.raises(CopyRequiredError, match="copy=False"):
            bridge.from_torch(t, mesh=x.mesh, copy=False)

    world.run(ranks, program)


@pytest.mark.gpu
def test_gpu_blocks_and_gpu_tensors(world, ranks, request):
    if request.config.option.device != "cuda" or not torch.cuda.is_available():
        pytest.skip("needs CuPy and a torch with CUDA")

    def program(group):
        x = distarray.distribute(np.arange(7.0), DeviceMesh(group, (group.size,)), Shard(0))
        with bridge.transfers() as log:
            t = bridge.to_torch(x)
            y = bridge.from_torch(t, mesh=x.mesh, copy=False)
        assert t.is_cuda
        assert (log.shared, log.copied, log.h2d, log.d2h) == (2, 0, 0, 0)
        if x.to_local().size:
            assert bridge.shares_memory(x, t)
            assert bridge.shares_memory(y, t)
        t += 1
        assert_matches(x, np.arange(7.0) + 1)

    world.run(ranks, program)
