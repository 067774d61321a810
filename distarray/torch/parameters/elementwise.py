"""Names of torch's functions, by the way in which they treat elements."""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["ASKING", "ELEMENTWISE", "KEPT", "OF_VALUES", "Args", "Func", "Kwargs"]

#: A function of torch, and what it is called with.
Func = Callable[..., Any]
Args = Sequence[Any]
Kwargs = dict[str, Any]

#: Functions that compute each element by itself.
ELEMENTWISE = frozenset(
    {
        *("abs", "absolute", "add", "addcdiv", "addcmul", "bfloat16", "ceil", "celu", "clamp"),
        *("clamp_max", "clamp_min", "clone", "contiguous", "cos", "detach", "div", "divide"),
        *("double", "elu", "eq", "erf", "exp", "expm1", "float", "floor", "ge", "gelu", "gt"),
        *("half", "hardsigmoid", "hardswish", "hardtanh", "isfinite", "isnan", "le", "leaky_relu"),
        *("lerp", "log", "log1p", "logsigmoid", "logical_and", "logical_not", "logical_or", "lt"),
        *("masked_fill", "maximum", "minimum", "mish", "mul", "multiply", "nan_to_num", "ne"),
        *("neg", "negative", "pow", "reciprocal", "relu", "relu6", "round", "rsqrt", "rsub"),
        *("selu", "sigmoid", "sign", "silu", "sin", "softplus", "softsign", "sqrt", "square"),
        *("sub", "subtract", "tan", "tanh", "threshold", "to", "true_divide", "type_as", "where"),
        "zeros_like",
    }
)
#: Names of functions that are not about the values of all elements together.
ASKING = frozenset(
    {
        *("__len__", "_has_compatible_shallow_copy_type", "allclose", "backward", "data_ptr"),
        *("dim", "dim_order", "element_size", "equal", "get_device", "is_complex", "is_conj"),
        *("is_contiguous", "is_floating_point", "is_inference", "is_neg", "is_pinned"),
        *("is_same_size", "is_shared", "is_signed", "isclose", "ndimension", "nelement", "numel"),
        *("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "register_hook"),
        *("register_post_accumulate_grad_hook", "requires_grad_", "result_type"),
        *("retain_grad", "size", "storage_offset", "stride", "swap_tensors"),
    }
)
#: Attributes whose values are elements.
OF_VALUES = frozenset({"H", "T", "__cuda_array_interface__", "imag", "mH", "mT", "real"})
#: Names, without underscores, of functions by element that are not in `ELEMENTWISE`.
KEPT = frozenset(
    {
        *("clip", "constant", "copy", "copysign", "cpu", "cuda", "empty_like", "fill", "fmax"),
        *("fmin", "full_like", "hpu", "isinf", "isneginf", "isposinf", "ones_like", "pin_memory"),
        *("rdiv", "rpow", "share_memory", "signbit", "trunc", "type", "zero"),
    }
)
