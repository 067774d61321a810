"""Comparisons of a rank's results with NumPy's."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.typing import Array

__all__ = ["assert_matches", "assert_same_error"]


def assert_matches(
    result: Any, expected: Any, *, exact: bool = True, rtol: float = 1e-10, atol: float = 1e-12
) -> None:
    """Assert that this rank's part of a result equals NumPy's.

    Type (array, scalar, tuple), shape and dtype must be equal. The elements of this rank's block
    must be equal bit for bit (NaN equals NaN, -0.0 is not 0.0) or, with ``exact=False``, up to
    rounding. The function communicates only if the array has a pending fold or is stored at one
    mesh coordinate.

    Parameters
    ----------
    result : DistArray, or tuple or list of DistArray, or any other value
        The result of the distributed call.
    expected : ndarray, scalar, ...
        NumPy's result.
    exact : bool
        True if floating-point numbers must agree bit for bit.
    rtol, atol : float
        Tolerances if `exact` is False.

    Examples
    --------
    >>> import numpy, distarray
    >>> a = numpy.arange(12.0).reshape(3, 4)
    >>> assert_matches(numpy.cumsum(distarray.distribute(a), axis=0), numpy.cumsum(a, axis=0))
    """
    if isinstance(expected, (tuple, list)):
        assert isinstance(result, (tuple, list)), (
            f"{type(result)} where NumPy gives {type(expected)}"
        )
        assert len(result) == len(expected), f"{len(result)} results, not {len(expected)}"
        for one, other in zip(result, expected, strict=True):
            assert_matches(one, other, exact=exact, rtol=rtol, atol=atol)
        return
    if not isinstance(expected, (np.ndarray, np.generic)):
        assert result == expected or (result != result and expected != expected), (result, expected)
        return
    if isinstance(result, np.generic):
        assert isinstance(expected, np.generic), f"a scalar where NumPy gives {expected!r}"
        assert result.dtype == expected.dtype, f"dtype {result.dtype}, not {expected.dtype}"
        _compare(np.asarray(result), np.asarray(expected), exact, rtol, atol, "scalar")
        return
    assert isinstance(result, DistArray), f"{type(result)} is not a DistArray"
    assert result.shape == expected.shape, f"shape {result.shape}, not {expected.shape}"
    assert result.dtype == expected.dtype, f"dtype {result.dtype}, not {expected.dtype}"
    scalar = isinstance(result.block, np.generic)  # on a rank outside of the mesh
    assert scalar == isinstance(expected, np.generic), f"{result!r}, not {expected!r}"
    _compare_block(result, np.asarray(expected), exact, rtol, atol)


def _compare_block(
    result: DistArray, expected: Array, exact: bool, rtol: float, atol: float
) -> None:
    """Compare this rank's block with the same part of NumPy's array."""
    block, layout = result.to_local(), result.layout
    coords = result.mesh.coords
    if coords is None:
        return
    if not layout.is_plain:
        assert block.shape == layout.local_shape(coords), f"block {block.shape} under {layout}"
        _compare(result.full(), expected, exact, rtol, atol, "gathered")
        return
    section = layout.section(coords)
    local = expected[tuple([slice(start, stop) for start, stop in section])]
    assert block.shape == local.shape, f"block {block.shape} under {layout}, not {local.shape}"
    host = result.mesh.to_host(block)
    _compare(host, local, exact, rtol, atol, f"block {section} of {layout}")


def _compare(found: Array, wanted: Array, exact: bool, rtol: float, atol: float, what: str) -> None:
    if found.dtype.kind in "fc" and not exact:
        if found.dtype.kind == "c" and not np.isfinite(wanted).all():
            # With an infinite real or imaginary part assert_allclose requires equality of both
            # parts, so each part is compared separately.
            found, wanted = (np.stack([v.real, v.imag]) for v in (found, wanted))
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=what)
        return
    np.testing.assert_array_equal(found, wanted, err_msg=what)
    if found.dtype.kind == "f":
        known = ~np.isnan(wanted)
        signs = np.signbit(found) == np.signbit(wanted)
        assert np.all(signs | ~known), f"{what}: signs of zero differ"


def assert_same_error(call: Callable[[], Any], reference: Callable[[], Any]) -> None:
    """Assert that `call` raises an exception of the same type as `reference`, or of a subclass.

    Examples
    --------
    >>> import numpy, distarray
    >>> a, four = numpy.ones(3), numpy.ones(4)
    >>> assert_same_error(lambda: distarray.distribute(a) + four, lambda: a + four)
    """
    try:
        reference()
    except Exception as error:
        wanted = type(error)
    else:
        raise AssertionError("the reference call does not raise")
    try:
        value = call()
    except wanted:
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} ({error}), not {wanted.__name__}") from error
    raise AssertionError(f"no error but {value!r}; NumPy raises {wanted.__name__}")
