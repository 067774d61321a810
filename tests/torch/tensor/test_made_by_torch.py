"""Plain tensors that torch makes inside of its own functions, and those of programs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import drawn, line


def _approximates(x):
    u, s, v = torch.svd_lowrank(x, 4)
    return (u * s) @ v.mT


def _pools(x):
    """The largest of all, whichever windows were drawn."""
    return functional.fractional_max_pool2d(x.view(1, 1, 6, 4), 2, output_size=(2, 2)).amax()


#: What is called with one matrix of 6 x 4.
MADE = {
    "combinations": lambda x: torch.combinations(x[:, 0].contiguous(), 2),
    "causal": lambda x: functional.scaled_dot_product_attention(
        *(x.view(2, 3, 4), x.view(2, 3, 4).exp(), x.view(2, 3, 4)), is_causal=True
    ),
    "tensor_split": lambda x: torch.tensor_split(x, (x[:2, 0] * 0).cpu().long() + 3)[2],
    "masked.var": lambda x: torch.masked.var(x, 0, mask=x > 0),
    "bags": lambda x: functional.embedding_bag((x[:4] * 0).long() + 2, x.contiguous(), mode="sum"),
    "list": lambda x: x[[0, 5, 1]],
    "svd_lowrank": _approximates,
    "fractional pooling": _pools,
}


def test_what_torch_makes_is_replicated(world, ranks):
    """Numbers that ranks draw there by themselves are those of one of them."""

    def program(group):
        for name, call in MADE.items():
            wanted = call(drawn(6, 4))
            for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
                x = dt.distribute_tensor(drawn(6, 4), line(group), placements, src=None)
                with distarray.config.override(fallback="allow"):
                    found = call(x)
                assert type(found) is dt.DistTensor, name
                told = group.allgather_object(found.full_tensor().tolist())
                assert all(one == told[0] for one in told), name
                if "pool" in name:
                    continue
                torch.testing.assert_close(found.full_tensor(), wanted, msg=name)

    world.run(ranks, program)


def test_what_a_program_makes_is_not(world, ranks):
    def program(group):
        x = dt.distribute_tensor(drawn(6, 4), line(group), [Shard(0)], src=None)
        plain = torch.ones(4, 4, dtype=torch.float64)
        for call in (
            lambda: x + plain[0],
            lambda: functional.linear(x, plain),
            lambda: torch.nn.Linear(4, 4, dtype=torch.float64)(x),
            lambda: functional.scaled_dot_product_attention(x, x, x, torch.ones(6, 6)),
        ):
            with pytest.raises(RuntimeError, match="plain one of shape"):
                call()

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_what_torch_makes_of_a_program_s_is_compared(world, ranks):
    def program(group):
        x = dt.distribute_tensor(drawn(6, 4), line(group), [Shard(0)], src=None)
        mask = torch.arange(24).view(6, 4) % 3 > 0
        found = torch.masked.var(x, 0, mask=mask)
        torch.testing.assert_close(found.full_tensor(), torch.masked.var(drawn(6, 4), 0, mask=mask))
        mask[0, 0] = group.rank == 1
        with pytest.raises(RuntimeError, match="plain one of shape"):
            torch.masked.var(x, 0, mask=mask)

    world.run(ranks, program)
