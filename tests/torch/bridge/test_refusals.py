"""Refusals of the bridge to torch: on every rank alike, with the reason."""

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DistArray, Replicate, Shard
from distarray.comm import DeviceMesh
from distarray.errors import CopyRequiredError, LayoutError
from distarray.testing import assert_matches

torch = pytest.importorskip("torch")
ml_dtypes = pytest.importorskip("ml_dtypes")

import distarray.torch as bridge  # noqa: E402
from tests.everywhere import line, raises_everywhere  # noqa: E402

pytestmark = pytest.mark.host


def odd_strides():
    return np.zeros(3, [("a", "i1"), ("b", "f8")])["b"]


def read_only():
    block = np.arange(3.0)
    block.flags.writeable = False
    return block


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: np.arange(3.0)[::-1], "negative strides"),
        (read_only, "read-only"),
        (lambda: np.broadcast_to(np.arange(3.0), (2, 3)), "read-only"),
        (lambda: np.arange(3, dtype=">f8"), "byte order"),
        (odd_strides, "multiples"),
    ],
)
def test_blocks_that_cannot_be_shared(make, words, device):
    for copy in (None, False):
        with pytest.raises(CopyRequiredError, match=words) as caught:
            bridge.to_torch(make(), copy=copy)
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, BufferError)
        assert "copy=True" in str(caught.value)
    assert np.array_equal(bridge.to_torch(make(), copy=True).numpy(), make())
    moved = bridge.to_torch(make(), device=device, dtype="float32")  # copied in any case
    assert np.array_equal(moved.cpu().numpy(), make().astype("f4"))


VIEWS = {
    "rows backwards": (lambda x: x[::-1], "negative strides"),
    "columns backwards": (lambda x: x[:, ::-1], "negative strides"),
    "one row backwards": (lambda x: x[1, ::-1], "negative strides"),
    "of one row backwards": (lambda x: x[1, ::-1][1:], "negative strides"),
    "few rows backwards": (lambda x: x[3:2:-1], "negative strides"),
    "turned": (lambda x: x[:1].T[::-1], "negative strides"),
    "stretched": (lambda x: dnp.broadcast_to(x, (2, 4, 2)), "read-only"),
    "a stretched row": (lambda x: dnp.broadcast_to(x, (2, 4, 2))[:, 3], "read-only"),
    "swapped": (lambda x: x.astype(">f8")[1:2], "byte order"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_rank_refuses_or_none(world, ranks, name):
    """Also those that have nothing of the view: they would go on, and wait for the others."""
    view, words = VIEWS[name]

    def program(group):
        x = distarray.distribute(np.arange(8.0).reshape(4, 2), line(group), Shard(0))
        raises_everywhere(group, CopyRequiredError, lambda: bridge.to_torch(view(x)), words)
        copied = bridge.to_torch(view(x), copy=True)
        assert np.array_equal(copied.numpy(), view(x).to_local())
        assert_matches(view(x) + 0, view(np.arange(8.0).reshape(4, 2)) + 0)

    world.run(ranks, program)


@pytest.mark.parametrize(
    "block",
    [
        np.zeros(2, np.longdouble),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "U3"),
        np.array([None, {}]),
        np.zeros(2, [("a", "f8")]),
    ],
    ids=str,
)
def test_data_types_that_torch_has_not(block):
    for copy in (None, True):
        with pytest.raises(TypeError, match="torch has no data type"):
            bridge.to_torch(block, copy=copy)


def test_what_is_no_array():
    for wrong in (3.0, [1, 2], torch.ones(2), None, np.ma.masked_array([1.0, 2.0], [0, 1])):
        with pytest.raises(TypeError, match="a DistArray or array is wanted"):
            bridge.to_torch(wrong)
        with pytest.raises(TypeError, match="wanted"):
            bridge.shares_memory(wrong, torch.ones(2))
    with pytest.raises(TypeError, match=r"torch\.Tensor is wanted, not ndarray"):
        bridge.from_torch(np.ones(2))
    with pytest.raises(TypeError, match="no data type"):
        bridge.to_torch(np.ones(2), dtype="M8[s]")


@pytest.mark.filterwarnings("ignore")
def unshareable():
    base = torch.arange(6.0).reshape(2, 3)
    turned = torch.ones(2, dtype=torch.complex64).conj()
    return {
        "sparse": (base.to_sparse(), TypeError, "to_dense"),
        "csr": (base.to_sparse_csr(), TypeError, "to_dense"),
        "quantized": (torch.quantize_per_tensor(base, 0.1, 0, torch.qint8), TypeError, "dequant"),
        "meta": (torch.ones(2, device="meta"), TypeError, "meta"),
        "nested": (torch.nested.nested_tensor([base[0], base[1]]), TypeError, "nested"),
        "gradient": (base.clone().requires_grad_(), ValueError, "detach"),
        "parameter": (torch.nn.Parameter(base.clone()), ValueError, "distribute_parameter"),
        "result": (base.clone().requires_grad_() * 2, ValueError, "detach"),
        "conjugate": (turned, CopyRequiredError, "resolve_conj"),
        "negative": (turned.imag, CopyRequiredError, "resolve_neg"),
        "complex32": (torch.ones(2, dtype=torch.complex32), TypeError, "no data type"),
    }


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_cannot_be_shared(world, ranks):
    def program(group):
        mesh = line(group)
        for name, (t, kind, words) in unshareable().items():
            bring = lambda t=t: bridge.from_torch(t, mesh=mesh, placements=[Replicate()])  # noqa: E731
            raises_everywhere(group, kind, bring, words)
            lone = t if mesh.rank == ranks - 1 else torch.ones(2)  # one rank alone is wrong
            raises_everywhere(
                group, kind, lambda lone=lone: bridge.from_torch(lone, mesh=mesh), words
            )
            split = lambda t=t: bridge.distribute_tensor(t, mesh, [Shard(0)])  # noqa: E731
            if name in ("gradient", "parameter"):
                assert split().requires_grad
            else:
                raises_everywhere(group, kind, split, words)
            if name in ("gradient", "parameter", "result"):
                continue
            with pytest.raises(kind, match=words), bridge.host(t):
                pass

    world.run(ranks, program)


def test_lazy_views_are_resolved_into_copies():
    z = torch.tensor([1 + 2j, 3 - 1j])
    whole = [Replicate()]
    x = bridge.from_torch(z.conj(), placements=whole, copy=True)
    assert_matches(x, np.array([1 - 2j, 3 + 1j], "c8"))
    x = bridge.from_torch(z.conj().imag, placements=whole, copy=True)
    assert_matches(x, np.array([-2, 1], "f4"))
    x = bridge.from_torch(z, placements=whole)
    assert bridge.shares_memory(x, z.conj()) and bridge.shares_memory(x, z.conj().imag)


def test_tensors_that_wrap_others():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2)
    for call in (bridge.from_torch, lambda t: bridge.shares_memory(np.ones(2), t)):
        with pytest.raises(TypeError, match="FakeTensor"):
            call(fake)


def test_a_gaudi_has_no_double_and_no_complex_numbers(device):
    for block in (np.ones(2), np.ones(2, "c8"), np.ones(2, "c16")):
        with pytest.raises(TypeError, match=r"dtype=torch\.float32"):
            bridge.to_torch(block, device="hpu")
    with pytest.raises(TypeError, match="HPU"):
        bridge.to_torch(np.ones(2, "f4"), device="hpu", dtype=torch.float64)
    if not hasattr(torch, "hpu"):
        with pytest.raises(RuntimeError, match="start"):
            bridge.to_torch(np.ones(2, "f4"), device="hpu")
    single = bridge.to_torch(np.array([1.0, 1e-9]), device=device, dtype=torch.float32)
    assert single.dtype == torch.float32 and single.device.type == device
    assert single.cpu().numpy().tolist() == np.array([1.0, 1e-9], "f4").tolist()


@pytest.mark.accelerator
def test_no_copy_to_or_from_a_device(device):
    with pytest.raises(CopyRequiredError, match="copy=False"):
        bridge.to_torch(np.ones(2, "f4"), device=device, copy=False)
    with pytest.raises(CopyRequiredError, match="copy=False"):
        bridge.from_torch(torch.ones(2).to(device), copy=False)
    assert not bridge.shares_memory(np.ones(2), torch.ones(2).to(device))


@pytest.mark.accelerator
def test_pinned_memory_is_host_memory(device):
    t = torch.arange(4, dtype=torch.float32).pin_memory()
    x = bridge.from_torch(t, placements=[Replicate()])
    assert bridge.shares_memory(x, t)
    assert torch.equal(bridge.to_torch(x, device=device).cpu(), t)


def test_ranks_outside_of_the_mesh(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (1,), ranks=np.array([ranks - 1]))
        inside = mesh.coords is not None
        x = bridge.distribute_tensor(torch.arange(5.0), mesh, [Shard(0)], src=None)
        t = x.to_local()
        assert t.shape == ((5,) if inside else (0,))
        assert bridge.from_torch(t, mesh=mesh, shape=(5,)).layout is x.dist_layout
        assert (x + x).to_local().shape == t.shape

    world.run(ranks, program)


def test_blocks_that_do_not_fit(world, ranks):
    def program(group):
        mesh = line(group)
        t = torch.ones(3 if mesh.rank else 4)
        if ranks > 1:
            with pytest.raises(LayoutError, match="from_local: rank"):
                bridge.from_torch(t, mesh=mesh, placements=[Replicate()])
        ragged = bridge.from_torch(t, mesh=mesh)
        assert ragged.shape == (4 + 3 * (ranks - 1),)
        x = distarray.distribute(np.arange(9.0), mesh, Shard(0))
        with distarray.forbid_communication():
            y = bridge.from_torch(
                bridge.to_torch(x), mesh=mesh, placements=[Shard(0)], shape=(9,), check=False
            )
            with pytest.raises(LayoutError, match="puts one of shape"):
                bridge.from_torch(torch.ones(10), mesh=mesh, shape=(9,), check=False)
            if ranks > 1:
                with pytest.raises(LayoutError, match="global shape"):
                    DistArray.from_local(np.ones(3), mesh, check=False)
        assert_matches(y, np.arange(9.0))

    world.run(ranks, program)
