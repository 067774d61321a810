"""Numbers by position: an element's number depends on its position, not on the layout.

For a given seed they are not NumPy's numbers, though NumPy's methods draw them. No rank needs the
numbers that another rank has drawn: nothing is sent, for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray
from distarray.array.divergence import verify_text
from distarray.array.placing import as_shape, plain
from distarray.array.portable import refuse_read_only
from distarray.comm import DeviceMesh
from distarray.comm.chance import home, home_of_copy, verify_home
from distarray.config import config
from distarray.engines.drawing.filling import Draw, fill, filled
from distarray.engines.drawing.sampling import layout_for, mesh_for
from distarray.engines.drawing.seeds import sequence_of
from distarray.engines.drawing.shuffling import Shuffle, positions, shuffled
from distarray.engines.drawing.streams import Call, Philox
from distarray.typing import Array, ArrayLike, DTypeLike, Placements, Shape, ShapeLike

__all__ = ["Generator", "Philox", "default_rng"]

_PROBE = np.random.Generator(np.random.Philox(0))


class Generator:
    """Random numbers by global position: no message, the same arrays on any number of ranks.

    A number depends on the seed, on the number of earlier calls, on the shape and on its position
    in the array, and not on the layout. For the same seed the numbers are not NumPy's (see
    :mod:`distarray.engines.drawing.streams`); :func:`distarray.numpy.random.default_rng` has
    NumPy's numbers.

    Parameters
    ----------
    bit_generator : Philox
        A key and a counter, from :mod:`distarray.random`; two generators may share one.
    mesh : DeviceMesh, optional
        Mesh of the arrays that the generator makes; the default mesh if not given.

    Attributes
    ----------
    bit_generator : Philox
        Its state can be read and set.

    Notes
    -----
    All ranks make the same calls, for scalars as well. Each call takes the next section of the
    sequence. Methods have NumPy's parameters, which must be numbers here, and `mesh` and
    `placements`.

    Examples
    --------
    >>> import distarray
    >>> rng = distarray.random.default_rng(5)
    >>> rng.integers(10, size=4)
    array([8, 8, 1, 9])
    """

    def __init__(self, bit_generator: Philox, *, mesh: DeviceMesh | None = None) -> None:
        self.bit_generator = bit_generator
        self._mesh, self._home = mesh, home()

    # -- samples ------------------------------------------------------------------------------

    def random(
        self,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.float64,
        out: DistArray | None = None,
        **place: Any,
    ) -> Any:
        """Draw uniform numbers on [0, 1), in a new array or in a distributed one."""
        return self._drawn("random", (), size, out, place, dtype=dtype)

    def standard_normal(
        self,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.float64,
        out: DistArray | None = None,
        **place: Any,
    ) -> Any:
        """Draw normal numbers of mean 0 and variance 1."""
        return self._drawn("standard_normal", (), size, out, place, dtype=dtype)

    def standard_exponential(
        self,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.float64,
        out: DistArray | None = None,
        **place: Any,
    ) -> Any:
        """Draw exponential numbers of mean 1."""
        return self._drawn("standard_exponential", (), size, out, place, dtype=dtype)

    def uniform(
        self, low: float = 0.0, high: float = 1.0, size: ShapeLike | None = None, **place: Any
    ) -> Any:
        """Draw uniform numbers on [low, high)."""
        return self._drawn("uniform", (low, high), size, None, place)

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, size: ShapeLike | None = None, **place: Any
    ) -> Any:
        """Draw normal numbers of a mean and a standard deviation."""
        return self._drawn("normal", (loc, scale), size, None, place)

    def integers(
        self,
        low: int,
        high: int | None = None,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.int64,
        endpoint: bool = False,
        **place: Any,
    ) -> Any:
        """Draw integers from `low` to `high`, exclusive, or inclusive with `endpoint`."""
        more = {"dtype": dtype, "endpoint": endpoint}
        return self._drawn("integers", (low, high), size, None, place, **more)

    def _drawn(
        self,
        name: str,
        values: tuple[Any, ...],
        size: ShapeLike | None,
        out: DistArray | None,
        place: dict[str, Any],
        **others: Any,
    ) -> Any:
        mesh = mesh_for(place.pop("mesh", None), self._mesh, [out])
        placements = place.pop("placements", None)
        if place:
            raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(place))!r}")
        method = getattr(np.random.Generator, name)
        dtype = np.asarray(method(_PROBE, *values, size=1, **others)).dtype
        call = self._begin(name, mesh)
        if size is None and out is None:
            return method(call.tile(0), *values, **others)

        def draw(generator: np.random.Generator, extents: Shape) -> Array:
            drawn: Array = method(generator, *values, size=extents, **others)
            return drawn

        if out is None:
            layout = layout_for(as_shape(size), dtype, mesh, placements)
            return filled(layout, mesh, dtype, call, draw)
        if out.dtype != dtype or (size is not None and as_shape(size) != out.shape):
            raise ValueError(f"out must be an array of {dtype} with the shape asked for")
        self._fill(out, call, draw)
        return out

    def _fill(self, out: DistArray, call: Call, draw: Draw) -> None:
        """Draw into a distributed array of any layout, in place."""
        if out.layout.partials:
            out.settle()
        if out.mesh.device_type != "cpu":
            out[...] = filled(out.layout, out.mesh, out.dtype, call, draw)
        elif out.mesh.coords is not None:
            fill(out.block, out.shape, out.layout.section(out.mesh.coords), call, draw)

    # -- permutations -------------------------------------------------------------------------

    def permutation(
        self,
        x: int | ArrayLike,
        axis: int = 0,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Permute the integers below `x`, or a distributed array along an axis, at random.

        Cost
        ----
        Each element is sent once, to its new rank; see :mod:`distarray.engines.drawing.shuffling`.
        """
        mesh = mesh_for(mesh, self._mesh, [x])
        if isinstance(x, DistArray):
            axis = normalize_axis_index(axis, x.ndim)
            array = plain(x).plain()
            return shuffled(array, axis, Shuffle(self._begin("permutation", mesh), x.shape[axis]))
        shape = (max(int(x), 0),)  # type: ignore[arg-type]
        layout = layout_for(shape, np.int64, mesh, placements)
        return positions(Shuffle(self._begin("permutation", mesh), shape[0]), layout, mesh)

    def shuffle(self, x: DistArray, axis: int = 0) -> None:
        """Permute a distributed array in place along an axis; see :meth:`permutation`."""
        if x.layout.partials:
            x.settle()
        refuse_read_only(x, "array is read-only")
        x.assign(self.permutation(x, axis))

    # -- streams ------------------------------------------------------------------------------

    def spawn(self, n_children: int) -> list[Generator]:
        """Return generators whose sequences are independent of this one's and of one another."""
        verify_home(self._home)
        children = self.bit_generator.spawn(n_children)
        return [type(self)(child, mesh=self._mesh) for child in children]

    def _begin(self, name: str, mesh: DeviceMesh) -> Call:
        """Start the next call of the stream; under `config.check` it must agree on all ranks."""
        verify_home(self._home)
        if config.check:
            verify_text(f"Generator.{name} of {self.bit_generator.summary()}", mesh)
        return self.bit_generator.call()

    def __reduce__(self) -> tuple[Callable[..., Generator], tuple[Any, ...]]:
        return _restored, (type(self), self.bit_generator, self._mesh, self._home is None)


def _restored(
    kind: type[Generator], bits: Philox, mesh: DeviceMesh | None, shared: bool = True
) -> Generator:
    made = kind(bits, mesh=mesh)
    made._home = home_of_copy(shared)
    return made


def default_rng(seed: Any = None, *, mesh: DeviceMesh | None = None) -> Generator:
    """Return a generator of numbers by position.

    Parameters
    ----------
    seed : None, int, array_like of int, SeedSequence, or Generator
        None takes fresh entropy from rank 0. A generator by position is returned itself.
    mesh : DeviceMesh, optional
        Mesh of the arrays that the generator makes; the default mesh if not given.

    Cost
    ----
    None for integers; else one small broadcast, so that all ranks have the same seed.
    """
    if isinstance(seed, Generator):
        return seed
    return Generator(Philox.of(sequence_of(seed, mesh)), mesh=mesh)
