"""Seeds, states, the older interface, and that the numbers are random."""

import copy
import pickle

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard
from distarray.comm import run_threads
from distarray.numpy.random import (
    MT19937,
    PCG64,
    PCG64DXSM,
    SFC64,
    Generator,
    Philox,
    RandomState,
    SeedSequence,
    default_rng,
)


def alone(program):
    """What one rank gives."""
    return run_threads(1, lambda group: program())[0]


def same_everywhere(group, value):
    return len(set(group.allgather_object(value))) == 1


# -- seeds ------------------------------------------------------------------------------------


def test_without_a_seed_rank_0_gives_one(world, ranks):
    def program(group):
        makers = [
            default_rng,
            lambda: Generator(PCG64()),
            lambda: default_rng(SeedSequence()),
            lambda: default_rng(np.random.SeedSequence()),
            lambda: default_rng(np.random.default_rng()),
            lambda: default_rng(np.random.RandomState()),
            lambda: Generator(Philox()),
            RandomState,
        ]
        found = [(make().random(), make().random()) for make in makers]
        assert same_everywhere(group, repr(found))
        assert len({value for pair in found for value in pair}) == 2 * len(makers)

    world.run(ranks, program)


def test_seeds(world, ranks):
    def program(group):
        seeds = [5, [1, 2], np.array([3, 4]), 2**100, np.random.SeedSequence(5, spawn_key=(1,))]
        with distarray.forbid_communication():
            first = [default_rng(seed).random() for seed in seeds[:-1]]
        assert len({*first, default_rng(seeds[-1]).random()}) == len(seeds)
        assert default_rng(5).random() == first[0]
        assert default_rng(dnp.asarray([1, 2])).random() == first[1]
        for kind in (MT19937, PCG64, PCG64DXSM, SFC64):
            assert Generator(kind(5)).random() == Generator(kind(5)).random()
        rng = default_rng(5)
        assert default_rng(rng) is rng
        assert Generator(Philox(5)).random() == first[0]
        state = np.random.SeedSequence(9)
        assert default_rng(state).bit_generator.seed_seq is state

    world.run(ranks, program)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: default_rng(-1), ValueError),
        (lambda: default_rng("a"), TypeError),
        (lambda: default_rng(2.5), TypeError),
        (lambda: Generator(5), AttributeError),
        (lambda: Philox(1, key=2), ValueError),
        (lambda: Philox(key=[1, 2, 3]), ValueError),
        (lambda: RandomState(-1), ValueError),
        (lambda: RandomState(2**40), ValueError),
        (lambda: RandomState("a"), TypeError),
        (lambda: RandomState([]), ValueError),
        (lambda: RandomState([[1, 2]]), ValueError),
        (lambda: RandomState([1, -2]), ValueError),
    ],
)
def test_bad_seeds(world, make, error):
    def program(group):
        with pytest.raises(error):
            make()

    world.run(world.ranks[-1], program)


# -- states -----------------------------------------------------------------------------------


def test_streams_are_apart(world):
    def program(group):
        rng = default_rng(5)
        children = [*rng.spawn(3), *rng.spawn(2)]
        others = [rng, *children, default_rng(6)]
        others += [Generator(rng.bit_generator.jumped(jumps)) for jumps in (1, 2)]
        values = np.concatenate([other.random(3000).full() for other in others for _ in range(2)])
        assert len(np.unique(values)) == len(values)
        again = default_rng(5).spawn(5)
        wanted = children[4].bit_generator.state["state"]["key"]
        np.testing.assert_array_equal(again[4].bit_generator.state["state"]["key"], wanted)

    world.run(world.ranks[-1], program)


def test_copies_and_states(world):
    def program(group):
        rng = default_rng(5)
        rng.random(10)
        twins = [pickle.loads(pickle.dumps(rng)), copy.deepcopy(rng)]
        state = rng.bit_generator.state
        wanted = rng.normal(size=(200, 3)).full()
        for twin in twins:
            np.testing.assert_array_equal(twin.normal(size=(200, 3)).full(), wanted)
        rng.bit_generator.state = state
        np.testing.assert_array_equal(rng.normal(size=(200, 3)).full(), wanted)
        theirs = np.random.Philox(0)
        theirs.state = state  # NumPy's own reads it
        np.testing.assert_array_equal(np.random.Generator(theirs).normal(size=(200, 3)), wanted)
        assert copy.copy(rng).bit_generator is rng.bit_generator
        with pytest.raises(ValueError, match="Philox"):
            rng.bit_generator.state = np.random.PCG64(1).state
        assert str(rng) == "Generator(Philox)"

    world.run(world.ranks[-1], program)


# -- the older interface ------------------------------------------------------------------------


def draw_some(np):
    return [
        np.random.rand(3, 4),
        np.random.randn(70, 900),
        np.random.randint(0, 9, (5, 5)),
        np.random.random_sample(5),
        np.random.normal(1.0, 2.0, 40),
        np.random.choice([1.0, 2.0, 3.0], 5),
        np.random.permutation(10),
        np.random.standard_gamma([1.0, 2.0]),
        np.random.multivariate_normal([0, 1], [[1, 0], [0, 1]], 4),
        np.random.poisson(4.0, 7),
    ]


def test_functions_share_a_state(world, ranks):
    def program():
        dnp.random.seed(3)
        found = [x.full() for x in draw_some(dnp)]
        numbers = dnp.random.rand(), dnp.random.randint(5), dnp.random.ranf(), dnp.random.bytes(3)
        return found, numbers

    wanted = alone(program)
    theirs = draw_some(np)

    def on_ranks(group):
        found = program()
        assert found[1] == wanted[1]
        for ours, expected, numpys in zip(found[0], wanted[0], theirs, strict=True):
            np.testing.assert_array_equal(ours, expected)
            assert (ours.shape, ours.dtype) == (numpys.shape, numpys.dtype)
        state = dnp.random.get_state()
        again = dnp.random.rand(5).full()
        dnp.random.set_state(state)
        np.testing.assert_array_equal(dnp.random.rand(5).full(), again)
        dnp.random.set_state(dnp.random.get_state(legacy=False))
        x = dnp.arange(10)
        dnp.random.shuffle(x)
        assert sorted(x.tolist()) == list(range(10))

    world.run(ranks, on_ranks)


def test_bounds_of_older_programs_may_be_reversed(world, ranks):
    def program(group):
        dnp.random.seed(3)
        low = distarray.distribute(np.array([2.0, 3.0, 0.0]), placements=[Shard(0)], src=None)
        found = [dnp.random.uniform(2, 1), dnp.random.uniform(2, 1, 3), dnp.random.uniform(low, 1)]
        dnp.random.seed(3)
        share = [dnp.random.rand(), dnp.random.rand(3).full(), dnp.random.rand(3).full()]
        assert found[0] == 2 - share[0]
        assert type(found[0]) is float
        np.testing.assert_array_equal(found[1].full(), 2 - share[1])
        np.testing.assert_array_equal(found[2].full(), low.full() + (1 - low.full()) * share[2])

    world.run(ranks, program)


def test_raw_words_are_numpys():
    ours = Philox(3)
    np.testing.assert_array_equal(ours.random_raw(5), np.random.Philox(3).random_raw(5))
    assert ours.random_raw() == np.random.Philox(3).jumped().random_raw()


def test_unseeded_functions_agree(world, ranks):
    def program(group):
        assert same_everywhere(group, dnp.random.rand())

    world.run(ranks, program)


def test_names_are_numpys():
    wanted = {name for name in np.random.__all__ if not name.startswith("_")}
    assert wanted <= set(dnp.random.__all__)
    methods = {name for name in dir(np.random.RandomState) if not name.startswith("_")}
    assert methods <= set(dir(RandomState))
    with pytest.warns(DeprecationWarning, match="randint"):
        alone(lambda: RandomState(1).random_integers(5))


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
        lambda: [default_rng(1).random(shape).full(), default_rng(2).exponential(1.0, shape).full()]
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


def test_divergent_seeds_are_found(world):
    ranks = world.ranks[-1]

    def program(group):
        with distarray.config.override(check=True), pytest.raises(distarray.errors.DivergenceError):
            default_rng(group.rank)
        with distarray.config.override(check=True):
            rng = default_rng(5)
            rng.normal(size=3)
            if group.rank == 0:
                rng.bit_generator.advance(1 << 128)
            with pytest.raises(distarray.errors.DivergenceError):
                rng.normal(size=3)

    if ranks > 1:
        world.run(ranks, program)


def test_new_arrays_go_where_they_are_asked_to(world, ranks):
    def program(group):
        rng = default_rng(1)
        assert rng.random(10).layout.is_replicated
        assert rng.random(200_000).placements == (Shard(0),) or ranks == 1
        assert rng.random(10, placements=[Shard(0)]).placements == (Shard(0),)
        with pytest.raises(distarray.errors.LayoutError):
            rng.random(10, placements=[Shard(1)])

    world.run(ranks, program)


def test_ranks_outside_the_mesh(world, ranks):
    """They draw nothing and ask nobody, and their generators stay in step."""

    def program(group):
        inside = max(1, ranks // 2)
        mesh = DeviceMesh(group, (inside,), ranks=range(inside))
        rng = default_rng(3, mesh=mesh)
        x = distarray.distribute(np.arange(70_007.0), mesh, [Shard(0)], src=None)
        p = x / np.sum(x)
        few = distarray.distribute(np.array([1.0, 2.0]), mesh, [Replicate()], src=None)
        found = [
            rng.normal(size=(300, 200)),
            rng.random(40_000),
            rng.normal(few, 1.0),
            rng.normal(x),
            rng.poisson(x),
            rng.permutation(70_007),
            rng.permutation(x),
            rng.permuted(x.reshape(-1, 7), axis=0),
            rng.choice(x, 50),
            rng.choice(70_007, 50, p=p),
            rng.choice(70_007, 50, replace=False, p=p),
            rng.choice(70_007, 50, replace=False),
            rng.choice(70_007, (100, 300), replace=False),
            rng.multinomial(x.astype(int), [0.5, 0.5]),
            rng.dirichlet(few, 5),
            rng.multivariate_normal(few, [[1, 0], [0, 1]], 5),
            rng.multivariate_hypergeometric(few.astype(int), 2, 5),
        ]
        rng.shuffle(x)
        shapes = [y.shape for y in found]
        assert all(y.mesh is mesh for y in found)
        if group.rank >= inside:
            assert all(y.to_local().size == 0 for y in found)
        return shapes, rng.random(), rng.bit_generator.summary()

    results = [repr(result) for result in world.run(ranks, program)]
    assert len(set(results)) == 1


def test_operands_of_another_mesh(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(10.0), placements=[Shard(0)], src=None)
        other = DeviceMesh(group, (1, ranks))
        with pytest.raises(distarray.errors.MeshError):
            default_rng(3).normal(x, mesh=other)
        assert default_rng(3, mesh=other).normal(size=5).mesh is other
        assert default_rng(3, mesh=other).normal(x).mesh is x.mesh
        assert default_rng(3, mesh=other).normal(x.sum(), size=5).mesh is other

    world.run(ranks, program)
