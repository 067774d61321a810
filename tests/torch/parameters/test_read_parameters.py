"""Modules whose parameters are read by another than the module that has them."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Shard
from tests.torch.models import close, drawn, filled, line, same_gradients

norms = nn.utils.parametrizations
made_alone = threading.Lock()


class Heads(nn.Module):
    """Self-attention; out_proj of torch's module is read, not called."""

    def __init__(self, **options):
        super().__init__()
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x):
        sizes = self.heads.kdim, self.heads.vdim
        return self.heads(x, x[..., : sizes[0]], x[..., : sizes[1]])[0]


class Tied(nn.Module):
    """An embedding whose table is the last layer's weight."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(9, 8), nn.Linear(8, 9)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(self.words((x[..., 0] * 3).long().clamp(0, 8)))


MODELS = {
    "attention": lambda: filled(Heads()),
    "attention of other widths": lambda: filled(Heads(kdim=6, vdim=5, add_bias_kv=True)),
    "encoder": lambda: filled(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)),
    "tied": lambda: filled(Tied()),
    "weight_norm": lambda: nn.Sequential(
        norms.weight_norm(filled(nn.Linear(8, 6))), nn.Tanh(), filled(nn.Linear(6, 3))
    ),
    "orthogonal": lambda: norms.orthogonal(filled(nn.Linear(8, 8))),
    "spectral_norm": lambda: norms.spectral_norm(filled(nn.Linear(8, 6))).eval(),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_parameters_cut(world, ranks, name):
    """Results and gradients are those of one process, or it is said why not."""
    torch.manual_seed(0)
    start, x = MODELS[name](), drawn(4, 5, 8)
    reference = copy.deepcopy(start)
    wanted = reference(x)
    wanted.square().sum().backward()

    def program(group):
        for dim in (0, 1):

            def cut(name, module, mesh, dim=dim):
                for parameter, tensor in module._parameters.items():
                    if tensor is not None:
                        where = min(dim, tensor.ndim - 1)
                        dt.distribute_parameter(module, parameter, mesh, [Shard(where)])

            model = dt.distribute_module(copy.deepcopy(start), line(group), cut)
            found = model(x)
            found.square().sum().backward()
            assert close(found, wanted.detach())
            assert same_gradients(model, reference)

    world.run(ranks, program)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_weights_that_hooks_compute(world, ranks):
    """Of the whole, as the hooks and a plan have it; a plan is told that there is none to cut."""
    x = drawn(2, 8)

    def made():
        layers = filled(nn.Sequential(nn.Linear(8, 7), nn.Linear(7, 8)))
        return nn.Sequential(nn.utils.weight_norm(layers[0]), layers[1])

    reference = made()
    reference(x).square().sum().backward()

    def cut(name, module, mesh):
        for parameter in list(module._parameters):
            dt.distribute_parameter(module, parameter, mesh, [Shard(0)])

    def program(group):
        model = dt.distribute_module(made(), line(group), cut)
        found = model(x)
        found.square().sum().backward()
        assert close(found, reference(x).detach())
        assert same_gradients(model, reference)
        for norm in (nn.utils.weight_norm, norms.weight_norm):
            layers, plan = nn.Sequential(norm(nn.Linear(8, 8))), {"0": dt.ColwiseParallel()}
            with pytest.raises(TypeError, match="computes its weight"):
                dt.parallelize_module(layers, line(group), plan)

    world.run(ranks, program)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, norms.weight_norm, norms.spectral_norm])
def test_divided(world, ranks, norm):
    """fully_shard, of the model and of its layers: by hooks or by parametrizations."""

    def made():
        with made_alone:  # what spectral_norm draws is drawn from the one generator of all threads
            torch.manual_seed(0)
            first, last = filled(nn.Linear(8, 6)), filled(nn.Linear(6, 3))
            return nn.Sequential(norm(first), nn.Tanh(), norm(last)).double()

    def train(model, x):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model

    x = drawn(2 * ranks, 8)

    def program(group):
        alone = train(made(), x)
        for layers in (False, True):
            model = made()
            for part in [model[0], model[2]] if layers else []:
                dt.fully_shard(part, line(group))
            dt.fully_shard(model, line(group))
            train(model, x[2 * group.rank : 2 * group.rank + 2])
            state = dt.module_state(model)
            for name, parameter in alone.named_parameters():
                assert close(torch.from_numpy(state[name].full()), parameter.detach()), name

    world.run(ranks, program)
