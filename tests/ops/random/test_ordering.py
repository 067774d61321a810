"""Permutations and choices: the same on any number of ranks, uniform, and nothing is gathered."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.comm import run_threads
from distarray.numpy.random import default_rng
from distarray.testing import assert_matches, assert_same_error, mesh_shapes, recipes, shapes

LONG = 70001  # longer than what every rank permutes whole


def alone(program):
    """What one rank gives."""
    return run_threads(1, lambda group: program(default_rng(7)))[0]


def put(values, placement=None):
    return distarray.distribute(values, placements=[placement or Shard(0)], src=None)


def rows(n, width=2):
    return np.arange(n * width).reshape(n, width)


@pytest.mark.parametrize("length", [0, 1, 9, 5000, LONG])
def test_permutation_of_integers(world, ranks, length):
    wanted = alone(lambda rng: rng.permutation(length).full())
    assert sorted(wanted.tolist()) == list(range(length))

    def program(group):
        for p in (None, [Shard(0)], [Replicate()]):
            assert_matches(default_rng(7).permutation(length, placements=p), wanted)
        moved = default_rng(7).permutation(put(np.arange(length)))
        assert_matches(moved, wanted)

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_permutations_of_any_layout(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = data.draw(st.one_of(shapes(min_dims=1), st.sampled_from([(LONG,), (2, LONG)])))
    recipe = data.draw(recipes(shape, mesh_shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    what = data.draw(st.sampled_from(["permutation", "shuffle", "permuted", "permuted all"]))
    values = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)

    def act(rng, x):
        if what == "shuffle":
            rng.shuffle(x, axis)
            return x
        if what == "permutation":
            return rng.permutation(x, axis)
        return rng.permuted(x, axis=axis if what == "permuted" else None)

    wanted = run_threads(1, lambda g: act(default_rng(7), put(values.copy())).full())[0]
    along = None if what == "permuted all" else axis
    np.testing.assert_array_equal(np.sort(wanted, along), np.sort(values, along))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        layout = x.layout
        found = act(default_rng(7), x)
        assert_matches(found, wanted)
        if what == "shuffle" and layout.is_plain:
            assert found.layout is layout
        if what != "shuffle":
            assert_matches(x, values)

    world.run(ranks, program)


def test_rows_stay_together(world, ranks):
    wanted = alone(lambda rng: rng.permutation(put(rows(LONG))).full())
    order = alone(lambda rng: rng.permutation(LONG).full())
    np.testing.assert_array_equal(wanted, rows(LONG)[order])

    def program(group):
        for placement in (Shard(0), Shard(1), Replicate()):
            x = put(rows(LONG), placement)
            assert_matches(default_rng(7).permutation(x), wanted)
            default_rng(7).shuffle(x)
            assert_matches(x, wanted)
        view = put(rows(2 * LONG, 1).ravel())[::-2]
        default_rng(7).shuffle(view)
        assert_matches(view, rows(2 * LONG, 1).ravel()[::-2][order])
        local = rows(LONG)
        default_rng(7).shuffle(local)
        np.testing.assert_array_equal(local, wanted)

    world.run(ranks, program)


def test_nothing_is_gathered(world):
    ranks = world.ranks[-1]

    def program(group):
        x = put(np.arange(4.0 * LONG))
        with distarray.trace() as book:
            default_rng(7).permutation(x)
        return book.bytes, x.to_local().nbytes

    for sent, own in world.run(ranks, program):
        assert sent <= (0 if ranks == 1 else 1.6 * own)  # its elements, and parts of buckets


def test_permuted_into_out(world, ranks):
    values = np.arange(600.0).reshape(20, 30)
    wanted = alone(lambda rng: rng.permuted(values, axis=1).full())

    def program(group):
        x = put(values)
        out = put(np.zeros((20, 30)), Shard(1))
        assert default_rng(7).permuted(x, axis=1, out=out) is out
        assert_matches(out, wanted)
        default_rng(7).permuted(x, axis=1, out=x)
        assert_matches(x, wanted)
        local = np.zeros((20, 30))
        default_rng(7).permuted(values, axis=1, out=local)
        np.testing.assert_array_equal(local, wanted)

    world.run(ranks, program)


@pytest.mark.parametrize(
    ("method", "args", "keywords"),
    [
        ("permutation", (5000,), {}),
        ("permutation", (np.arange(60).reshape(20, 3),), {}),
        ("permuted", (np.arange(600).reshape(20, 30),), {"axis": 1}),
        ("choice", (500, 30), {"replace": False}),
        ("choice", (500, (30, 4)), {}),
        ("choice", (5, 30), {"p": [0.125, 0.125, 0.25, 0.25, 0.25]}),
    ],
)
def test_what_is_short_is_numpys_own(method, args, keywords):
    found = alone(lambda rng: getattr(rng, method)(*args, **keywords).full())
    theirs = np.random.Generator(np.random.Philox(7))
    np.testing.assert_array_equal(found, getattr(theirs, method)(*args, **keywords))


@pytest.mark.parametrize("args", [(0, 0), ([], 0), (5, 0), (5, (3, 0))])
def test_nothing_is_chosen(args):
    for replace in (True, False):
        found = alone(lambda rng, replace=replace: rng.choice(*args, replace=replace).full())
        wanted = np.random.default_rng(0).choice(*args, replace=replace)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)


P = np.random.default_rng(5).random(LONG)
P /= P.sum()

#: Arguments of choice.
CHOICES = [
    ((9, 5), {}),
    ((9, (40, 50)), {"p": np.full(9, 1 / 9)}),
    ((9, 5), {"replace": False}),
    ((9, 5), {"replace": False, "p": np.full(9, 1 / 9)}),
    ((9, (4, 2)), {"replace": False, "shuffle": False}),
    ((LONG, (30, 40)), {"replace": False}),
    ((LONG, (200, 300)), {"replace": False}),
    ((LONG, 50000), {"p": P}),
    ((LONG, 500), {"p": P, "replace": False}),
    ((9, None), {}),
    ((9, None), {"replace": False}),
    ((9, ()), {}),
]


@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_choice_of_integers(world, ranks, number):
    args, keywords = CHOICES[number]
    wanted = alone(lambda rng: np.asarray(rng.choice(*args, **keywords)))
    theirs = np.random.default_rng(0).choice(*args, **keywords)
    assert wanted.dtype == np.int64
    assert wanted.shape == np.shape(theirs)
    assert wanted.min() >= 0
    assert wanted.max() < args[0]
    if not keywords.get("replace", True):
        assert len(np.unique(wanted)) == wanted.size

    def program(group):
        cuts = [[Shard(0)]] if wanted.ndim else []
        for p in (None, *cuts, [Replicate()]):
            found = default_rng(7).choice(*args, **keywords, placements=p)
            if args[1] is None:
                assert (found, type(found)) == (wanted, type(theirs))
            else:
                assert_matches(found, wanted)

    world.run(ranks, program)


def test_choice_of_elements(world, ranks):
    values = np.random.default_rng(3).random((50, 40))
    cases = [
        {"size": 30},
        {"size": (3, 4), "axis": 1},
        {"size": 20, "replace": False},
        {"size": ()},
        {"size": 7, "p": np.full(50, 0.02)},
        {},
        {"axis": -1},
    ]
    wanted = alone(lambda rng: [rng.choice(values, **case).full() for case in cases])
    line = alone(lambda rng: float(rng.choice(values[0])))

    def program(group):
        for placement in (Shard(0), Shard(1), Replicate()):
            x, rng = put(values, placement), default_rng(7)
            for case, expected in zip(cases, wanted, strict=True):
                assert_matches(rng.choice(x, **case), expected)
            assert float(default_rng(7).choice(put(values[0]))) == line
        p = put(np.full(50, 0.02))
        rng = default_rng(7)
        np.testing.assert_array_equal(
            rng.choice(values, 7, p=p), default_rng(7).choice(values, 7, p=np.full(50, 0.02))
        )

    world.run(ranks, program)


def test_distributed_probabilities(world, ranks):
    n = 5 * LONG
    weights = np.random.default_rng(1).random(n)
    weights[::3] = 0
    weights[n // 2 :] *= 1e-3
    weights /= weights.sum()
    wanted = alone(
        lambda rng: [rng.choice(n, (150, 30), p=weights).full(), rng.choice(n, 200, False, weights)]
    )
    assert (weights[wanted[0]] > 0).all()

    def program(group):
        p = put(weights)
        rng = default_rng(7)
        for where in (None, [Shard(0)], [Shard(1)]):
            rng = default_rng(7)
            assert_matches(rng.choice(n, (150, 30), p=p, placements=where), wanted[0])
        assert_matches(rng.choice(n, 200, replace=False, p=p), np.asarray(wanted[1]))
        with distarray.trace() as book:
            default_rng(7).choice(n, 10, p=p)
        assert book.bytes < 8 * n // 10
        for bad, text in ((-p, "non-negative"), (p * 2, "sum to 1"), (p[1:], "same size")):
            with pytest.raises(ValueError, match=text):
                rng.choice(n, 3, p=bad)

    world.run(ranks, program)


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


def test_choice_follows_its_probabilities():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    found = alone(lambda rng: rng.choice(4, 100_000, p=p).full())
    np.testing.assert_allclose(np.bincount(found) / 1e5, p, atol=0.006)
    # Without replacement: the second of two is i with the sum of p[j] p[i] / (1 - p[j]).
    weights = np.repeat(p, LONG // 4 + 1)[:LONG]
    weights /= weights.sum()
    firsts = alone(lambda rng: [rng.choice(LONG, 3, False, weights).full() for _ in range(40)])
    kinds = np.concatenate(firsts) // (LONG // 4 + 1)
    np.testing.assert_allclose(np.bincount(kinds, minlength=4) / 120, p, atol=0.15)


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


def test_many_of_a_far_larger_population(world, ranks):
    """Numbers are drawn until enough are distinct, and the first are taken."""
    count, size = 1_000_000, 17_000
    wanted = alone(lambda rng: rng.choice(count, size, replace=False).full())
    assert len(set(wanted.tolist())) == size
    assert abs(wanted.mean() / count - 0.5) < 0.01

    def program(group):
        for p in ([Shard(0)], [Replicate()]):
            found = default_rng(7).choice(count, (100, 170), replace=False, placements=p)
            assert found.placements == tuple(p)
            assert_matches(found, wanted.reshape(100, 170))

    world.run(ranks, program)
