"""Seeds, states, the older interface, and ranks that differ."""

import copy
import pickle

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard
from distarray.comm import run_threads
from distarray.engines.drawing import sampling
from distarray.numpy.random import (
    PCG64,
    SFC64,
    Generator,
    Philox,
    RandomState,
    SeedSequence,
    default_rng,
)
from tests.ops.random.compared import KINDS, METHODS, near, pair, same_numbers, same_state, state


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
            lambda: Generator(SFC64()),
            lambda: RandomState(np.random.MT19937()),
            RandomState,
        ]
        found = [(make().random(), make().random()) for make in makers]
        assert same_everywhere(group, repr(found))
        assert len({value for pair in found for value in pair}) == 2 * len(makers)
        dnp.random.seed()
        assert same_everywhere(group, dnp.random.rand())

    world.run(ranks, program)


def test_seeds(world, ranks):
    """All that NumPy takes, without a message."""
    seeds = [5, [1, 2], np.array([3, 4]), 2**100, (7,)]

    def program(group):
        with distarray.forbid_communication():
            for seed in seeds:
                assert default_rng(seed).random() == np.random.default_rng(seed).random()
                for kind in KINDS:
                    ours, theirs = pair(kind, seed)
                    same_state(ours, theirs)
            for seed in (5, [1, 2], np.array([3, 4])):
                assert RandomState(seed).rand() == np.random.RandomState(seed).rand()
        wanted = np.random.default_rng([1, 2]).random()
        assert default_rng(dnp.asarray([1, 2])).random() == wanted
        assert RandomState(dnp.asarray([1, 2])).rand() == np.random.RandomState([1, 2]).rand()
        sequence = np.random.SeedSequence(5, spawn_key=(1,))
        same_state(default_rng(sequence), np.random.default_rng(sequence))
        rng = default_rng(5)
        assert default_rng(rng) is rng
        bits = PCG64(3)
        assert default_rng(bits).bit_generator is bits
        assert isinstance(np.random.PCG64(3), PCG64)
        assert isinstance(rng, np.random.Generator)
        assert not isinstance(rng, RandomState)

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


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_copies(world, kind):
    """State, pickles, children and jumps are NumPy's, and go between NumPy and us."""

    def program(group):
        for legacy in (False, True):
            ours, theirs = pair(kind, legacy=legacy)
            for rng in (ours, theirs):
                rng.standard_normal(5)
            for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
                same_state(twin, theirs)
                assert type(twin) is type(ours)
        ours, theirs = pair(kind)
        children = zip(ours.spawn(2), theirs.spawn(2), strict=True)
        for child, wanted in children:
            same_numbers(child.normal(size=9), wanted.normal(size=9))
        ours.bit_generator.state = {**theirs.bit_generator.state}
        bits = pickle.loads(pickle.dumps(ours.bit_generator))
        assert bits.seed_seq.n_children_spawned == 2
        if kind != "SFC64":
            jumped = ours.bit_generator.jumped(3)
            assert repr(jumped.state) == repr(theirs.bit_generator.jumped(3).state)
            assert type(jumped) is type(ours.bit_generator)
            assert same_everywhere(group, repr(jumped.seed_seq))
        assert str(ours) == f"Generator({kind})"
        assert ours.bytes(5) == theirs.bytes(5)

    world.run(near(world, 2), program)


def test_generators_share_a_bit_generator(world):
    def program(group):
        bits = PCG64(5)
        first, second = Generator(bits), Generator(bits)
        theirs = np.random.default_rng(5)
        for rng in (first, second, first):
            same_numbers(rng.normal(size=70_000), theirs.normal(size=70_000))

    world.run(near(world, 2), program)


# -- the older interface ------------------------------------------------------------------------


def reference_of(state):
    reference = np.random.RandomState()
    reference.set_state(state)
    return reference


def test_functions_share_a_state(world, ranks):
    reference = np.random.RandomState(3)

    def draw(space):
        return [
            space.rand(3, 4),
            space.randn(160, 900),
            space.randint(0, 9, (5, 5)),
            space.random_sample(5),
            space.normal(1.0, 2.0, 40),
            space.choice([1.0, 2.0, 3.0], 5),
            space.permutation(10),
            space.standard_gamma([1.0, 2.0]),
            space.multivariate_normal([0, 1], [[1, 0], [0, 1]], 4),
            space.poisson(4.0, 7),
            space.rand(),
            space.randint(5),
            space.uniform(2, 1, 3),
        ]

    wanted = draw(reference)

    def program(group):
        dnp.random.seed(3)
        for found, expected in zip(draw(dnp.random), wanted, strict=True):
            same_numbers(found, expected)
        same_state(dnp.random, reference)
        saved = dnp.random.get_state()
        assert saved[0] == "MT19937"
        again = dnp.random.rand(5).full()
        dnp.random.set_state(saved)
        np.testing.assert_array_equal(dnp.random.rand(5).full(), again)
        assert dnp.random.mtrand._rand.rand() == reference_of(saved).rand(6)[5]
        assert dnp.random.mtrand.rand() == reference_of(saved).rand(7)[6]
        bits = dnp.random.get_bit_generator()
        try:
            dnp.random.set_bit_generator(PCG64(3))
            assert dnp.random.rand() == np.random.RandomState(np.random.PCG64(3)).rand()
            dnp.random.seed(4)
            assert dnp.random.rand() == np.random.RandomState(np.random.PCG64(4)).rand()
        finally:
            dnp.random.set_bit_generator(bits)

    world.run(ranks, program)


def test_names_are_numpys():
    wanted = {name for name in np.random.__all__ if not name.startswith("_")}
    assert wanted <= set(dnp.random.__all__)

    def program(group):
        with pytest.warns(DeprecationWarning, match="randint"):
            found = RandomState(1).random_integers(5)
        assert found == np.random.RandomState(1).randint(1, 6)

    run_threads(1, program)


# -- ranks that differ ----------------------------------------------------------------------------


def test_ranks_with_different_seeds_are_found(world, monkeypatch):
    """By what is exchanged anyhow, and by `config.check` where nothing is."""
    monkeypatch.setattr(sampling, "_FEW", 100)

    def program(group):
        for kind in KINDS:
            ours, _ = pair(kind, group.rank)
            with pytest.raises(distarray.errors.DivergenceError):
                ours.standard_normal(80_000)
        with distarray.config.override(check=True):
            for act in (
                lambda rng: rng.random(80_000),
                lambda rng: rng.random(),
                lambda rng: rng.permutation(9),
                lambda rng: rng.choice(9, 3),
            ):
                with pytest.raises(distarray.errors.DivergenceError):
                    act(pair("PCG64", group.rank)[0])
            with pytest.raises(distarray.errors.DivergenceError):
                default_rng(group.rank)

    world.run(near(world, 2), program)


def test_a_bit_generator_of_ones_own(world, monkeypatch):
    """One that cannot be advanced goes in turns; one that has no state is drawn by all."""
    monkeypatch.setattr(sampling, "_FEW", 100)

    class Own(np.random.SFC64):
        pass

    class Silent(np.random.PCG64):
        @property
        def state(self):
            raise NotImplementedError

    def program(group):
        for kind, plain in ((Own, np.random.SFC64), (Silent, np.random.PCG64)):
            ours, theirs = Generator(kind(3)), np.random.Generator(plain(3))
            for name in ("random", "standard_normal"):
                same_numbers(getattr(ours, name)(70_001), getattr(theirs, name)(70_001))

    world.run(near(world, 3), program)


def test_new_arrays_go_where_they_are_asked_to(world, ranks):
    def program(group):
        rng = default_rng(1)
        assert rng.random(10).layout.is_replicated
        assert rng.random(200_000).placements == (Shard(0),) or ranks == 1
        assert rng.random(10, placements=[Shard(0)]).placements == (Shard(0),)
        with pytest.raises(distarray.errors.LayoutError):
            rng.random(10, placements=[Shard(1)])

    world.run(ranks, program)


def test_what_needs_no_message(world):
    """What every rank draws whole, and what it can find the place of."""

    def program(group):
        rng = default_rng(1)
        with distarray.forbid_communication():
            rng.normal(size=1000)
            rng.random((3, 5))
            rng.random(500_000)
            rng.uniform(0.0, 2.0, (1000, 300))
            rng.integers(0, 2, 100_000, dtype=bool)
            rng.permutation(1000)
            rng.choice(100, 7, replace=False)
            dnp.random.RandomState(3).standard_normal(9)

    world.run(world.ranks[-1], program)


def test_ranks_outside_the_mesh(world, ranks):
    """They ask nobody, and their generators stay in step where they know the parameters."""

    def program(group):
        inside = max(1, ranks // 2)
        mesh = DeviceMesh(group, (inside,), ranks=range(inside))
        x = distarray.distribute(np.arange(30_007.0), mesh, [Shard(0)], src=None)
        few = distarray.distribute(np.array([1.0, 2.0]), mesh, [Replicate()], src=None)
        ours, theirs = default_rng(3, mesh=mesh), np.random.default_rng(3)
        for name in METHODS:
            found = getattr(ours, name)(*METHODS[name], size=(300, 100))
            getattr(theirs, name)(*METHODS[name], size=(300, 100))
            assert found.mesh is mesh
            assert group.rank < inside or found.to_local().size == 0
        found = [
            ours.permutation(30_007),
            ours.permutation(x),
            ours.permuted(x.reshape(-1, 37), axis=0),
            ours.choice(x, 50),
            ours.choice(30_007, 50, replace=False),
            ours.dirichlet([1.0, 2.0], 5),
        ]
        ours.shuffle(x)
        assert all(y.mesh is mesh for y in found)
        assert ours.normal(few).shape == (2,)
        return state(ours), [y.shape for y in found]

    results = world.run(ranks, program)
    inside = max(1, ranks // 2)
    assert len({repr(result) for result in results[:inside]}) == 1
    assert len({repr(result[1]) for result in results}) == 1


def test_operands_of_another_mesh(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(10.0), placements=[Shard(0)], src=None)
        other = DeviceMesh(group, (1, ranks))
        with pytest.raises(distarray.errors.MeshError):
            default_rng(3).normal(x, mesh=other)
        assert default_rng(3, mesh=other).normal(size=5).mesh is other
        assert default_rng(3, mesh=other).normal(x).mesh is x.mesh

    world.run(ranks, program)
