"""Correspondence of the data types of torch and NumPy.

NumPy itself has no bfloat16 and no 8-bit floats: ml_dtypes defines them. ``Tensor.numpy`` and
``torch.from_numpy`` do not know them, so these types are converted as integers of their size.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from distarray.typing import Array, DType, DTypeLike

__all__ = ["as_torch_dtype", "numpy_view", "tensor_view", "torch_dtype"]

#: torch's data types that ml_dtypes defines for NumPy, and the integer type used to convert them.
_FOREIGN = {
    name: torch.int16 if name == "bfloat16" else torch.uint8
    for name in (
        "bfloat16",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
    if hasattr(torch, name)
}
_BY_TORCH = {getattr(torch, name): (name, carrier) for name, carrier in _FOREIGN.items()}

_NATIVE = {
    np.dtype(name): getattr(torch, name)
    for name in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
    if hasattr(torch, name)
}


def numpy_view(t: Tensor, call: str = "a tensor") -> Array:
    """Return a NumPy array over a strided CPU tensor that needs no gradient.

    Raises
    ------
    TypeError
        If NumPy has no such data type; the message names `call`.
    """
    foreign = _BY_TORCH.get(t.dtype)
    if foreign is None:
        if t.dtype not in _NATIVE.values():
            raise TypeError(f"{call}: NumPy has no data type {t.dtype}; t.to(...) another first")
        plain: Array = t.numpy()
        return plain
    name, carrier = foreign
    view: Array = t.view(carrier).numpy().view(getattr(_ml_dtypes(name), name))
    return view


def tensor_view(block: Array) -> Tensor:
    """Return a tensor over a writable array of native byte order; raise TypeError otherwise."""
    name = block.dtype.name
    if name not in _FOREIGN:
        return torch.from_numpy(block)
    carrier = np.int16 if name == "bfloat16" else np.uint8
    return torch.from_numpy(block.view(carrier)).view(getattr(torch, name))


def torch_dtype(dtype: DType) -> torch.dtype | None:
    """Return the torch data type of a NumPy data type in any byte order; None if there is none."""
    known = _NATIVE.get(dtype.newbyteorder("="))
    return known if known is not None or dtype.name not in _FOREIGN else getattr(torch, dtype.name)


def as_torch_dtype(dtype: torch.dtype | DTypeLike) -> torch.dtype | None:
    """Convert a ``dtype=`` argument, torch's or NumPy's, to a torch data type.

    Raises
    ------
    TypeError
        If torch has no such data type.
    """
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if isinstance(dtype, str) and dtype in _FOREIGN:
        return getattr(torch, dtype)
    found = torch_dtype(np.dtype(dtype))
    if found is None:
        raise TypeError(f"torch has no data type {np.dtype(dtype)}")
    return found


def _ml_dtypes(name: str) -> Any:
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(
            f"NumPy has {name} by the package ml_dtypes: pip install 'distarray-mpi[torch]'"
        ) from error
    return ml_dtypes
