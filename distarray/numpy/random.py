"""NumPy's names for random numbers: the same arrays on any number of ranks.

What is drawn is distributed as other new arrays are; every rank makes the same calls.
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
    function,
    get_bit_generator,
    set_bit_generator,
)

# The functions that share one state.
beta = function(RandomState.beta)
binomial = function(RandomState.binomial)
bytes = function(RandomState.bytes)
chisquare = function(RandomState.chisquare)
choice = function(RandomState.choice)
dirichlet = function(RandomState.dirichlet)
exponential = function(RandomState.exponential)
f = function(RandomState.f)
gamma = function(RandomState.gamma)
geometric = function(RandomState.geometric)
get_state = function(RandomState.get_state)
gumbel = function(RandomState.gumbel)
hypergeometric = function(RandomState.hypergeometric)
laplace = function(RandomState.laplace)
logistic = function(RandomState.logistic)
lognormal = function(RandomState.lognormal)
logseries = function(RandomState.logseries)
multinomial = function(RandomState.multinomial)
multivariate_normal = function(RandomState.multivariate_normal)
negative_binomial = function(RandomState.negative_binomial)
noncentral_chisquare = function(RandomState.noncentral_chisquare)
noncentral_f = function(RandomState.noncentral_f)
normal = function(RandomState.normal)
pareto = function(RandomState.pareto)
permutation = function(RandomState.permutation)
poisson = function(RandomState.poisson)
power = function(RandomState.power)
rand = function(RandomState.rand)
randint = function(RandomState.randint)
randn = function(RandomState.randn)
random = function(RandomState.random)
random_integers = function(RandomState.random_integers)
random_sample = function(RandomState.random_sample)
rayleigh = function(RandomState.rayleigh)
seed = function(RandomState.seed)
set_state = function(RandomState.set_state)
shuffle = function(RandomState.shuffle)
standard_cauchy = function(RandomState.standard_cauchy)
standard_exponential = function(RandomState.standard_exponential)
standard_gamma = function(RandomState.standard_gamma)
standard_normal = function(RandomState.standard_normal)
standard_t = function(RandomState.standard_t)
triangular = function(RandomState.triangular)
uniform = function(RandomState.uniform)
vonmises = function(RandomState.vonmises)
wald = function(RandomState.wald)
weibull = function(RandomState.weibull)
zipf = function(RandomState.zipf)
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
