"""Beside torch's own FSDP2 and DistributedDataParallel: processes, since gloo has no threads."""

from __future__ import annotations

import copy
import itertools

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import distarray.torch as dt  # noqa: E402
from distarray import Shard  # noqa: E402
from tests.torch.models import close, drawn, filled, line, local_of, same_gradients  # noqa: E402

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def group(world):
    """Two processes of mpiexec, with torch's process group: more only take longer to import it."""
    from distarray.comm.mpi import group_of

    group = group_of()
    if world.name != "mpi" or group.size != 2:
        pytest.skip("runs under mpiexec on 2 processes")
    dt.ensure_process_group()
    yield group
    if dist.is_initialized():
        dist.destroy_process_group()


class Block(nn.Module):
    """A layer of a transformer, which may be computed again."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.inside = None

    def body(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (6, 4)).transpose(1, 2).chunk(3, 1)
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(x)))

    def forward(self, x):
        if self.inside is None:
            return self.body(x)
        return checkpoint(self.body, x, use_reentrant=self.inside)


class Language(nn.Module):
    """As transformers has its models: a model within the model, and a head tied to its words."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.words = nn.Embedding(11, 8)
        self.model.layers = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.model.words.weight
        self.around = None

    def forward(self, tokens):
        x = self.model.words(tokens)
        for layer in self.model.layers:
            if self.around is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.around)
        return self.head(x)


def made(start, around, inside, shard, nested):
    model = copy.deepcopy(start)
    model.around = around
    for layer in model.model.layers:
        layer.inside = inside
        if nested:
            shard(layer)
    shard(model)
    return model


def trained(model, tokens):
    """Two steps, the gradients of which are left."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        losses.append(loss.item())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        losses.append(norm.item())
        optimizer.step()
    return losses


#: What is computed again: layers from outside, from inside; reentrant or not.
AGAIN = [(None, None), (False, None), (True, None), (None, False), (None, True), (True, False)]


def test_checkpoints_within_units(group):
    """Losses, norms and gradients are those of FSDP2, and those of one process."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    theirs, mesh = init_device_mesh("cpu", (group.size,)), line(group)
    tokens = torch.randint(0, 11, (4, 6), generator=torch.Generator().manual_seed(1))
    mine = tokens[2 * group.rank : 2 * group.rank + 2]
    start = filled(Language())
    alone = copy.deepcopy(start)
    trained(alone, tokens)
    for (around, inside), nested in itertools.product(AGAIN, (False, True)):
        ours = made(start, around, inside, lambda m: dt.fully_shard(m, mesh), nested)
        other = made(start, around, inside, lambda m: fully_shard(m, mesh=theirs), nested)
        found, wanted = trained(ours, mine), trained(other, mine)
        assert torch.allclose(torch.tensor(found), torch.tensor(wanted)), (around, inside, nested)
        assert same_gradients(ours, alone), (around, inside, nested)
        for (name, p), q in zip(ours.named_parameters(), other.parameters()):
            assert close(p.to_local(), q.to_local().detach()), (name, around, inside, nested)


def test_running_statistics(group):
    """The first rank's, as DistributedDataParallel has them where it evaluates."""
    batches = drawn(4, 8, 4)
    mine = slice(4 * group.rank, 4 * group.rank + 4)
    start = filled(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)))

    def results(module, wrapped):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for batch in batches[:3]:
            optimizer.zero_grad()
            wrapped(batch[mine]).square().mean().backward()
            optimizer.step()
        wrapped.eval()
        return wrapped(batches[3]).detach()

    theirs = copy.deepcopy(start)
    wanted = results(theirs, nn.parallel.DistributedDataParallel(theirs))
    averaged, divided = copy.deepcopy(start), copy.deepcopy(start)
    assert close(results(averaged, dt.data_parallel(averaged, line(group))), wanted)
    assert close(results(divided, dt.fully_shard(divided, line(group))), wanted)
    told = group.allgather_object(averaged[1].running_mean.tolist())
    assert told[0] == told[1]


def test_layers_that_are_cut(group):
    """Outputs and gradients of distribute_module beside DTensor's."""
    from torch.distributed import tensor as theirs

    mesh = theirs.init_device_mesh("cpu", (group.size,))
    start, x = filled(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))), drawn(3, 6)

    def cut(name, module, on):
        for key in list(module._parameters):
            dt.distribute_parameter(module, key, on, [Shard(0)])

    def cut_theirs(name, module, on):
        for key, p in list(module._parameters.items()):
            part = theirs.distribute_tensor(p.detach(), on, [theirs.Shard(0)])
            module.register_parameter(key, nn.Parameter(part))

    ours = dt.distribute_module(copy.deepcopy(start), line(group), cut)
    other = theirs.distribute_module(
        copy.deepcopy(start),
        mesh,
        cut_theirs,
        lambda m, i, on: (theirs.distribute_tensor(i[0], on, [theirs.Replicate()]),),
        lambda m, o, on: o.full_tensor(),
    )
    found, wanted = ours(x), other(x)
    assert close(found, wanted.detach())
    found.square().sum().backward()
    wanted.square().sum().backward()
    for p, q in zip(ours.parameters(), other.parameters()):
        wanted = q.grad.redistribute(placements=q.placements).to_local()
        assert close(local_of(p.grad), wanted)
