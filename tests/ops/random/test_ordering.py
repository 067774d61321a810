"""Permutations and choices: NumPy's own, on any number of ranks and of any layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.numpy.random import RandomState, default_rng
from distarray.testing import assert_matches, assert_same_error, mesh_shapes, recipes, shapes
from tests.ops.random.compared import same_state, whole


def put(values, placement=None):
    return distarray.distribute(values, placements=[placement or Shard(0)], src=None)


def permuted_by(rng, what, x, axis):
    """What one of the methods makes of an array."""
    if what == "shuffle":
        rng.shuffle(x, axis)
        return x
    if what == "permutation":
        return rng.permutation(x, axis)
    if what == "choice":
        return rng.choice(x, min(3, x.shape[axis]), replace=False, axis=axis)
    return rng.permuted(x, axis=None if what == "permuted all" else axis)


@settings(max_examples=60)
@given(data=st.data())
def test_of_any_layout(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = data.draw(st.one_of(shapes(min_dims=1), st.sampled_from([(20_001,), (2, 7001)])))
    recipe = data.draw(recipes(shape, mesh_shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    kinds = ["permutation", "shuffle", "permuted", "permuted all", "choice"]
    what = data.draw(st.sampled_from(kinds if shape[axis] else kinds[:4]))
    values = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    theirs = np.random.default_rng(7)
    wanted = permuted_by(theirs, what, values.copy(), axis)

    def program(group):
        x = recipe.build(values.copy(), DeviceMesh(group, mesh_shape))
        rng = default_rng(7)
        assert_matches(permuted_by(rng, what, x, axis), wanted)
        same_state(rng, theirs)

    world.run(ranks, program)


@pytest.mark.parametrize("length", [0, 1, 9, 5000, 70_001])
def test_permutation_of_integers(world, ranks, length):
    wanted = [np.random.default_rng(7).permutation(length), np.random.RandomState(7)]
    wanted[1] = wanted[1].permutation(length)

    def program(group):
        for p in (None, [Shard(0)], [Replicate()]):
            assert_matches(default_rng(7).permutation(length, placements=p), wanted[0])
        assert_matches(default_rng(7).permutation(put(np.arange(length))), wanted[0])
        assert_matches(RandomState(7).permutation(length), wanted[1])
        assert_matches(RandomState(7).permutation(put(np.arange(length))), wanted[1])

    world.run(ranks, program)


#: Arguments of `choice` beside a population of 50 positions.
CHOICES = [
    {"size": 70_001},
    {"size": (301, 500), "p": np.arange(50) / 1225},
    {"size": 50, "replace": False},
    {"size": 20, "replace": False, "p": np.arange(50) / 1225},
    {},
    {"p": np.arange(50) / 1225},
]


@pytest.mark.parametrize("keywords", CHOICES)
def test_choices(world, ranks, keywords):
    values = np.arange(150.0).reshape(50, 3)

    def program(group):
        for ours, theirs in (
            (default_rng(7), np.random.default_rng(7)),
            (RandomState(7), np.random.RandomState(7)),
        ):
            given = dict(keywords)
            if "p" in given:
                given["p"] = put(given["p"])
            for a in (50, values[:, 0], values)[: 3 if hasattr(ours, "integers") else 2]:
                wanted = theirs.choice(a, **keywords)
                np.testing.assert_array_equal(whole(ours.choice(a, **given)), wanted)
                wanted = theirs.choice(a, **keywords)
                found = ours.choice(put(a) if np.ndim(a) else a, **given)
                np.testing.assert_array_equal(whole(found), wanted)
            same_state(ours, theirs)

    world.run(ranks, program)


def test_an_index_array_has_a_limit(world):
    """Beyond it the call refuses, and names what permutes by position."""

    def program(group):
        with distarray.config.override(fallback_limit=1000):
            x = put(np.arange(1000.0))
            rng = default_rng(7)
            for act in (
                lambda: rng.permutation(1000),
                lambda: rng.permutation(x),
                lambda: rng.shuffle(x),
                lambda: rng.permuted(x),
                lambda: rng.choice(1000, 500, replace=False),
            ):
                with pytest.raises(distarray.errors.GatherLimitError, match="default_rng"):
                    act()
            same_state(rng, np.random.default_rng(7))

    world.run(world.ranks[-1], program)


def test_an_array_of_outputs(world, ranks):
    wanted = np.random.default_rng(7).permuted(np.arange(300), axis=0)

    def program(group):
        x = put(np.arange(300))
        for out in (put(np.zeros(300, int)), np.zeros(300, int)):
            assert default_rng(7).permuted(x, axis=0, out=out) is out
            np.testing.assert_array_equal(whole(out), wanted)
        assert default_rng(7).permuted(np.arange(300), out=x) is x
        assert_matches(x, wanted)

    world.run(ranks, program)


def bad_calls(rng, put=lambda x: x):
    frozen = np.arange(3)
    frozen.flags.writeable = False
    return [
        lambda: rng.permutation(2.5),
        lambda: rng.permutation(put(np.arange(3)), axis=1),
        lambda: rng.permutation("abc"),
        lambda: rng.permutation(np.array(5.0)),
        lambda: rng.shuffle(5),
        lambda: rng.shuffle("abc"),
        lambda: rng.shuffle(np.array(5)),
        lambda: rng.shuffle([1, 2], axis=1),
        lambda: rng.shuffle(put(np.arange(3)), axis=1),
        lambda: rng.shuffle(frozen),
        lambda: rng.permuted(5),
        lambda: rng.permuted([1, 2, 3], axis=1),
        lambda: rng.permuted(put(np.arange(4)), out=np.zeros(3, int)),
        lambda: rng.permuted(put(np.arange(4)), out=[1]),
        lambda: rng.permuted(put(np.arange(3)), out=frozen),
        lambda: rng.permuted(put(np.arange(3.0)), out=np.zeros(3, int)),
        lambda: rng.permuted(5, axis=0),
        lambda: rng.choice(0),
        lambda: rng.choice(-2, 3),
        lambda: rng.choice([], 2),
        lambda: rng.choice(put(np.zeros((3, 0))), 2, axis=1),
        lambda: rng.choice(3.5),
        lambda: rng.choice(np.array(3.5)),
        lambda: rng.choice(2, 3, p=put(np.array([0.5, 0.5j]))),
        lambda: rng.choice("abc"),
        lambda: rng.choice(5, 3, p=[0.5, 0.5]),
        lambda: rng.choice(2, 3, p=[0.5, 0.4]),
        lambda: rng.choice(2, 2, p=[1.5, -0.5]),
        lambda: rng.choice(2, 2, p=[[1, 0]]),
        lambda: rng.choice(2, 2, p=[np.nan, 0]),
        lambda: rng.choice(2, 3, replace=False),
        lambda: rng.choice(3, 2, replace=False, p=[1, 0, 0]),
        lambda: rng.choice(5, -1),
        lambda: rng.choice(put(np.eye(2)), 1, axis=2),
    ]


def test_errors_are_numpys_on_all_ranks(world, ranks):
    reference = bad_calls(np.random.default_rng(0))

    def program(group):
        for ours, theirs in zip(bad_calls(default_rng(0), put), reference, strict=True):
            assert_same_error(ours, theirs)
        scalar = put(np.arange(3.0)).sum()
        with pytest.raises(TypeError):
            default_rng(0).shuffle(scalar)

    world.run(ranks, program)
