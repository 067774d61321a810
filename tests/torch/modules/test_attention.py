"""Dropout and attention on distributed tensors, beside one process."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import (
    close,
    drawn,
    filled,
    line,
    on,
    same_gradients,
    same_parameters,
    spread,
    tolerance,
)

# -- dropout ------------------------------------------------------------------------------------


def test_dropout_is_independent_of_the_layout(world, ranks, device):
    whole = drawn(6, 5, 9)

    def program(group):
        mesh = line(group)
        masks = []
        for placement in (Replicate(), Shard(0), Shard(1), Shard(2)):
            dt.manual_seed(3, mesh)
            x = whole.to(device) if device == "cpu" else whole.float().to(device)
            x = spread(x, mesh, [placement])
            functional.dropout(x, 0.5)
            module = dt.parallelize_module(
                nn.ModuleDict({"drop": nn.Dropout(0.25)}),
                mesh,
                {"drop": dt.DropoutParallel(placement)},
            )
            found = module["drop"](x.to_local())
            assert type(found) is torch.Tensor
            full = dt.DistTensor.from_local(found, mesh, [placement]).full_tensor()
            masks.append(full.cpu().double())
            assert module.eval()["drop"](x.to_local()) is not None
        assert all(torch.equal(mask, masks[0]) for mask in masks)
        kept = masks[0] != 0
        assert torch.allclose(masks[0][kept], (whole / 0.75)[kept], **tolerance(device))
        assert 0.6 < float(kept.double().mean()) < 0.9
        assert torch.equal(masks[0], DROPPED.setdefault(device, masks[0]))

    world.run(ranks, program)


#: What dropout has left on the first number of ranks, by the test.
DROPPED: dict[str, torch.Tensor] = {}


def test_dropout_of_channels_and_checkpoints(world, ranks):
    x = drawn(4, 3, 5, 5)

    def program(group):
        mesh = line(group)
        layer = nn.Sequential(nn.Dropout2d(0.5), nn.Conv2d(3, 3, 1), nn.Dropout(0.5))
        model = dt.distribute_module(filled(layer), mesh)
        found = model(x)
        total = dt.all_reduce(found, mesh, fold="max")
        assert torch.equal(found, total)  # replicas drop alike
        with pytest.raises(ValueError, match="between 0 and 1"):
            functional.dropout(spread(x, mesh, [Shard(0)]), 1.5)
        if world.name == "threads" and group.size > 1:
            return  # threads share torch's random numbers, by which a repeated pass is recognized
        dt.manual_seed(1, mesh)
        one = x.clone().requires_grad_()
        model(one).square().sum().backward()
        dt.manual_seed(1, mesh)
        two = x.clone().requires_grad_()
        checkpoint(model, two, use_reentrant=False).square().sum().backward()
        assert close(two.grad, one.grad)
        with pytest.raises(RuntimeError, match="preserve_rng_state"):
            checkpoint(model, two, use_reentrant=False, preserve_rng_state=False).sum().backward()

    world.run(ranks, program)


# -- attention ----------------------------------------------------------------------------------

KINDS = {
    "plain": {},
    "unequal": {"bias": False, "kdim": 7, "vdim": 9, "batch_first": True},
    "lengthened": {"add_bias_kv": True, "add_zero_attn": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_attention(world, ranks, device, kind):
    """Three heads on any number of ranks: masks, weights, gradients."""
    options = KINDS[kind]
    start = filled(nn.MultiheadAttention(12, 3, **options))
    sizes = (12, options.get("kdim", 12), options.get("vdim", 12))
    inputs = [drawn(2, n, size, seed=n) for n, size in zip((5, 6, 6), sizes)]
    if not options.get("batch_first"):
        inputs = [x.transpose(0, 1).contiguous() for x in inputs]
    shut = torch.tensor([[False] * 6, [False] * 5 + [True]])
    causal = torch.ones(5, 6, dtype=torch.bool).triu(2)
    calls = [
        {"need_weights": True},
        {"need_weights": True, "average_attn_weights": False, "attn_mask": causal,
         "key_padding_mask": shut},
        {"need_weights": False, "attn_mask": drawn(6, 5, 6)},
    ]  # fmt: skip

    def program(group):
        mesh = line(group)
        for call in calls:
            reference = copy.deepcopy(start)
            model = dt.parallelize_module(on(start, device), mesh, dt.AttentionParallel())
            dtype = model.out_proj.weight.dtype
            mine = [x.clone().to(dtype).to(device).requires_grad_() for x in inputs]
            theirs = [x.clone().requires_grad_() for x in inputs]
            moved = {k: v.to(device) if hasattr(v, "to") else v for k, v in call.items()}
            found, weights = model(*mine, **moved)
            wanted, shares = reference(*theirs, **call)
            assert close(found, wanted.detach(), device)
            assert (weights is None) == (shares is None)
            loss, truth = found.square().sum(), wanted.square().sum()
            if shares is not None:
                assert close(weights, shares.detach(), device)
                loss, truth = loss + weights.square().sum(), truth + shares.square().sum()
            loss.backward()
            truth.backward()
            assert all(close(a.grad, b.grad, device) for a, b in zip(mine, theirs))
            assert same_gradients(model, reference, device)
            assert same_parameters(model, reference, device)

    world.run(ranks, program)


def test_encoder_layer(world, ranks):
    """torch's own layer, in training and in inference, and the same dropout on all rank counts."""
    reference = filled(nn.TransformerEncoderLayer(12, 3, 20, dropout=0.3, batch_first=True))
    x = drawn(2, 5, 12)
    plan = {
        "self_attn": dt.AttentionParallel(),
        "linear1": dt.ColwiseParallel(),
        "dropout": dt.DropoutParallel(Shard(-1)),
        "linear2": dt.RowwiseParallel(),
    }

    with torch.no_grad():
        wanted = reference.eval()(x)

    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(copy.deepcopy(reference), mesh, plan)
        with torch.no_grad():
            assert close(model.eval()(x), wanted)
        dt.manual_seed(5, mesh)
        found = model.train()(x).detach()
        assert close(found, DROPPED.setdefault("encoder", found))

    world.run(ranks, program)
