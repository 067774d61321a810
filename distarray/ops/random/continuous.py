"""Continuous distributions.

Each method has NumPy's parameters, and `mesh` and `placements`, as :func:`distarray.distribute`
has them. Parameters may be scalars, arrays that every rank has, and
distributed arrays.
"""

from __future__ import annotations

from typing import Any

from distarray.comm import DeviceMesh
from distarray.engines.drawing.sampling import Source
from distarray.typing import ArrayLike, Placements, ShapeLike

__all__ = ["Continuous"]


class Continuous(Source):
    """Continuous distributions, as numpy.random.Generator has them.

    Without `size` and with scalar parameters each method gives one number, the same on all ranks.

    Cost
    ----
    No message, and the time that NumPy takes for this rank's part, if the parameters are scalars
    or known on all ranks. Distributed parameters are brought to where the result is, and the ranks
    agree that all are within bounds. Where they decide how many numbers the sampler takes from its
    stream (the gamma family, `vonmises`, `weibull`), the parameters of tiles that a cut divides are
    exchanged as well.
    """

    def beta(
        self,
        a: ArrayLike,
        b: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Beta distribution."""
        return self._sample("beta", (a, b), size, mesh, placements)

    def chisquare(
        self,
        df: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a chi-square distribution."""
        return self._sample("chisquare", (df,), size, mesh, placements)

    def exponential(
        self,
        scale: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of an exponential distribution."""
        return self._sample("exponential", (scale,), size, mesh, placements)

    def f(
        self,
        dfnum: ArrayLike,
        dfden: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of an F distribution."""
        return self._sample("f", (dfnum, dfden), size, mesh, placements)

    def gamma(
        self,
        shape: ArrayLike,
        scale: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a gamma distribution."""
        return self._sample("gamma", (shape, scale), size, mesh, placements)

    def gumbel(
        self,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Gumbel distribution."""
        return self._sample("gumbel", (loc, scale), size, mesh, placements)

    def laplace(
        self,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Laplace (double exponential) distribution."""
        return self._sample("laplace", (loc, scale), size, mesh, placements)

    def logistic(
        self,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a logistic distribution."""
        return self._sample("logistic", (loc, scale), size, mesh, placements)

    def lognormal(
        self,
        mean: ArrayLike = 0.0,
        sigma: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a log-normal distribution."""
        return self._sample("lognormal", (mean, sigma), size, mesh, placements)

    def noncentral_chisquare(
        self,
        df: ArrayLike,
        nonc: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a noncentral chi-square distribution."""
        return self._sample("noncentral_chisquare", (df, nonc), size, mesh, placements)

    def noncentral_f(
        self,
        dfnum: ArrayLike,
        dfden: ArrayLike,
        nonc: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a noncentral F distribution."""
        return self._sample("noncentral_f", (dfnum, dfden, nonc), size, mesh, placements)

    def normal(
        self,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a normal (Gaussian) distribution."""
        return self._sample("normal", (loc, scale), size, mesh, placements)

    def pareto(
        self,
        a: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Pareto II (Lomax) distribution."""
        return self._sample("pareto", (a,), size, mesh, placements)

    def power(
        self,
        a: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a power distribution on [0, 1]."""
        return self._sample("power", (a,), size, mesh, placements)

    def rayleigh(
        self,
        scale: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Rayleigh distribution."""
        return self._sample("rayleigh", (scale,), size, mesh, placements)

    def standard_t(
        self,
        df: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of Student's t distribution."""
        return self._sample("standard_t", (df,), size, mesh, placements)

    def triangular(
        self,
        left: ArrayLike,
        mode: ArrayLike,
        right: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a triangular distribution."""
        return self._sample("triangular", (left, mode, right), size, mesh, placements)

    def uniform(
        self,
        low: ArrayLike = 0.0,
        high: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a uniform distribution on [low, high)."""
        return self._sample("uniform", (low, high), size, mesh, placements)

    def vonmises(
        self,
        mu: ArrayLike,
        kappa: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a von Mises distribution on [-pi, pi]."""
        return self._sample("vonmises", (mu, kappa), size, mesh, placements)

    def wald(
        self,
        mean: ArrayLike,
        scale: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Wald (inverse Gaussian) distribution."""
        return self._sample("wald", (mean, scale), size, mesh, placements)

    def weibull(
        self,
        a: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Weibull distribution."""
        return self._sample("weibull", (a,), size, mesh, placements)
