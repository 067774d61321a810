"""Names of torch's functions that work element by element."""

__all__ = ["ELEMENTWISE"]

#: What torch does to each element by itself.
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
