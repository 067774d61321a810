"""What NumPy shares is shared, on any number of ranks: each function that may return a view.

``python -m tests.ops.test_shared_memory`` prints the table.
"""

import itertools

import numpy as np
import pytest

import distarray
import distarray.numpy
from distarray.comm import DeviceMesh, run_threads
from distarray.config import config
from distarray.layout import Shard

#: A GPU holds no records, and says less of its memory. Aliases written in turn are told of.
pytestmark = [
    pytest.mark.host,
    pytest.mark.filterwarnings("ignore:this line needs elements"),
]

RECORD = np.dtype([("a", "f8"), ("b", "i4")])
PAIRS = np.dtype([("p", "f8"), ("q", "f8")])
BASES = {
    "line": lambda np: np.arange(60.0),
    "table": lambda np: np.arange(60.0).reshape(10, 6).copy(),
    "box": lambda np: np.arange(60.0).reshape(5, 3, 4).copy(),
    "square": lambda np: np.arange(49.0).reshape(7, 7).copy(),
    "squares": lambda np: np.arange(45.0).reshape(5, 3, 3).copy(),
    "complex": lambda np: np.arange(60.0) * (1 + 2j),
    "records": lambda np: np.zeros(60, RECORD),
    "record table": lambda np: np.zeros((10, 6), RECORD),
    "fortran": lambda np: np.asfortranarray(np.arange(60.0).reshape(10, 6)),
    "integers": lambda np: np.arange(60),
    "nothing": lambda np: np.zeros((0, 4)),
    "point": lambda np: np.array(3.0),
}


def windows(np, *args, **kwargs):
    return np.lib.stride_tricks.sliding_window_view(*args, **kwargs)


def as_strided(np, *args, **kwargs):
    return np.lib.stride_tricks.as_strided(*args, **kwargs)


def setting(name, value):
    def view(np, x):
        y = x[...]
        setattr(y, name, value)
        return y

    return view


#: Of each base what is made of it; its text is its name.
VIEWS = {
    "line": """
        x[...]; x[()]; x[None]; x[1:7]; x[::3]; x[::-2]; x[59:5:-3]; x[[1, 2]]; x[x > 3]; x.copy()
        x.reshape(12, 5); x.reshape(4, 15); x.reshape(2, 30); x.reshape(60, 1); x.reshape(3, 4, 5)
        x.reshape(4, 15, order="F"); x.reshape(4, 15, order="A"); x.reshape(4, 15, copy=False)
        x[3:33].reshape(5, 6); x[::2].reshape(5, 6); x[::-1].reshape(5, 12); x[::-1].ravel()
        x.reshape(4, 15).reshape(15, 4); x.reshape(4, 15).T.reshape(15, 2, 2); x[5:6].reshape(())
        x.reshape(4, 15)[1:3, ::2]; x.reshape(4, 15).T[3]; list(x.reshape(4, 15))[2]
        x.view(); x.view("i8"); x.view("f4"); x.view("c16"); x.view("V40"); x.view("u1")[::3]
        x.view(PAIRS)["q"]; x.view([("p", "f8", (5,))])["p"]
        x[::-1].view("i8"); x[2:58].view("c16"); x.getfield("i4", 4)
        np.atleast_1d(x); np.atleast_2d(x); np.atleast_3d(x); np.expand_dims(x, 0); np.flip(x)
        np.broadcast_to(x, (3, 60)); np.broadcast_to(x[5:6], (60,)); np.broadcast_to(x, (60,))
        np.broadcast_arrays(x, np.ones(60))[0]; np.split(x, 3)[1]; np.array_split(x, 7)[3]
        np.unstack(x.reshape(4, 15))[2]; np.squeeze(x[None, :, None]); x.T; x.real; x.imag
        np.real(x); np.real_if_close(x); np.conj(x); np.nan_to_num(x, copy=False)
        windows(np, x, 3); windows(np, x, 25); windows(np, x, 1); windows(np, x[::2], 4)
        windows(np, x, 4)[::2]; windows(np, x, 4)[::-1, 1]; windows(np, x.reshape(4, 15), (2, 2))
        windows(np, x, 3, writeable=True); windows(np, x, 60, writeable=True)
        as_strided(np, x, (57, 4), (8, 8)); as_strided(np, x, (14, 4), (32, 8))
        as_strided(np, x, (14, 8), (32, 8)); as_strided(np, x, (3, 60), (0, 8))
        as_strided(np, x, (60,), (0,)); as_strided(np, x[59:], (60,), (-8,))
        as_strided(np, x[:1], (1,), (0,)); as_strided(np, x[33:34], (2, 1), (0, 8))
        as_strided(np, x, (4, 5), (40, 8)); as_strided(np, x, (5, 4), (8, 40))
        as_strided(np, x[3:], (6, 3), (72, 16)); as_strided(np, x, (0, 3), (8, 8))
        as_strided(np, x, (8, 5), (56, 8), writeable=False); as_strided(np, x, (9,), x.strides)
        np.ndarray((4, 15), float, x); np.ndarray((4, 10), float, x, offset=80)
        np.ndarray((10,), float, x, offset=8, strides=(24,)); np.ndarray((120,), "i4", x)
        np.ndarray((4, 15), float, x, order="F"); np.ndarray((), float, x, offset=160)
        np.frombuffer(x); np.frombuffer(x, "i8", 7, 40); np.frombuffer(x, "c16")
        np.asarray(x); np.asanyarray(x); np.array(x); np.array(x, copy=False)
        np.array(x, copy=None, ndmin=3); np.asarray(x, float); np.asarray(x, int)
        x.astype(float, copy=False); np.astype(x, float, copy=False); x.astype(float)
        np.asarray_chkfinite(x); np.ascontiguousarray(x[::2]); x.byteswap(True)
        np.delete(x, 3); np.insert(x, 3, 1.0); np.append(x, 1.0); np.take(x, [1, 2])
        np.compress([True] * 60, x); np.trim_zeros(x); np.hstack([x]); np.concatenate([x])
        np.flatnonzero(x); np.unique(x); np.sort(x); np.roll(x, 1); np.tile(x, 1); np.repeat(x, 1)
        setting("shape", (4, 15))(np, x); setting("shape", (2, -1))(np, x)
        setting("dtype", "i8")(np, x); setting("dtype", "f4")(np, x); x.ravel()
    """,
    "table": """
        x.reshape(15, 4); x.reshape(-1); x.reshape(10, 3, 2); x.reshape(4, 15, order="F")
        x.T.reshape(-1); x.T.reshape(3, 2, 10); x.T.reshape(6, 5, 2); x[:, 1:3].reshape(4, 5)
        x[1:9].reshape(4, 12); x[:, ::2].reshape(10, 3, 1); x.ravel(); x.ravel("F"); x.ravel("K")
        x.T.ravel("F"); x.T.ravel("K"); x.T.ravel("A"); x.flatten(); x[3]; x[5, ...]; x[:, 2]
        x.view("c16"); x.view("u1"); x.view("i4")[:, ::3]; x.T.view("i8"); x.T; x.mT
        np.flip(x); np.flip(x, 0); np.fliplr(x); np.flipud(x); np.rot90(x); np.rot90(x, 2)
        np.rot90(x, 0); np.rot90(x, -1); np.expand_dims(x, 1); np.squeeze(x[3:4]); np.squeeze(x)
        np.broadcast_to(x[3:4], (10, 6)); np.broadcast_to(x[:, 2:3], (2, 10, 6))
        np.hsplit(x, 2)[1]; np.vsplit(x, 2)[1]; np.split(x, [3, 7])[1]; np.split(x, 3, axis=1)[2]
        np.unstack(x)[4]; np.unstack(x, axis=1)[4]; [row for row in x][7]; list(x.T)[3]
        np.einsum("ij->ji", x); np.einsum("ij->ij", x); np.einsum("ij", x); np.tril(x)
        windows(np, x, (3, 2)); windows(np, x, 3, axis=1); windows(np, x, 3, axis=0)
        windows(np, x, 3, axis=1, writeable=True); windows(np, x.T, 4, axis=1)
        windows(np, x[::2], 2, axis=0); windows(np, x[:, 1:4], (2, 2), (0, 1))
        as_strided(np, x, (8, 4, 3, 3), (48, 8, 48, 8), writeable=False)
        as_strided(np, x.T, (6, 8), (8, 48)); as_strided(np, x, (6, 10), x.T.strides)
        np.ndarray((60,), float, x); np.ascontiguousarray(x); np.ascontiguousarray(x.T)
        np.asfortranarray(x); np.asfortranarray(x.T); np.require(x, float, "C")
        np.require(x.T, float, "F"); np.require(x.T, float, "C"); np.rollaxis(x, 1)
        as_strided(np, x[3], (2,), (24,)); as_strided(np, x[3], (4, 3), (8, 8), writeable=False)
        np.ndarray((2, 3), float, x[4]); np.frombuffer(x[5], "i8"); windows(np, x[3], 2)
        x[3].view("c16"); x[3].reshape(2, 3); np.broadcast_to(x[3], (4, 6)); x[3].view("u1")[5:]
        windows(np, x[3], 2, writeable=True); np.diagonal(x[3:6]); x[2:3].reshape(2, 3)
        np.matrix_transpose(x); np.linalg.matrix_transpose(x); np.diagonal(x); np.diag(x, -2)
    """,
    "box": """
        x.reshape(5, 12); x.reshape(15, 4); x.reshape(4, 15); x[1:4].reshape(-1)
        x.transpose(2, 0, 1).reshape(4, 15); x.transpose(1, 0, 2).ravel("K"); x.mT
        np.transpose(x, (2, 0, 1)); np.permute_dims(x, (1, 2, 0)); np.swapaxes(x, 0, 2)
        np.moveaxis(x, 0, 2); np.rollaxis(x, 2); np.matrix_transpose(x); np.dsplit(x, 2)[1]
        x.diagonal(1, 0, 2); x.diagonal(0, 1, 2); np.linalg.diagonal(x); np.einsum("i...->...i", x)
        x[2]; x[:, 1]; x[..., 3]; x[2, 1]; np.unstack(x, axis=2)[1]; x.view("c16")
    """,
    "square": """
        np.diagonal(x); x.diagonal(2); x.diagonal(-2); np.diag(x); np.diag(x, 1); x[::-1].diagonal()
        np.linalg.diagonal(x); np.einsum("ii->i", x); np.einsum("ii->i", x[::-1, ::-1])
        x[:5, 1:6].diagonal(); as_strided(np, x, (7,), (64,)); as_strided(np, x, (7, 7), (8, 56))
    """,
    "squares": """
        np.einsum("ijj->ij", x); np.einsum("ijj->ji", x); np.linalg.diagonal(x, offset=1)
        np.einsum("kij->jik", x); np.diagonal(x, 0, 1, 2)
    """,
    "complex": """
        x.real; x.imag; np.real(x); np.imag(x); x.view(float); x.view(float).reshape(60, 2)
        x.getfield("f8", 8); x.reshape(4, 15).real; x.real.reshape(4, 15); x.reshape(4, 15).imag[2]
        np.conj(x)
    """,
    "records": """
        x["a"]; x["b"]; x["a"].reshape(4, 15); x.reshape(4, 15)["b"]; x[["b"]]["b"]
        x[["a"]].reshape(4, 15)["a"]; x[["a", "b"]]["b"]; x.getfield("f8", 0); x["a"][::2]
        x["a"].reshape(15, 4)[2:5]; x[::3]["b"]; x["a"].copy(); x[7:30].reshape(-1)["b"]
    """,
    "record table": """
        x["a"]; x["a"].reshape(4, 15); x.reshape(-1)["b"]; x.T["a"]; x[3]["b"]; x["b"].T.ravel("K")
    """,
    "fortran": """
        x.reshape(15, 4, order="F"); x.reshape(15, 4, order="A"); x.reshape(15, 4); x.T.reshape(60)
        x.ravel("F"); x.ravel("K"); x.ravel("A"); x.ravel(); x.T; np.asfortranarray(x); x[:, 2]
        np.ascontiguousarray(x)
    """,
    "integers": "np.ix_(x, [1, 2])[0]; x.view('u4'); x.reshape(4, 15); x.real",
    "nothing": "x.reshape(2, 0); x.T; x[...]; x.ravel(); x.view('i8')",
    "point": "x.reshape(1); x.T; x[...]; x[None]; np.atleast_2d(x); x.view('i8'); np.array(x)",
}
CASES = [
    (base, text.strip())
    for base, texts in VIEWS.items()
    for line in texts.splitlines()
    for text in line.split("; ")
    if text.strip()
]
SCOPE = {"windows": windows, "as_strided": as_strided, "setting": setting, "PAIRS": PAIRS}


def whole(x):
    return (x.full() if isinstance(x, distarray.DistArray) else np.asarray(x)).tobytes()


def change(x, value):
    """Write to an element in the middle; of records to a field."""
    if x.size:
        place = tuple([extent // 2 for extent in x.shape])
        target = x if x.dtype.names is None else x[x.dtype.names[0]]
        if x.dtype.kind != "V" or x.dtype.names:
            target[place] = value


def fill(x, value):
    for target in [x] if x.dtype.names is None else [x[name] for name in x.dtype.names]:
        if target.dtype.kind != "V":
            target[...] = value


def tried(call, *args):
    try:
        call(*args)
    except ValueError as error:
        return str(error)
    return "done"


def answers(module, x, text):
    """All that NumPy says of the memory of a view, and what it and its base are after writes."""
    found = eval(text, {**SCOPE, "np": module, "x": x})
    told = [
        ("shares memory", bool(module.shares_memory(x, found))),
        ("may be written to", found.flags.writeable),
        ("shape", found.shape, found.dtype),
        ("elements", whole(found)),
    ]
    for name, target, act, value in [
        ("a write to the base", x, change, 77),
        ("a write to the view", found, change, 3),
        ("the base is filled", x, fill, 5),
        ("the view is filled", found, fill, 1),
        ("some of the base", x[:3] if x.ndim else x, fill, 8),
        ("some of the view", found[1:] if found.ndim else found, fill, 6),
    ]:
        told.append((name, tried(act, target, value), whole(x), whole(found)))
    return told


def differences(found, wanted):
    return [one[0] for one, other in zip(found, wanted, strict=True) if one != other]


def on_rank(base, text):
    return answers(distarray.numpy, BASES[base](distarray.numpy), text)


def expected(base, text):
    return answers(np, BASES[base](np), text)


@pytest.mark.parametrize("below", [0, None])
@pytest.mark.parametrize("base", BASES)
def test_views_share_as_numpys_do(world, ranks, base, below):
    threshold = {} if below is None else {"replicate_below": below}

    def program(group):
        with config.override(fallback="allow", **threshold):
            texts = [text for name, text in CASES if name == base]
            found = {text: differences(on_rank(base, text), expected(base, text)) for text in texts}
        assert not any(found.values()), {text: names for text, names in found.items() if names}

    world.run(ranks, program)


@pytest.mark.parametrize(
    "shape, placements", [((2, 2), (0, 1)), ((2, 3), (1, 0)), ((2, 2), (0, 0)), ((3,), (1,))]
)
def test_on_other_meshes(world, shape, placements):
    count = int(np.prod(shape))
    if count not in world.ranks:
        pytest.skip("not as many ranks")

    def program(group):
        mesh = DeviceMesh(group, shape)
        for base, text in CASES:
            values = BASES[base](np)
            made = "ones" in text or (base in ("fortran", "point", "nothing"))
            if made or any(dim >= values.ndim for dim in placements):
                continue
            placed = [Shard(dim) for dim in placements]
            x = distarray.distribute(values.copy(), mesh, placed, src=None)
            wanted = answers(np, values.copy(), text)
            assert not differences(answers(distarray.numpy, x, text), wanted), text

    world.run(count, program)


def test_the_base_and_who_owns_memory(world, ranks):
    def program(group):
        with config.override(replicate_below=0):
            x = distarray.numpy.arange(60.0)
            y = x.reshape(4, 15)
            z = y.T[2:]
            w = windows(np, x, 3)
            assert x.base is None and x.flags.owndata
            if ranks > 1:
                assert y.base is x and z.base is x and w.base is x
                assert not (y.flags.owndata or z.flags.owndata or w.flags.owndata)
                assert (x.copy().base, y.copy().base) == (None, None)
                assert z.strides == np.arange(60.0).reshape(4, 15).T[2:].strides
            assert not np.shares_memory(x[::2], x[1::2])
            assert np.may_share_memory(y[::2], y[1::2]) and not np.shares_memory(y[:1], x[15:])

    world.run(ranks, program)


@pytest.mark.parametrize(
    "text, match",
    [
        ("as_strided(np, x, (61,), (8,))", "480 bytes"),
        ("as_strided(np, x, (2,), (-8,))", "480 bytes"),
        ("as_strided(np, x[1:], (60,))", "480 bytes"),
        ("as_strided(np, x, (3,), (8, 8))", "same length"),
        ("as_strided(np, x, (-3,), (8,))", "negative"),
        ("np.frombuffer(x, 'V7')", "multiple"),
        ("x.reshape(7, 7)", "cannot reshape"),
        ("x.reshape(4, 15).T.reshape(60, copy=False)", "Unable to avoid"),
        ("x.view('V7')", "divisor"),
        ("windows(np, x, 61)", "window shape"),
        ("np.broadcast_to(x, (2, 60)).fill(1)", "read-only"),
        ("windows(np, x, 3).fill(1)", "read-only"),
        ("np.add(x, 1, out=np.broadcast_to(x, (60,)))", "read-only"),
        ("np.diagonal(x.reshape(4, 15)).fill(1)", "read-only"),
    ],
)
def test_what_is_refused(world, ranks, text, match):
    def program(group):
        with config.override(replicate_below=0):
            np = distarray.numpy
            x = np.arange(60.0)
            with pytest.raises(ValueError, match=match):
                eval(text, {**SCOPE, "np": np, "x": x})
            assert float(x.sum()) == 1770.0

    world.run(ranks, program)


def table():
    """One line for each view: NumPy's answers, and whether 1 to 6 ranks give the same."""

    def program(below):
        def run(group):
            with config.override(replicate_below=below, fallback="allow"):
                return [on_rank(*case) for case in CASES]

        return run

    thresholds = (0, config.replicate_below)
    found = {
        (ranks, below): run_threads(ranks, program(below), timeout=300)
        for ranks, below in itertools.product(range(1, 7), thresholds)
    }
    for number, case in enumerate(CASES):
        wanted = expected(*case)
        same = all(rank[number] == wanted for told in found.values() for rank in told)
        seen = ["view" if wanted[0][1] else "copy", "writeable" if wanted[1][1] else "read-only"]
        print(f"{case[0]:13}{case[1]:62}{' '.join(seen):16}{'as NumPy' if same else 'DIFFERS'}")


if __name__ == "__main__":
    table()
