"""Samples: by position, the same on any number of ranks and any layout, and NumPy's."""

import inspect
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.comm import run_threads
from distarray.engines.drawing.distributions import DISTRIBUTIONS
from distarray.numpy.random import Generator, default_rng
from distarray.testing import assert_matches, assert_same_error, mesh_shapes, recipes, shapes

#: Method -> scalar parameters.
METHODS = {
    "random": (),
    "standard_normal": (),
    "standard_exponential": (),
    "standard_cauchy": (),
    "standard_gamma": (2.5,),
    "integers": (-3, 1000),
    "beta": (0.5, 2.0),
    "binomial": (40, 0.3),
    "chisquare": (3.0,),
    "exponential": (2.0,),
    "f": (3.0, 5.0),
    "gamma": (0.7, 2.0),
    "geometric": (0.2,),
    "gumbel": (1.0, 2.0),
    "hypergeometric": (20, 30, 10),
    "laplace": (1.0, 2.0),
    "logistic": (1.0, 2.0),
    "lognormal": (0.1, 0.5),
    "logseries": (0.6,),
    "negative_binomial": (3, 0.4),
    "noncentral_chisquare": (3.0, 1.5),
    "noncentral_f": (3.0, 5.0, 1.5),
    "normal": (1.0, 2.0),
    "pareto": (2.0,),
    "poisson": (4.5,),
    "power": (3.0,),
    "rayleigh": (2.0,),
    "standard_t": (4.0,),
    "triangular": (-1.0, 0.5, 2.0),
    "uniform": (-1.0, 2.0),
    "vonmises": (0.3, 2.0),
    "wald": (1.0, 2.0),
    "weibull": (1.5,),
    "zipf": (2.5,),
}
VECTORS = {
    "dirichlet": ([1.0, 2.0, 0.5],),
    "multinomial": (20, [0.2, 0.3, 0.5]),
    "multivariate_hypergeometric": ([5, 6, 7], 9),
    "multivariate_normal": ([1.0, 2.0, 3.0], np.diag([1.0, 2.0, 3.0]) + 0.5),
}
#: Cuts of a shape that fall into tiles, and of one that is all one tile.
SHAPES = [(150, 270), (7, 5), (20011,)]
#: One that takes a fixed part of its stream, one that rejects, one of another type.
CLOSELY = ("random", "gamma", "integers")


def alone(program):
    """What one rank gives."""
    return run_threads(1, lambda group: program(default_rng(7)))[0]


def placements(ndim):
    return [[Shard(dim)] for dim in range(ndim)] + [[Replicate()]]


def numpys(seed):
    """NumPy's generator on the stream of the first tile of the first call."""
    return np.random.Generator(np.random.Philox(seed))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_on_any_ranks_and_layout(world, method):
    wanted = {
        shape: alone(lambda rng, s=shape: getattr(rng, method)(*METHODS[method], size=s).full())
        for shape in (SHAPES if method in CLOSELY else SHAPES[:1])
    }
    expected_scalar = getattr(numpys(7), method)(*METHODS[method])

    def program(group):
        with distarray.forbid_communication():
            found = [
                (getattr(default_rng(7), method)(*METHODS[method], size=shape, placements=p), shape)
                for shape in wanted
                for p in placements(len(shape))
            ]
            scalar = getattr(default_rng(7), method)(*METHODS[method])
        for result, shape in found:
            assert_matches(result, wanted[shape])
        assert scalar == expected_scalar
        assert type(scalar) is type(expected_scalar)

    for ranks in world.ranks if method in CLOSELY else world.ranks[-1:]:
        world.run(ranks, program)


@pytest.mark.parametrize("method", [*METHODS, *VECTORS])
def test_one_tile_is_numpys_own(method):
    args = (METHODS | VECTORS)[method]
    found = alone(lambda rng: getattr(rng, method)(*args, size=(9, 11)).full())
    wanted = getattr(numpys(7), method)(*args, size=(9, 11))
    if method == "multivariate_normal":  # NumPy's product depends on its BLAS
        np.testing.assert_allclose(found, wanted)
    else:
        np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize("method", VECTORS)
def test_vectors(world, ranks, method):
    args = VECTORS[method]
    sizes = [None, 3, 9000, (90, 100)]
    wanted = [alone(lambda rng, s=s: getattr(rng, method)(*args, size=s).full()) for s in sizes]

    def program(group):
        for size, values in zip(sizes, wanted, strict=True):
            for p in placements(values.ndim):
                with distarray.forbid_communication():
                    result = getattr(default_rng(7), method)(*args, size=size, placements=p)
                assert_matches(result, values)

    world.run(ranks, program)


def test_meshes_of_two_dimensions(world, ranks):
    shape = (70, 60, 50)
    wanted = alone(lambda rng: rng.normal(size=shape).full())

    def program(group):
        for rows in (r for r in range(1, ranks + 1) if ranks % r == 0):
            mesh = DeviceMesh(group, (rows, ranks // rows))
            for p in ([Shard(0), Shard(2)], [Shard(1), Shard(1)], [Replicate(), Shard(1)]):
                x = default_rng(7, mesh=mesh).normal(size=shape, placements=p)
                assert x.mesh is mesh
                assert_matches(x, wanted)
        x = default_rng(7).normal(size=shape)
        moved = x.redistribute([Shard(1)])
        assert_matches(moved, wanted)

    world.run(ranks, program)


#: Method -> parameters for an array of values between 0 and 1.
ARRAYS = {
    "normal": lambda u: (u, u + 0.1),
    "gamma": lambda u: (u + 0.1, 2.0),
    "poisson": lambda u: (20 * u,),
    "binomial": lambda u: (np.asarray(u * 50).astype(int), 0.4),
    "standard_gamma": lambda u: (u,),
    "uniform": lambda u: (u, 2.0),
    "triangular": lambda u: (-1.0, u, 1.5),
    "exponential": lambda u: (u,),
    "zipf": lambda u: (u + 1.5,),
}


@settings(max_examples=40)
@given(data=st.data())
def test_parameters_of_any_layout(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = data.draw(st.one_of(shapes(), st.sampled_from([(40000,), (30, 900)])))
    lead = data.draw(st.sampled_from([(), (), (3,)]))
    recipe = data.draw(recipes(shape, mesh_shape, kinds=("plain", "view", "transposed", "ragged")))
    method = data.draw(st.sampled_from(sorted(ARRAYS)))
    values = np.random.default_rng(3).random(shape)
    size = (*lead, *shape) if lead else None
    args = ARRAYS[method](values)
    wanted = run_threads(1, lambda g: np.asarray(getattr(default_rng(7), method)(*args, size)))[0]

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        known = getattr(default_rng(7, mesh=mesh), method)(*args, size)
        given = [recipe.build(a, mesh) if np.ndim(a) else a for a in args]
        found = getattr(default_rng(7), method)(*given, size)
        if wanted.ndim:
            assert_matches(known, wanted)
            assert_matches(found, wanted)
        else:
            assert (known, found) == (wanted, wanted)

    world.run(ranks, program)


def test_steady_parameters_send_nothing_but_the_agreement(world, ranks):
    def program(group):
        loc = distarray.distribute(np.arange(50000.0), placements=[Shard(0)], src=None)
        with distarray.trace() as book:
            default_rng(7).normal(loc, 2.0)
        assert book.bytes <= 8

    world.run(ranks, program)


def test_multinomial_with_distributed_parameters(world, ranks):
    n = np.arange(9000)
    p = np.random.default_rng(1).dirichlet([1, 1, 1], 9000)
    wanted = alone(
        lambda rng: [rng.multinomial(a, b).full() for a, b in ((n, p), (5, p), (n, p[0]))]
    )

    def program(group):
        for where in ([Shard(0)], [Shard(1)]):
            counts = distarray.distribute(n, placements=[Shard(0)], src=None)
            chances = distarray.distribute(p, placements=where, src=None)
            rng = default_rng(7)
            found = [rng.multinomial(counts, chances), rng.multinomial(5, chances)]
            for result, values in zip([*found, rng.multinomial(counts, p[0])], wanted, strict=True):
                assert_matches(result, values)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["random", "standard_normal", "standard_exponential"])
def test_out_and_dtype(world, ranks, method, dtype):
    wanted = alone(lambda rng: getattr(rng, method)((200, 150), dtype).full())

    def program(group):
        for p in placements(2):
            base = distarray.distribute(np.zeros((200, 300), dtype), placements=p, src=None)
            out = base[:, ::2]
            assert getattr(default_rng(7), method)(dtype=dtype, out=out) is out
            assert_matches(out, wanted)
            assert not base[:, 1::2].full().any()
        local = np.zeros((200, 150), dtype)
        getattr(default_rng(7), method)(out=local, dtype=dtype)
        np.testing.assert_array_equal(local, wanted)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_of_all_types(world, dtype):
    info = np.iinfo(dtype) if dtype != "?" else None
    low, high = (0, 1) if info is None else (info.min, info.max)
    bounds = [(low, high, True), (0, 2, False), (0, high, False)]

    def draw(rng, p=None):
        return [rng.integers(a, b, (130, 140), dtype, e, placements=p) for a, b, e in bounds]

    wanted = alone(lambda rng: [x.full() for x in draw(rng)])
    np.testing.assert_array_equal(
        wanted[0].ravel()[:140], numpys(7).integers(low, high, 140, dtype, True)
    )

    def program(group):
        for p in placements(2):
            for found, values in zip(draw(default_rng(7), p), wanted, strict=True):
                assert_matches(found, values)

    world.run(world.ranks[-1], program)


def test_positions_beyond_32_bits(world, ranks):
    """Tiles of an array of 2^40 rows, of which a mesh would have 2^20 ranks."""
    from distarray.engines.drawing.sampling import fill
    from distarray.engines.drawing.streams import Philox

    shape, start = (1 << 40,), (1 << 39) + 12345
    call = Philox.of(np.random.SeedSequence(7)).call()
    parts = []
    for a, b in ((0, 50000), (0, 21234), (21234, 50000)):
        block = np.empty(b - a)
        fill(block, shape, ((start + a, start + b),), call, lambda g, tile: g.random(tile.extents))
        parts.append(block)
    np.testing.assert_array_equal(parts[0], np.concatenate(parts[1:]))
    assert len(np.unique(parts[0])) == 50000
    assert not np.isin(parts[0], alone(lambda rng: rng.random(50000).full())).any()


def test_numbers_stay_what_they_are():
    """Programs rely on it that a seed gives the same numbers in the next release."""
    exact = alone(lambda rng: [rng.random((300, 200)), rng.integers(0, 10**9, 70001, "u8")])
    exact += alone(lambda rng: [rng.permutation(200_001), rng.choice(500, 77, False)])
    digests = [zlib.crc32(x.full().tobytes()) for x in exact]
    assert digests == DIGESTS


DIGESTS = [3499340143, 50967299, 645227925, 3628549384]


def test_signatures_are_numpys():
    names = [name for name in dir(np.random.Generator) if not name.startswith("_")]
    for name in names:
        found, wanted = getattr(Generator, name), getattr(np.random.Generator, name)
        if not callable(wanted):
            continue
        parameters = dict(inspect.signature(found).parameters)
        for ours in ("mesh", "placements"):
            parameters.pop(ours, None)
        assert list(parameters) == list(inspect.signature(wanted).parameters), name
        for key, parameter in inspect.signature(wanted).parameters.items():
            assert parameters[key].default == parameter.default, (name, key)
            assert parameters[key].kind == parameter.kind, (name, key)


def bad_calls(rng):

    return [
        lambda: rng.normal(0, -1, 5),
        lambda: rng.normal(np.ones(3), [1, 2, -1]),
        lambda: rng.normal([1, 2], 1, size=3),
        lambda: rng.normal([1, 2], [1, 2, 3]),
        lambda: rng.normal(0, [1, 2, 3], 5),
        lambda: rng.normal([[1], [2]], 1, 5),
        lambda: rng.normal(1j),
        lambda: rng.normal("a"),
        lambda: rng.normal(size=-1),
        lambda: rng.normal(size=2.5),
        lambda: rng.normal(size=True),
        lambda: rng.normal(size={3}),
        lambda: rng.uniform([3, 2], 1),
        lambda: rng.random(4, dtype=int),
        lambda: rng.random(3, out=np.zeros(4)),
        lambda: rng.random(out=np.zeros(4, "f4")),
        lambda: rng.random(out=[1]),
        lambda: rng.random(out=np.zeros(4, ">f8")),
        lambda: rng.bytes(None),
        lambda: rng.gamma(-1.0, size=5),
        lambda: rng.gamma([1.0, np.nan, -1]),
        lambda: rng.triangular(0, [3, 2.0], 1),
        lambda: rng.hypergeometric(1, [1, 1], 5),
        lambda: rng.poisson(-1, 3),
        lambda: rng.integers(5, 5, 3),
        lambda: rng.integers(0, 300, 3, dtype="u1"),
        lambda: rng.integers([1, 2], [5, 2]),
        lambda: rng.integers(0, 5, 3, dtype=float),
        lambda: rng.multinomial(5, [0.5, 0.6, 0.2]),
        lambda: rng.multinomial(-1, [0.5, 0.5]),
        lambda: rng.multinomial([3, 4], [0.5, 0.5], size=3),
        lambda: rng.multinomial([[3], [4]], [0.5, 0.5], size=3),
        lambda: rng.multinomial(3, 0.5),
        lambda: rng.dirichlet([-1, 2], 3),
        lambda: rng.multivariate_hypergeometric([1, 2], 5),
        lambda: rng.multivariate_hypergeometric([1, 2], 1, method="x"),
        lambda: rng.multivariate_normal([0, 0], [[1, 0]]),
        lambda: rng.multivariate_normal([[0]], [[1]]),
        lambda: rng.multivariate_normal([0, 0], np.eye(2), method="x"),
        lambda: rng.multivariate_normal([0, 0], -np.eye(2), check_valid="raise"),
        lambda: rng.multivariate_normal([0, 0], -np.eye(2), method="cholesky"),
    ]


def test_errors_are_numpys_on_all_ranks(world, ranks):
    reference = bad_calls(np.random.default_rng(0))

    def program(group):
        rng = default_rng(0)
        for ours, theirs in zip(bad_calls(rng), reference, strict=True):
            assert_same_error(ours, theirs)
        scales = np.ones(1000)
        scales[777] = -1
        scale = distarray.distribute(scales, placements=[Shard(0)], src=None)
        for call in (
            lambda: rng.normal(0, scale),
            lambda: rng.poisson(scale),
            lambda: rng.uniform(0, scale),
        ):
            with pytest.raises(ValueError, match="< 0"):
                call()
        assert rng.bit_generator.state["state"]["counter"][2] == 0  # nothing has been drawn

    world.run(ranks, program)


@pytest.mark.parametrize("method", [name for name in METHODS if name in DISTRIBUTIONS])
def test_steady_means_that_parameters_do_not_move_the_stream(method):
    """What lets a rank draw elements that it has no parameters of."""
    if not DISTRIBUTIONS[method].steady:
        return
    states = []
    for scale in (1.0, 0.3, 3.0):
        source = np.random.Philox(5)
        args = [np.full(5000, scale * value) for value in METHODS[method]]
        getattr(np.random.Generator(source), method)(*args)
        states.append(repr(source.state))
    assert len(set(states)) == 1
