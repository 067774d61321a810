"""Operators that torch says by others, on distributed tensors beside plain ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import distarray.torch as dt
from tests.torch.models import drawn
from tests.torch.tensor.comparing import compare_drawn, runs_without_gather

aten = torch.ops.aten


def _classes(x):
    return (x[:, 0] * 0).long().detach() + 1


def _unpooled(x):
    """The same places in each channel."""
    places = torch.arange(6).view(1, 1, 3, 2) * 4
    with dt.implicit_replication():
        return aten.max_unpool2d(x.reshape(1, 4, 3, 2), places + _zeros(x), [6, 4])


def _zeros(x):
    return (x.detach() * 0).long().reshape(1, 4, 3, 2)


#: What is called with one matrix of 6 x 4.
ONE = {
    "alias_copy": torch.alias_copy,
    "expand_copy": lambda x: torch.expand_copy(x[:, None], (6, 2, 4)),
    "narrow_copy": lambda x: torch.narrow_copy(x, 0, 1, 4),
    "permute_copy": lambda x: torch.permute_copy(x, (1, 0)),
    "split_with_sizes_copy": lambda x: torch.split_with_sizes_copy(x, (1, 3, 2))[1],
    "squeeze_copy": lambda x: torch.squeeze_copy(x[:, None], 1),
    "t_copy": torch.t_copy,
    "transpose_copy": lambda x: torch.transpose_copy(x, 0, 1),
    "unbind_copy": lambda x: torch.unbind_copy(x, 1)[2],
    "unsqueeze_copy": lambda x: torch.unsqueeze_copy(x, 0),
    "unsafe_split": lambda x: torch.unsafe_split(x, 4)[1],
    "block_diag": lambda x: torch.block_diag(x, x[0], x[:, :1]),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x.reshape(1, 4, 3, 2), 2),
    "pixel_shuffle of one": lambda x: functional.pixel_shuffle(x.reshape(1, 4, 6, 1), 2),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x[None], 2),
    "channel_shuffle": lambda x: functional.channel_shuffle(x.reshape(2, 6, 2), 3),
    "take": lambda x: torch.take(x, (x.detach()[:2] * 0).long() + 7),
    "select_scatter": lambda x: torch.select_scatter(x, x[0] * 2, 0, 3),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:2] * 2, 0, 1, 5, 2),
    "nearest-exact": lambda x: functional.interpolate(x[None], size=7, mode="nearest-exact"),
    "max_unpool": _unpooled,
    "addr": lambda x: torch.addr(x, x[:, 1], x[2], beta=2, alpha=0.5),
    "dist": lambda x: torch.dist(x, x[0].detach(), 3),
    "cross": lambda x: torch.linalg.cross(x[:3], x[3:], dim=0),
    "logsigmoid": functional.logsigmoid,
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.5),
    "pairwise_distance": lambda x: functional.pairwise_distance(x, x[1].detach() * 2),
    "triplet": lambda x: functional.triplet_margin_loss(x, x * 2, x.flip(0)),
    "norm": lambda x: aten.norm.ScalarOpt_dim(x, 3, [1]),
}
#: Of a gradient that gathers, or none.
FORWARD = {
    "reflect": lambda x: functional.pad(x[None], (2, 1), mode="reflect"),
    "replicate": lambda x: functional.pad(x[None], (2, 3), mode="replicate"),
    "unfold": lambda x: functional.unfold(x[None, None], (2, 3), padding=1),
    "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=0)),
    "bucketize": lambda x: torch.bucketize(x, x[:, 0].sort()[0]),
    "multi_margin": lambda x: functional.multi_margin_loss(x, _classes(x)),
    "complex": lambda x: torch.view_as_real(torch.complex(x, x[0].expand(6, 4))),
    "polar": lambda x: torch.view_as_real(torch.polar(x.abs(), x)),
    "addr_": lambda x: x.clone().addr_(x[:, 1], x[2]),
    "renorm_": lambda x: x.clone().renorm_(2, 0, 1.5),
    "t_copy out": lambda x: torch.t_copy(x, out=x.new_empty(4, 6)),
    "take out": lambda x: torch.take(x, (x[:2] * 0).long() + 7, out=x.new_empty(2, 4)),
}


@pytest.mark.parametrize("name", [*ONE, *FORWARD])
@given(data=st.data())
def test_values_and_gradients(world, ranks, name, data):
    call = ONE.get(name) or FORWARD[name]
    compare_drawn(world, ranks, data, drawn(6, 4).numpy(), call, gradients=name in ONE)


#: Where what is asked for lies in a vector that is cut.
GATHERS = {"bucketize"}


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", [name for name in (*ONE, *FORWARD) if name not in GATHERS])
def test_nothing_gathers(world, ranks, name):
    call = ONE.get(name) or FORWARD[name]
    runs_without_gather(world, ranks, drawn(6, 4).numpy(), call, (0, 1), gradients=False)
