"""NumPy's own numbers, byte by byte, and its state after each call: every method, every way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard
from distarray.engines.drawing import cutting, sampling
from distarray.engines.drawing.methods import GENERATOR, LEGACY
from distarray.testing import assert_same_error
from tests.ops.random.compared import (
    KINDS,
    METHODS,
    OLDER,
    VECTORS,
    near,
    pair,
    same_numbers,
    same_state,
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Small arrays are shared, too, and those of MT19937 cut."""
    monkeypatch.setattr(sampling, "_FEW", 300)
    monkeypatch.setattr(cutting, "_WORTH_PASSING", 3000)


def compare(ours, theirs, name, *args, place=None, **keywords):
    """One call of both."""
    found = getattr(ours, name)(*args, **keywords, **(place or {}))
    wanted = getattr(theirs, name)(*args, **keywords)
    assert found == wanted if isinstance(wanted, bytes) else same_numbers(found, wanted) is None
    same_state(ours, theirs)


def test_every_method_is_in_the_table():
    samples = {name for name in dir(np.random.Generator) if not name.startswith("_")}
    others = {"bit_generator", "bytes", "choice", "permutation", "permuted", "shuffle", "spawn"}
    assert set(GENERATOR) == samples - others == {*METHODS, *VECTORS}
    for kind in (np.random.Generator, np.random.RandomState):
        ours = getattr(dnp.random, kind.__name__)
        assert {n for n in dir(kind) if not n.startswith("_")} <= set(dir(ours))
    assert set(LEGACY) <= set(dir(np.random.RandomState))


@pytest.mark.parametrize("name", [*METHODS, *VECTORS])
def test_methods(world, name):
    args = (METHODS | VECTORS)[name]

    def program(group):
        for legacy in (False, True):
            called = OLDER.get(name, name) if legacy else name
            if called is None:
                continue
            ours, theirs = pair("PCG64", legacy=legacy)
            for size in (None, 0, 1, 1000, 5003, (71, 130), (3, 5, 400), ()):
                compare(ours, theirs, called, *args, size=size, place={"placements": None})
            for placement in (Shard(0), Shard(1), Replicate()):
                place = {"placements": [placement]}
                compare(ours, theirs, called, *args, size=(67, 90), place=place)

    for ranks in {near(world, 2), near(world, 3)}:
        world.run(ranks, program)


#: Calls that go each of the ways, on streams of words and of half words.
CALLS = [
    ("random", (), {"size": 5001}),
    ("random", (), {"size": 5001, "dtype": np.float32}),
    ("standard_normal", (), {"size": (41, 130)}),
    ("standard_normal", (), {"size": 5001, "dtype": "f4"}),
    ("standard_exponential", (), {"size": 6007, "method": "inv"}),
    ("integers", (0, 256), {"size": 7003, "dtype": np.uint8}),
    ("integers", (0, 10), {"size": 7003, "dtype": np.int8}),
    ("integers", (0, 2), {"size": 7003, "dtype": bool}),
    ("integers", (5, 6), {"size": 7003, "dtype": np.uint16}),
    ("integers", (0, 2**16), {"size": 7003, "dtype": np.uint16}),
    ("integers", (0, 2**31 + 3), {"size": 7003}),
    ("integers", (0, 2**32 - 1), {"size": 7003, "dtype": np.uint32, "endpoint": True}),
    ("integers", (-(2**62), 2**62 + 5), {"size": 7003}),
    ("integers", (np.arange(1, 5001),), {}),
    ("integers", (np.arange(1, 121),), {"size": (60, 120), "dtype": np.int8}),
    ("integers", (3.0, 9.0), {"size": 5000}),
    ("poisson", (100.0,), {"size": 9001}),
    ("poisson", (0.0,), {"size": 9001}),
    ("gamma", (0.003, 1.0), {"size": 9001}),
    ("binomial", (10**9, 0.4), {"size": 9001}),
    ("hypergeometric", (10**5, 10**5, 8), {"size": 5000}),
    ("normal", (np.arange(5001.0), 2.0), {}),
    ("normal", (np.arange(130.0), [[1.0]] * 40), {}),
    ("uniform", (np.arange(5001.0), 6000.0), {}),
    ("lognormal", (0.0, np.arange(100.0)), {"size": (55, 100)}),
    ("gamma", (np.arange(5001.0), 2.0), {}),
    ("poisson", ([1.0, 30.0],), {"size": (3000, 2)}),
    ("multinomial", ([3, 40] * 1000, [0.2, 0.8]), {}),
    ("multinomial", (9, [[0.2, 0.8], [0.5, 0.5]] * 1000), {}),
    ("dirichlet", ([0.01, 0.02],), {"size": 4000}),
    ("standard_t", (3.0,), {"size": (2, 4001)}),
]


@pytest.mark.parametrize("kind", KINDS)
def test_bit_generators(world, kind):
    """Half words are left over between the calls."""

    def program(group):
        ours, theirs = pair(kind)
        for name, args, keywords in CALLS:
            compare(ours, theirs, name, *args, **keywords)
        compare(ours, theirs, "integers", 9, size=3, dtype=np.int32)
        for name, args, keywords in CALLS:
            compare(ours, theirs, name, *args, **keywords)

    world.run(near(world, 3), program)


@pytest.mark.parametrize("kind", ["MT19937", "PCG64"])
def test_older_interface(world, kind):
    """A normal number may be left over from the call before."""

    def program(group):
        ours, theirs = pair(kind, legacy=True)
        for odd in (0, 1, 1):
            compare(ours, theirs, "standard_normal", size=odd or None)
            for name, args, keywords in (
                ("rand", (41, 130), {}),
                ("randn", (5001,), {}),
                ("normal", (1.0, 2.0, 5003), {}),
                ("normal", (np.arange(5003.0), 2.0), {}),
                ("uniform", (3.0, 1.0, 5000), {}),
                ("randint", (0, 1000, 7001), {}),
                ("randint", (0, 100, 7001), {"dtype": np.uint8}),
                ("randint", (0, 2**40, 7001), {}),
                ("standard_gamma", (2.5, 6001), {}),
                ("chisquare", (0.3, 6001), {}),
                ("tomaxint", (5000,), {}),
                ("exponential", (2.0, (301, 20)), {}),
                ("random", (5000,), {}),
            ):
                compare(ours, theirs, name, *args, **keywords)

    world.run(near(world, 3), program)


@pytest.mark.counts(lambda ranks: ranks % 2 == 0)
def test_meshes_of_two_dimensions(world, ranks):
    mesh_shape = (ranks // 2, 2)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        shape = (100, 90)
        for kind in ("Philox", "SFC64"):
            ours, theirs = pair(kind)
            for placements in (
                [Shard(0), Shard(0)],
                [Shard(0), Replicate()],
                [Replicate(), Shard(1)],
                [Shard(1), Shard(0)],
            ):
                place = {"mesh": mesh, "placements": placements}
                for name in ("random", "standard_normal", "standard_cauchy"):
                    found = getattr(ours, name)(size=shape, **place)
                    assert found.placements == tuple(placements)
                    same_numbers(found, getattr(theirs, name)(size=shape))
            same_state(ours, theirs)

    world.run(ranks, program)


def test_distributed_parameters(world, ranks):
    values = np.linspace(0.1, 50.0, 5003)

    def program(group):
        x = distarray.distribute(values, placements=[Shard(0)], src=None)
        wide = distarray.distribute(values[:5000].reshape(50, 100), placements=[Shard(1)], src=None)
        ours, theirs = pair("PCG64")
        for name in ("exponential", "poisson", "standard_gamma"):
            found = getattr(ours, name)(x)
            assert found.layout is x.layout
            same_numbers(found, getattr(theirs, name)(values))
            found = getattr(ours, name)(wide)
            same_numbers(found, getattr(theirs, name)(values[:5000].reshape(50, 100)))
        same_numbers(ours.normal(x, 2.0), theirs.normal(values, 2.0))
        same_numbers(ours.multinomial(9, wide / 1e5), theirs.multinomial(9, wide.full() / 1e5))
        same_state(ours, theirs)
        for bad in (lambda r, v: r.poisson(-v), lambda r, v: r.normal(0.0, -v)):
            with pytest.raises(ValueError):
                bad(ours, x)
            same_state(ours, theirs)

    world.run(ranks, program)


def test_an_error_of_one_rank(world, ranks):
    """All raise it, and all stand where they stood."""
    values = np.ones(20_003)
    values[-1] = -1

    def program(group):
        x = distarray.distribute(values, placements=[Shard(0)], src=None)
        for scale in (x, values):
            for kind in ("PCG64", "MT19937"):
                ours, theirs = pair(kind)
                for name, args in (
                    ("normal", (0.0, scale)),
                    ("exponential", (scale,)),
                    ("poisson", (scale,)),
                    ("triangular", (0.0, 0.5, scale)),
                ):
                    with pytest.raises(ValueError):
                        getattr(ours, name)(*args)
                    same_state(ours, theirs)

    world.run(ranks, program)


def test_outputs(world, ranks):
    def program(group):
        ours, theirs = pair("PCG64")
        for make in (lambda: dnp.empty((70, 90)), lambda: np.empty((70, 90))):
            for name, args in (("random", ()), ("standard_normal", ()), ("standard_gamma", (2.0,))):
                out = make()
                assert getattr(ours, name)(*args, out=out) is out
                same_numbers(out, getattr(theirs, name)(*args, size=(70, 90)))
        columns = distarray.distribute(np.empty((70, 90)), placements=[Shard(1)], src=None)
        ours.standard_exponential(out=columns)
        same_numbers(columns, theirs.standard_exponential((70, 90)))
        same_state(ours, theirs)
        reference = np.random.default_rng(0)
        single = distarray.distribute(np.empty((70, 90), "f4"), placements=[Shard(0)], src=None)
        for act in (
            lambda rng, x: rng.random(out=x),
            lambda rng, x: rng.random(3, out=x, dtype="f4"),
        ):
            assert_same_error(
                lambda act=act: act(ours, single),
                lambda act=act: act(reference, np.empty((70, 90), "f4")),
            )

    world.run(ranks, program)


@pytest.mark.parametrize("shape", [(70, 90), (2, 3000), (3000, 2), (1, 4000), (0, 5)])
def test_outputs_in_other_orders(world, ranks, shape):
    """Those in Fortran order are filled as they lie in memory; those with gaps are refused."""

    def outputs(make):
        x = make((2 * shape[0], shape[1]))
        return make(shape, order="F"), make(shape[::-1]).T, x[::2], x[: shape[0]], x[:, :1]

    def program(group):
        ours, theirs = pair("PCG64")
        for name, args in (("random", ()), ("standard_exponential", ()), ("standard_gamma", (2,))):
            for out, plain in zip(outputs(dnp.empty), outputs(np.empty), strict=True):
                try:
                    getattr(theirs, name)(*args, out=plain)
                except ValueError as error:
                    with pytest.raises(ValueError, match=str(error)):
                        getattr(ours, name)(*args, out=out)
                else:
                    getattr(ours, name)(*args, out=out)
                    same_numbers(out, plain)
                same_state(ours, theirs)

    world.run(ranks, program)


def test_millions(world):
    """Not only lengths that fit into a cache: numbers and states afterwards."""
    draws = [
        ("PCG64", lambda rng: rng.standard_normal(8_000_000)),
        ("PCG64", lambda rng: rng.integers(1000, size=(1000, 1001))),
        ("MT19937", lambda rng: rng.random(8_000_000)),
    ]
    theirs = [pair(kind)[1] for kind, _ in draws]
    wanted = [draw(rng) for (_, draw), rng in zip(draws, theirs, strict=True)]

    def program(group):
        for (kind, draw), rng, whole in zip(draws, theirs, wanted, strict=True):
            ours, _ = pair(kind)
            found = draw(ours)
            start, stop = found.layout.section(found.mesh.coords)[0]
            assert np.array_equal(found.mesh.to_host(found.to_local()), whole[start:stop])
            same_state(ours, rng)

    world.run(near(world, 4), program)


# -- programs ---------------------------------------------------------------------------------

#: Calls of both interfaces, besides those of the table.
OTHERS = [
    ("permutation", (70,), {}),
    ("choice", (9,), {"size": 5001}),
    ("choice", (9,), {"size": 3, "replace": False}),
    ("choice", (3,), {"size": 3001, "p": [0.2, 0.3, 0.5]}),
    ("bytes", (7,), {}),
    ("normal", (np.arange(5001.0), 2.0), {}),
    ("standard_gamma", (np.arange(5001.0),), {}),
]
#: Those of the older interface.
OLD = [
    ("randint", (0, 100), {"size": 4001, "dtype": np.int16}),
    ("rand", (30, 40), {}),
    ("randn", (3001,), {}),
    ("tomaxint", (), {"size": 1001}),
]


@st.composite
def calls(draw, legacy):
    """A call with its keywords, and where its result goes."""
    if draw(st.integers(0, 3)) == 0:
        return (*draw(st.sampled_from(OTHERS + OLD * legacy)), {})
    name = draw(st.sampled_from([*METHODS, *VECTORS]))
    size = draw(
        st.one_of(
            st.none(),
            st.sampled_from([0, 1, 7, 999, 4001, (3, 700), (61, 30), (0, 4), (1201, 1)]),
        )
    )
    place = {}
    if isinstance(size, tuple):
        place = {"placements": draw(st.sampled_from([None, [Shard(0)], [Shard(1)], [Replicate()]]))}
    keywords, args = {"size": size}, (METHODS | VECTORS)[name]
    if legacy:
        name = OLDER.get(name, name)
        return (name, args, keywords, place) if name else (*OLD[0], {})
    if name in ("random", "standard_normal", "standard_exponential", "standard_gamma"):
        keywords["dtype"] = draw(st.sampled_from([np.float64, np.float32]))
    if name == "integers":
        args = draw(st.sampled_from([(0, 10), (0, 128), (3, 100)]))
        keywords["dtype"] = draw(st.sampled_from([np.int64, np.int32, np.uint16, np.int8]))
    return name, args, keywords, place


@settings(max_examples=60)
@given(data=st.data())
def test_programs(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    kind = data.draw(st.sampled_from(KINDS))
    seed = data.draw(st.integers(0, 2**32 - 1))
    legacy = data.draw(st.booleans())
    program_calls = data.draw(st.lists(calls(legacy), min_size=1, max_size=6))

    def program(group):
        ours, theirs = pair(kind, seed, legacy)
        for name, args, keywords, place in program_calls:
            compare(ours, theirs, name, *args, place=place, **keywords)

    world.run(ranks, program)
