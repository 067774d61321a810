"""Discrete distributions.

Each method takes, besides what NumPy's takes, `mesh` and `placements` as
:func:`distarray.distribute` does. Parameters may be scalars, arrays that every rank has, and
distributed arrays.
"""

from typing import Any

from distarray.array.placing import Placements
from distarray.comm import DeviceMesh
from distarray.engines.drawing.sampling import Source

__all__ = ["Discrete"]


class Discrete(Source):
    """Discrete distributions, as numpy.random.Generator has them.

    Without `size` and with scalar parameters each method gives one number, the same on all ranks.

    Cost
    ----
    No message, and the time that NumPy takes for this rank's part, if the parameters are scalars
    or known on all ranks. Distributed parameters are brought to where the result is, if they lie
    elsewhere, and the ranks agree that all are within bounds. They decide how many numbers the
    sampler takes from its stream, so that those of the tiles that a cut divides are exchanged, too.
    """

    def binomial(
        self,
        n: Any,
        p: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a binomial distribution."""
        return self._sample("binomial", (n, p), size, mesh, placements)

    def geometric(
        self,
        p: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a geometric distribution."""
        return self._sample("geometric", (p,), size, mesh, placements)

    def hypergeometric(
        self,
        ngood: Any,
        nbad: Any,
        nsample: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a hypergeometric distribution."""
        return self._sample("hypergeometric", (ngood, nbad, nsample), size, mesh, placements)

    def logseries(
        self,
        p: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a logarithmic series distribution."""
        return self._sample("logseries", (p,), size, mesh, placements)

    def negative_binomial(
        self,
        n: Any,
        p: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a negative binomial distribution."""
        return self._sample("negative_binomial", (n, p), size, mesh, placements)

    def poisson(
        self,
        lam: Any = 1.0,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Poisson distribution."""
        return self._sample("poisson", (lam,), size, mesh, placements)

    def zipf(
        self,
        a: Any,
        size: Any = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a Zipf (zeta) distribution."""
        return self._sample("zipf", (a,), size, mesh, placements)
