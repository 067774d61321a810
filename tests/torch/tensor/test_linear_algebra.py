"""Linear algebra of batches of matrices that are distributed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import distarray.torch as dt
from distarray import Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.comparing import compare_drawn, runs_without_gather


def spd(x):
    """Matrices that are symmetric and positive."""
    return x @ x.mT + torch.eye(3, dtype=x.dtype) if type(x) is torch.Tensor else _shifted(x)


def _shifted(x):
    with dt.implicit_replication():
        return x @ x.mT + torch.eye(3, dtype=x.dtype)


#: What is called with a tensor of 5 x 2 x 3 x 3.
MATRICES = {
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "solve": lambda x: torch.linalg.solve(x, x.mT + x.square()),
    "svd": lambda x: torch.linalg.svd(x)[1],
    "svdvals": torch.linalg.svdvals,
    "qr": lambda x: torch.linalg.qr(x)[1],
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)),
    "eigh": lambda x: torch.linalg.eigh(spd(x))[0],
    "lu": lambda x: torch.linalg.lu(x)[2],
    "matrix_exp": torch.linalg.matrix_exp,
    "triangular": lambda x: torch.linalg.solve_triangular(x.triu() + 2, x, upper=True),
}


@pytest.mark.parametrize("name", MATRICES)
@given(data=st.data())
def test_batches_of_matrices(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(5, 2, 3, 3).numpy(), MATRICES[name])


ALONE = {
    "det": torch.linalg.det,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "solve": lambda x: torch.linalg.solve(x, x.square()),
    "solve one": lambda x: torch.linalg.solve(x, x[:, 1]),
    "inv": torch.linalg.inv,
}


@pytest.mark.parametrize("name", ALONE)
@given(data=st.data())
def test_one_matrix(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(4, 4).numpy(), ALONE[name])


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", MATRICES)
def test_nothing_gathers(world, ranks, name):
    runs_without_gather(world, ranks, drawn(5, 2, 3, 3).numpy(), MATRICES[name], (0, 1, 2, 3))


def test_singular_matrices_are_refused_on_all_ranks(world, ranks):
    values = torch.eye(3, dtype=torch.float64).repeat(5, 1, 1)
    values[4, 1] = 0

    def program(group):
        x = dt.distribute_tensor(values, line(group), [Shard(0)], src=None)
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            torch.linalg.inv(x)
        with pytest.raises(torch.linalg.LinAlgError, match="positive-definite"):
            torch.linalg.cholesky(x)

    world.run(ranks, program)
