"""Parameters of which a rank has a part, in the hands of torch's own functions."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402
from distarray import Shard  # noqa: E402
from tests.everywhere import raises_everywhere  # noqa: E402
from tests.torch.models import TOY_PLAN, ToyModel, drawn, filled, line  # noqa: E402


def sharded(mesh, units=0):
    """An embedding and a layer tied to it by a function, divided."""
    model = filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))
    for part in [model[0]] * units:
        dt.fully_shard(part, mesh)
    return dt.fully_shard(model, mesh)


def parallel(mesh):
    """The same, tensor-parallel."""
    model = filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))
    plan = {"0": dt.RowwiseParallel(), "1": dt.ColwiseParallel()}
    return dt.parallelize_module(model, mesh, plan)


#: What gave a number that is right for this rank's part alone.
USES = [
    lambda m: m[0](torch.tensor([1, 2])),
    lambda m: functional.linear(drawn(2, 4), m[0].weight),
    lambda m: functional.embedding(torch.tensor([0]), m[0].weight),
    lambda m: drawn(2, 4) @ m[0].weight.T,
    lambda m: m[0].weight.pow(2).sum(),
    lambda m: m[0].weight.mean(),
    lambda m: m[0].weight[0],
    lambda m: list(m[0].weight),
    lambda m: torch.cat([m[0].weight, m[0].weight]),
    lambda m: nn.utils.parameters_to_vector(m.parameters()),
    lambda m: nn.init.kaiming_uniform_(m[0].weight),
    lambda m: nn.init.xavier_normal_(m[0].weight),
    lambda m: m[0].weight.detach().numpy(),
    lambda m: np.asarray(m[0].weight.detach()),
    lambda m: m[0].weight.tolist(),
    lambda m: m.state_dict()["0.weight"].clone().cpu().numpy(),
    lambda m: torch.zeros(m[0].weight.shape, dtype=torch.float64).copy_(m[0].weight.detach()),
    lambda m: m[0].weight.detach() + torch.ones(2, 1, 4),
]


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("number", range(len(USES)))
def test_what_would_take_a_part_for_the_whole_is_refused(world, ranks, number):
    """On all ranks, nothing is sent, and the text says what to do."""

    def program(group):
        for make in (sharded, parallel) if number else (sharded,):
            model = make(line(group))
            raises_everywhere_without_sizes(group, lambda model=model: USES[number](model))

    world.run(ranks, program)


def raises_everywhere_without_sizes(group, call):
    """Every rank raises at once: the texts differ in the sizes of the parts."""
    with da.forbid_communication(), pytest.raises(RuntimeError, match="this rank's part") as caught:
        call()
    assert "full_tensor" in str(caught.value)


def test_what_is_right_for_parts_goes_on(world, ranks):
    """Element by element, and what is folded over all ranks: as with the whole."""
    whole = filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))[0].weight.detach()

    def program(group):
        for make in (sharded, parallel):
            weight = make(line(group))[0].weight
            with torch.no_grad():
                average = weight.detach().clone()
                average.mul_(0.5).add_(weight, alpha=0.5)
                torch._foreach_lerp_([average], [weight], 0.5)
                if group.size > 1:
                    assert torch.equal(average.full_tensor(), weight.full_tensor())
                assert torch.equal(weight.full_tensor(), whole)
                zeros, twos = torch.zeros_like(weight), 2 * torch.ones_like(weight)
                doubled = torch.addcmul(zeros, weight, twos)
                assert torch.allclose(doubled, 2 * weight)
                assert torch.allclose(weight.norm(), whole.norm())
                assert torch.allclose(weight.norm(float("inf")), whole.abs().max())
                assert torch.allclose(weight.sum(), whole.sum())
                assert bool((weight != 0).all()) and not bool(torch.isnan(weight).any())
                weight.copy_(copy.deepcopy(weight)).zero_()
                nn.init.constant_(weight, 2.0)
                assert torch.equal(weight.full_tensor(), torch.full_like(whole, 2.0))
            assert isinstance(weight, nn.Parameter) and repr(weight) and f"{weight}"
            assert weight.to_local().shape == weight.shape == weight.data.shape
            assert weight.requires_grad and weight.is_leaf and weight.dtype is torch.float64
            (weight.to_local() * 3).sum().backward()
            assert bool((weight.grad == 3).all())
            (part,) = torch.autograd.grad((weight.to_local() * 3).sum(), [weight])
            assert torch.allclose(part.norm(), torch.full_like(whole, 3).norm())
            weight.grad = None
            with pytest.raises(RuntimeError, match="has no gradient"):
                weight.full_tensor()

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_states_of_parts_are_saved_as_parts(world, ranks):
    """torch.save of state_dict gives parts that load where they belong, and nowhere else."""

    def program(group):
        model = sharded(line(group))
        other = sharded(line(group))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.tensor([1])).sum().backward()
        optimizer.step()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        files = group.allgather_object(file.getvalue())
        mine = torch.load(io.BytesIO(files[group.rank]))
        with torch.no_grad():
            other[0].weight.zero_()
        other.load_state_dict(mine["model"])
        again = torch.optim.Adam(other.parameters())
        again.load_state_dict(mine["optimizer"])
        for m, o in ((model, optimizer), (other, again)):
            o.zero_grad()
            m(torch.tensor([2])).sum().backward()
            o.step()
        found, wanted = dt.module_state(other), dt.module_state(model)
        assert all(np.array_equal(found[n].full(), a.full()) for n, a in wanted.items())
        theirs = torch.load(io.BytesIO(files[(group.rank + 1) % group.size]))
        if group.rank == 0:  # the last ranks may have the same, nothing
            with pytest.raises(RuntimeError, match="the same rank of the same layout"):
                other.load_state_dict(theirs["model"])
        with pytest.raises(RuntimeError):
            nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)).load_state_dict(mine["model"])
        with pytest.raises(RuntimeError, match="this rank's part"):
            mine["model"]["0.weight"].numpy()
        kept = copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)
        with pytest.raises(RuntimeError, match="this rank's part"):
            kept["0.weight"].tolist()

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_safetensors_gets_no_parts(world, ranks):
    """What transformers' save_pretrained writes with."""
    safe = pytest.importorskip("safetensors.torch")

    def program(group):
        for make in (sharded, parallel):
            with pytest.raises(RuntimeError, match="this rank's part"):
                safe.save(make(line(group)).state_dict())

    world.run(ranks, program)


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
            found = [p.grad for p in model.parameters()]
            wanted = [p.grad for p in alone.parameters()]
            for part, whole, p in zip(found, wanted, model.parameters()):
                assert torch.allclose(part.norm(), whole.norm())
                assert p.grad.shape == p.shape
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
            for kept in optimizer.state_dict()["state"].values():
                if group.size > 1:
                    with pytest.raises(RuntimeError, match="this rank's part"):
                        kept["momentum_buffer"].numpy()

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
