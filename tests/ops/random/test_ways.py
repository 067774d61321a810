"""The ways in which calls draw, places of streams, and sequences that are hard to join."""

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import Shard
from distarray.engines.drawing import cutting, sampling
from distarray.engines.drawing.job import Job, Request
from distarray.engines.drawing.methods import GENERATOR
from distarray.engines.drawing.pace import pace_of
from distarray.engines.drawing.places import LostError, Walker, put, state_of
from tests.ops.random.compared import KINDS, near, pair, same_numbers, same_state

SIZE = 70_003


@pytest.fixture
def ways(monkeypatch):
    """The ways that were taken, as the parts that they gave."""
    taken = []

    def watched(name):
        real = getattr(sampling, name)

        def act(*args):
            found = real(*args)
            taken.append((name, found is not None))
            return found

        monkeypatch.setattr(sampling, name, act)

    for name in ("drawn_at_places", "drawn_and_joined", "drawn_in_turns", "_cut_from_whole"):
        watched(name)
    monkeypatch.setattr(cutting, "_WORTH_PASSING", 3000)
    monkeypatch.setattr(sampling, "_FEW", 300)
    return taken


AT, JOINED, TURNS, WHOLE = (
    "drawn_at_places",
    "drawn_and_joined",
    "drawn_in_turns",
    "_cut_from_whole",
)


@pytest.mark.parametrize(
    ("kind", "name", "args", "keywords", "way"),
    [
        ("PCG64", "random", (), {}, AT),
        ("MT19937", "random", (), {}, AT),
        ("PCG64", "uniform", (np.arange(SIZE), 1e6), {}, AT),
        ("Philox", "integers", (0, 64), {"dtype": np.int8}, AT),
        ("PCG64", "integers", (0, 65), {"dtype": np.int8}, WHOLE),
        ("PCG64", "standard_normal", (), {}, JOINED),
        ("PCG64", "standard_normal", (), {"dtype": "f4"}, JOINED),
        ("PCG64DXSM", "standard_exponential", (), {}, JOINED),
        ("Philox", "gamma", (2.5, 1.0), {}, JOINED),
        ("PCG64", "integers", (0, 2**31 + 5), {}, JOINED),
        ("PCG64", "poisson", (4.0,), {}, JOINED),
        ("PCG64", "poisson", (100.0,), {}, JOINED),
        ("Philox", "binomial", (1000, 0.4), {}, JOINED),
        ("MT19937", "standard_normal", (), {}, JOINED),
        ("PCG64", "normal", (np.arange(SIZE), 1.0), {}, JOINED),
        ("PCG64", "gamma", (np.arange(SIZE), 1.0), {}, TURNS),
        ("SFC64", "random", (), {}, TURNS),
    ],
)
def test_ways(world, ways, kind, name, args, keywords, way):
    def program(group):
        ours, theirs = pair(kind)
        found = getattr(ours, name)(*args, size=SIZE, placements=[Shard(0)], **keywords)
        same_numbers(found, getattr(theirs, name)(*args, size=SIZE, **keywords))
        same_state(ours, theirs)

    world.run(near(world, 2), program)
    assert ways == [(way, True)] * len(ways)
    assert ways


#: What makes joining fail: a setting of the module, and its value.
OBSTACLES = [
    ("cutting", "_STEPS", -1),  # sequences are not in step soon enough
    ("pace", "_SURE", -20.0),  # ranks begin too late
    ("pace", "_SURE", 0.0),  # or at the mean, from where they may be too late
]


@pytest.mark.parametrize(("module", "name", "value"), OBSTACLES)
def test_what_cannot_be_joined_goes_in_turns(world, monkeypatch, module, name, value):
    from distarray.engines.drawing import pace

    modules = {"cutting": cutting, "pace": pace}
    monkeypatch.setattr(modules[module], name, value)

    def program(group):
        for kind in ("PCG64", "Philox"):
            ours, theirs = pair(kind)
            for method in ("standard_normal", "standard_cauchy"):
                for _ in range(3):
                    same_numbers(getattr(ours, method)(SIZE), getattr(theirs, method)(SIZE))
                    same_state(ours, theirs)

    world.run(near(world, 3), program)


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_ranks_without_elements(world, ways, rows):
    def program(group):
        ours, theirs = pair("PCG64")
        for name in ("random", "standard_normal"):
            found = getattr(ours, name)((rows, 20_000), placements=[Shard(0)])
            same_numbers(found, getattr(theirs, name)((rows, 20_000)))
        x = distarray.distribute(np.ones((rows, 20_000)), placements=[Shard(0)], src=None)
        same_numbers(ours.poisson(x), theirs.poisson(np.ones((rows, 20_000))))
        same_state(ours, theirs)

    world.run(near(world, 4), program)


def test_elements_of_very_many_words(world, ways):
    """Segments are shorter than what one element takes."""

    def program(group):
        ours, theirs = pair("PCG64")
        chances = np.full(3000, 1 / 3000)
        for _ in range(2):
            found = ours.multinomial(10**6, chances, size=6)
            same_numbers(found, theirs.multinomial(10**6, chances, size=6))
            same_state(ours, theirs)

    world.run(near(world, 4), program)


def hungry(kind, name, args):
    """Of some elements the half words of the one that takes most: where they begin, and how many.

    And the element of which a rank guesses that it begins among them.
    """
    source = np.random.Generator(getattr(np.random, kind)(7))
    walker = Walker(np.random.Generator(getattr(np.random, kind)(0)))
    begin = state_of(source)
    pace = pace_of(
        Job(Request(source, name, GENERATOR[name], args, {}, (), (), float), False), 10_000
    )
    getattr(source, name)(*args, size=5000)
    places = [walker.ahead(begin, state_of(source), 0)]
    for _ in range(3000):
        getattr(source, name)(*args, size=1)
        places.append(walker.ahead(begin, state_of(source), 0))
    taken = np.diff(places)
    start = places[int(np.argmax(taken))]
    first = 5000
    while int(first * pace.halves - pace.margin(first)) <= start:
        first += 1
    assert int(first * pace.halves - pace.margin(first)) < start + max(taken)
    return max(taken), first


@pytest.mark.parametrize("kind", ["PCG64", "Philox"])
@pytest.mark.parametrize(
    ("name", "args", "halves"),
    [
        ("standard_normal", (), 6),  # the ziggurat's tail
        ("standard_exponential", (), 6),
        ("integers", (0, 2**31 + 5), 9),  # about half of all words are refused
        ("integers", (0, 3 * 2**61), 7),
        ("standard_gamma", (0.05,), 6),
        ("poisson", (4.0,), 20),
        ("binomial", (1000, 0.4), 12),
    ],
)
def test_a_guess_within_an_element(world, ways, kind, name, args, halves):
    """The second rank begins where an element takes many words."""
    most, first = hungry(kind, name, args)
    assert most >= halves

    def program(group):
        size = group.size * first
        ours, theirs = pair(kind)
        found = getattr(ours, name)(*args, size=size, placements=[Shard(0)])
        same_numbers(found, getattr(theirs, name)(*args, size))
        same_state(ours, theirs)

    world.run(near(world, 2), program)
    assert set(ways) <= {(JOINED, True)}


@pytest.mark.parametrize("kind", KINDS[:4])
def test_places(kind):
    """Going on is drawing, and distances are counted both ways, across half words."""
    source = np.random.Generator(getattr(np.random, kind)(5))
    walker = Walker(np.random.Generator(getattr(np.random, kind)(0)))
    for first in (0, 1, 2):
        for count in (0, 1, 2, 3, 7, 8, 9, 64, 1001):
            source = np.random.Generator(getattr(np.random, kind)(5))
            source.random(first, dtype=np.float32)
            begin = state_of(source)
            source.random(count, dtype=np.float32)
            end = state_of(source)
            assert repr(walker.on(begin, count, False)) == repr(end)
            assert walker.ahead(begin, end, 2000) == count
            assert walker.ahead(end, begin, 2000) == -count
            put(source, begin)
            source.random(count)
            assert repr(walker.on(begin, 2 * count, True)) == repr(state_of(source))
    with pytest.raises(LostError):
        walker.ahead(begin, state_of(np.random.Generator(getattr(np.random, kind)(6))), 2000)


def test_philox_counts_past_a_word():
    bits = np.random.Philox(5)
    found = bits.state
    found["state"]["counter"] = np.array([2**64 - 3, 2**64 - 1, 7, 0], np.uint64)
    walker = Walker(np.random.Generator(np.random.Philox(0)))
    bits.state = found
    bits.random_raw(50)
    assert walker.ahead(found, bits.state, 0) == 100
    assert repr(walker.on(found, 100, True)) == repr(bits.state)


def test_numbers_that_cannot_be_drawn_in_parts_have_a_limit(world):
    def program(group):
        with (
            distarray.config.override(fallback_limit=1000),
            pytest.raises(distarray.errors.GatherLimitError, match="wider integers"),
        ):
            dnp.random.default_rng(3).integers(0, 10, (2400, 1000), dtype=np.int8)

    world.run(near(world, 2), program)
