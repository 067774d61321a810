"""Numbers by position: the same on any number of ranks and of any layout, random, no message."""

import copy
import pickle

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.comm import run_threads
from distarray.random import Generator, Philox, default_rng
from distarray.testing import assert_matches
from tests.ops.random.compared import near

SHAPES = [(150, 270), (7, 5), (20011,)]
#: Method -> parameters.
METHODS = {
    "random": (),
    "standard_normal": (),
    "standard_exponential": (),
    "uniform": (-1.0, 2.0),
    "normal": (1.0, 2.0),
    "integers": (-3, 1000),
}
LONG = 70_001  # longer than what every rank permutes whole


def alone(program):
    """What one rank gives."""
    return run_threads(1, lambda group: program())[0]


def placements(ndim):
    return [[Shard(dim)] for dim in range(ndim)] + [[Replicate()]]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_on_any_ranks_and_layout(world, method):
    def draw(shape, **place):
        return getattr(default_rng(7), method)(*METHODS[method], size=shape, **place)

    wanted = {shape: alone(lambda s=shape: draw(s).full()) for shape in SHAPES}
    scalar = getattr(np.random.Generator(np.random.Philox(7)), method)(*METHODS[method])

    def program(group):
        with distarray.forbid_communication():
            found = [
                (draw(shape, placements=p), shape)
                for shape in SHAPES
                for p in placements(len(shape))
            ]
            assert getattr(default_rng(7), method)(*METHODS[method]) == scalar
        for result, shape in found:
            assert_matches(result, wanted[shape])

    for ranks in world.ranks:
        world.run(ranks, program)


def test_into_an_array(world, ranks):
    wanted = alone(lambda: default_rng(7).random((60, 50)).full())

    def program(group):
        for placement in (Shard(0), Shard(1), Replicate()):
            out = distarray.distribute(np.zeros((60, 50)), placements=[placement], src=None)
            assert default_rng(7).random(out=out) is out
            assert_matches(out, wanted)
        with pytest.raises(ValueError, match="out must be"):
            default_rng(7).random(out=out, dtype="f4")
        with pytest.raises(TypeError, match="unexpected"):
            default_rng(7).random(3, axis=2)

    world.run(ranks, program)


@pytest.mark.parametrize("length", [0, 1, 5000, LONG])
def test_permutations(world, ranks, length):
    wanted = alone(lambda: default_rng(7).permutation(length).full())
    assert sorted(wanted.tolist()) == list(range(length))

    def program(group):
        for p in (None, [Shard(0)], [Replicate()]):
            assert_matches(default_rng(7).permutation(length, placements=p), wanted)
        x = distarray.distribute(np.arange(length), placements=[Shard(0)], src=None)
        assert_matches(default_rng(7).permutation(x), wanted)
        default_rng(7).shuffle(x)
        assert_matches(x, wanted)

    world.run(ranks, program)


def test_nothing_is_gathered(world):
    def program(group):
        x = distarray.distribute(np.arange(4.0 * LONG), placements=[Shard(0)], src=None)
        with distarray.trace() as book:
            default_rng(7).permutation(x)
        return book.bytes, x.to_local().nbytes

    for sent, held in world.run(world.ranks[-1], program):
        assert sent < 2 * held + 200_000


def test_without_a_seed_rank_0_gives_one(world, ranks):
    def program(group):
        return default_rng().random(), default_rng(np.random.SeedSequence()).random()

    assert len(set(world.run(ranks, program))) == 1


def test_streams_states_and_copies(world):
    def program(group):
        rng = default_rng(5)
        children = [*rng.spawn(3), *rng.spawn(2)]
        others = [rng, *children, default_rng(6)]
        others += [Generator(rng.bit_generator.jumped(jumps)) for jumps in (1, 2)]
        values = np.concatenate([other.random(3000).full() for other in others for _ in range(2)])
        assert len(np.unique(values)) == len(values)
        twins = [pickle.loads(pickle.dumps(rng)), copy.deepcopy(rng)]
        state = rng.bit_generator.state
        wanted = rng.normal(size=(200, 3)).full()
        for twin in twins:
            np.testing.assert_array_equal(twin.normal(size=(200, 3)).full(), wanted)
        rng.bit_generator.state = state
        np.testing.assert_array_equal(rng.normal(size=(200, 3)).full(), wanted)
        assert default_rng(rng) is rng
        assert Philox(3).random_raw(5).tolist() == np.random.Philox(3).random_raw(5).tolist()
        assert "counter" in repr(Philox(3))

    world.run(world.ranks[-1], program)


def test_divergent_states_are_found(world):
    def program(group):
        rng = default_rng(5)
        rng.normal(size=3)
        if group.rank == 0:
            rng.bit_generator.advance(1 << 128)
        with (
            distarray.config.override(check=True),
            pytest.raises(distarray.errors.DivergenceError),
        ):
            rng.normal(size=3)

    world.run(near(world, 2), program)


def test_ranks_outside_the_mesh(world):
    ranks = world.ranks[-1]

    def program(group):
        mesh = DeviceMesh(group, (ranks // 2,), ranks=range(ranks // 2))
        rng = default_rng(3, mesh=mesh)
        assert rng.normal(size=(300, 200)).mesh is mesh
        rng.permutation(LONG)
        return rng.random()

    if ranks > 1:
        assert len(set(world.run(ranks, program))) == 1


# -- randomness -----------------------------------------------------------------------------------


def distance(values, cdf):
    """The statistic of Kolmogorov and Smirnov, times the root of the number of values."""
    values = np.sort(values.ravel())
    n = len(values)
    expected = cdf(values)
    up, down = np.arange(1, n + 1) / n - expected, expected - np.arange(n) / n
    return max(up.max(), down.max()) * np.sqrt(n)


def test_distributions_across_tiles():
    shape = (512, 400)
    drawn = alone(
        lambda: [
            default_rng(1).random(shape).full(),
            default_rng(2).standard_exponential(shape).full(),
        ]
    )
    assert distance(drawn[0], lambda x: x) < 1.95  # exceeded once in a thousand times
    assert distance(drawn[1], lambda x: 1 - np.exp(-x)) < 1.95


def test_tiles_and_calls_are_uncorrelated():
    def program():
        rng = default_rng(3)
        return [rng.standard_normal((1024, 512)).full() for _ in range(2)]

    first, second = alone(program)
    n = first.size
    for one, other in (
        (first, second),
        (first[:-1], first[1:]),
        (first[:, :-1], first[:, 1:]),
        (first[:, :-128], first[:, 128:]),
        (first[:-128], first[128:]),
        (first, alone(lambda: default_rng(4).standard_normal((1024, 512)).full())),
    ):
        assert abs((one * other).sum()) / np.sqrt(n) < 4
    means = first.reshape(8, 128, 4, 128).mean(axis=(1, 3)) * 128  # of single tiles
    assert np.abs(means).max() < 4.5
    assert abs(first.var() - 1) < 0.01


def test_bucketed_permutations_are_uniform():
    """Where elements come to lie, and which neighbours they get, over many permutations."""
    from distarray.engines.drawing import shuffling
    from distarray.engines.drawing.streams import Philox

    source = Philox.of(np.random.SeedSequence(11))
    n, trials = 24, 1500
    places = np.zeros((n, n))
    follows = np.zeros((n, n))
    limits = shuffling.WHOLE, shuffling._BUCKET
    shuffling.WHOLE, shuffling._BUCKET = 1, 6
    try:
        for _ in range(trials):
            order = shuffling.Shuffle(source.call(), n).whole()
            places[order, np.arange(n)] += 1
            follows[order[:-1], order[1:]] += 1
    finally:
        shuffling.WHOLE, shuffling._BUCKET = limits
    expected = trials / n
    chi = ((places - expected) ** 2 / expected).sum()
    freedom = (n - 1) ** 2
    assert abs(chi - freedom) < 4.5 * np.sqrt(2 * freedom)
    pairs = follows[~np.eye(n, dtype=bool)]
    chi = ((pairs - pairs.mean()) ** 2 / pairs.mean()).sum()
    assert abs(chi - len(pairs)) < 4.5 * np.sqrt(2 * len(pairs))
