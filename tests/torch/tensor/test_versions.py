"""What is written to a part is counted, as torch counts what is written to a tensor."""

import pytest
import torch

import distarray.torch as dt
from distarray import Partial, Shard
from tests.torch.models import line


def test_what_a_pending_tensor_came_to(world, ranks):
    """It is remembered, and no longer true after a write."""

    def program(group):
        x = dt.DistTensor.from_local(torch.ones(3), line(group), [Partial()])
        assert (x.full_tensor() == group.size).all()
        x.mul_(3)
        assert (x.full_tensor() == 3 * group.size).all()

    world.run(ranks, program)


def test_views_count_together(world, ranks):
    def program(group):
        local = torch.ones(2, 3)
        y = dt.DistTensor.from_local(local, line(group), [Shard(0)])
        y[0].mul_(2)
        assert local._version == y._part._version > 0, "also where the row is on another rank"

    world.run(ranks, program)


WRITES = {
    "in place": lambda x: x.mul_(2),
    "out=": lambda x: torch.mul(x, 2, out=x),
    "row": lambda x: x[0].fill_(3.0),
    "column": lambda x: x[:, 1].zero_(),
    "flattened": lambda x: x.view(-1).add_(1),
    "assigned": lambda x: x.__setitem__(slice(1, 3), 2.0),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_part_that_autograd_keeps(world, ranks, write):
    """A write to the tensor between forward and backward raises, as in one process."""

    def program(group):
        whole = torch.arange(12.0).reshape(4, 3)
        x = dt.distribute_tensor(whole, line(group), [Shard(0)], src_data_rank=None)
        part = x.to_local()
        weight = torch.ones_like(part, requires_grad=True)
        loss = (weight * part).sum()
        WRITES[write](x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    world.run(ranks, program)
