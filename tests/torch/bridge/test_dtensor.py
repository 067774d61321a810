"""DTensors and distributed arrays over the same memory; processes, since gloo has no threads."""

import numpy as np
import pytest

import distarray
from distarray import DistArray, Partial, Replicate, Shard
from distarray.comm import DeviceMesh, run_threads
from distarray.errors import LayoutError, MeshError
from distarray.testing import assert_matches

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

import torch.distributed as dist  # noqa: E402

import distarray.torch as bridge  # noqa: E402
from tests.everywhere import raises_everywhere  # noqa: E402

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def group(world):
    """All processes: those of mpiexec, or this one alone.

    On two and four: torch takes seconds to import DTensor, for each rank.
    """
    from distarray.comm.mpi import group_of

    group = group_of()
    if world.name == "mpi" and group.size not in (2, 4):
        pytest.skip("runs under mpiexec on 2 and 4 processes, and without MPI on one")
    yield group
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def theirs(group):
    """DTensor's module."""
    import torch.distributed.tensor

    return torch.distributed.tensor


def grids(size):
    """Mesh shapes, and placements of a matrix on them."""
    plane = [[Shard(0), Shard(1)], [Shard(1), Shard(0)], [Replicate(), Shard(0)]]
    plane += [[Shard(0), Shard(0)], [Shard(1), Replicate()]]
    two = (2, size // 2) if size % 2 == 0 else (1, size)
    line = [((size,), placed) for placed in ([Shard(0)], [Shard(1)], [Replicate()])]
    return [*line, *[(two, placed) for placed in plane]]


def test_over_and_back_over_the_same_memory(group, theirs, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    values = np.arange(15.0).reshape(5, 3)
    for shape, placed in grids(group.size):
        mesh = DeviceMesh(group, shape, ("dp", "tp")[: len(shape)])
        x = distarray.distribute(values, mesh, placed)
        dt = bridge.to_dtensor(x)
        assert dist.get_rank() == group.rank
        assert tuple(dt.device_mesh.mesh.shape) == shape
        assert dt.device_mesh.mesh_dim_names == mesh.mesh_dim_names
        assert bridge.shares_memory(x, dt.to_local()) == (x.to_local().size > 0)
        assert torch.equal(dt.full_tensor(), torch.from_numpy(values))
        dt.add_(1)
        assert_matches(x, values + 1)
        assert bridge.to_dtensor(x).device_mesh is dt.device_mesh
        y = bridge.from_dtensor(dt)
        assert y.mesh is mesh
        assert y.layout is x.layout
        assert np.shares_memory(x.to_local(), y.to_local()) == (x.to_local().size > 0)
        their_own = theirs.distribute_tensor(
            torch.from_numpy(values), dt.device_mesh, dt.placements
        )
        assert_matches(bridge.from_dtensor(their_own, mesh=mesh), values)
        product = bridge.from_dtensor(dt @ dt.T).full()
        assert np.array_equal(product, x.full() @ x.full().T)


def test_pending_folds_stay_pending(group, theirs):
    mesh, n = DeviceMesh(group, (group.size,)), group.size
    for fold, result in (("sum", n * (n + 1) / 2), ("max", float(n)), ("avg", (n + 1) / 2)):
        x = DistArray.from_local(np.full((2, 3), group.rank + 1.0), mesh, [Partial(fold)])
        dt = bridge.to_dtensor(x)
        assert dt.placements == (theirs.Partial(fold),)
        assert dt.full_tensor().tolist() == np.full((2, 3), result).tolist()
        y = bridge.from_dtensor(dt)
        assert y.placements == x.placements
        assert_matches(y, np.full((2, 3), result))
    later = dt.redistribute(placements=[theirs.Replicate()], async_op=True)
    assert_matches(bridge.from_dtensor(later), np.full((2, 3), result))


def test_other_dimensions_and_types(group):
    mesh = DeviceMesh(group, (group.size,))
    for values in (np.array(3.0), np.zeros((0, 2)), np.arange(4, dtype="c8"), np.arange(7) > 3):
        placed = [Shard(0)] if values.ndim else [Replicate()]
        x = distarray.distribute(values, mesh, placed)
        dt = bridge.to_dtensor(x)
        assert dt.stride() == torch.empty(values.shape).stride()
        assert torch.equal(dt.full_tensor(), torch.from_numpy(values))
        assert_matches(bridge.from_dtensor(dt), values)
    turned = distarray.distribute(np.arange(6.0).reshape(3, 2), mesh, [Shard(0)]).T
    assert torch.equal(bridge.to_dtensor(turned).full_tensor(), torch.from_numpy(turned.full()))


def test_layouts_without_a_counterpart(group):
    mesh = DeviceMesh(group, (group.size,))
    x = distarray.distribute(np.arange(12.0), mesh, [Shard(0)])
    if group.size > 1:
        ragged = DistArray.from_local(np.ones(group.rank + 1), mesh, [Shard(0)])
        for y in (x[1:], x[::2], ragged):
            raises_everywhere(group, LayoutError, lambda y=y: bridge.to_dtensor(y), "redistribute")
    pending = DistArray.from_local(np.ones(2, bool), mesh, [Partial("any")])
    raises_everywhere(group, LayoutError, lambda: bridge.to_dtensor(pending), "carries it out")
    days = distarray.distribute(np.zeros(3, "M8[D]"), mesh, [Shard(0)])
    raises_everywhere(group, TypeError, lambda: bridge.to_dtensor(days), "no data type")
    raises_everywhere(group, TypeError, lambda: bridge.to_dtensor(np.ones(2)), "DistArray")


def test_dtensors_without_a_counterpart(group, theirs):
    mesh = DeviceMesh(group, (group.size,))
    dt = bridge.to_dtensor(distarray.distribute(np.arange(12.0), mesh, [Shard(0)]))
    watched = dt.clone().requires_grad_()
    raises_everywhere(group, ValueError, lambda: bridge.from_dtensor(watched), "detach")
    raises_everywhere(group, TypeError, lambda: bridge.from_dtensor(torch.ones(2)), "DTensor")
    raises_everywhere(group, TypeError, lambda: bridge.from_torch(dt), "from_dtensor")
    raises_everywhere(group, TypeError, lambda: bridge.to_torch(dt), "DistArray")
    with pytest.raises(TypeError, match="from_dtensor"):
        bridge.shares_memory(np.ones(2), dt)
    plane = DeviceMesh(group, (group.size, 1))
    strided = [theirs.placement_types._StridedShard(0, split_factor=1), theirs.Shard(0)]
    whole = bridge.to_dtensor(distarray.distribute(np.arange(12.0), plane, [Replicate()] * 2))
    block = torch.ones(12 // group.size)
    odd = theirs.DTensor.from_local(block, whole.device_mesh, strided, run_check=False)
    raises_everywhere(group, LayoutError, lambda: bridge.from_dtensor(odd), "no counterpart")


def test_results_of_asynchronous_collectives(group, theirs):
    """What DTensor's layers hand out is no plain tensor until it is waited for; it is."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    whole = torch.arange(3.0)
    mesh = DeviceMesh(group, (group.size,))
    x = bridge.from_torch(AsyncCollectiveTensor(whole), mesh=mesh, placements=[Replicate()])
    assert bridge.shares_memory(x, whole)
    with bridge.host(AsyncCollectiveTensor(whole)) as view:
        assert view.tolist() == [0, 1, 2]


def test_other_meshes(group):
    mesh = DeviceMesh(group, (group.size,))
    plane = DeviceMesh(group, (1, group.size))
    x = distarray.distribute(np.arange(12.0), mesh, [Shard(0)])
    dt = bridge.to_dtensor(x)
    mine = torch.distributed.device_mesh.init_device_mesh("cpu", (group.size,))
    assert bridge.shares_memory(x, bridge.to_dtensor(x, mesh=mine).to_local())
    raises_everywhere(group, MeshError, lambda: bridge.from_dtensor(dt, mesh=plane), "another grid")
    other = torch.distributed.device_mesh.init_device_mesh("cpu", (1, group.size))
    raises_everywhere(group, MeshError, lambda: bridge.to_dtensor(x, mesh=other), "another grid")
    raises_everywhere(group, TypeError, lambda: bridge.to_dtensor(x, mesh=mesh), "DeviceMesh")
    if group.size > 1:
        lone = DeviceMesh(group, (1,), ranks=np.array([group.size - 1]))
        if lone.coords is not None:  # the others take no part
            y = distarray.distribute(np.arange(3.0), lone, [Shard(0)])
            with pytest.raises(MeshError, match="process group has ranks"):
                bridge.to_dtensor(y)
        turned = DeviceMesh(group, (group.size,), ranks=np.arange(group.size)[::-1])
        z = distarray.distribute(np.arange(7.0), turned, [Shard(0)])
        raises_everywhere(group, MeshError, lambda: bridge.to_dtensor(z), "ascend")


@pytest.mark.accelerator
def test_dtensors_on_hpus(group, theirs, device):
    if device != "hpu":
        pytest.skip("needs HPUs")
    bridge.ensure_process_group()
    hpus = torch.distributed.device_mesh.DeviceMesh("hpu", list(range(group.size)))
    mesh = DeviceMesh(group, (group.size,))
    x = distarray.distribute(np.arange(10, dtype=np.float32), mesh, [Shard(0)])
    with bridge.transfers() as log:
        dt = bridge.to_dtensor(x, mesh=hpus)
        y = bridge.from_dtensor(dt * 2)
    assert dt.device.type == "hpu"
    assert (log.h2d, log.d2h, log.shared, log.copied) == (1, 1, 0, 0)
    assert y.mesh is mesh
    assert_matches(y, np.arange(10, dtype=np.float32) * 2)


def test_placements_of_the_other_library(group, theirs):
    mesh = DeviceMesh(group, (group.size,))
    taken_from_torch = [theirs.Shard(0)]
    raises_everywhere(
        group,
        TypeError,
        lambda: bridge.from_torch(torch.ones(2), mesh=mesh, placements=taken_from_torch),
        r"of distarray, not Shard\(dim=0\) of torch",
    )


def test_the_process_group(group):
    made = bridge.ensure_process_group()
    assert bridge.ensure_process_group(DeviceMesh(group, (1, group.size))) is made
    total = torch.tensor([1.0 + group.rank])
    dist.all_reduce(total)
    assert total.item() == group.size * (group.size + 1) / 2
    dist.destroy_process_group()
    mesh = DeviceMesh(group, (group.size,))
    x = distarray.distribute(np.arange(5.0), mesh, [Shard(0)])
    assert float(x.sum()) == 10.0
    assert torch.equal(bridge.to_dtensor(x).full_tensor(), torch.from_numpy(x.full()))


def test_thread_ranks_have_no_process_group():
    def program(group):
        x = distarray.distribute(np.arange(4.0), DeviceMesh(group, (2,)), [Shard(0)])
        with pytest.raises(MeshError, match="threads"):
            bridge.to_dtensor(x)

    run_threads(2, program)
