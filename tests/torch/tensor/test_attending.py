"""Fourier transforms and attention of distributed tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import distarray.torch as dt
from distarray import Replicate, Shard, trace
from distarray.torch.tensor.ring_attention import NOTE
from tests.torch.models import close, drawn, line
from tests.torch.tensor.comparing import compare_drawn, runs_without_gather

_attend = functional.scaled_dot_product_attention

#: What is called with one tensor of 2 x 3 x 5 x 4.
CALLS = {
    "rfft and back": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=2) * 2, n=5, dim=2),
    "fft": lambda x: torch.fft.fft2(x, dim=(0, 2)).abs(),
    "attention": lambda x: _attend(x, x.sin(), x * 2),
    "causal attention": lambda x: _attend(x, x.sin(), x * 2, is_causal=True),
    "masked attention": lambda x: _attend(x, x, x, x[:, :, :, :1].detach().expand(2, 3, 5, 5)),
}


#: What is called with one tensor of 1 x 2 x 7 x 4, whose sequence is cut.
AROUND = {
    "all": lambda x: _attend(x, x.sin(), x * 2),
    "causal": lambda x: _attend(x, x.sin(), x * 2, is_causal=True),
    "scaled": lambda x: _attend(x, x.sin(), x * 2, scale=0.3),
    "of one head": lambda x: _attend(x[:, :1], x[:, :1].sin(), x[:, 1:], is_causal=True),
    "shared keys": lambda x: _attend(x, x[:, :1].sin(), x[:, 1:], is_causal=True, enable_gqa=True),
    "whole keys": lambda x: _attend(x, x[:, :, 1:2].sin(), x[:, :, 1:2] * 2),
    "queries alone": lambda x: _attend(x, x[:, :, ::2].sin(), x[:, :, ::2]),
}


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
def test_they_are_right(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(2, 3, 5, 4).numpy(), CALLS[name])


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", CALLS)
def test_nothing_gathers(world, ranks, name):
    runs_without_gather(world, ranks, drawn(2, 3, 5, 4).numpy(), CALLS[name], (0, 1, 2, 3))


@pytest.mark.parametrize("name", AROUND)
@given(data=st.data())
def test_along_a_ring(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(1, 2, 7, 4).numpy(), AROUND[name])


@pytest.mark.parametrize("heads", [1, 4])
def test_queries_beside_whole_keys_stay_where_they_are(world, ranks, heads):
    """Nothing is sent but the sums of the gradients of keys and values."""

    def program(group):
        mesh = line(group)
        whole = [drawn(2, 4, 7, 3), drawn(2, heads, 5, 3), drawn(2, heads, 5, 3) * 2]
        alone = [x.clone().requires_grad_() for x in whole]
        wanted = _attend(*alone, enable_gqa=True)
        wanted.square().sum().backward()
        laid = [Shard(2), Replicate(), Replicate()]
        given = [dt.distribute_tensor(x, mesh, [p]) for x, p in zip(whole, laid, strict=True)]
        given = [x.requires_grad_() for x in given]
        with trace() as events:
            found = _attend(*given, enable_gqa=True)
        assert not events.events
        assert found.placements == (Shard(2),) or ranks == 1
        found.square().sum().backward()
        assert close(found.full_tensor(), wanted)
        for x, other in zip(given, alone, strict=True):
            assert close(x.grad.full_tensor(), other.grad)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 2)
@pytest.mark.parametrize("causal", [False, True])
def test_each_rank_hands_keys_and_values_on(world, ranks, causal):
    """With fewer heads than ranks: to one other rank, once less than there are ranks."""

    def program(group):
        whole = [drawn(1, 2, 5 * ranks, 4).double() * n for n in (1, 2, 3)]
        alone = [x.clone().requires_grad_() for x in whole]
        wanted = _attend(*alone, is_causal=causal)
        wanted.square().sum().backward()
        given = [dt.distribute_tensor(x, line(group), [Shard(2)]) for x in whole]
        given = [x.requires_grad_() for x in given]
        with trace() as events:
            found = _attend(*given, is_causal=causal)
        mine = [event for event in events if event.note == NOTE]
        assert len(mine) == len(events) == ranks - 1
        assert {event.bytes for event in mine} == {2 * given[1].to_local().nbytes}
        found.square().sum().backward()
        assert found.placements == (Shard(2),)
        assert close(found.full_tensor(), wanted)
        for x, other in zip(given, alone, strict=True):
            assert close(x.grad.full_tensor(), other.grad)

    world.run(ranks, program)


def test_a_ring_in_half_precision(world, ranks):
    def program(group):
        x = drawn(1, 1, 9, 4).to(torch.bfloat16)
        found = _attend(*[dt.distribute_tensor(x, line(group), [Shard(2)])] * 3, is_causal=True)
        assert found.dtype is torch.bfloat16
        wanted = _attend(x, x, x, is_causal=True)
        assert torch.allclose(found.full_tensor(), wanted, atol=2e-2, rtol=2e-2)

    world.run(ranks, program)
