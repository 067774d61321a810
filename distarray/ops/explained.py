"""Functions that can be explained before a call, and data that decide the messages of others."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.array.registry import FUNCTIONS
from distarray.config import config
from distarray.plan.explaining import Explanation

__all__ = ["EXPLAINED", "check", "close", "name_of"]

#: NumPy's functions by submodule; tests compare their rehearsals with the messages of real calls.
EXPLAINED: dict[str, str] = {
    "fft": """
        fft ifft rfft irfft hfft ihfft fft2 ifft2 fftn ifftn rfft2 irfft2 rfftn irfftn fftshift
        ifftshift""",
    "linalg": """
        qr svd svdvals cholesky inv det slogdet eigh eigvalsh eigvals eig pinv matrix_rank norm
        solve lstsq matrix_power multi_dot cond""",
    "": """
        sum prod max min any all mean std var average argmax argmin ptp count_nonzero
        nansum nanmax nanmin nanmean median nanmedian percentile quantile
        cumsum cumprod nancumsum diff ediff1d gradient trapezoid unwrap
        concatenate stack vstack hstack dstack column_stack block append
        reshape ravel transpose flip fliplr flipud squeeze copy roll rot90 moveaxis swapaxes
        expand_dims broadcast_to split array_split meshgrid
        take take_along_axis repeat tile pad delete insert resize compress extract choose select
        where clip tril triu diag diagonal trace
        convolve correlate interp searchsorted digitize histogram bincount cov corrcoef
        dot vdot inner outer tensordot einsum kron cross vander polyval
        sort argsort partition argpartition unique nonzero flatnonzero argwhere intersect1d isin
        array_equal allclose isclose nan_to_num round angle sinc packbits""",
}
_METHODS = ("reduce", "accumulate", "outer")
_SELECTS = "how many elements each rank has that are selected"
_ASKS = "the indices, that is which rank asks which for elements"
_HALVES = "the values, in rounds of counting that end where few elements are left"
#: Data that decide the messages, for functions where this text is clearer than a rehearsal's.
_DECIDES = {
    "unique": "how often values repeat on each rank",
    "intersect1d": "how often values repeat on each rank",
    "median": _HALVES,
    "nanmedian": _HALVES,
    "percentile": _HALVES,
    "quantile": _HALVES,
    "partition": _HALVES,
    "argpartition": _HALVES,
    "take": _ASKS,
    "take_along_axis": _ASKS,
    "choose": _ASKS,
    "histogram": "the least and the greatest value; with range=(low, high) it is known",
    "bincount": "the greatest value, which is the length of the result",
    "nonzero": _SELECTS,
    "flatnonzero": _SELECTS,
    "argwhere": _SELECTS,
    "extract": _SELECTS,
    "compress": _SELECTS,
    "svd": "how soon its rotations converge",
    "svdvals": "how soon its rotations converge",
    "eigh": "how many eigenvalues nearly agree",
    "eigvalsh": "how many eigenvalues nearly agree",
    "lstsq": "the rank of the matrix",
}
_IN_ORDER = "the order of sums under config.reproducible, in which ranks wait for one another"
#: Functions that send nothing after they read a value, since that value is their result.
_ENDS = {"array_equal", "allclose", "cond"}
#: Sorting functions, with the additional bytes sent with each element.
_RIDERS = {"sort": 0, "argsort": 8}


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; for a method of a ufunc also the ufunc's name."""
    name = getattr(function, "__name__", str(function))
    owner = getattr(function, "__self__", None)
    return f"{owner.__name__}.{name}" if isinstance(owner, np.ufunc) else name


def check(function: Callable[..., Any], name: str) -> None:
    """Raise ValueError if a function cannot be explained."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, np.ufunc) or (isinstance(owner, np.ufunc) and known_method(function)):
        return
    if any(_is(function, module, name) for module in EXPLAINED if name in _names(module)):
        return
    if function in FUNCTIONS or _numpys(function):
        raise ValueError(
            f"explain() does not know {name}: what it sends is decided while it runs. "
            f"distarray.trace() around a run on a small input shows it"
        )
    raise ValueError(
        f"explain(function, *operands) takes a function of NumPy's, such as np.matmul or "
        f"np.fft.fft, not {name}; distarray.trace() shows what any program sends"
    )


def known_method(function: Callable[..., Any]) -> bool:
    """Return True if a ufunc's method can be explained."""
    return function.__name__ in _METHODS


def _names(module: str) -> list[str]:
    return EXPLAINED[module].split()


def _is(function: Any, module: str, name: str) -> bool:
    """Return True for NumPy's function of this name, and for functions of `distarray.ops`."""
    theirs = getattr(getattr(np, module) if module else np, name, None)
    ours = str(getattr(function, "__module__", "")).startswith("distarray.ops.")
    return function is theirs or ours


def _numpys(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).split(".")[0] == "numpy"


def close(plan: Explanation, name: str, arrays: Sequence[DistArray]) -> None:
    """Complete an explanation that ends where values decide the messages, or raise ValueError."""
    if name in _ENDS or arrays[0].mesh.size() == 1:
        plan.then, plan.open_result = "", name not in _ENDS
        return
    if name in _RIDERS:
        x = arrays[0]
        plan.then = "how the values fall decides; each element changes its rank at most once"
        plan.at_most = x.size * (x.itemsize + _RIDERS[name])
        if x.ndim == 1:
            plan.lies(x.layout.settled(), _RIDERS[name] or x.itemsize)
        return
    decides = _DECIDES.get(name, _IN_ORDER if config.settings.reproducible else plan.then)
    raise ValueError(
        f"what {name} sends here is decided by {decides}; distarray.trace() around a run on a "
        "small input shows it"
    )
