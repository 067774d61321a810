"""With `config.check`, ranks that make different calls get one error, the same everywhere."""

import numpy as np
import pytest

import distarray.numpy as dnp
from distarray import Shard, config, distribute
from distarray.comm import default_mesh
from distarray.errors import DivergenceError


def split(shape=(12, 3)):
    return distribute(
        np.arange(np.prod(shape)).reshape(shape), default_mesh(), [Shard(0)], src=None
    )


CALLS = {
    "another function": lambda x, rank: np.cumsum(x, axis=0) if rank else np.cumprod(x, axis=0),
    "another argument": lambda x, rank: np.concatenate([x, x], axis=rank % 2),
    "another slice": lambda x, rank: x[: 5 + rank],
    "another value": lambda x, rank: x.__setitem__(0, rank),
    "another shape": lambda x, rank: np.add(x, split((12, 3))[: 12 - rank % 2][:1]),
    "a new array": lambda x, rank: dnp.zeros(100 + rank),
    "a value to distribute": lambda x, rank: distribute(np.ones(3 + rank), x.mesh, src=None),
    "a call left out": lambda x, rank: x.full() if rank else x.gather(),
}


@pytest.mark.parametrize("case", CALLS)
def test_divergence_is_an_error_on_all_ranks(world, ranks, case):
    def program(group):
        x = split()
        with config.override(check=True):
            if group.size == 1:
                CALLS[case](x, group.rank)  # one rank agrees with itself
                return
            with pytest.raises(DivergenceError, match="same call") as caught:
                CALLS[case](x, group.rank)
        told = str(caught.value).splitlines()[1:]
        assert len(told) > 1
        assert all("test_divergence.py:" in line for line in told), told

    world.run(ranks, program)


def test_equal_calls_pass(world, ranks):
    def program(group):
        x = split()
        with config.override(check=True):
            x[1:] += x[:-1]
            assert x.full().shape == (12, 3)

    world.run(ranks, program)
