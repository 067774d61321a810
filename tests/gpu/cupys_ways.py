"""What CuPy takes and what it gives, where NumPy takes more or gives something else.

The stand-in asks here before it computes with NumPy. `cupy_api.txt` lists CuPy's functions with
their parameters.
"""

import inspect
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["API", "METHODS_OF", "METHOD_KEYWORDS", "checked", "computed", "fill", "supported"]

_DTYPES = frozenset("?bBhHiIlLqQefdFD")
_UFUNC_KEYWORDS = frozenset({"out", "dtype", "casting"})
METHOD_KEYWORDS = {
    "__call__": _UFUNC_KEYWORDS,
    "reduce": frozenset({"axis", "dtype", "out", "keepdims"}),
    "accumulate": frozenset({"axis", "dtype", "out"}),
    "reduceat": frozenset({"axis", "dtype", "out"}),
    "outer": _UFUNC_KEYWORDS,
    "at": _UFUNC_KEYWORDS,
}
#: The ufuncs of which CuPy has a method.
METHODS_OF = {
    "reduce": ("add", "multiply"),
    "accumulate": ("add", "multiply"),
    "reduceat": ("add",),
}


def _signature(words: list[str]) -> inspect.Signature:
    kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for word in words:
        if word == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif word.startswith("**"):
            parameters.append(inspect.Parameter(word[2:], inspect.Parameter.VAR_KEYWORD))
        elif word.startswith("*"):
            parameters.append(inspect.Parameter(word[1:], inspect.Parameter.VAR_POSITIONAL))
            kind = inspect.Parameter.KEYWORD_ONLY
        else:
            default = None if word.endswith("=") else inspect.Parameter.empty
            parameters.append(inspect.Parameter(word.rstrip("="), kind, default=default))
    return inspect.Signature(parameters)


def _read_api() -> dict[str, inspect.Signature | None]:
    """Name -> signature of CuPy's functions; None for ufuncs and where it is not told."""
    api: dict[str, inspect.Signature | None] = {}
    for line in (Path(__file__).parent / "cupy_api.txt").read_text().splitlines():
        name, *words = line.split()
        if name != "#":
            unknown = words[:1] in (["ufunc"], ["gufunc"], ["..."])
            api[name] = None if unknown else _signature(words)
    return api


API = _read_api()


def checked(name: str, args: Any, kwargs: Any) -> None:
    """Refuse a call that CuPy's function of this name does not take."""
    signature = API.get(name)
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"cupy.{name}() {error}") from None


def supported(dtype: np.dtype) -> np.dtype:
    if dtype.char not in _DTYPES or not dtype.isnative:
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def computed(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function's result, where CuPy's is another than NumPy's: its refusals and its ties."""
    if kwargs.get("subok") is not None or (name.endswith("_like") and len(args) > 3):
        raise TypeError("subok is not supported yet")
    if name == "searchsorted" and isinstance(args[1], (list, tuple)):
        raise NotImplementedError("Only python scalars or ndarrays are supported for v")
    if name == "searchsorted" and _lost(args[0], args[1]):
        return function(args[0].real, np.real(args[1]), *args[2:], **kwargs)
    if name == "choose" and isinstance(args[1], (list, tuple)):
        raise AttributeError("object has no attribute 'shape'")
    if name == "unravel_index" and np.any((args[0] < 0) | (args[0] >= np.prod(args[1]))):
        raise ValueError("invalid entry in index array")
    if name in ("argmax", "argmin") and args[0].dtype.kind in "fc" and np.isnan(args[0]).any():
        return _any_nan(function, *args, **kwargs)
    if name in _OTHERWISE:
        return _OTHERWISE[name](*args, **kwargs)
    result = function(*args, **kwargs)
    if name in ("sort", "argsort", "partition", "argpartition") and _misplaces(args[0]):
        if result is None:
            args[0][...] = args[0][..., ::-1].copy()
        else:
            result = result[..., ::-1]
    return tuple(result) if name.startswith("linalg.") and isinstance(result, tuple) else result


def _isclose(
    a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False
) -> np.ndarray:
    """What is equal is not close to CuPy where the tolerance is negative."""
    return np.isclose(a, b, rtol, atol, equal_nan) & ~np.less(atol + rtol * abs(b), 0)


def _angle(z: np.ndarray, deg: bool = False) -> np.ndarray:
    return np.angle(z + 0.0, deg)  # which makes 0 of -0.0


def _sinc(x: np.ndarray) -> np.ndarray:
    small = x.dtype.kind in "biu" and x.dtype.itemsize == 1
    return np.sinc(x).astype(np.float16) if small else np.sinc(x)


#: Functions whose numbers are others in CuPy.
_OTHERWISE = {"isclose": _isclose, "angle": _angle, "sinc": _sinc}


def _lost(keys: np.ndarray, values: Any) -> bool:
    """Whether CuPy looks for complex numbers with NaN in an order of its own."""
    return keys.dtype.kind == "c" and bool(np.isnan(keys).any() or np.isnan(values).any())


def _misplaces(memory: np.ndarray) -> bool:
    """Whether CuPy puts elements where they do not belong when it sorts these lines."""
    return memory.ndim > 1 and memory.dtype.kind == "c" and bool(np.isnan(memory).any())


def _any_nan(function: Any, a: np.ndarray, axis: Any = None, **kwargs: Any) -> Any:
    """The place of a NaN, if there are any: of several, CuPy gives any."""
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    lined, along = (a.reshape(-1), 0) if axis is None else (a, axis)
    last = lined.shape[along] - 1 - np.argmax(np.isnan(np.flip(lined, along)), along, keepdims=True)
    has = np.isnan(lined).any(along, keepdims=True)
    found = function(a, axis, **kwargs)
    shape = np.shape(found)
    return np.where(has.reshape(shape), last.reshape(shape), found)


def unsigned(number: Any) -> Any:
    """A number as CuPy fills memory with it: zero has no sign. An array is unchanged."""
    if np.ndim(number):
        return number
    dtype = np.asarray(number).dtype
    return dtype.type(0) if dtype.kind in "fc" and number == 0 else number


def fill(memory: np.ndarray, key: Any, value: Any) -> None:
    """An assignment; of several values for one place CuPy leaves any, here the first."""
    parts = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(part, (np.ndarray, list)) for part in parts) or np.ndim(value) == 0:
        memory[key] = value
        return
    places = np.arange(memory.size).reshape(memory.shape)[key]
    values = np.broadcast_to(value, places.shape).reshape(-1)[::-1].astype(memory.dtype)
    memory[np.unravel_index(places.reshape(-1)[::-1], memory.shape)] = values
