"""Plain indices beside distributed parameters: the same on all ranks, or an error on all."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import distarray.torch as dt
from distarray import DeviceMesh
from distarray.torch.tensor.operands import PlainOperandError
from tests.torch.models import close, filled

pytestmark = pytest.mark.filterwarnings("ignore::distarray.errors.PerformanceWarning")
LAYOUTS = {
    "sharded": dt.fully_shard,
    "rows": lambda m, mesh: dt.parallelize_module(m, mesh, {"0": dt.RowwiseParallel()}),
    "columns": lambda m, mesh: dt.parallelize_module(m, mesh, {"0": dt.ColwiseParallel()}),
}
USES = {
    "embedding": functional.embedding,
    "one token": lambda tokens, weight: functional.embedding(tokens[:1, :1], weight),
    "index": lambda tokens, weight: weight[tokens],
    "index_select": lambda tokens, weight: weight.index_select(0, tokens.reshape(-1)),
    "mask": lambda tokens, weight: weight.masked_fill(tokens[:, :1].expand(2, 4)[0] > 1, 0.0),
}


@pytest.mark.parametrize("trusted", [False, True], ids=["", "implicit_replication"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_indices(world, ranks, layout, use, trusted):
    plain = filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))
    tokens = torch.tensor([[1, 6, 2], [0, 1, 3]])
    expected = USES[use](tokens, plain[0].weight)

    def program(group):
        model = filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))
        LAYOUTS[layout](model, DeviceMesh(group, (group.size,)))
        with dt.implicit_replication() if trusted else torch.enable_grad():
            found = USES[use](tokens, model[0].weight)
            close(found.full_tensor() if ranks > 1 else found, expected)
            found.sum().backward()
            if ranks > 1:
                other = (tokens + group.rank) % 7
                with pytest.raises(PlainOperandError, match="differs between the ranks"):
                    USES[use](other, model[0].weight)
        return True

    assert all(world.run(ranks, program))


def test_each_rank_gives_its_own_to_the_module(world, ranks):
    plain = filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))

    def program(group):
        model = filled(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))
        dt.fully_shard(model, DeviceMesh(group, (group.size,)))
        tokens = torch.tensor([[group.rank % 7, 3]])
        close(model(tokens), plain(tokens))

    world.run(ranks, program)
