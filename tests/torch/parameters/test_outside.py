"""Distributed parameters outside of their module's forward: programs compared with one process."""

from __future__ import annotations

import contextlib
import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import distarray as da
import distarray.torch as dt
from distarray import DeviceMesh, Shard
from tests.torch.models import close, drawn, filled, line, local_of

pytestmark = pytest.mark.filterwarnings("ignore::distarray.errors.PerformanceWarning")


def made():
    """An embedding and a layer, neither of whose extents the ranks divide."""
    return filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))


def cut(dim):
    """A `partition_fn` that cuts every parameter along one dimension."""

    def partition(name, module, mesh):
        for parameter, tensor in module._parameters.items():
            where = Shard(min(dim, tensor.ndim - 1))
            dt.distribute_parameter(module, parameter, mesh, [where])

    return partition


def registering(name, module, mesh):
    """The same as programs for DTensor have it."""
    for parameter, tensor in list(module._parameters.items()):
        there = nn.Parameter(dt.distribute_tensor(tensor, mesh, [Shard(0)]))
        module.register_parameter(parameter, there)


def crossed(group):
    """A mesh of two dimensions."""
    first = group.size if group.size % 2 else 2
    return DeviceMesh(group, (first, group.size // first), ("dp", "tp"))


def two_dims(model, group):
    """Rows cut twice, by the dimension of tensor parallelism first."""
    mesh = crossed(group)
    dt.parallelize_module(model, mesh["tp"], PLAN)
    return dt.fully_shard(model, mesh, "dp")


PLAN = {"0": dt.RowwiseParallel(), "1": dt.ColwiseParallel()}
LAYOUTS = {
    "rows": lambda m, group: dt.fully_shard(m, line(group)),
    "a plan": lambda m, group: dt.parallelize_module(m, line(group), PLAN),
    "columns": lambda m, group: dt.distribute_module(m, line(group), cut(1)),
    "registered": lambda m, group: dt.distribute_module(m, line(group), registering),
    "both": two_dims,
}


def words(m):
    return m[0].weight


def set_rows(m):
    with torch.no_grad():
        words(m)[2:4] = 0
        words(m)[0].add_(1)
        words(m).mul_(2).sub_(m[1].weight)


def averaged(m):
    with torch.no_grad():
        average = words(m).detach().clone()
        average.mul_(0.5).add_(words(m) * 3, alpha=0.5)
        torch._foreach_lerp_([average], [words(m)], 0.25)
        return torch.addcmul(torch.zeros_like(average), average, 2 * torch.ones_like(words(m)))


def with_gradient(m):
    words(m).square().sum().backward()
    words(m).grad.mul_(2)
    words(m).grad += words(m).detach()
    return words(m).grad.norm()


def hooked(m):
    seen = []
    handles = [
        words(m).register_hook(lambda grad: seen.append(grad.norm()) or grad * 2),
        words(m).register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.norm())),
    ]
    words(m).square().sum().backward()
    for handle in handles:
        handle.remove()
    return torch.stack(seen)


def differentiated(m):
    """Once and again."""
    (first,) = torch.autograd.grad(words(m).pow(3).sum(), [words(m)], create_graph=True)
    assert first.shape == words(m).shape
    return first.square().sum()


def clipped(m):
    functional.mse_loss(words(m), torch.zeros_like(words(m))).backward()
    (m[1].weight.pow(2).sum() + m[1].bias.sum()).backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    nn.utils.clip_grad_value_(m.parameters(), 0.03)
    return norm


def weighed(m):
    """A gradient that begins with one for each element."""
    return torch.autograd.grad(
        words(m).pow(3), words(m), grad_outputs=2 * torch.ones_like(words(m))
    ) + torch.autograd.grad(words(m).pow(3), words(m), torch.ones_like(words(m)))


def held(m):
    """Gradients that the program keeps when the optimizer has made its step."""
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    kept = []
    for _ in range(2):
        optimizer.zero_grad()
        words(m).pow(3).sum().backward()
        kept.append(words(m).grad)
        optimizer.step()
    return (kept[0] * kept[1]).sum() + kept[0].norm()


def broken_off(m):
    """Steps that end by an error, in the optimizer or in what it is given."""
    optimizer = torch.optim.Adam(m.parameters(), lr=0.1)
    words(m).pow(3).sum().backward()

    def closure():
        raise ValueError

    with contextlib.suppress(ValueError):
        optimizer.step(closure)
    found = [words(m).detach().norm(), words(m).grad.norm()]
    optimizer.param_groups[0]["lr"] = "none"
    with contextlib.suppress(TypeError):
        optimizer.step()
    found += [words(m).detach().norm(), words(m).grad.norm()]
    optimizer.param_groups[0]["lr"] = 0.1
    words(m).grad = torch.ones_like(words(m))
    optimizer.step()
    return torch.stack(found)


def assigned(m):
    words(m).grad = torch.ones_like(words(m))
    m[1].weight.grad = m[1].weight.detach() * 2
    m[1].bias.grad = torch.ones(7, dtype=torch.float64)


def filled_anew(m):
    words(m).data = m[1].weight.data + 1
    m[1].weight.data.copy_(m[1].weight.data * 2)
    m[1].bias.data[:] = 3


def by_vector(m):
    vector = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(vector.detach() * 2, m.parameters())
    return vector


def stepped_twice(m):
    """Sharpness-aware: uphill, and from there by the gradient that is found."""
    words(m).pow(4).sum().backward()
    with torch.no_grad():
        before = words(m).data.clone()
        words(m).add_(words(m).grad / words(m).grad.norm())
        words(m).grad = None
    words(m).pow(4).sum().backward()
    words(m).data = before
    torch.optim.SGD([words(m)], lr=0.1).step()


class Low(nn.Module):
    """A correction of low rank beside a frozen weight."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight.requires_grad_(False)
        self.a, self.b = nn.Parameter(drawn(2, 4)), nn.Parameter(drawn(7, 2))

    def forward(self, x):
        return functional.linear(x, self.weight + self.b @ self.a)


def adapted(m):
    low = Low(words(m))
    found = low(drawn(3, 4))
    whole(found).square().sum().backward()
    torch.optim.AdamW([low.a, low.b], lr=0.1).step()
    return torch.cat([whole(x).detach().flatten() for x in (found, low.a, low.b)])


def normed(m):
    """Weights that are computed of parameters put in their place."""
    layer = nn.Linear(4, 7).double()
    layer.weight, layer.bias = words(m), None
    nn.utils.parametrizations.weight_norm(layer)
    return layer(drawn(3, 4))


PROGRAMS = {
    "embedding": lambda m: functional.embedding(torch.tensor([[1, 6], [0, 1]]), words(m)),
    "tied": lambda m: functional.linear(drawn(2, 4), words(m)),
    "product": lambda m: drawn(2, 4) @ words(m).T @ m[1].weight,
    "penalty": lambda m: sum(p.pow(2).sum() for p in m.parameters()),
    "mean": lambda m: words(m).mean(0),
    "row": lambda m: words(m)[3],
    "rows": lambda m: torch.stack(list(words(m))),
    "named results": lambda m: words(m).flatten().topk(3).values + words(m).max(1).values[:3],
    "joined": lambda m: torch.cat([words(m), m[1].weight]),
    "softmax": lambda m: words(m).softmax(0),
    "norms": lambda m: torch.stack([words(m).norm(), words(m).norm(1), m[1].bias.norm(3)]),
    "extremes": lambda m: torch.stack([words(m).max(), *torch._foreach_norm([words(m)])]),
    "numbers": lambda m: torch.tensor(np.asarray(words(m).detach())),
    "array": lambda m: torch.tensor(words(m).detach().numpy()),
    "listed": lambda m: torch.tensor(words(m).tolist(), dtype=torch.float64),
    "copied": lambda m: torch.zeros(words(m).shape, dtype=torch.float64).copy_(words(m)),
    "broadcast": lambda m: words(m) + torch.ones(2, 1, 4, dtype=torch.float64),
    "whole": lambda m: whole(words(m)).pow(2),
    "no gradient": lambda m: torch.no_grad()(lambda: words(m).std(1))(),
    "inference": lambda m: torch.inference_mode()(lambda: words(m).sum(1).clone())(),
    "constant": lambda m: nn.init.constant_(words(m), 2.0).detach(),
    "functional": lambda m: torch.func.functional_call(
        nn.Linear(4, 7).double(), dict(m[1].named_parameters()), drawn(3, 4)
    ),
    "average": averaged,
    "writes": set_rows,
    "gradient": with_gradient,
    "hooks": hooked,
    "second gradient": differentiated,
    "gradients given": lambda m: torch.stack([whole(x) for x in weighed(m)]),
    "gradients kept": held,
    "broken steps": broken_off,
    "clipping": clipped,
    "gradients assigned": assigned,
    "data assigned": filled_anew,
    "vectors": by_vector,
    "two steps": stepped_twice,
    "low rank": adapted,
    "weight_norm": normed,
}


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def outcome(model, program):
    """What a program gives, gradients of its square, and the parameters afterwards."""
    with dt.implicit_replication():
        found = program(model)
        if found is not None:
            found = whole(found)
            if found.requires_grad and found.grad_fn is not None:
                found.square().sum().backward()
    grads = [None if p.grad is None else whole(p.grad) for p in model.parameters()]
    return [found, *grads, *map(whole, model.parameters())]


@pytest.mark.counts(lambda n: n in (1, 3, 4))  # one rank, uneven parts, a grid
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(world, ranks, name, layout):
    wanted = outcome(made(), PROGRAMS[name])

    def program(group):
        model = LAYOUTS[layout](made(), group)
        found = outcome(model, PROGRAMS[name])
        for mine, theirs in zip(found, wanted, strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or close(mine, theirs.detach())
        for p in model.parameters():
            assert local_of(p).numel() < p.numel() or group.size == 1 or p.numel() < group.size

    world.run(ranks, program)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_they_say_of_themselves(world, ranks, layout):
    """A parameter is a distributed tensor, whatever the number of ranks; nothing is sent."""
    plain = made()

    def program(group):
        model = LAYOUTS[layout](made(), group)
        mine, theirs = words(model), words(plain)
        with da.forbid_communication():
            assert isinstance(mine, dt.DistTensor) and isinstance(mine, nn.Parameter)
            for ask in (
                lambda p: (p.shape, p.size(), p.size(0), len(p), p.ndim, p.dim(), p.numel()),
                lambda p: (p.stride(), p.nbytes, p.dtype, p.device, p.is_leaf, p.requires_grad),
                lambda p: (p.is_contiguous(), p.is_floating_point(), p.T.shape, p.detach().shape),
                lambda p: torch.zeros_like(p).shape,
            ):
                assert ask(mine) == ask(theirs)
            assert mine.device_mesh is mine.mesh and len(mine.placements) == mine.mesh.ndim
            assert any(isinstance(placement, Shard) for placement in mine.placements)
            assert "7" in repr(mine) and f"{mine}" == repr(mine)
            section = mine.dist_layout.section(mine.mesh.coords)
            part = theirs[tuple([slice(*span) for span in section])]
            assert torch.equal(mine.to_local(), part)
            assert isinstance(mine.detach(), nn.Parameter) is False
            assert isinstance(nn.Parameter(mine), nn.Parameter)
        with torch.no_grad():
            assert np.array_equal(mine.to_array().full(), theirs.numpy())
        assert torch.equal(whole(mine.redistribute()), theirs)
        with pytest.raises(RuntimeError, match="requires grad"):
            mine.mul_(2)
        with pytest.raises(RuntimeError, match="requires grad"):
            functional.relu(mine, inplace=True)
        assert torch.equal(whole(mine), theirs)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_refusals(world, ranks, layout):
    """Plain tensors beside parameters, foreign shapes, and what would write parts as wholes."""
    refused = [
        (lambda m: functional.linear(drawn(2, 4), words(m)), "does not say how it is laid out"),
        (lambda m: words(m) + torch.ones(7, 4), "does not say how it is laid out"),
        (lambda m: setattr(words(m), "grad", torch.ones(2, 9)), "over all ranks"),
        (lambda m: setattr(words(m), "data", torch.ones(2, 9)), "over all ranks"),
        (lambda m: words(m).untyped_storage(), "full_tensor"),
        (lambda m: words(m).storage(), "full_tensor"),
        (lambda m: dt.distribute_tensor(words(m), words(m).mesh), "distributed already"),
    ]

    def program(group):
        model = LAYOUTS[layout](made(), group)
        with da.forbid_communication():
            for call, text in refused[:-1]:
                with pytest.raises(RuntimeError, match=text):
                    call(model)
        for call, text in refused[-1:]:
            with pytest.raises(TypeError, match=text):
                call(model)

    world.run(ranks, program)


DRAWS = (
    nn.init.normal_,
    nn.init.kaiming_uniform_,
    nn.init.xavier_normal_,
    nn.init.orthogonal_,
    nn.init.trunc_normal_,
)


def test_random_values_are_those_of_the_whole(world, ranks):
    """The same for each layout; equal on all ranks."""

    def program(group):
        found = []
        for layout in LAYOUTS.values():
            model = layout(made(), group)
            dt.manual_seed(3, words(model).mesh)
            for draw in DRAWS:
                parameter = words(model)
                assert draw(parameter) is parameter
                found.append(whole(parameter).detach())
        return found

    results = world.run(ranks, program)
    for found in results:
        if ranks > 1:  # one rank has plain parameters, and torch's own numbers
            for number, values in enumerate(found):
                assert torch.equal(values, results[0][number % len(DRAWS)])
                assert values.std() > 0


# -- attention, whose weights are packed -------------------------------------------------------


def attention(group=None):
    model = filled(nn.MultiheadAttention(8, 4, batch_first=True))
    return model if group is None else dt.parallelize_module(model, line(group), STYLE)


STYLE = dt.AttentionParallel()


def zeroed(p):
    with torch.no_grad():
        p[5:9].zero_()


PACKED = {
    "penalty": lambda p: p.pow(2).sum(),
    "rows": lambda p: p[7:10],
    "norm": lambda p: p.norm(),
    "product": lambda p: p @ p.T,
    "whole": lambda p: whole(p).pow(2),
    "writes": zeroed,
    "assigned": lambda p: setattr(p, "data", p.data * 2),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_weights(world, ranks, name):
    """Queries, keys and values are cut each by itself; the whole has its own shape."""
    alone = attention()
    wanted = outcome(alone, lambda m: PACKED[name](m.in_proj_weight))

    def program(group):
        model = attention(group)
        weight = model.in_proj_weight
        with da.forbid_communication():
            assert weight.shape == (24, 8) and isinstance(weight, dt.DistTensor) and repr(weight)
            if group.size > 1:
                with pytest.raises(RuntimeError, match="packs matrices"):
                    _ = weight.placements
        found = outcome(model, lambda m: PACKED[name](m.in_proj_weight))
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine is None or close(mine, theirs.detach())
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        loaded = attention(group)
        loaded.load_state_dict(torch.load(file))
        assert torch.equal(whole(loaded.in_proj_weight), whole(weight))
        loaded.load_state_dict(copy.deepcopy(model.state_dict()))
        twin = attention()
        twin.load_state_dict(model.state_dict())
        assert torch.equal(twin.in_proj_weight, whole(weight))

    world.run(ranks, program)
