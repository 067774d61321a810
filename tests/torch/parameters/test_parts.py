"""Parameters of which a rank has a part, in the hands of torch's own functions."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402
from distarray import Shard  # noqa: E402
from tests.everywhere import raises_everywhere  # noqa: E402
from tests.torch.models import TOY_PLAN, ToyModel, drawn, filled, line  # noqa: E402


def test_torchs_own_clipping_is_that_of_the_whole(world, ranks):
    """It found another norm on every rank, and let the ranks drift apart."""
    start, x = filled(ToyModel()), drawn(4, 10)
    alone = copy.deepcopy(start)
    alone(x).square().sum().backward()
    norms = [nn.utils.clip_grad_norm_(alone.parameters(), 1.0, order) for order in (2.0, 3.0)]

    def program(group):
        for make in (
            lambda m: dt.fully_shard(m, line(group)),
            lambda m: dt.parallelize_module(m, line(group), TOY_PLAN),
        ):
            model = make(copy.deepcopy(start))
            model(x).square().sum().backward()
            for order, norm in zip((2.0, 3.0), norms):
                found = nn.utils.clip_grad_norm_(model.parameters(), 1.0, order)
                assert torch.allclose(found, norm)
            for mine, theirs in zip(model.parameters(), alone.parameters()):
                assert torch.allclose(mine.grad.norm(), theirs.grad.norm())
                assert mine.grad.shape == theirs.shape
            nn.utils.clip_grad_value_(model.parameters(), 1e-3)
            if group.size > 1:
                scaler = torch.amp.GradScaler("cpu")
                scaler.scale(torch.ones(()))
                optimizer = torch.optim.SGD(model.parameters())
                with pytest.raises(RuntimeError, match="bfloat16"):
                    scaler.unscale_(optimizer)

    world.run(ranks, program)


def test_optimizers_see_plain_tensors_while_they_step(world, ranks):
    """Parameters are parts before and after, within a closure, and in what is kept of them."""
    start, x = filled(ToyModel()), drawn(4, 10)

    def trained(model, closure):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        kinds = set()

        def evaluate():
            optimizer.zero_grad()
            kinds.update({type(p) for p in model.parameters()})
            loss = model(x).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            if closure:
                optimizer.step(evaluate)
            else:
                evaluate()
                optimizer.step()
        return optimizer, kinds

    alone = copy.deepcopy(start)
    trained(alone, False)

    def program(group):
        for closure in (False, True):
            model = dt.fully_shard(copy.deepcopy(start), line(group))
            before = [type(p) for p in model.parameters()]
            optimizer, kinds = trained(model, closure)
            assert [type(p) for p in model.parameters()] == before and kinds == set(before)
            state = dt.module_state(model)
            for name, parameter in alone.named_parameters():
                assert np.allclose(state[name].full(), parameter.detach().numpy())
            for kept, p in zip(optimizer.state_dict()["state"].values(), model.parameters()):
                assert kept["momentum_buffer"].shape == p.shape

    world.run(ranks, program)


def test_whole_states_of_optimizers_are_cut(world, ranks):
    """That of a plain model goes on in a divided one, and in a parallel one."""
    start, x = filled(ToyModel()), drawn(4, 10)
    alone = copy.deepcopy(start)
    first = torch.optim.Adam(alone.parameters(), lr=0.1)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step(alone, first)
    saved = copy.deepcopy((alone.state_dict(), first.state_dict()))
    step(alone, first)

    def program(group):
        for make in (
            lambda m: dt.fully_shard(m, line(group)),
            lambda m: dt.parallelize_module(m, line(group), TOY_PLAN),
        ):
            model = make(filled(ToyModel(), seed=9))
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            step(model, optimizer)  # and one that has made steps already
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(copy.deepcopy(saved[1]))
            step(model, optimizer)
            state = dt.module_state(model)
            for name, parameter in alone.named_parameters():
                assert np.allclose(state[name].full(), parameter.detach().numpy()), name

    world.run(ranks, program)


def test_parallel_modules_are_copied_with_what_is_known(world, ranks):
    """Averages over steps: of a tensor-parallel model, by torch's own AveragedModel."""
    start, x = filled(ToyModel()), drawn(4, 10)

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), TOY_PLAN)
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
        )
        average.update_parameters(model)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(3)
        average.update_parameters(model)
        kinds = [type(p) for p in model.parameters()]
        assert [type(p) for p in average.module.parameters()] == kinds
        twice = copy.deepcopy(start)
        with torch.no_grad():
            for p in twice.parameters():
                p.mul_(2)
        assert torch.allclose(average(x), twice(x))

    world.run(ranks, program)


# -- parts that would be mixed -----------------------------------------------------------------

MESHES = {
    "data_parallel": dt.data_parallel,
    "fully_shard": dt.fully_shard,
    "of a layer": lambda m, mesh: dt.fully_shard(m.in_proj, mesh),
    "plan": lambda m, mesh: dt.parallelize_module(m, mesh, TOY_PLAN),
    "distribute": lambda m, mesh: dt.distribute_parameter(m.in_proj, "weight", mesh, [Shard(0)]),
}
PAIRS = [
    ("data_parallel", "fully_shard"),
    ("data_parallel", "of a layer"),
    ("data_parallel", "plan"),
    ("data_parallel", "distribute"),
    ("fully_shard", "data_parallel"),
    ("of a layer", "data_parallel"),
    ("plan", "data_parallel"),
    ("distribute", "data_parallel"),
]


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("first, second", PAIRS)
def test_no_dimension_is_averaged_and_cut(world, ranks, first, second):
    """The mean would be of different rows; on every rank, in any order, before anything changes."""

    def program(group):
        for other in (line(group), da.DeviceMesh(group, (1, group.size), ("a", "b"))["b"]):
            model = ToyModel()
            MESHES[first](model, line(group))
            raises_everywhere(
                group,
                (ValueError, da.errors.MeshError),
                lambda m=model, o=other: MESHES[second](m, o),
            )

    world.run(ranks, program)
