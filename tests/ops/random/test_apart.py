"""Functions that each rank calls by itself, and that draw: NumPy's numbers, or an error."""

import pickle
from functools import cache

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard
from distarray.errors import ChanceError, NotDistributedError
from tests.ops.random.compared import same_state

pytestmark = [
    pytest.mark.host,
    pytest.mark.filterwarnings("ignore::distarray.errors.PerformanceWarning"),
]
VALUES = np.linspace(0.0, 1.0, 35).reshape(7, 5)

vectorize = dnp.vectorize  # NumPy's own, where no array is distributed
#: NumPy's call of a function that draws from `rng`, on any array.
LOOPS = {
    "vectorize": lambda rng, x: vectorize(lambda p: rng.binomial(9, p))(x),
    "vectorize, types": lambda rng, x: vectorize(rng.normal, otypes="d")(x),
    "vectorize, kept": lambda rng, x: vectorize(rng.normal, cache=True)(x),
    "vectorize, lines": lambda rng, x: vectorize(rng.permutation, signature="(n)->(n)")(x),
    "frompyfunc": lambda rng, x: np.frompyfunc(rng.poisson, 1, 1)(x).astype(float),
    "apply_along_axis": lambda rng, x: np.apply_along_axis(rng.permutation, 1, x),
    "the other axis": lambda rng, x: np.apply_along_axis(rng.choice, 0, x, 3),
    "one line": lambda rng, x: np.apply_along_axis(lambda line: line + rng.random(), 0, x[0]),
    "in some calls": lambda rng, x: vectorize(lambda p: rng.random() if p > 0.8 else p)(x),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("kind", ["default_rng", "RandomState"])
def test_numbers_from_outside_are_numpys(world, name, kind):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for placement in (Shard(0), Shard(1), Replicate()):
            theirs, ours = getattr(np.random, kind)(5), getattr(dnp.random, kind)(5)
            wanted = LOOPS[name](theirs, VALUES)
            found = LOOPS[name](ours, distarray.distribute(VALUES, mesh, [placement]))
            np.testing.assert_array_equal(found.full(), wanted)
            same_state(ours, theirs)
            assert ours.normal() == theirs.normal()

    for ranks in world.ranks:
        world.run(ranks, program)


def test_generators_of_the_functions_own(world):
    """They are made where they are drawn from, and the calls stay divided."""

    def draw(seed):
        return dnp.random.default_rng(int(seed)).random()

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distarray.distribute(np.arange(11), mesh, [Shard(0)])
        with distarray.config.override(fallback="error"):
            found = vectorize(draw)(x)
        wanted = [np.random.default_rng(seed).random() for seed in range(11)]
        np.testing.assert_array_equal(found.full(), wanted)

    for ranks in world.ranks:
        world.run(ranks, program)


def test_blocks_are_refused(world):
    """Of blocks nobody knows NumPy's order. Positions in the sequence stay alike on all ranks."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distarray.distribute(np.zeros(10), mesh, [Shard(0)])
        for rng in (dnp.random.default_rng(5), distarray.random.default_rng(5)):
            if group.size > 1:
                with pytest.raises(ChanceError, match="pass them as an array"):
                    distarray.map_blocks(lambda block, rng=rng: block + rng.random(), x)
                with pytest.raises(ChanceError):
                    distarray.map_overlap(lambda block, rng=rng: block * rng.random(), x, 0)
            distarray.map_blocks(np.add, x, rng.random(10))
            assert len(set(group.allgather_object(rng.random()))) == 1

    for ranks in world.ranks:
        world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_generators_that_are_taken_out_are_refused(world, ranks):
    """Each rank has drawn from its own; copies that were sent to other ranks are as bad."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distarray.distribute(np.arange(11.0), mesh, [Shard(0)])
        made = cache(lambda: dnp.random.default_rng(0))
        draw = distarray.pure(lambda p: made().normal(p))
        vectorize(draw, otypes="d")(x)
        for rng in (made(), pickle.loads(pickle.dumps(made()))):
            with pytest.raises(ChanceError, match="before that call, on all ranks"):
                rng.random()
        with pytest.raises(ChanceError, match="before that call, on all ranks"):
            vectorize(draw, otypes="d")(x)

    world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_what_is_too_large_to_gather(world, ranks):
    def program(group):
        rng = dnp.random.default_rng(0)
        x = distarray.distribute(VALUES, DeviceMesh(group, (group.size,)), [Shard(0)])
        for settings in ({"fallback": "error"}, {"fallback_limit": 100}):
            with (
                distarray.config.override(**settings),
                pytest.raises(NotDistributedError, match="draw the numbers before"),
            ):
                vectorize(rng.normal)(x)
        assert rng.random() == np.random.default_rng(0).random()

    world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_a_mesh_of_some_ranks(world, ranks):
    """The ranks outside do not make the calls, and would be left behind."""

    def program(group):
        first = DeviceMesh(group, (1,), ranks=[0])
        x = distarray.distribute(np.arange(5.0), first, [Replicate()])
        rng = dnp.random.default_rng(0)
        if first.coords is not None:
            with pytest.raises(ChanceError):
                vectorize(rng.normal)(x)
        assert rng.random() == np.random.default_rng(0).random()

    world.run(ranks, program)
