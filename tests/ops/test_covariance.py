"""Covariance and correlation, of variables and observations cut in any way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Shard
from distarray.ops import covariance
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
)


@pytest.fixture(autouse=True)
def _all_distributed(monkeypatch):
    monkeypatch.setattr(covariance, "REPLICATED_BELOW", 0)


@settings(max_examples=15)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_covariance(world, ranks, data):
    shape = data.draw(st.sampled_from([(3, 17), (5,), (1, 9), (4, 2), (2, 1), (0, 3)]))
    values = data.draw(array_values(shape=shape, dtypes=("f8", "i4", "c16", "f4")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(shape, mesh_shape, values.dtype))
    rowvar = data.draw(st.booleans()) or shape[0] < 2
    count = shape[-1] if rowvar or len(shape) == 1 else shape[0]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weights = {"fweights": rng.integers(1, 4, count), "aweights": rng.random(count) + 0.1}
    chosen = data.draw(st.sets(st.sampled_from(list(weights))))
    named = {name: weights[name] for name in chosen}
    named |= data.draw(st.sampled_from([{}, {"bias": True}, {"ddof": 0}, {"dtype": np.complex128}]))
    twice = data.draw(st.booleans()) and shape[0]

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        spread = {
            name: distarray.distribute(value, mesh, [Shard(0)] * mesh.ndim, src=None)
            if name in chosen
            else value
            for name, value in named.items()
        }
        expected = np.cov(values, values if twice else None, rowvar, **named)
        assert_matches(np.cov(x, x if twice else None, rowvar, **spread), expected, exact=False)
        if not (chosen or named):
            expected = np.corrcoef(values, None, rowvar)
            assert_matches(np.corrcoef(x, None, rowvar), expected, exact=False)

    with np.errstate(all="ignore"):
        world.run(ranks, program)


BAD = {
    "ddof": {"ddof": 0.5},
    "frequencies that are no integers": {"fweights": [0.5] * 5},
    "negative frequencies": {"fweights": [-1] * 5},
    "too few": {"aweights": [1.0] * 4},
    "two dimensions": {"aweights": np.ones((5, 1))},
    "negative weights": {"aweights": [-1.0] * 5},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(world, ranks, what):
    values = np.arange(15.0).reshape(3, 5)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(1)], src=None)
        assert_same_error(lambda: np.cov(x, **BAD[what]), lambda: np.cov(values, **BAD[what]))

    world.run(ranks, program)
