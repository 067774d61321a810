"""The names of ``distarray.numpy`` for type checkers: those that every supported NumPy has.

The module itself has the names of the installed NumPy; a test compares the two.
"""

# fmt: off
# isort: off
from numpy import (
    # constants
    e, euler_gamma, False_, inf, little_endian, nan, newaxis, pi, ScalarType, sctypeDict, True_,
    typecodes,
    # scalar types
    bool, bool_, byte, bytes_, cdouble, character, clongdouble, complex128, complex64,
    complexfloating, csingle, datetime64, double, flexible, float16, float32, float64, floating,
    generic, half, inexact, int16, int32, int64, int8, int_, intc, integer, intp, long,
    longdouble, longlong, number, object_, short, signedinteger, single, str_, timedelta64,
    ubyte, uint, uint16, uint32, uint64, uint8, uintc, uintp, ulong, ulonglong, unsignedinteger,
    ushort, void,
    # shapes
    broadcast, broadcast_shapes,
    # indices
    index_exp, ndindex, s_,
    # products
    einsum_path,
    # polynomials and dates
    busdaycalendar, datetime_data, poly1d,
    # data types and memory
    can_cast, common_type, dtype, finfo, iinfo, isdtype, issubdtype, iterable, may_share_memory,
    min_scalar_type, mintypecode, promote_types, result_type, shares_memory, typename,
    # calling, printing, writing, state
    array2string, array_repr, array_str, base_repr, binary_repr, errstate, flatiter,
    format_float_positional, format_float_scientific, frompyfunc, get_printoptions, getbufsize,
    geterr, geterrcall, nested_iters, printoptions, save, savetxt, savez,
    savez_compressed, set_printoptions, setbufsize, seterr, seterrcall, ufunc,
)

from distarray.numpy._ufuncs import (
    abs, absolute, acos, acosh, add, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh,
    asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_count, bitwise_invert,
    bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift, bitwise_xor, cbrt, ceil,
    conj, conjugate, copysign, cos, cosh, deg2rad, degrees, divide, divmod, equal, exp, exp2,
    expm1, fabs, float_power, floor, floor_divide, fmax, fmin, fmod, frexp, gcd, greater,
    greater_equal, heaviside, hypot, invert, isfinite, isinf, isnan, isnat, lcm, ldexp,
    left_shift, less, less_equal, log, log10, log1p, log2, logaddexp, logaddexp2, logical_and,
    logical_not, logical_or, logical_xor, matmul, matvec, maximum, minimum, mod, modf, multiply,
    negative, nextafter, not_equal, positive, pow, power, rad2deg, radians, reciprocal,
    remainder, right_shift, rint, sign, signbit, sin, sinh, spacing, sqrt, square, subtract,
    tan, tanh, true_divide, trunc, vecdot, vecmat,
)
from distarray.numpy._sums import (
    all, any, amax, amin, max, min, mean, median, nanargmax, nanargmin, nanmax, nanmean,
    nanmedian, nanmin, nanpercentile, nanprod, nanquantile, nanstd, nansum, nanvar, percentile,
    prod, ptp, quantile, std, sum, var, argmax, argmin, average, count_nonzero, cumprod, cumsum,
    nancumprod, nancumsum, diff, histogram_bin_edges, cumulative_prod, cumulative_sum, bincount,
    ediff1d, gradient, trapezoid, convolve, correlate, corrcoef, digitize, cov, histogram,
    histogram2d, histogramdd,
)
from distarray.numpy._shapes import (
    append, delete, insert, array_split, split, hsplit, vsplit, dsplit, atleast_1d, atleast_2d,
    atleast_3d, concatenate, concat, stack, block, column_stack, dstack, hstack, vstack,
    broadcast_to, pad, broadcast_arrays, copy, expand_dims, moveaxis, permute_dims, ravel,
    repeat, reshape, resize, roll, rollaxis, squeeze, swapaxes, transpose, flip, fliplr, flipud,
    rot90, matrix_transpose, tile, unstack, trim_zeros, tril, triu,
)
from distarray.numpy._items import (
    argsort, sort, argpartition, argwhere, flatnonzero, partition, sort_complex, diagonal, diag, diagflat,
    choose, compress, extract, nonzero, diag_indices_from, tril_indices_from, triu_indices_from,
    ix_, take_along_axis, take, searchsorted, unique, unique_values, intersect1d, setdiff1d,
    setxor1d, union1d, isin, where, select, piecewise, lexsort, copyto, fill_diagonal, place,
    put, put_along_axis, putmask, unravel_index, ravel_multi_index, apply_along_axis,
    apply_over_axes, unique_all, unique_counts, unique_inverse,
)
from distarray.numpy._maths import (
    dot, inner, vdot, cross, kron, outer, tensordot, trace, einsum, allclose, array_equal,
    array_equiv, iscomplexobj, isrealobj, isfortran, ndim, size, shape, angle, around, round,
    clip, real_if_close, isclose, astype, fix, i0, iscomplex, isneginf, isposinf, isreal,
    nan_to_num, sinc, interp, polyfit, imag, real, unwrap, polyder, polyint, roots, polyadd,
    polymul, polysub, poly, polydiv, polyval, packbits, unpackbits, is_busday, busday_offset,
    busday_count, datetime_as_string,
)

from distarray.io.numpy_load import load
from distarray.io.memmap import memmap
from distarray.io.raw_binary import fromfile
from distarray.io.text import fromregex, genfromtxt, loadtxt
from distarray.ops.buffers import frombuffer
from distarray.ops.conversion import (
    array, asanyarray, asarray, asarray_chkfinite, ascontiguousarray, asfortranarray,
    from_dlpack, fromiter, fromstring, require,
)
from distarray.ops.creation import (
    empty, empty_like, eye, full, full_like, identity, ones, ones_like, tri, zeros, zeros_like,
)
from distarray.ops.grids import (
    diag_indices, fromfunction, indices, mask_indices, meshgrid, mgrid, ogrid, tril_indices,
    triu_indices, vander,
)
from distarray.ops.vectorize import vectorize
from distarray.ops.iterating import ndenumerate, nditer
from distarray.ops.metadata import isscalar
from distarray.array import DistArray as ndarray
from distarray.ops.ranges import arange, geomspace, linspace, logspace
from distarray.ops.standard import API_VERSION as __array_api_version__
from distarray.ops.standard import NamespaceInfo as __array_namespace_info__
from distarray.ops.index_tricks import c_
from distarray.ops.index_tricks import r_
from distarray.ops.windows import bartlett, blackman, hamming, hanning, kaiser

from distarray.numpy import fft, linalg, random

__all__ = [
    "__array_api_version__", "__array_namespace_info__",
    "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "angle",
    "any", "append", "apply_along_axis", "apply_over_axes", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "around", "array", "array2string", "array_equal", "array_equiv",
    "array_repr", "array_split", "array_str", "asanyarray", "asarray", "asarray_chkfinite",
    "ascontiguousarray", "asfortranarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "base_repr", "binary_repr",
    "bincount", "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block",
    "bool", "bool_", "broadcast", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
    "busday_count", "busday_offset", "busdaycalendar", "byte", "bytes_", "c_", "can_cast",
    "cbrt", "cdouble", "ceil", "character", "choose", "clip", "clongdouble", "column_stack",
    "common_type", "complex128", "complex64", "complexfloating", "compress", "concat",
    "concatenate", "conj", "conjugate", "convolve", "copy", "copysign", "copyto", "corrcoef",
    "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "csingle", "cumprod", "cumsum",
    "cumulative_prod", "cumulative_sum", "datetime64", "datetime_as_string", "datetime_data",
    "deg2rad", "degrees", "delete", "diag", "diag_indices", "diag_indices_from", "diagflat",
    "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double", "dsplit", "dstack",
    "dtype", "e", "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "equal",
    "errstate", "euler_gamma", "exp", "exp2", "expand_dims", "expm1", "extract", "eye", "fabs",
    "False_", "fft", "fill_diagonal", "finfo", "fix", "flatiter", "flatnonzero", "flexible",
    "flip", "fliplr", "flipud", "float16", "float32", "float64", "float_power", "floating",
    "floor", "floor_divide", "fmax", "fmin", "fmod", "format_float_positional",
    "format_float_scientific", "frexp", "from_dlpack", "frombuffer", "fromfile", "fromfunction",
    "fromiter", "frompyfunc", "fromregex", "fromstring", "full", "full_like", "gcd", "generic",
    "genfromtxt", "geomspace", "get_printoptions", "getbufsize", "geterr", "geterrcall",
    "gradient", "greater", "greater_equal", "half", "hamming", "hanning", "heaviside",
    "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "hsplit", "hstack",
    "hypot", "i0", "identity", "iinfo", "imag", "index_exp", "indices", "inexact", "inf",
    "inner", "insert", "int16", "int32", "int64", "int8", "int_", "intc", "integer", "interp",
    "intersect1d", "intp", "invert", "is_busday", "isclose", "iscomplex", "iscomplexobj",
    "isdtype", "isfinite", "isfortran", "isin", "isinf", "isnan", "isnat", "isneginf",
    "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_", "kaiser",
    "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace",
    "little_endian", "load", "loadtxt", "log", "log10", "log1p", "log2", "logaddexp",
    "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace", "long",
    "longdouble", "longlong", "mask_indices", "matmul", "matrix_transpose", "matvec", "max",
    "maximum", "may_share_memory", "mean", "median", "memmap", "meshgrid", "mgrid", "min",
    "min_scalar_type", "minimum", "mintypecode", "mod", "modf", "moveaxis", "multiply", "nan",
    "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum",
    "nanvar", "ndarray", "ndenumerate", "ndim", "ndindex", "nditer", "negative", "nested_iters",
    "newaxis", "nextafter", "nonzero", "not_equal", "number", "object_", "ogrid", "ones",
    "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "pi",
    "piecewise", "place", "poly", "poly1d", "polyadd", "polyder", "polydiv", "polyfit",
    "polyint", "polymul", "polysub", "polyval", "positive", "pow", "power", "printoptions",
    "prod", "promote_types", "ptp", "put", "put_along_axis", "putmask", "quantile", "r_",
    "rad2deg", "radians", "random", "ravel", "ravel_multi_index", "real", "real_if_close",
    "reciprocal", "remainder", "repeat", "require", "reshape", "resize", "result_type",
    "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "s_", "save", "savetxt",
    "savez", "savez_compressed", "ScalarType", "sctypeDict", "searchsorted", "select",
    "set_printoptions", "setbufsize", "setdiff1d", "seterr", "seterrcall", "setxor1d", "shape",
    "shares_memory", "short", "sign", "signbit", "signedinteger", "sin", "sinc", "single",
    "sinh", "size", "sort", "sort_complex", "spacing", "split", "sqrt", "square", "squeeze",
    "stack", "std", "str_", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan",
    "tanh", "tensordot", "tile", "timedelta64", "trace", "transpose", "trapezoid", "tri",
    "tril", "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices",
    "triu_indices_from", "True_", "true_divide", "trunc", "typecodes", "typename", "ubyte",
    "ufunc", "uint", "uint16", "uint32", "uint64", "uint8", "uintc", "uintp", "ulong",
    "ulonglong", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unpackbits", "unravel_index", "unsignedinteger", "unstack", "unwrap",
    "ushort", "vander", "var", "vdot", "vecdot", "vecmat", "vectorize", "void", "vsplit",
    "vstack", "where", "zeros", "zeros_like",
]
# isort: on
# fmt: on
