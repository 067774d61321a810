"""Discrete distributions.

Each method has NumPy's parameters, and `mesh` and `placements`, as :func:`distarray.distribute`
has them. Parameters may be scalars, arrays that every rank has, and
distributed arrays.
"""

from __future__ import annotations

from typing import Any

from distarray.comm import DeviceMesh
from distarray.engines.drawing.sampling import Source
from distarray.typing import ArrayLike, Placements, ShapeLike

__all__ = ["Discrete"]


class Discrete(Source):
    """Discrete distributions, as numpy.random.Generator has them.

    Without `size` and with scalar parameters each method gives one number, the same on all ranks.

    Cost
    ----
    No message, and the time that NumPy takes for this rank's part, if the parameters are scalars
    or known on all ranks. Distributed parameters are brought to where the result is, and the ranks
    agree that all are within bounds. They decide how many numbers the sampler takes from its
    stream, so that the parameters of tiles that a cut divides are exchanged as well.
    """

    def binomial(
        self,
        n: ArrayLike,
        p: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a binomial distribution."""
        return self._sample("binomial", (n, p), size, mesh, placements)

    def geometric(
        self,
        p: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a geometric distribution."""
        return self._sample("geometric", (p,), size, mesh, placements)

    def hypergeometric(
        self,
        ngood: ArrayLike,
        nbad: ArrayLike,
        nsample: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a hypergeometric distribution."""
        return self._sample("hypergeometric", (ngood, nbad, nsample), size, mesh, placements)

    def logseries(
        self,
        p: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a logarithmic series distribution."""
        return self._sample("logseries", (p,), size, mesh, placements)

    def negative_binomial(
        self,
        n: ArrayLike,
        p: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a negative binomial distribution."""
        return self._sample("negative_binomial", (n, p), size, mesh, placements)

    def poisson(
        self,
        lam: ArrayLike = 1.0,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Poisson distribution."""
        return self._sample("poisson", (lam,), size, mesh, placements)

    def zipf(
        self,
        a: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Zipf (zeta) distribution."""
        return self._sample("zipf", (a,), size, mesh, placements)
