"""Continuous distributions.

Each method takes, besides what NumPy's takes, `mesh` and `placements` as
:func:`distarray.distribute` does. Parameters may be scalars, arrays that every rank has, and
distributed arrays.
"""

from typing import Any

from distarray.array.placing import Placements
from distarray.comm import DeviceMesh
from distarray.engines.drawing.sampling import Source

__all__ = ["Continuous"]


class Continuous(Source):
    """Continuous distributions, as numpy.random.Generator has them.

    Without `size` and with scalar parameters each method gives one number, the same on all ranks.

    Cost
    ----
    No message, and the time that NumPy takes for this rank's part, if the parameters are scalars
    or known on all ranks. Distributed parameters are brought to where the result is, if they lie
    elsewhere, and the ranks agree that all are within bounds. Where they decide how many numbers
    the sampler takes from its stream (the gamma family, `vonmises`, `weibull`), those of the tiles
    that a cut divides are exchanged, too.
    """

    def beta(
        self,
        a: Any,
        b: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Beta distribution."""
        return self._sample("beta", (a, b), size, mesh, placements)

    def chisquare(
        self,
        df: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a chi-square distribution."""
        return self._sample("chisquare", (df,), size, mesh, placements)

    def exponential(
        self,
        scale: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of an exponential distribution."""
        return self._sample("exponential", (scale,), size, mesh, placements)

    def f(
        self,
        dfnum: Any,
        dfden: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of an F distribution."""
        return self._sample("f", (dfnum, dfden), size, mesh, placements)

    def gamma(
        self,
        shape: Any,
        scale: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a gamma distribution."""
        return self._sample("gamma", (shape, scale), size, mesh, placements)

    def gumbel(
        self,
        loc: Any = 0.0,
        scale: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Gumbel distribution."""
        return self._sample("gumbel", (loc, scale), size, mesh, placements)

    def laplace(
        self,
        loc: Any = 0.0,
        scale: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Laplace (double exponential) distribution."""
        return self._sample("laplace", (loc, scale), size, mesh, placements)

    def logistic(
        self,
        loc: Any = 0.0,
        scale: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a logistic distribution."""
        return self._sample("logistic", (loc, scale), size, mesh, placements)

    def lognormal(
        self,
        mean: Any = 0.0,
        sigma: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a log-normal distribution."""
        return self._sample("lognormal", (mean, sigma), size, mesh, placements)

    def noncentral_chisquare(
        self,
        df: Any,
        nonc: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a noncentral chi-square distribution."""
        return self._sample("noncentral_chisquare", (df, nonc), size, mesh, placements)

    def noncentral_f(
        self,
        dfnum: Any,
        dfden: Any,
        nonc: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a noncentral F distribution."""
        return self._sample("noncentral_f", (dfnum, dfden, nonc), size, mesh, placements)

    def normal(
        self,
        loc: Any = 0.0,
        scale: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a normal (Gaussian) distribution."""
        return self._sample("normal", (loc, scale), size, mesh, placements)

    def pareto(
        self,
        a: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Pareto II (Lomax) distribution."""
        return self._sample("pareto", (a,), size, mesh, placements)

    def power(
        self,
        a: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a power distribution on [0, 1]."""
        return self._sample("power", (a,), size, mesh, placements)

    def rayleigh(
        self,
        scale: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Rayleigh distribution."""
        return self._sample("rayleigh", (scale,), size, mesh, placements)

    def standard_t(
        self,
        df: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of Student's t distribution."""
        return self._sample("standard_t", (df,), size, mesh, placements)

    def triangular(
        self,
        left: Any,
        mode: Any,
        right: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a triangular distribution."""
        return self._sample("triangular", (left, mode, right), size, mesh, placements)

    def uniform(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a uniform distribution on [low, high)."""
        return self._sample("uniform", (low, high), size, mesh, placements)

    def vonmises(
        self,
        mu: Any,
        kappa: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a von Mises distribution on [-pi, pi]."""
        return self._sample("vonmises", (mu, kappa), size, mesh, placements)

    def wald(
        self,
        mean: Any,
        scale: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Wald (inverse Gaussian) distribution."""
        return self._sample("wald", (mean, scale), size, mesh, placements)

    def weibull(
        self,
        a: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Weibull distribution."""
        return self._sample("weibull", (a,), size, mesh, placements)
