"""What NumPy itself does wrong. Programs leave it out: NumPy is what they are compared with.

On CPUs with AVX-512, NumPy folds floats wrongly in some ufuncs' `reduce` and `reduceat`, sorts and
partitions float16 wrongly, and some unary ufuncs write wrong elements into what has strides; see
:mod:`distarray.array.faults`. That is left out on all CPUs: a seed stands for one program.

On all CPUs, the method `at` of ufuncs writes to read-only arrays unless its key is basic, and reads
wrong elements of values with fewer dimensions than its index; what is left out by ``where=`` is
lost where operands overlap the result, and ``copyto`` reads its condition while it writes over it;
what a mask selects is written while it is still to be read, and so is what `concatenate` and its
kin read where they write ``out=``; powers of integers that are refused
half-way leave some written; what is read-only is copied onto itself; `accumulate` into an array
without dimensions ends the process, and so does comparing integers with one beyond their type
``where=``. A reduction keeps what it has so far in ``out=``, and loses of it what that type has no
room for.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

__all__ = ["concern"]

#: Not folded where elements may be floats.
_FOLDED_WRONGLY = re.compile(r"np\.(?:power|arctan2|ldexp)\.reduce(?:at)?\(")
#: Not written into given arrays.
_WRITTEN_WRONGLY = re.compile(r"np\.(?:negative|isnan|isinf|signbit)\(.*(?:out|where)=")
#: Not written into integers.
_REFUSED_HALF_WAY = re.compile(r"np\.power(?:\.at\(|\(.*(?:out=|, v\d))")
#: Not under a condition.
_FATAL = re.compile(r"np\.(?:equal|not_equal|less|greater)\w*\(.*where=")
#: Not into another type.
_REDUCED = re.compile(r"np\.(?:\w+\.reduce(?:at)?|max|min|sum|prod|amax|amin)\(.*out=")
#: Not into what overlaps an operand.
_JOINED = re.compile(r"np\.\w*(?:concatenate|stack)\(.*out=")
#: Not asked of float16.
_SORTED_WRONGLY = re.compile(r"sort|unique|partition|searchsorted|isin|median")


def concern(line: str, env: dict[str, Any]) -> bool:
    """Whether a line asks NumPy for what it does wrong."""
    patterns = (_FOLDED_WRONGLY, _WRITTEN_WRONGLY, _REFUSED_HALF_WAY, _FATAL)
    if any(pattern.search(line) for pattern in patterns):
        return True
    named = [v for name, v in env.items() if name in line and isinstance(v, np.ndarray)]
    if ".at(" in line and not all(value.flags.writeable for value in named):
        return True
    if "copyto(" in line and not all(value.flags.writeable for value in named):
        return True
    if ".accumulate(" in line and any(not value.ndim for value in named):
        return True
    if _SORTED_WRONGLY.search(line) and any(value.dtype == np.float16 for value in named):
        return True
    if _REDUCED.search(line) and _is_narrow(line, env):
        return True
    reads_late = "where=" in line or _JOINED.search(line)
    return _masked(line, env) or (bool(reads_late) and _overlaps(line, env))


def _masked(line: str, env: dict[str, Any]) -> bool:
    """Whether elements that a mask selects get values that overlap them."""
    if "] = " not in line:
        return False
    written = ast.parse(line).body[0]
    target = written.targets[0] if isinstance(written, ast.Assign) else None
    if not isinstance(target, ast.Subscript):
        return False
    key = _value(target.slice, env)
    parts = key if isinstance(key, tuple) else (key,)
    masks = [part for part in parts if isinstance(part, (list, np.ndarray)) and len(np.shape(part))]
    if not any(np.asarray(mask).dtype == bool for mask in masks):
        return False
    return _tangled(_value(target.value, env), _value(written.value, env))


def _is_narrow(line: str, env: dict[str, Any]) -> bool:
    """Whether a reduction writes to what cannot hold all that its operand can."""
    call = getattr(ast.parse(line).body[0], "value", None)
    named = {word.arg: word.value for word in getattr(call, "keywords", ())}
    if not isinstance(call, ast.Call) or not call.args or "out" not in named:
        return False
    given, into = _value(call.args[0], env), _value(named["out"], env)
    if not isinstance(given, np.ndarray) or not isinstance(into, np.ndarray):
        return False
    return not np.can_cast(given.dtype, into.dtype, "safe")


def _overlaps(line: str, env: dict[str, Any]) -> bool:
    """Whether what a line writes to overlaps what it reads, otherwise than element by element."""
    call = getattr(ast.parse(line).body[0], "value", None)
    if not isinstance(call, ast.Call):
        return False
    named = {word.arg: word.value for word in call.keywords}
    target = named.pop("out", call.args[0])
    read = [arg for arg in (*call.args, *named.values()) if arg is not target]
    into = _value(target, env)
    return any(_tangled(into, _value(node, env)) for node in read)


def _value(node: ast.AST, env: dict[str, Any]) -> Any:
    try:
        return eval(ast.unparse(node), dict(env))
    except Exception:
        return None


def _tangled(one: Any, other: Any) -> bool:
    if isinstance(other, list):
        return any(_tangled(one, item) for item in other)
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    places = [(a.__array_interface__["data"][0], a.shape, a.strides, a.dtype) for a in (one, other)]
    return places[0] != places[1] and np.shares_memory(one, other)
