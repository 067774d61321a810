"""Helpers for tests of random numbers: NumPy's generators beside ours."""

import numpy as np

import distarray.numpy as dnp
from distarray import DistArray

KINDS = ("PCG64", "PCG64DXSM", "Philox", "MT19937", "SFC64")

#: Method -> parameters that are numbers.
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
#: Methods of vectors.
VECTORS = {
    "dirichlet": ([1.0, 2.0, 0.5],),
    "multinomial": (20, [0.2, 0.3, 0.5]),
    "multivariate_hypergeometric": ([5, 6, 7], 9),
    "multivariate_normal": ([1.0, 2.0, 3.0], np.diag([1.0, 2.0, 3.0]) + 0.5),
}
#: What the older interface has under other names, or not at all.
OLDER = {
    "integers": "randint",
    "random": "random_sample",
    "multivariate_hypergeometric": None,
}


def pair(kind, seed=7, legacy=False):
    """A generator of ours and one of NumPy's."""
    name = "RandomState" if legacy else "Generator"
    return tuple(
        getattr(space.random, name)(getattr(space.random, kind)(seed)) for space in (dnp, np)
    )


def state(rng):
    """Where a generator stands, as text."""
    if hasattr(rng, "get_state"):
        return repr(rng.get_state(legacy=False))
    return repr(rng.bit_generator.state)


def same_state(ours, theirs):
    """Fail unless both stand at the same place."""
    assert state(ours) == state(theirs)


def whole(value):
    """A result as NumPy has it."""
    return value.full() if isinstance(value, DistArray) and value.ndim else np.asarray(value)


def same_numbers(found, wanted):
    """Fail unless two results have the same bytes."""
    found, wanted = whole(found), np.asarray(wanted)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)


def near(world, wanted):
    """A number of ranks that the world has: the one wanted, where ranks are threads."""
    return wanted if wanted in world.ranks else world.ranks[-1]
