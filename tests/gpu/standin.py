"""A strict stand-in for CuPy: device arrays whose memory the host cannot reach by accident.

It computes with NumPy on memory of its own, and is stricter than the real thing wherever a
program could touch that memory without saying so:

* `__array__` refuses, so that no NumPy function converts a device array behind one's back;
* NumPy arrays are refused as operands, values and indices of device arrays (scalars pass);
* the CUDA array interface and the data pointer show a page that may not be read, so that a buffer
  handed to MPI without staging ends in a segmentation fault instead of a right answer;
* `get`, `set`, `asarray` and the conversions to Python scalars are counted.

It has no more than the real thing has: CuPy's data types (no dates, strings, objects, long
doubles, foreign byte orders), and of NumPy's functions those that `cupy_api.txt` lists, with the
parameters listed there (no ``where=`` or ``initial=`` of a reduction, say). What it does not
imitate is how CuPy computes: the order of summation, the kinds of numbers that a ufunc takes, the
texts of its errors.

`install()` puts it where ``import cupy`` finds it.
"""

import contextlib
import ctypes
import functools
import mmap
import sys
import types
from typing import Any

import numpy as np

from tests.gpu.cupys_ways import (
    API,
    METHOD_KEYWORDS,
    METHODS_OF,
    checked,
    computed,
    fill,
    supported,
    unsigned,
)

__all__ = ["Counts", "counts", "install"]


class Counts:
    """Crossings between host and device since the last reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.to_host = self.to_device = self.scalars = 0


counts = Counts()
_SCALARS = (bool, int, float, complex, np.generic, str, bytes, type(None), type(Ellipsis), slice)


#: Functions that give Python numbers in NumPy, and 0-d arrays in CuPy.
_NUMBERS = frozenset({"count_nonzero", "allclose", "array_equal", "array_equiv"})


def _forbidden_page() -> int:
    """The address of a page of no access."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return int(libc.mmap(None, mmap.PAGESIZE, 0, flags, -1, 0))


_PAGE = _forbidden_page()


def _inside(value: Any, what: str) -> Any:
    """The NumPy arrays behind device arrays; arrays of the host are refused."""
    if isinstance(value, ndarray):
        return value._memory
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {np.ndarray} in {what}: a host array meets the device")
    if isinstance(value, (list, tuple)):
        items = [_inside(item, what) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: _inside(item, what) for key, item in value.items()}
    return value


def _outside(value: Any) -> Any:
    """Results as device arrays: the device has no scalars, only 0-d arrays."""
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray._of(np.asarray(value))
    if isinstance(value, (list, tuple)):
        items = [_outside(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


class _Pointer:
    ptr = _PAGE


def gpu() -> str:
    """Where this rank's device is; the stand-in for nccl4py gives each rank its own."""
    return "0000:00:00.0"


def stream_is_done() -> bool:
    """Whether the current stream has done its work: all of it is done at once here."""
    return True


class _Device:
    id = 0

    @property
    def pci_bus_id(self) -> str:
        return gpu()

    def __enter__(self) -> "_Device":
        return self

    def __exit__(self, *raised: Any) -> None:
        pass


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array in the memory of the device."""

    __slots__ = ("_memory",)
    __array_priority__ = 100

    device = _Device()
    data = _Pointer()

    @classmethod
    def _of(cls, memory: np.ndarray) -> "ndarray":
        supported(memory.dtype)
        if not memory.flags.writeable:  # NumPy's diagonals; CuPy's arrays all are
            with contextlib.suppress(ValueError):
                memory.flags.writeable = True
        self = object.__new__(cls)
        self._memory = memory
        return self

    # -- crossings ------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (_PAGE, False),
            "version": 3,
            "strides": None if self.flags.c_contiguous else self.strides,
        }

    def get(self, stream: Any = None, order: str = "C", out: Any = None) -> np.ndarray:
        counts.to_host += 1
        if out is None:
            return self._memory.copy(order)
        assert type(out) is np.ndarray
        assert out.shape == self.shape
        out[...] = self._memory
        return out

    def set(self, host: np.ndarray, stream: Any = None) -> None:
        assert type(host) is np.ndarray
        assert host.dtype == self.dtype
        assert host.shape == self.shape
        counts.to_device += 1
        self._memory[...] = host

    def _scalar(self, kind: Any) -> Any:
        counts.scalars += 1
        return kind(self._memory)

    def __bool__(self) -> bool:
        return self._scalar(bool)

    def __int__(self) -> int:
        return self._scalar(int)

    def __float__(self) -> float:
        return self._scalar(float)

    def __complex__(self) -> complex:
        return self._scalar(complex)

    def __pow__(self, other: Any) -> Any:
        return _outside(self._memory ** _inside(other, "power"))

    def item(self, *args: Any) -> Any:
        counts.scalars += 1
        return self._memory.item(*args)

    def tolist(self) -> Any:
        counts.to_host += 1
        return self._memory.tolist()

    # -- NumPy's protocols ------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if f"{ufunc.__name__}" not in API:
            return NotImplemented
        out = kwargs.get("out")
        if out is not None and len(out) != 1:
            raise ValueError("The 'out' parameter must have exactly one array value")
        wrong = kwargs.keys() - METHOD_KEYWORDS[method]
        if wrong:
            raise TypeError(f"Wrong arguments {wrong} of cupy.{ufunc.__name__}.{method}")
        if method == "at":
            return NotImplemented
        if method in METHODS_OF and ufunc.__name__ not in METHODS_OF[method]:
            raise NotImplementedError(f"`cupy_{ufunc.__name__}.{method}` is not supported yet")
        inside = _inside(inputs, ufunc.__name__)
        if ufunc.__name__.startswith("logical") and any(map(np.iscomplexobj, inside)):
            raise TypeError(f"Wrong type of arguments for cupy_{ufunc.__name__}")
        result = getattr(ufunc, method)(*inside, **_inside(kwargs, ufunc.__name__))
        if out is not None:
            return out[0] if len(out) == 1 else out
        return _outside(result)

    def __array_function__(self, func: Any, types_: Any, args: Any, kwargs: Any) -> Any:
        inner = func.__module__.partition(".")[2]
        name = f"{inner}.{func.__name__}" if inner else func.__name__
        if name not in API:
            return NotImplemented
        checked(name, args, kwargs)
        if name in ("array", "asarray"):  # with like=, the way from host to device
            return _asarray(*args, **kwargs)
        result = computed(func, name, _inside(args, name), _inside(kwargs, name))
        out = kwargs.get("out")
        if out is not None:
            return out
        return _outside(np.asarray(result) if name in _NUMBERS else result)

    def __getitem__(self, key: Any) -> "ndarray":
        return _outside(self._memory[_key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        if not isinstance(value, ndarray):
            value = unsigned(value)
        fill(self._memory, _key(key), _inside(value, "an assignment to a device array"))

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: Any = None,
        subok: Any = None,
        copy: bool = True,
    ) -> "ndarray":
        if casting is not None or subok is not None:
            raise TypeError("casting is not supported yet")
        cast = self._memory.astype(dtype, order=order, copy=copy)
        return self if cast is self._memory else _outside(cast)

    @property
    def flags(self) -> "_Flags":
        return _Flags(self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    def __iter__(self) -> Any:
        return (_outside(row) for row in self._memory)

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'cupy.ndarray'")

    def __repr__(self) -> str:
        counts.to_host += 1
        return repr(self._memory)

    def __str__(self) -> str:
        counts.to_host += 1
        return str(self._memory)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("the stand-in exports nothing")


def _key(key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if not isinstance(part, (*_SCALARS, ndarray, list)):
            raise IndexError(f"Unsupported type {type(part)}: a host array indexes a device array")
    return _inside(key, "an index")


class _Flags:
    """What CuPy tells of an array: not whether it is writeable, which all are."""

    def __init__(self, memory: np.ndarray) -> None:
        self.c_contiguous = memory.flags.c_contiguous
        self.f_contiguous = memory.flags.f_contiguous
        self.owndata = memory.flags.owndata


#: Methods that hand on to NumPy's; of the first the parameters are those of the functions.
_LIKE_FUNCTIONS = """
    all any argmax argmin cumprod cumsum max mean min prod std sum take trace var
"""
_OTHERS = """
    argsort byteswap choose clip compress conj conjugate copy diagonal dot fill flatten nonzero
    partition put ravel repeat reshape round searchsorted sort squeeze swapaxes transpose view
"""


def _forward(name: str) -> Any:
    like_functions = _LIKE_FUNCTIONS.split()

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if name in like_functions:
            checked(name, (self, *args), kwargs)
        bound = getattr(np.ndarray, name)
        inside = (self._memory, *_inside(args, name))
        return _outside(computed(bound, name, inside, _inside(kwargs, name)))

    method.__name__ = name
    return method


for _name in (*_LIKE_FUNCTIONS.split(), *_OTHERS.split()):
    setattr(ndarray, _name, _forward(_name))
for _name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"):
    setattr(ndarray, _name, property(lambda self, _n=_name: getattr(self._memory, _n)))
for _name in ("T", "mT", "real", "imag", "base"):
    setattr(ndarray, _name, property(lambda self, _n=_name: _outside(getattr(self._memory, _n))))
ndarray.__module__ = "cupy"


def _asarray(x: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> ndarray:
    if isinstance(x, ndarray):
        cast = x if dtype is None or x.dtype == dtype else x.astype(dtype)
        ordered = np.asarray(cast._memory, order=order)
        return cast if ordered is cast._memory else ndarray._of(ordered)
    host = np.array(unsigned(x), dtype, order=order or "K")
    counts.to_device += 1
    return ndarray._of(host)


def _array(
    x: Any, dtype: Any = None, copy: bool | None = True, order: Any = "K", **kwargs: Any
) -> ndarray:
    made = _asarray(x, dtype, order)
    return ndarray._of(made._memory.copy(order or "K")) if made is x and copy else made


class _Module(types.ModuleType):
    """The module `cupy`: NumPy's functions on device arrays."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = getattr(np, name)
        if not callable(function) or isinstance(function, type):
            return function
        if name not in API:
            raise AttributeError(f"module 'cupy' has no attribute {name!r}")

        def call(*args: Any, **kwargs: Any) -> Any:
            checked(name, args, kwargs)
            inside = computed(function, name, _inside(args, name), _inside(kwargs, name))
            return _outside(inside) if kwargs.get("out") is None else kwargs["out"]

        return call


def _fuse(function: Any) -> Any:
    """A kernel, whose arguments are device arrays and numbers."""

    @functools.wraps(function)
    def kernel(*args: Any) -> Any:
        if not all(isinstance(x, (ndarray, np.generic, bool, int, float, complex)) for x in args):
            raise TypeError("Invalid argument type for fusion")
        return function(*args)

    return kernel


class _Stream:
    ptr = 0

    @property
    def done(self) -> bool:
        return stream_is_done()

    def synchronize(self) -> None:
        while not stream_is_done():
            pass


def install() -> types.ModuleType:
    """Make ``import cupy`` give the stand-in."""
    module = _Module("cupy")
    module.ndarray = ndarray
    module.asarray = module.asanyarray = _asarray
    module.array = _array
    module.fuse = _fuse
    module.asnumpy = lambda x: x.get() if isinstance(x, ndarray) else np.asarray(x)
    cuda = types.ModuleType("cupy.cuda")
    cuda.alloc_pinned_memory = bytearray
    cuda.get_current_stream = _Stream
    cuda.Device = lambda *args: _Device()
    module.cuda = cuda
    sys.modules["cupy"], sys.modules["cupy.cuda"] = module, cuda
    return module
