"""The bridge: what shares memory does, and what is copied is counted."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import Partial, Replicate, Shard
from distarray.errors import CopyRequiredError
from distarray.testing import assert_matches

torch = pytest.importorskip("torch")
ml_dtypes = pytest.importorskip("ml_dtypes")

import distarray.torch as bridge  # noqa: E402
from tests.everywhere import line  # noqa: E402

pytestmark = pytest.mark.host

NATIVE = ["bool", *[f"{kind}{8 << i}" for kind in ("int", "uint") for i in range(4)]]
NATIVE += ["float16", "float32", "float64", "complex64", "complex128"]
FOREIGN = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
FOREIGN += ["float8_e8m0fnu"]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if name in FOREIGN else np.dtype(name)


# -- blocks and tensors --------------------------------------------------------------------------


def test_a_block_goes_over_and_back(world, ranks, device):
    values = np.arange(35, dtype=np.float32).reshape(7, 5)
    staged = device != "cpu"

    def program(group):
        x = distarray.distribute(values, line(group), Shard(0))
        nbytes = x.to_local().nbytes
        with bridge.transfers() as log, distarray.forbid_communication():
            t = bridge.to_torch(x, device=device)
        assert t.device.type == device and t.dtype == torch.float32 and not t.requires_grad
        assert torch.equal(t.cpu(), torch.from_numpy(x.to_local()))
        assert (log.shared, log.h2d) == ((0, 1) if staged else (1, 0))
        assert (log.copied, log.d2h) == (0, 0)
        assert (log.h2d_bytes if staged else log.shared_bytes) == nbytes
        assert bridge.shares_memory(x, t) == (not staged and nbytes > 0)
        t += 1
        assert_matches(x, values if staged else values + 1)
        with bridge.transfers() as log:
            y = bridge.from_torch(t, mesh=x.mesh, placements=[Shard(0)])
        assert y.layout is x.layout
        assert_matches(y, values + 1)
        assert (log.shared, log.d2h, log.copied) == ((0, 1, 0) if staged else (1, 0, 0))
        assert bridge.shares_memory(y, t) == (not staged and nbytes > 0)

    world.run(ranks, program)


def test_whole_arrays(world, ranks, device):
    def program(group):
        mesh = line(group)
        whole = torch.arange(6, dtype=torch.int32).reshape(2, 3).to(device)
        x = bridge.from_torch(whole, mesh=mesh, placements=[Replicate()])
        assert_matches(x, np.arange(6, dtype=np.int32).reshape(2, 3))
        assert torch.equal(bridge.to_torch(x, device=device).cpu(), whole.cpu())
        y = distarray.distribute(np.arange(5), mesh, Shard(0))
        assert bridge.to_torch(y.full()).tolist() == [0, 1, 2, 3, 4]
        for src in (None, 0, ranks - 1):
            mine = whole if src in (None, mesh.rank) else None
            z = bridge.distribute_tensor(mine, mesh, [Shard(1)], src=src)
            assert z.placements == (Shard(1),)
            assert z.device.type == device
            z = z.to_array()
            assert_matches(z, np.arange(6, dtype=np.int32).reshape(2, 3))
            assert not bridge.shares_memory(z, whole)
            again = {"device_mesh": mesh, "placements": [Shard(1)], "src_data_rank": src}
            named = bridge.distribute_tensor(mine, **again)  # as DTensor's programs have it
            assert_matches(named.to_array(), z.full())
        contribution = bridge.from_torch(torch.ones(2), mesh=mesh, placements=[Partial()])
        assert bridge.to_torch(contribution).tolist() == [1.0, 1.0]
        assert_matches(contribution, np.full(2, ranks, np.float32))

    world.run(ranks, program)


@pytest.mark.parametrize("name", NATIVE + FOREIGN)
def test_data_types(name):
    dtype = numpy_dtype(name)
    x = dnp.array(np.array([[1, 1, 2], [1, 0, 4]][: 1 if "e8m0" in name else 2]).astype(dtype))
    t = bridge.to_torch(x)
    assert t.dtype == getattr(torch, name)
    assert bridge.shares_memory(x, t)
    y = bridge.from_torch(t, placements=[Replicate()])
    assert y.dtype == dtype
    assert np.shares_memory(x.to_local(), y.to_local())
    assert y.full().tobytes() == x.full().tobytes()
    with bridge.host(t) as view:
        assert view.dtype == dtype
    double = bridge.to_torch(x, dtype="float64" if "complex" not in name else np.complex128)
    assert double.tolist() == x.full().astype(double.numpy().dtype).tolist()
    assert bridge.to_torch(np.ones(2), dtype=getattr(torch, name)).dtype == t.dtype
    assert bridge.to_torch(np.ones(2), dtype=name).dtype == t.dtype


def test_small_floats_move_between_ranks(world, ranks):
    def program(group):
        mesh = line(group)
        for name in ("bfloat16", "float8_e4m3fn"):
            t = torch.arange(5, dtype=torch.float32).to(getattr(torch, name))
            x = bridge.distribute_tensor(t if mesh.rank == 0 else None, mesh, [Shard(0)])
            assert x.dtype == t.dtype
            assert x.to_array().dtype == numpy_dtype(name)
            whole = bridge.to_torch(x.to_array().redistribute(placements=[Replicate()]))
            assert torch.equal(whole.float(), t.float())
            assert torch.equal(x.full_tensor().float(), t.float())

    world.run(ranks, program)


def test_copies_that_are_asked_for():
    x = dnp.arange(6.0)
    for call in (
        lambda: bridge.to_torch(x, copy=True),
        lambda: bridge.to_torch(x[::-1], copy=True),
    ):
        with bridge.transfers() as log:
            t = call()
        assert (log.copied, log.copied_bytes, log.shared) == (1, 48, 0)
        assert not bridge.shares_memory(x, t)
    assert bridge.to_torch(x[::-1], copy=True).tolist() == [5, 4, 3, 2, 1, 0]
    with bridge.transfers() as log:
        half = bridge.to_torch(x, dtype=torch.float16)
    assert half.dtype == torch.float16 and log.copied_bytes == 12
    assert bridge.shares_memory(x, bridge.to_torch(x, dtype=torch.float64, copy=False))
    t = torch.zeros(3)
    assert bridge.shares_memory(bridge.from_torch(t, placements=[Replicate()], copy=False), t)
    with bridge.transfers() as log:
        y = bridge.from_torch(t, placements=[Replicate()], copy=True)
    assert not bridge.shares_memory(y, t)
    assert (log.copied, log.copied_bytes) == (1, 12)
    assert "copied 1 (12 bytes)" in repr(log)
    with pytest.raises(CopyRequiredError, match="copy=False"):
        bridge.to_torch(x, dtype="float32", copy=False)


def test_views_and_strides_are_shared():
    x = dnp.arange(24.0).reshape(4, 6)
    for view in (x[::2, 1:], x.T, x[:, None, 2], x[4:]):
        t = bridge.to_torch(view)
        assert t.shape == view.shape
        assert np.array_equal(t.numpy(), view.full())
        assert bridge.shares_memory(x, t) == (view.size > 0)
    t = torch.zeros(3, 4).t()[1:, ::2]
    y = bridge.from_torch(t, placements=[Replicate()])
    y += 1
    assert t.sum() == 6
    assert bridge.to_torch(dnp.empty((0, 3))).shape == (0, 3)
    expanded = bridge.from_torch(torch.ones(1).expand(3), placements=[Replicate()])
    with pytest.raises(ValueError, match="read-only"):
        expanded[:] = 2  # its elements are one place in memory
    assert_matches(expanded + 1, np.full(3, 2, np.float32))


def test_memory_outlives_its_owner():
    x = bridge.from_torch(torch.arange(1000.0), placements=[Replicate()])
    t = bridge.to_torch(dnp.arange(1000.0))
    assert float(x.sum()) == float(t.sum()) == 499500.0
    with pytest.raises(RuntimeError, match="resizable"):
        t.resize_(100_000)  # would leave the array with freed memory


def test_results_without_dimensions():
    x = dnp.arange(4.0).sum()
    assert bridge.to_torch(x).item() == 6.0
    with pytest.raises(CopyRequiredError, match="0-d"):
        bridge.to_torch(x, copy=False)
    assert float(bridge.from_torch(torch.tensor(2.5))) == 2.5
    assert bridge.shares_memory(np.float64(1), torch.ones(1)) is False


def test_tensors_as_operands():
    x = dnp.arange(3.0)
    x[:] = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert_matches(x + torch.ones(3, dtype=torch.float64), np.array([2.0, 3.0, 4.0]))
    assert_matches(x * np.asarray(torch.ones(3)), np.array([1.0, 2.0, 3.0]))


# -- the host's view of a tensor -----------------------------------------------------------------


def test_host_reads_and_writes(device):
    t = torch.arange(4, dtype=torch.float32).to(device)
    staged = device != "cpu"
    with bridge.transfers() as log, bridge.host(t) as view:
        assert view.tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 5
    assert (log.shared, log.d2h, log.h2d) == ((0, 1, 0) if staged else (1, 0, 0))
    with bridge.transfers() as log, bridge.host(t, "rw") as view:
        view += 1
    assert t.cpu().tolist() == [1, 2, 3, 4]
    assert (log.shared, log.d2h, log.h2d) == ((0, 1, 1) if staged else (1, 0, 0))
    with bridge.transfers() as log, bridge.host(t.view(2, 2)[:, 1], "w") as view:
        view[...] = [7, 8]
    assert t.cpu().tolist() == [1, 7, 3, 8]
    assert (log.d2h, log.h2d) == ((0, 1) if staged else (0, 0))
    with contextlib.suppress(ZeroDivisionError), bridge.host(t, "rw") as view:
        view[:] = 0
        view[0] = 1 / 0
    assert t.cpu().tolist() == ([1, 7, 3, 8] if staged else [0, 0, 0, 0])
    with pytest.raises(ValueError, match="mode"), bridge.host(t, "a"):
        pass


def test_autograd_learns_of_what_the_host_writes(device):
    w = torch.nn.Parameter(torch.full((2,), 3.0).to(device))
    loss = (w * w).sum()
    with bridge.host(w, "rw") as view:
        view[:] = 100.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # instead of a gradient of 200
    (w * w).sum().backward()
    assert w.grad.cpu().tolist() == [200.0, 200.0]
    loss = (w * w).sum()
    with bridge.host(w) as view:
        assert view[0] == 100.0
    loss.backward()  # reading changes nothing
    with torch.inference_mode():
        plain = torch.ones(2)
    with bridge.host(plain, "w") as view:
        view[:] = 2
    assert plain.tolist() == [2, 2]


def test_bfloat16_on_the_host(device):
    t = torch.ones(3, dtype=torch.bfloat16).to(device)
    with bridge.host(t, "rw") as view:
        assert view.dtype == ml_dtypes.bfloat16
        view[1:] += view.dtype.type(1.5)
    assert t.cpu().tolist() == [1.0, 2.5, 2.5]


# -- DLPack --------------------------------------------------------------------------------------


def test_dlpack_of_a_replicated_array():
    x = dnp.arange(6.0)
    t = torch.from_dlpack(x)
    t[0] = 9.0
    assert bridge.shares_memory(x, t) and float(x[0]) == 9.0
    for exported in (
        np.from_dlpack(x, copy=True),
        torch.from_dlpack(x, copy=True).numpy(),
        np.from_dlpack(x, device="cpu", copy=True),
    ):
        assert np.array_equal(exported, x.full())
        assert not np.shares_memory(exported, x.to_local())
    assert "versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    assert "versioned" not in repr(x.__dlpack__())
    assert np.shares_memory(np.from_dlpack(x, device="cpu", copy=False), x.to_local())
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(RuntimeError):
        x.__dlpack__(stream=1)  # the host has no streams
    assert torch.from_dlpack(x[2, ...]).item() == x[2]


@pytest.mark.parametrize(
    "make", [lambda: dnp.arange(3.0)[::-1], lambda: dnp.broadcast_to(dnp.arange(3.0), (2, 3))]
)
def test_dlpack_of_what_torch_crashes_at_or_overwrites(make):
    x = make()
    t = torch.from_dlpack(x)
    assert np.array_equal(t.numpy(), x.full())
    assert not bridge.shares_memory(x, t)
    assert np.array_equal(np.from_dlpack(x), x.full())
    with pytest.raises(CopyRequiredError, match="copy=True"):
        x.__dlpack__(max_version=(1, 0), copy=False)


# -- importing -----------------------------------------------------------------------------------


def test_torch_is_imported_at_the_first_use(own_processes):
    code = """
import sys, distarray, distarray.numpy, distarray.torch
assert "to_torch" in dir(distarray.torch)
assert distarray.torch.start and distarray.torch.CopyRequiredError and distarray.torch.transfers
assert not {"torch", "ml_dtypes", "mpi4py"} & set(sys.modules)
sys.modules["torch"] = None
try:
    distarray.torch.to_torch
except ImportError as error:
    assert "pip install 'distarray-mpi[torch]'" in str(error), error
else:
    raise SystemExit("no error")
try:
    distarray.torch.nothing
except AttributeError:
    pass
"""
    job = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert job.returncode == 0, job.stderr


@pytest.mark.parametrize("version", ["2.7.1+hpu", "2.8.0a0+5228986c39"])
def test_a_torch_that_is_too_old(own_processes, version):
    code = f"""
import sys, types, distarray.numpy, distarray.torch as dt
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].__version__ = {version!r}
for use in (lambda: dt.to_torch, lambda: distarray.numpy.ones(3).to_tensor()):
    try:
        use()
    except ImportError as error:
        assert "PyTorch 2.9 or newer, and this is {version}:" in str(error), error
        assert "pip install --upgrade 'distarray-mpi[torch]'" in str(error), error
    else:
        raise SystemExit("no error")
"""
    job = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert job.returncode == 0, job.stderr
