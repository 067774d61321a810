"""NumPy's own faults. Programs leave them out: NumPy is what they are compared with.

On CPUs with AVX-512, NumPy folds floats wrongly in some ufuncs' `reduce` and `reduceat`, sorts and
partitions float16 wrongly, and some unary ufuncs write wrong elements into what has strides; see
:mod:`distarray.array.faults`. That is left out on all CPUs: a seed stands for one program.

On all CPUs, the method `at` of ufuncs writes to read-only arrays unless its key is basic, and reads
wrong elements of values with fewer dimensions than its index; what is left out by ``where=`` is
lost where operands overlap the result, and ``copyto`` reads its condition while it writes over it;
what a mask selects, or the mask, is written while it is still to be read, and so is what
`concatenate` and its kin, `argmin` and `argmax` read where they write ``out=``, and a line that is
assigned to an overlapping one of another step; records become numbers where a mask selects nothing;
powers of integers that are refused half-way leave some written, and so do arrays that are joined
into one of a type that the last cannot be cast to; what is read-only is copied onto itself; sorts
give NaNs other bits; `accumulate` into an array without dimensions ends the process, and so does
comparing integers with one beyond their type ``where=``. A reduction keeps what it has so far in
``out=``, and loses of it what that type has no room for, or takes it for an operand that is text.
Operators order complex scalars with NaNs otherwise than ufuncs do. Its own arrays take masks
without elements, if they are no arrays of its own, for integers; text that is to be written under a
condition is read as numbers. The last digit of arctan2 depends on the steps of its operands. Text
that is assigned to records is written until a number cannot be read. Which complex NaN stands for
all of a set is as it happens. `broadcast_arrays` and `meshgrid` refuse what is a view of what has
become read-only. An element of its own arrays takes its own 0-d arrays of another kind (a real one
the real part of complex ones; text and times any), and refuses those of others. `put`, `putmask`
and assignments to records that indices select write the gaps between the fields, too. A record of
its own arrays is a view of them, which is read while it is assigned to other fields of itself.
Halves are folded in single precision along some strides.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

__all__ = ["concern"]

#: Not folded where elements may be floats.
_FOLDED_WRONGLY = re.compile(r"np\.(?:power|arctan2|ldexp)\.reduce(?:at)?\(")
#: Its last digit depends on the steps of its operands.
_BY_STEPS = re.compile(r"np\.arctan2[.(]")
#: Not written into given arrays.
_WRITTEN_WRONGLY = re.compile(r"np\.(?:negative|isnan|isinf|isfinite|signbit)\(.*(?:out|where)=")
#: Not written into integers.
_REFUSED_HALF_WAY = re.compile(r"np\.power(?:\.at\(|\(.*(?:out=|, v\d))")
#: Not under a condition.
_FATAL = re.compile(r"np\.(?:equal|not_equal|less|greater)\w*\(.*where=")
#: Not into another type.
_REDUCED = re.compile(r"np\.(?:\w+\.reduce(?:at)?|max|min|sum|prod|any|all|amax|amin)\(.*out=")
#: Not into what overlaps an operand, is read-only, or of a type that an operand is not cast to.
_JOINED = re.compile(r"np\.\w*(?:concatenate|stack)\(.*out=")
#: Not into what overlaps the operand.
_FOUND = re.compile(r"argm(?:in|ax)\(.*out=")
#: Not asked of NaNs and zeros: which bits they have depends on the loop that a CPU takes; nor of
#: records with gaps between the fields, where a copy has what was in its memory before.
_SHOWN = re.compile(r"\.byteswap\(|\.tobytes\(|\.view\(\"")
#: Not asked of float16, nor of NaNs that carry something.
_SORTED_WRONGLY = re.compile(r"sort|unique|partition|searchsorted|isin|median")
#: Not asked of views of what has become read-only.
_BROADCAST = re.compile(r"np\.(?:broadcast_arrays|meshgrid)\(")
#: Not written to records with gaps between the fields: the gaps get what was in other memory.
_WRITTEN_WHOLE = re.compile(r"\.put(?:mask)?\(")
#: All that is written to what has one place in memory several times: NumPy's functions write to a
#: copy of it, of which the last of the places counts.
_OF_ONE_NUMBER = re.compile(r"^v = |^v\d+ = |\] = -?\d+$")
#: Not asked of complex NaNs: which of them stands for all is as it happens.
_OF_SETS = re.compile(r"unique|setdiff|setxor|union|intersect")


def concern(line: str, env: dict[str, Any]) -> bool:
    """Whether a line asks NumPy for what it does wrong."""
    patterns = (_FOLDED_WRONGLY, _BY_STEPS, _WRITTEN_WRONGLY, _REFUSED_HALF_WAY, _FATAL)
    if any(pattern.search(line) for pattern in patterns):
        return True
    named = [v for name, v in env.items() if name in line and isinstance(v, np.ndarray)]
    if any(map(_overlaps_itself, named)) and not _OF_ONE_NUMBER.search(line):
        return True
    if ".at(" in line and not all(value.flags.writeable for value in named):
        return True
    onto_itself = "copyto(" in line or _JOINED.search(line)
    if onto_itself and not all(value.flags.writeable for value in named):
        return True
    if ".accumulate(" in line and any(not value.ndim for value in named):
        return True
    if _SORTED_WRONGLY.search(line) and any(map(_is_sorted_wrongly, named)):
        return True
    if _OF_SETS.search(line) and any(v.dtype.kind == "c" and np.isnan(v).any() for v in named):
        return True
    if _SHOWN.search(line) and any(map(_has_several_forms, named)):
        return True
    if _WRITTEN_WHOLE.search(line) and any(map(_has_gaps, named)):
        return True
    if _REDUCED.search(line) and _is_narrow(line, env):
        return True
    if _BROADCAST.search(line) and any(map(_is_above_what_is_read_only, named)):
        return True
    if _JOINED.search(line) and _is_refused_half_way(line, env):
        return True
    if _compares_nans(line, env) or _selects_nothing(line, env):
        return True
    if "where=" in line and _writes_text(line, env):
        return True
    reads_late = "where=" in line or _JOINED.search(line) or _FOUND.search(line)
    return _assigned_wrongly(line, env) or (bool(reads_late) and _overlaps(line, env))


def _is_sorted_wrongly(values: Any) -> bool:
    """Whether there are halves, or NaNs of other bits than NumPy's own."""
    if values.dtype.kind not in "fc":
        return False
    parts = (values.real, values.imag) if values.dtype.kind == "c" else (values,)
    for part in parts:
        plain = np.full(1, np.nan, part.dtype).tobytes()
        if part.dtype == np.float16 or any(x.tobytes() != plain for x in part[np.isnan(part)]):
            return True
    return False


def _is_above_what_is_read_only(values: Any) -> bool:
    """Whether values can be written to, and what they are a view of no more."""
    base = values.base
    return values.flags.writeable and isinstance(base, np.ndarray) and not base.flags.writeable


def _has_several_forms(values: Any) -> bool:
    """Whether there are NaNs or zeros, of which equal ones may have other bits, or gaps."""
    if _has_gaps(values):
        return True
    return values.dtype.kind in "fc" and bool((np.isnan(values) | (values == 0)).any())


def _has_gaps(values: Any) -> bool:
    """Whether there are records with bytes that belong to no field."""
    kind = values.dtype
    return kind.names is not None and kind.itemsize > sum([kind[n].itemsize for n in kind.names])


def _is_refused_half_way(line: str, env: dict[str, Any]) -> bool:
    """Whether one of the arrays that are joined cannot be cast to the type of the result."""
    call: Any = getattr(ast.parse(line).body[0], "value", None)
    (into,) = [_value(word.value, env) for word in call.keywords if word.arg == "out"]
    parts = _value(call.args[0], env) or []
    kinds = [np.asarray(part).dtype for part in parts]
    return not all(np.can_cast(kind, np.asarray(into).dtype, "same_kind") for kind in kinds)


def _assigned_wrongly(line: str, env: dict[str, Any]) -> bool:
    """Whether elements get values otherwise than the array API or common sense have it."""
    if "] = " not in line:
        return False
    written = ast.parse(line).body[0]
    target = written.targets[0] if isinstance(written, ast.Assign) else None
    if not isinstance(target, ast.Subscript):
        return False
    key, value = _value(target.slice, env), _value(written.value, env)
    into = _value(target.value, env)
    if isinstance(into, np.generic):  # refused; the array API standard has 0-d arrays here
        return True
    element = _value(target, env)
    if _is_element_of_another_kind(element, value) or _writes_gaps(key, value):
        return True
    if isinstance(key, (bool, np.bool_)) and _are_records(value):
        return True
    if _is_mask(key) or (isinstance(key, tuple) and any(map(_is_mask, key))):
        masks = key if isinstance(key, tuple) else (key,)
        return _are_records(value) or any(_tangled(into, read) for read in (value, *masks))
    if isinstance(value, np.void) and np.may_share_memory(into, value.base):
        return True
    is_read = _are_records(into) and getattr(value, "dtype", np.dtype(int)).kind in "SU"
    return is_read or _is_skewed(element, value)


def _is_element_of_another_kind(into: Any, value: Any) -> bool:
    """Check whether an element gets a 0-d array that NumPy converts only if it is its own."""
    if not isinstance(value, np.ndarray) or np.ndim(into):
        return False
    old, new = getattr(into, "dtype", value.dtype).kind, value.dtype.kind
    return (new == "c" and old != "c") or bool({old, new} & set("SUmM"))


def _writes_gaps(key: Any, value: Any) -> bool:
    """Check whether records that indices select get an array's gaps, too."""
    keys = key if isinstance(key, tuple) else (key,)
    by_indices = any(isinstance(k, (list, np.ndarray)) for k in keys)
    return by_indices and isinstance(value, np.ndarray) and _has_gaps(value)


def _are_records(value: Any) -> bool:
    return isinstance(getattr(value, "dtype", None), np.dtype) and value.dtype.kind == "V"


def _is_mask(part: Any) -> bool:
    return isinstance(part, (list, np.ndarray)) and np.ndim(part) and np.asarray(part).dtype == bool


def _is_skewed(into: Any, value: Any) -> bool:
    """Whether two lines overlap and run the same way with different steps, or types."""
    if not _tangled(into, value) or into.ndim != 1 or value.ndim != 1:
        return False
    (one,), (other,) = into.strides, value.strides
    return bool(into.dtype != value.dtype or (one * other > 0 and one != other))


def _compares_nans(line: str, env: dict[str, Any]) -> bool:
    """Whether operators order a complex scalar that is not a number, which ufuncs do otherwise."""
    compared = [node for node in _nodes(line) if isinstance(node, ast.Compare)]
    sides = [side for node in compared for side in (node.left, *node.comparators)]
    values = [_value(side, env) for side in sides]
    return any(isinstance(x, np.complexfloating) and np.isnan(x) for x in values)


def _selects_nothing(line: str, env: dict[str, Any]) -> bool:
    """Whether a mask without elements may be a key, which NumPy takes for integers if it can."""
    keys = [node.slice for node in _nodes(line) if isinstance(node, ast.Subscript)]
    masks = [mask for mask in [_value(key, env) for key in keys] if _is_mask(mask)]
    return any(isinstance(mask, np.ndarray) and mask.ndim > 1 and not mask.size for mask in masks)


def _writes_text(line: str, env: dict[str, Any]) -> bool:
    """Whether a call has text for results, which NumPy reads as numbers under a condition."""
    call = getattr(ast.parse(line).body[0], "value", None)
    outs = [word.value for word in getattr(call, "keywords", ()) if word.arg == "out"]
    return any(getattr(_value(out, env), "dtype", np.dtype(int)).kind in "SU" for out in outs)


def _is_narrow(line: str, env: dict[str, Any]) -> bool:
    """Whether a reduction writes to what cannot hold all that its operand can, or to halves."""
    call = getattr(ast.parse(line).body[0], "value", None)
    named = {word.arg: word.value for word in getattr(call, "keywords", ())}
    if not isinstance(call, ast.Call) or not call.args or "out" not in named:
        return False
    given, into = _value(call.args[0], env), _value(named["out"], env)
    if not isinstance(given, np.ndarray) or not isinstance(into, np.ndarray):
        return False
    is_rounded_by_steps = into.dtype == np.float16
    cast = np.can_cast(given.dtype, into.dtype, "safe")
    return into.dtype.kind == "U" or is_rounded_by_steps or not cast


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


def _nodes(line: str) -> list[ast.AST]:
    """The parts of a line; none of one that Python cannot read, which is an error anywhere."""
    try:
        return list(ast.walk(ast.parse(line)))
    except SyntaxError:
        return []


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


def _overlaps_itself(values: Any) -> bool:
    """Whether two elements have one place, and can be written to."""
    if not values.flags.writeable or values.size < 2:
        return False
    low, high = np.lib.array_utils.byte_bounds(values)
    return bool(high - low < values.nbytes)
