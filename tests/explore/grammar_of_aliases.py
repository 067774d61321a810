"""Statements that see one memory in several ways and write to it; see `tests.explore.grammar`.

A state vector seen as a grid, two or three aliases of it that are written to in turn, reshapes of
every shape, windows, fields, transposes, what is put off in between, and errors in the middle.
Values are looked at where a statement does so, and at the end: what compares them after each line
would bring all aliases up to date.
"""

from __future__ import annotations

__all__ = ["ALIASES", "STATES"]

#: What programs begin with, beside numbers; `{state}` is an array of a size with many divisors.
STATES = """
    8 v = {state}
    v = {state}.T
    v = {state}[1:]
    v = {state}[::-1]
    v = {state}[::2]
"""

ALIASES: dict[str, tuple[int, str]] = {
    "aliases": (
        34,
        """
        12 v = {x:some}.reshape({shape})
        v = np.reshape({x:some}, {shape}, copy=False)
        2 v = np.reshape({x:some}, {shape}, order="F")
        v = {x:some}.reshape({shape}, order="A")
        2 v = {x}.reshape(-1)
        3 v = {x}.ravel()
        v = {x}.ravel("F")
        v = np.ravel({x}, "K")
        v = {x}.flat.base
        5 v = {x:nd}[{view}]
        v = {x:nd+some}[{int}]
        3 v = {x:dd}.T
        v = np.transpose({x}, {perm})
        v = np.swapaxes({x:dd}, {axis}, {axis})
        v = np.moveaxis({x:nd}, {axis}, {axis})
        v = np.squeeze({x})
        v = np.expand_dims({x}, {axis})
        v = np.flip({x:nd}, {axis})
        v = np.rot90({x:dd})
        v = {x}.view()
        v = np.asarray({x})
        v = np.ascontiguousarray({x})
        v = np.atleast_2d({x})
        2 v = {x:dd}.diagonal({int})
        v = np.diag({x:d2})
        2 v = np.broadcast_to({x}, {wider})
        2 v = np.lib.stride_tricks.sliding_window_view({x:d1+some}, 3)
        v = np.lib.stride_tricks.sliding_window_view({x:d1+some}, 2, writeable=True)
        v = np.lib.stride_tricks.sliding_window_view({x:d2+some}, (2, 2))
        v = np.einsum("ij->ji", {x:d2+num})
        v = np.einsum("ii->i", {x:square+num})
        v = np.split({x:nd+some}, [1, 2], axis=0)[{count}]
        v = np.array_split({x:nd}, 3)[1]
        v = np.hsplit({x:dd}, [1])[1]
        v = list({x:dd+some})[0]
        v = [w for w in {x:dd+some}][-1]
        v = (lambda first, *others: first)(*{x:dd+some})
        v = (lambda *others: others[-1])(*{x:dd+some})
        2 v = {x:complex}.real
        2 v = {x:complex}.imag
        2 v = {x:eight+real}.view("i4")
        2 v = {x:eight+real}.view("u8")
        v = {x:eight+real}.view("u1")
        v = {x:complex}.view("f8")
        v = {x:float}.view("f8")
        v = {x:float}.view("c16")
        3 v = {x:rec}["x"]
        2 v = {x:rec}["y"]
        v = {x:rec}[["y", "x"]]
        2 v = {x:rec}["x"].reshape({shape})
        v = {x:rec}["y"].ravel()
        v = np.nan_to_num({x:num}, copy=False)
        v = np.real({x:num})
        """,
    ),
    "shapes and types in place": (
        4,
        """
        2 {x:some}.shape = {shape}
        {x:eight+real}.dtype = "i8"
        {x:complex}.dtype = "f8"
        {x}.setflags(write=False)
        {x}.flags.writeable = True
        """,
    ),
    "writes": (
        34,
        """
        16 {x}{into}
        3 {x}[...] = {value}
        2 {x:dd}[{view}] = {scalar}
        2 {x:num+nd+some}[{int}] += 1
        3 {x}.flat[{chosen}] = {few}
        {x}.flat[{int}:{int}] = {few}
        {x}.flat = {few}
        2 np.put({x}, {chosen}, {few})
        np.put({x}, {chosen}, {few}, mode="wrap")
        {x}.put({chosen}, {few})
        2 np.place({x}, {mask}, {few})
        2 np.putmask({x}, {mask}, {few})
        3 np.copyto({x}, {value})
        2 np.copyto({x}, {value}, where={where})
        {x}.fill({scalar})
        2 np.fill_diagonal({x:dd}, {few})
        np.put_along_axis({x:d1}, {chosen}, {few}, 0)
        {x:complex}.real = {value}
        {x:complex}.imag = {value}
        2 {x:ordered+nd}.sort()
        {x:ordered+nd}.sort({axis})
        (lambda w: (w.partition(1), w.sort()))({x:ordered+d1+some})
        {x:ordered+d1}[::-1].sort()
        2 np.random.default_rng({count}).shuffle({x:nd+plain})
        np.random.default_rng({count}).permuted({x:nd+plain}, axis=0, out={same})
        2 {x:rec}["x"] = {column}
        {x:rec}["y"] = {column}
        {x:rec}["y"][{view}] = {x:rec}["x"][{view}]
        2 for w in {x:num+dd}: w[...] = {scalar}
        for w in {x:exact+dd}: w += 1
        for i in range(min(3, len({x:exact+nd+some}))): {same}[i] += i
        [w.fill({scalar}) for w in np.array_split({x:nd+plain}, 2)]
        {x:num}.byteswap(True)
        """,
    ),
    "in place": (
        20,
        """
        6 {x:num} += {y}
        2 {x:num} -= {y}
        3 {x:num} *= {y}
        {x:int} //= 2
        {x:int} &= {y}
        {x:int} <<= 1
        {x:num} **= 2
        3 {x:num} += {same}
        2 {x:num+nd} += {same}[::-1]
        2 {x:num+d1+some}[1:] += {same}[:-1]
        2 {x:num+d1+some}[:-1] -= {same}[1:]
        {x:square+num} += {same}.T
        {x:square+num}[...] = {same}.T
        4 np.{binary}({x:num}, {y}, out={out})
        2 np.{binary}({x:num}, {y}, out={out}, where={where})
        2 np.{unary}({x:num}, out={out})
        np.divmod({x:real}, {y}, out=({out}, {apart}))
        2 np.add.at({x:num+nd}, {key}, {scalar})
        np.{binary}.at({x:num+d1}, {line}, {few})
        np.negative.at({x:num+d1}, {chosen})
        np.clip({x:num}, {scalar}, {scalar}, out={out})
        np.cumsum({x:exact+nd}, axis={axis}, out={same})
        np.add.accumulate({x:exact+nd}, {axis}, out={same})
        np.sum({x:exact+nd+some}, axis=0, out={fit})
        np.matmul({x:exact+square}, {same:exact}, out={fit})
        np.take({x:nd+some}, {along}, axis=0, out={out}, mode="clip")
        np.concatenate([{x:nd+some}, {same}], out={fit})
        """,
    ),
    "looks": (
        16,
        """
        4 v = {x:exact}.sum().item()
        v = {x:exact+nd}.sum(axis={axis})
        v = {x}.tolist()
        v = {x:some}.item(0)
        v = {x:nd}[{int}]
        v = {x:ordered+some}.max()
        v = np.array_equal({x}, {y})
        v = np.count_nonzero({x:num})
        v = {x}.copy()
        v = {x:num} + {y}
        2 v = {x:num} + {x:num}
        2 v = {x:num} * 2 + {same}
        v = {x:num+some}[{view}] - 1
        v = np.where({x:num} > 0, {same}, {scalar})
        v = np.sort({x:ordered+nd}, axis={axis})
        v = {x:exact+d2} @ {a:exact}
        v = np.concatenate([{x:nd}, {same}])
        v = np.take({x}, {chosen})
        v = {x}[{key}]
        v = numpy.asarray({x:num}).copy()
        v = np.shape({x})
        v = {x}.flags.writeable
        v = kept({x})
        v = pickled({x})
        v = pickled(np.asarray({x})[...])
        """,
    ),
    "errors": (
        5,
        """
        {x:nd+plain}[len({same})] = 1
        {x:nd+some}[[0, 99]] = {scalar}
        {x:nd+some}[...] = make((99,), "f8")
        {x:num} += make((99, 99), "f8")
        v = {x:some}.reshape(7, 11, 13)
        {x:some}.shape = (7, 11, 13)
        np.add({x:num}, 1, out={same}[None, ..., None][[0, 0]])
        np.put({x}, [0, 999], {few})
        {x:int} += 1.5
        np.copyto({x:int}, make((), "c16"))
        np.broadcast_to({x}, (2, *{same}.shape))[...] = {scalar}
        np.fill_diagonal({x:d1}, 1)
        {x:rec}["z"] = 1
        v = {x:num}.view("f8").view("rec")
        np.lib.stride_tricks.sliding_window_view({x:d1+some}, 2)[0] = 1
        """,
    ),
    "let go": (
        4,
        """
        del {name}
        v = {x}
        """,
    ),
}
