"""Fourier transforms and attention of distributed tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from tests.torch.models import drawn
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


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
def test_they_are_right(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(2, 3, 5, 4).numpy(), CALLS[name])


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", CALLS)
def test_nothing_gathers(world, ranks, name):
    runs_without_gather(world, ranks, drawn(2, 3, 5, 4).numpy(), CALLS[name], (0, 1, 2, 3))
