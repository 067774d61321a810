"""NumPy's names for random numbers: NumPy's own numbers on any number of ranks.

Samples are distributed like other new arrays; every rank must make the same calls.
"""

from numpy.random import BitGenerator

from distarray.ops.random import (
    MT19937,
    PCG64,
    PCG64DXSM,
    SFC64,
    Generator,
    Philox,
    RandomState,
    SeedSequence,
    default_rng,
    get_bit_generator,
    mtrand,
    set_bit_generator,
)
from distarray.ops.random import (
    function as _function,
)
from distarray.ops.random import (
    reseed as seed,
)

# Functions that share the global random state.
beta = _function(RandomState.beta)
binomial = _function(RandomState.binomial)
bytes = _function(RandomState.bytes)
chisquare = _function(RandomState.chisquare)
choice = _function(RandomState.choice)
dirichlet = _function(RandomState.dirichlet)
exponential = _function(RandomState.exponential)
f = _function(RandomState.f)
gamma = _function(RandomState.gamma)
geometric = _function(RandomState.geometric)
get_state = _function(RandomState.get_state)
gumbel = _function(RandomState.gumbel)
hypergeometric = _function(RandomState.hypergeometric)
laplace = _function(RandomState.laplace)
logistic = _function(RandomState.logistic)
lognormal = _function(RandomState.lognormal)
logseries = _function(RandomState.logseries)
multinomial = _function(RandomState.multinomial)
multivariate_normal = _function(RandomState.multivariate_normal)
negative_binomial = _function(RandomState.negative_binomial)
noncentral_chisquare = _function(RandomState.noncentral_chisquare)
noncentral_f = _function(RandomState.noncentral_f)
normal = _function(RandomState.normal)
pareto = _function(RandomState.pareto)
permutation = _function(RandomState.permutation)
poisson = _function(RandomState.poisson)
power = _function(RandomState.power)
rand = _function(RandomState.rand)
randint = _function(RandomState.randint)
randn = _function(RandomState.randn)
random = _function(RandomState.random)
random_integers = _function(RandomState.random_integers)
random_sample = _function(RandomState.random_sample)
rayleigh = _function(RandomState.rayleigh)
set_state = _function(RandomState.set_state)
shuffle = _function(RandomState.shuffle)
standard_cauchy = _function(RandomState.standard_cauchy)
standard_exponential = _function(RandomState.standard_exponential)
standard_gamma = _function(RandomState.standard_gamma)
standard_normal = _function(RandomState.standard_normal)
standard_t = _function(RandomState.standard_t)
triangular = _function(RandomState.triangular)
uniform = _function(RandomState.uniform)
vonmises = _function(RandomState.vonmises)
wald = _function(RandomState.wald)
weibull = _function(RandomState.weibull)
zipf = _function(RandomState.zipf)
ranf = sample = random_sample

__all__ = [
    "MT19937",
    "PCG64",
    "PCG64DXSM",
    "SFC64",
    "Generator",
    "Philox",
    "RandomState",
    "SeedSequence",
    "default_rng",
    "get_bit_generator",
    "set_bit_generator",
    "BitGenerator",
    "beta",
    "binomial",
    "bytes",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "f",
    "gamma",
    "geometric",
    "get_state",
    "gumbel",
    "hypergeometric",
    "laplace",
    "logistic",
    "lognormal",
    "logseries",
    "mtrand",
    "multinomial",
    "multivariate_normal",
    "negative_binomial",
    "noncentral_chisquare",
    "noncentral_f",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "power",
    "rand",
    "randint",
    "randn",
    "random",
    "random_integers",
    "random_sample",
    "rayleigh",
    "seed",
    "set_state",
    "shuffle",
    "standard_cauchy",
    "standard_exponential",
    "standard_gamma",
    "standard_normal",
    "standard_t",
    "triangular",
    "uniform",
    "vonmises",
    "wald",
    "weibull",
    "zipf",
    "ranf",
    "sample",
]
