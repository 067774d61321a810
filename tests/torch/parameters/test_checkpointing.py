"""Models, optimizers and what else training needs, saved and loaded in other layouts."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("zarr")

import distarray.torch as dt  # noqa: E402
from distarray import checkpoint  # noqa: E402
from tests.torch.models import ToyModel, filled, line  # noqa: E402
from tests.torch.training import grid  # noqa: E402

nn = torch.nn


class Model(nn.Module):
    """With a tied weight, a buffer, a number and a dtype that NumPy lacks."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.up, self.down = nn.Linear(4, 5), nn.Linear(5, 4)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.out = nn.Linear(4, 7)
        self.out.weight = self.words.weight
        self.short = nn.Linear(4, 4, dtype=torch.bfloat16)

    def forward(self, x):
        y = self.norm(self.words(x))
        y = y + self.down(torch.relu(self.up(y))) * self.scale
        return self.out(y) + self.short(y.bfloat16()).double().sum(1, keepdim=True)


def model():
    torch.manual_seed(0)
    made = Model()
    for part in (made.words, made.norm, made.up, made.down, made.out):
        part.double()
    return made


def replicated(net, mesh):
    return dt.data_parallel(net, mesh, "dp", fold="sum", broadcast_buffers=False)


def divided(net, mesh):
    return dt.fully_shard(net, mesh, "dp", fold="sum")


def crossed(net, mesh):
    plan = {"up": dt.ColwiseParallel(), "down": dt.RowwiseParallel()}
    return divided(dt.parallelize_module(net, mesh["tp"], plan), mesh)


def steps(net, optimizer, scheduler, count):
    x = torch.arange(6) % 7
    for _ in range(count):
        optimizer.zero_grad()
        (nn.functional.cross_entropy(net(x), (x + 1) % 7) / 3).backward()
        optimizer.step()
        scheduler.step()


def trainer(net, kind=torch.optim.AdamW, **options):
    optimizer = kind(net.parameters(), lr=0.05, **options)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


def whole(net, mesh):
    return {
        n: a.full().astype(float)
        for n, a in dt.module_state(net, mesh).items()
        if n != "short.weight"
    }


@pytest.mark.parametrize(
    "first, second, kind", [(crossed, replicated, "AdamW"), (replicated, crossed, "SGD")]
)
def test_training_goes_on(world, ranks, shared_path, first, second, kind):
    """Saved in one layout after two steps and loaded in another: the next steps are the same."""
    options = {"momentum": 0.9} if kind == "SGD" else {"weight_decay": 0.1}
    kind = getattr(torch.optim, kind)
    nets = [(model(), model()) for _ in range(ranks)]

    def body(group):
        mesh = grid(group)
        one, other = nets[group.rank]
        one = first(one, mesh)
        optimizer, scheduler = trainer(one, kind, **options)
        steps(one, optimizer, scheduler, 2)
        generator = torch.Generator().manual_seed(5)
        state = {"net": one, "optimizer": optimizer, "scheduler": scheduler, "dice": generator}
        checkpoint.save(shared_path / "saved", state)
        rolled = torch.rand(3, generator=generator)
        steps(one, optimizer, scheduler, 2)
        other = second(other, mesh)
        for p in other.parameters():
            nn.init.zeros_(p)
        optimizer, scheduler = trainer(other, kind, **options)
        generator = torch.Generator()
        state = {"net": other, "optimizer": optimizer, "scheduler": scheduler, "dice": generator}
        checkpoint.load(shared_path / "saved", state)
        again = torch.rand(3, generator=generator)
        steps(other, optimizer, scheduler, 2)
        return whole(one, mesh), whole(other, mesh), rolled, again, scheduler.last_epoch

    for expected, found, rolled, again, epoch in world.run(ranks, body):
        assert epoch == 4
        assert torch.equal(rolled, again)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-9, err_msg=name)


def test_back_into_the_same(world, ranks, shared_path):
    """Loaded into a model and an optimizer that have made other steps since."""
    nets = [model() for _ in range(ranks)]

    def body(group):
        mesh = grid(group)
        net = crossed(nets[group.rank], mesh)
        optimizer, scheduler = trainer(net)
        steps(net, optimizer, scheduler, 2)
        checkpoint.save(shared_path / "saved", {"net": net, "optimizer": optimizer})
        before = whole(net, mesh)
        kept = {n: a.full() for n, a in dt.optimizer_state(optimizer, net).items()}
        pointers = [p.data_ptr() for p in net.parameters()]
        steps(net, optimizer, scheduler, 2)
        checkpoint.load(shared_path / "saved", {"net": net, "optimizer": optimizer})
        assert [p.data_ptr() for p in net.parameters()] == pointers
        counts = {float(s["step"]) for s in optimizer.state.values()}
        after = {n: a.full() for n, a in dt.optimizer_state(optimizer, net).items()}
        return before, whole(net, mesh), kept, after, counts

    for before, after, kept, moments, counts in world.run(ranks, body):
        assert counts == {2.0}
        for old, new in ((before, after), (kept, moments)):
            assert old.keys() == new.keys()
            for name, value in old.items():
                np.testing.assert_array_equal(new[name], value)


def test_on_a_device(world, ranks, device, shared_path):
    """Of a model whose tensors live elsewhere, and back into one, cut in another way."""

    def body(group):
        mesh, nets = line(group), [filled(ToyModel()).float().to(device) for _ in range(2)]
        dt.fully_shard(nets[0], mesh)
        optimizers = [torch.optim.AdamW(net.parameters()) for net in nets]
        nets[0](torch.ones(2, 10, device=device)).sum().backward()
        optimizers[0].step()
        plan = {"in_proj": dt.ColwiseParallel(), "out_proj": dt.RowwiseParallel()}
        dt.parallelize_module(nets[1], mesh, plan)
        states = [{"net": n, "optimizer": o} for n, o in zip(nets, optimizers, strict=True)]
        checkpoint.save(shared_path / "saved", states[0])
        checkpoint.load(shared_path / "saved", states[1])
        assert {p.device.type for p in nets[1].parameters()} == {torch.device(device).type}
        return [
            {n: a.full() for n, a in found.items()}
            for net, optimizer in zip(nets, optimizers, strict=True)
            for found in (dt.module_state(net), dt.optimizer_state(optimizer, net))
        ]

    for result in filter(None, world.run(ranks, body)):  # None: a rank that is not asked
        for old, new in zip(result[:2], result[2:], strict=True):
            assert old.keys() == new.keys()
            for name, value in old.items():
                np.testing.assert_array_equal(new[name], value, err_msg=name)


def test_another_model_is_refused(world, ranks, shared_path):
    nets = [(model(), nn.Linear(3, 2)) for _ in range(ranks)]

    def body(group):
        mesh = grid(group)
        net, other = nets[group.rank]
        checkpoint.save(shared_path / "saved", {"net": divided(net, mesh)})
        with pytest.raises(checkpoint.CheckpointError, match=r"no 'weight'|no weight"):
            checkpoint.load(shared_path / "saved", {"net": divided(other, mesh)})

    world.run(ranks, body)


def test_another_number_of_layers_is_refused(shared_path):
    two = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    checkpoint.save(shared_path / "saved", {"net": two})
    with pytest.raises(checkpoint.CheckpointError, match=r"has no '1.weight', '1.bias'"):
        checkpoint.load(shared_path / "saved", {"net": two[:1]})


def test_an_optimizer_has_what_it_had(shared_path):
    """Whatever parameters it had state for when it was saved, and has now."""

    def stepped(layer, *parameters):
        optimizer = torch.optim.AdamW(layer.parameters())
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        return optimizer

    for before, now in (("", "weight bias"), ("weight bias", "bias"), ("weight", "bias")):
        one, other = nn.Linear(2, 2), nn.Linear(2, 2)
        saved = stepped(one, *[getattr(one, name) for name in before.split()])
        checkpoint.save(shared_path / "saved", {"optimizer": saved})
        loaded = stepped(other, *[getattr(other, name) for name in now.split()])
        checkpoint.load(shared_path / "saved", {"optimizer": loaded})
        torch.testing.assert_close(loaded.state_dict()["state"], saved.state_dict()["state"])


def test_a_scheduler_with_milestones(shared_path):
    def made():
        optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), 1.0)
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 4], 0.5)

    first, second = made(), made()
    checkpoint.save(shared_path / "saved", first)
    checkpoint.load(shared_path / "saved", second)
    assert second.milestones == first.milestones
