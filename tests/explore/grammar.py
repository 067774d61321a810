"""The statements of random programs, by chapters; `drawing` fills their places.

``v = ...`` makes a new variable. A number in front of a statement says how often it is drawn,
beside 1 for others.
"""

from __future__ import annotations

import random

from tests.explore.grammar_of_aliases import ALIASES, STATES
from tests.explore.grammar_of_effects import EFFECTS

__all__ = ["CHAPTERS", "MAY_COPY", "draw_opening", "draw_statement"]

#: Functions that give a view in NumPy, and here a copy where elements have to change rank.
MAY_COPY = (
    "reshape",
    "ravel",
    "diagonal",
    "diag(",
    "array_split",
    "resize",
    "broadcast_to",
    "sliding_window_view",
)

CHAPTERS: dict[str, tuple[int, str]] = {
    "new arrays": (
        12,
        """
        8 v = {new}
        v = np.zeros({anyshape}, {dtype}, order={order})
        v = np.ones({anyshape}, {dtype})
        v = np.full({anyshape}, {scalar})
        v = np.arange({int}, 9)
        v = np.arange(7, dtype={number})
        v = np.eye(3, 4, {int})
        v = np.tri(3, 4, {int})
        v = np.linspace(0, 4, 5)
        v = np.array([[1, 2, 3], [4, 5, 6]], dtype={dtype}, order={order})
        v = np.zeros_like({x}, order={order})
        v = np.full_like({x:num}, {scalar}, dtype={dtype})
        v = np.ones_like({x:num}, shape={anyshape})
        v = numpy.array({x:num}.tolist())
        v = np.array([{x:num+small}, {same}])
        """,
    ),
    "views": (
        22,
        """
        4 v = {x}
        10 v = {x:nd}[{view}]
        v = {x}[...]
        2 v = {x}.view()
        3 v = {x:dd}.T
        v = np.transpose({x}, {perm})
        v = np.swapaxes({x:dd}, {axis}, {axis})
        v = np.moveaxis({x:nd}, {axis}, {axis})
        v = np.squeeze({x})
        v = np.expand_dims({x}, {axis})
        v = np.flip({x:nd}, {axis})
        v = np.rot90({x:dd}, {int})
        3 v = np.broadcast_to({x}, {wider})
        v = np.copy(np.broadcast_arrays({x}, {y})[0])
        2 v = np.diagonal({x:dd}, {int})
        v = np.diag({x:d2}, {int})
        2 v = {x:complex}.real
        2 v = {x:complex}.imag
        v = np.real({x:num})
        v = np.imag({x:num})
        v = np.einsum("ij->ji", {x:d2+num})
        v = np.einsum("ii->i", {x:square+num})
        v = np.einsum("i->i", {x:d1+num})
        v = np.einsum("...->...", {x:num})
        2 v = {x:rec}["x"]
        2 v = {x:rec}["y"]
        v = {x:rec}[["y", "x"]]
        3 v = {x}.reshape({shape})
        v = np.reshape({x}, {shape}, order={order})
        2 v = {x}.ravel()
        v = {x}.ravel({order})
        v = np.split({x:nd+some}, [1, 2], axis=0)[{count}]
        v = np.array_split({x:nd}, 2)[1]
        v = np.atleast_2d({x})
        v = np.atleast_1d({x})
        v = np.atleast_3d({x})
        v = {x}.astype({dtype}, copy=False)
        v = {x:eight}.view("f8")
        """,
    ),
    "orders and copies": (
        14,
        """
        3 v = np.asfortranarray({x})
        3 v = np.ascontiguousarray({x})
        v = np.asarray({x})
        2 v = np.asarray({x}, order={order})
        v = np.asarray({x:num}, dtype={dtype}, order={order})
        v = np.asarray({x}, copy=True)
        v = np.asarray({x}, copy=False)
        v = np.asanyarray({x}, order={order})
        v = np.array({x})
        v = np.array({x}, copy=None, order={order})
        v = np.array({x}, order={order}, ndmin=2)
        2 v = np.require({x}, None, {order})
        v = np.require({x}, None, ["C", "W"])
        v = np.require({x:num}, {dtype}, ["F"])
        2 v = {x:num}.astype({dtype}, order={order}, copy=False)
        v = {x:num}.astype({dtype})
        v = {x:num}.astype({dtype}, casting={casting})
        v = {x}.copy()
        v = {x}.copy({order})
        v = {x}.flatten({order})
        v = np.copy({x}, order={order})
        v = {x:num}.byteswap()
        """,
    ),
    "assignment": (
        26,
        """
        24 {x}{into}
        3 {x}[...] = {value}
        2 {x:d1}[::-1] = {x:d1}
        2 {x}.flat[{chosen}] = {few}
        2 {x}.flat[{int}:{int}] = {few}
        {x}.flat[::2] = {few}
        {x}.flat = {few}
        3 np.put({x}, {chosen}, {few})
        np.put({x}, {chosen}, {few}, mode="wrap")
        np.put({x}, {chosen}, {few}, mode="clip")
        {x}.put({chosen}, {few})
        3 np.place({x}, {mask}, {few})
        3 np.putmask({x}, {mask}, {few})
        2 np.putmask({x}, {mask}, {value})
        4 np.copyto({x}, {value}, where={where})
        2 np.copyto({x}, {value}, casting={casting})
        np.copyto({x}, {value}, casting={casting}, where={where})
        {x}.fill({scalar})
        np.fill_diagonal({x:dd}, {few})
        np.put_along_axis({x:d1}, {chosen}, {few}, 0)
        {x:complex}.real = {value}
        {x:complex}.imag = {value}
        {x:ordered+nd}.sort()
        {x:ordered+nd}.sort({axis})
        {x:rec}["x"] = {column}
        {x:rec}["y"] = {column}
        2 {x:rec}["y"][{view}] = {x:rec}["x"][{view}]
        {x:rec}["y"][::-1] = {x:rec}["x"]
        {x:rec}[["x", "y"]] = {value}
        for w in {x:num+dd}: w[...] = {scalar}
        for w in {x:exact+dd}: w += 1
        {x:plain}[()] = {value}
        {x}.setflags(write=False)
        {x}.flags.writeable = True
        {x:num}.byteswap(True)
        """,
    ),
    "in place": (
        16,
        """
        5 {x:num} += {y}
        2 {x:num} -= {y}
        2 {x:num} *= {y}
        {x:num} /= {y}
        {x:num} //= {y}
        {x:num} %= {y}
        {x:int} &= {y}
        {x:num} |= {y}
        {x:int} <<= {y}
        {x:num} **= 2
        {x:date} += {y}
        4 np.{binary}({x:num}, {y}, out={out})
        4 np.{binary}({x:num}, {y}, out={out}, where={where})
        np.{binary}({x:num}, {y}, {out}, casting={casting})
        2 np.{unary}({x:num}, out={out})
        2 np.{unary}({x:num}, out={out}, where={where})
        v = np.divmod({x:real}, {y}, out=({out}, None))
        np.divmod({x:real}, {y}, out=({out}, {apart}))
        np.modf({x:real}, out=({out}, {apart}))
        3 np.{binary}.at({x:num+nd}, {key}, {scalar})
        3 np.{binary}.at({x:num+d1}, {line}, {few})
        np.add.at({x:num+dd}, {along}, {y})
        np.negative.at({x:num+d1}, {chosen})
        np.add.at({x:exact+d1+some}, lay(make((30,), "u8", {count}) % 1), lay(make((30,), "i4")))
        np.subtract.at({x:exact+d1+some}, lay(make((30,), "u8") % 1), lay(make((30,), "i1")))
        np.maximum.at({x:exact+d1+some}, lay(make((30,), "u8") % 1), {scalar})
        np.clip({x:num}, {scalar}, {scalar}, out={out})
        np.round({x:float}, out={out})
        np.cumsum({x:exact+nd}, axis={axis}, out={same})
        np.add.accumulate({x:exact+nd}, {axis}, out={same})
        np.maximum.accumulate({x:num+nd}, {axis}, None, {same})
        np.take({x:nd+some}, {along}, axis=0, out={out}, mode="clip")
        """,
    ),
    "ufuncs": (
        14,
        """
        10 v = np.{binary}({x:num}, {y})
        3 v = np.{unary}({x:num})
        v = np.{binary}({x:num}, {y}, dtype={dtype})
        v = np.{binary}({x:num}, {y}, dtype={dtype}, casting={casting})
        v = np.{unary}({x:num}, dtype={dtype}, casting={casting})
        v = np.divmod({x:real}, {y})[{count}]
        v = np.modf({x:real})[1]
        v = np.frexp({x:real})[0]
        4 v = {x:num} + {y}
        v = {x:num} * {y}
        v = {scalar} - {x:num}
        2 v = {x:plain} == {y}
        v = {x:plain} < {y}
        v = {x:rec} == {same}
        2 v = {x:date} - {y}
        v = np.isnat({x:date})
        v = -{x:num}
        v = ~{x:int}
        v = {x:int} >> {count}
        v = {x:num} ** {count}
        v = np.{binary}.outer({x:num+small}, {y})
        v = np.where({x}, {y}, {y})
        v = np.where({x:bool}, {y}, {scalar})
        v = np.clip({x:num}, {scalar}, {y})
        v = np.select([{x:bool}], [{y}], {scalar})
        v = np.choose({x:bool}, [{y}, {scalar}])
        v = np.nan_to_num({x:num})
        v = np.isclose({x:num}, {y})
        v = np.strings.add({x:text}, {y})
        v = np.strings.upper({x:text})
        v = np.strings.find({x:text}, "a")
        v = np.strings.str_len({x:text})
        v = np.strings.multiply({x:text}, {count})
        """,
    ),
    "folds": (
        12,
        """
        3 v = np.sum({x:exact}, axis={axes})
        v = {x:exact}.sum(axis={axes}, keepdims=True)
        v = np.sum({x:exact}, axis={axes}, dtype={dtype})
        v = np.sum({x:exact}, axis={axes}, where={where}, initial={int})
        v = np.prod({x:tiny}, axis={axes})
        2 v = np.max({x:ordered}, axis={axes})
        v = np.min({x:ordered}, axis={axes}, initial={scalar})
        v = {x:any}.any(axis={axes})
        v = np.all({x:num}, axis={axes}, where={where})
        v = np.argmax({x:ordered+nd}, axis={axis})
        v = {x:ordered}.argmin()
        v = np.count_nonzero({x}, axis={axes})
        v = np.ptp({x:ordered+num}, axis={axes})
        v = np.round(np.mean({x:near}, axis={axes}, dtype="f8"), 6)
        v = np.round(np.var({x:near}, axis={axes}, dtype="f8"), 6)
        4 v = np.{folding}.reduce({x:tiny}, axis={axis})
        v = np.{folding}.reduce({x:tiny}, axis={axes}, keepdims=True)
        2 v = np.{folding}.reduce({x:tiny}, axis={axis}, dtype={dtype})
        v = np.{folding}.reduce({x:tiny}, axis={axis}, initial={scalar})
        v = np.{folding}.reduce({x:tiny}, axis={axis}, where={where}, initial={scalar})
        3 v = np.{folding}.reduce({x:tiny}, axis={axis}, out={fit})
        v = np.sum({x:exact}, axis={axes}, out={fit})
        v = np.max({x:ordered+some}, axis={axes}, out={fit})
        v = np.argmin({x:ordered+some+nd}, axis={axis}, out={fit})
        v = np.any({x}, axis={axes}, out={fit})
        v = np.{folding}.reduceat({x:tiny+nd}, [0, 1], {axis}, out={fit})
        3 v = np.{folding}.accumulate({x:tiny}, {axis})
        2 v = np.{folding}.accumulate({x:tiny}, {axis}, dtype={dtype})
        2 v = np.{folding}.reduceat({x:tiny}, {along}, {axis})
        v = np.cumsum({x:exact}, axis={axes})
        v = np.cumprod({x:tiny}, axis={axes})
        v = np.diff({x:num+nd}, {count}, {axis})
        v = np.ediff1d({x:num})
        v = {x:exact+d2} @ {a:exact}
        v = np.dot({x:exact}, {a:exact})
        v = np.einsum("i,i->i", {x:exact+d1}, {y})
        v = np.einsum("ij,jk->ik", {x:exact+d2}, {a:exact+d2})
        v = np.outer({x:exact+small}, {a:exact+small})
        v = np.trace({x:exact+dd}, {int})
        v = np.vdot({x:exact}, {same:exact})
        """,
    ),
    "selection": (
        14,
        """
        10 v = {x}[{key}]
        v = np.take({x:nd}, {along}, axis={axis})
        v = np.take({x}, {chosen})
        v = np.take({x}, {chosen}, mode="wrap")
        v = {x}.flat[{chosen}]
        v = {x}.flat[{int}:]
        2 v = np.compress([True, False, True], {x:nd}, axis={axis})
        v = np.extract({x:bool}, {y})
        v = np.nonzero({x:nd})[0]
        v = np.argwhere({x})
        v = np.flatnonzero({x})
        v = np.sort({x:ordered+nd}, axis={axis})
        v = np.argsort({x:ordered+nd}, axis={axis}, kind="stable")
        v = np.unique({x:ordered})
        v = np.unique({x:ordered}, return_counts=True)[1]
        v = np.unique({x:rec}, return_counts=True)[1]
        v = np.unique({x:rec}, return_inverse=True)[1]
        v = np.unique({x:rec+nd}, axis={axis})
        v = np.sort({x:rec+nd}, axis={axis}, kind="stable")
        v = np.argsort({x:rec+nd}, axis={axis}, kind="stable")
        v = np.isin({x:rec}, {same})
        v = np.searchsorted(np.sort({x:d1+ordered+num}), {y})
        v = np.isin({x:plain}, {y})
        v = np.tril({x:num+nd}, {int})
        v = np.triu({x:num+nd}, {int})
        v = np.take_along_axis({x:d1}, {chosen}, 0)
        v = np.bincount(abs({x:int+d1+tiny}))
        v = np.packbits({x:bool})
        v = np.unpackbits({x:u1+some}, axis={axes}, count={int})
        """,
    ),
    "joining": (
        9,
        """
        2 v = np.concatenate([{x:nd}, {same}], axis={axis})
        v = np.concatenate([{x}, {a}], axis=None)
        v = np.stack([{x:small}, {same}], axis={axis})
        v = np.hstack([{x:small}, {same}])
        v = np.vstack([{x:small}, {same}])
        v = np.append({x:small}, {y})
        v = np.insert({x:nd}, {int}, {scalar}, axis={axis})
        v = np.insert({x:d1}, {along}, {few})
        v = np.delete({x:nd}, {along}, axis=0)
        v = np.delete({x:nd}, slice(None, None, 2), axis={axis})
        v = np.repeat({x:small}, {count}, axis={axis})
        v = np.repeat({x:small}, {count})
        v = np.tile({x:small}, {count})
        2 v = np.roll({x}, {int}, axis={axes})
        v = np.pad({x:small+num+nd}, 1, mode="edge")
        v = np.resize({x:small}, {anyshape})
        v = np.meshgrid({x:d1}, {y})[0]
        v = np.concatenate([{x:nd}, {same}], axis={axis}, out={fit})
        v = np.stack([{x:small}, {same}], axis={axis}, out={fit})
        v = np.take({x:nd+some}, {along}, axis=0, out={fit}, mode="clip")
        v = np.compress([True, False], {x:nd}, axis={axis}, out={fit})
        v = np.block([[{x:small+num}, {same}]])
        v = np.column_stack([{x:small}, {same}])
        v = np.dstack([{x:small}, {same}])
        v = np.hsplit({x:dd}, [1])[1]
        v = np.trim_zeros({x:num+d1})
        v = np.union1d({x:ordered+num}, {y})
        v = np.setdiff1d({x:ordered+num}, {y})
        v = np.intersect1d({x:ordered+num}, {y})
        """,
    ),
    "functions": (
        10,
        """
        v = np.matmul({x:exact+dd}, {same:exact}, out={fit})
        v = np.dot({x:exact}, {same:exact}, out={fit})
        v = np.inner({x:exact+small}, {a:exact+small})
        v = np.tensordot({x:exact+small}, {same:exact}, axes={count})
        v = np.kron({x:exact+small}, {a:exact+small})
        v = np.einsum("ij->i", {x:exact+d2})
        v = np.einsum("ij->", {x:exact+d2}, dtype="f8")
        v = np.einsum("...i->i...", {x:num+nd})
        v = np.einsum("ii", {x:exact+square})
        np.einsum("ij->ji", {x:num+d2})[...] = {scalar}
        np.einsum("i->i", {x:num+d1})[...] = {scalar}
        v = np.nansum({x:exact}, axis={axes})
        v = np.nanmax({x:ordered+num}, axis={axes})
        v = np.nancumsum({x:exact}, axis={axes})
        v = np.median({x:exact+ordered+some}, axis={axes})
        v = np.round(np.std({x:near}, axis={axes}, dtype="f8", ddof=1), 6)
        v = np.round(np.average({x:near+ordered}, axis={axes}), 4)
        v = np.quantile({x:exact+ordered+some}, 0.5, axis={axes})
        v = np.histogram({x:exact+real}, bins=3)[0]
        v = np.digitize({x:real}, [-1, 0, 2])
        v = np.searchsorted([-2, 0, 1, 3], {x:ordered+num}, side="right")
        v = np.unique({x:ordered+nd}, axis=0)
        v = np.unique({x:ordered}, return_inverse=True)[1]
        v = np.lexsort([{x:ordered+d1}, {same}])
        v = np.partition({x:ordered+num+nd+some}, 0, axis=-1)[..., :1]
        v = np.cumulative_sum({x:exact+d1}, include_initial=True)
        v = np.convolve({x:exact+d1}, {y})
        v = np.interp({x:real}, [0, 1, 2], [1, 0, 4])
        v = np.polyval([1, 2], {x:exact})
        v = np.gradient({x:exact+d1+float})
        v = np.cross({x:exact}, {y})
        v = np.trapezoid({x:exact+nd}, axis={axis})
        v = np.ravel_multi_index(({x:int+d1+some}, 0), (9, 2), mode="clip")
        v = np.unravel_index({x:int+some} % 9, (3, 9))[1]
        v = np.ix_({x:d1+bool})[0]
        v = np.tril_indices_from({x:d2})[1]
        v = np.diag_indices_from({x:square})[0]
        v = np.diagflat({x:small})
        v = np.vander({x:exact+d1+small}, 2)
        v = np.apply_along_axis(numpy.cumsum, 0, {x:exact+nd+some})
        v = np.piecewise({x:exact}, [{mask}], [2, -1])
        v = np.nan_to_num({x:num}, copy=False)
        v = np.real_if_close({x:complex})
        v = np.iscomplex({x:num})
        v = np.sinc({x:exact}) > 0
        v = np.array_split({x:nd}, 3, axis={axis})[0]
        v = np.lib.stride_tricks.sliding_window_view({x:d1+some}, 1)
        v = np.busday_offset({x:date}, 1, roll="forward")
        v = {x:date}.astype("M8[D]").astype("i8")
        v = np.datetime_as_string({x:date})
        v = {x:text}.astype("U5")
        v = np.char.upper({x:text})
        v = np.strings.replace({x:text}, "a", "bb")
        v = {x:text} == {same}
        v = np.asarray({x:num}).astype("U8")
        """,
    ),
    "effects": (6, EFFECTS),
    "warnings and errors": (
        6,
        """
        v = {told}(lambda: 1 / {x:num})
        v = {told}(lambda: {x:num} / {y})
        v = {told}(lambda: {x:num} // 0)
        v = {told}(lambda: np.{binary}({x:real}, {y}))
        v = {told}(lambda: np.log({x:real}))
        v = {told}(lambda: np.sqrt({x:real}))
        v = {told}(lambda: np.exp({x:float} * 1000))
        v = {told}(lambda: (np.log(np.abs({x:real})) - np.log(np.abs({same}))))
        v = {told}(lambda: np.divide(1, {x:float}, where={mask}))
        v = {told}(lambda: np.sum(np.log(np.abs({x:exact+float})) * np.sign({same})))
        v = {told}(lambda: np.sum(np.sign({x:exact+float}) * np.inf, axis={axis}))
        v = {told}(lambda: np.prod((np.abs(np.sign({x:exact+float})) + 1) * 1e300))
        v = {told}(lambda: np.cumsum(np.sign({x:exact+float}) * np.inf))
        v = {told}(lambda: np.mean(np.sign({x:exact+float}) * np.inf))
        v = {told}(lambda: np.max(np.sign({x:exact+float}) * np.inf))
        v = {told}(lambda: np.dot(np.sign({x:exact+float+d1}) * np.inf, np.ones({same}.shape)))
        v = {told}(lambda: np.add.reduce(np.sign({x:exact+float}) * np.inf, axis=None))
        v = {told}(lambda: ({x:float} / 0).astype("i8"))
        v = {told}(lambda: np.zeros({x:float}.shape, "i8").__setitem__(..., {same} * np.nan))
        v = {told}(lambda: np.where({x:num} == 0, 0, 1 / {same}))
        """,
    ),
    "elements": (
        5,
        """
        v = {x}.tolist()
        v = {x:some}.item(0)
        v = {x}.item({int})
        v = {x:nd}[{int}]
        v = float({x:num})
        v = int({x:num+some}.flat[0])
        v = bool({x})
        v = len({x})
        v = 2 in {x:num}
        v = np.shares_memory({x}, {a})
        v = np.array_equal({x}, {y})
        v = [w.sum() for w in {x:exact+nd}]
        v = list({x:d1+small})
        v = np.asarray({x:nd+small}).dtype.str
        v = {x:small}.tobytes({order})
        v = {x}.dtype.name, {x}.shape, {x}.ndim, {x}.size
        v = np.ndim({x}), np.shape({x})
        """,
    ),
}


def _read(text: str) -> list[tuple[str, int]]:
    """Statements and how often each is drawn."""
    found = []
    for line in text.strip().splitlines():
        often, _, statement = line.strip().partition(" ")
        found.append((statement, int(often)) if often.isdigit() else (line.strip(), 1))
    return found


_Chapters = dict[str, tuple[int, list[tuple[str, int]]]]
_STATEMENTS: _Chapters = {name: (often, _read(text)) for name, (often, text) in CHAPTERS.items()}
_OF_ALIASES: _Chapters = {name: (often, _read(text)) for name, (often, text) in ALIASES.items()}
_STATES = _read(STATES)


def draw_opening(rng: random.Random, aliases: bool = False) -> str:
    """A statement that programs begin with."""
    return _one(rng, _STATES) if aliases else "v = {new}"


def draw_statement(
    rng: random.Random, chapters: list[str] | None = None, aliases: bool = False
) -> str:
    """A statement with its places still open; `aliases`: of :mod:`grammar_of_aliases`."""
    table = _OF_ALIASES if aliases else _STATEMENTS
    names = chapters or list(table)
    (name,) = rng.choices(names, [table[n][0] for n in names])
    return _one(rng, table[name][1])


def _one(rng: random.Random, statements: list[tuple[str, int]]) -> str:
    return rng.choices([s for s, _ in statements], [n for _, n in statements])[0]
