"""Libraries that insist on NumPy's arrays get them; a warning says what is gathered."""

import textwrap
from importlib.util import find_spec

import pytest

from launching import compare, on_ranks, write_script

HEAD = """
import io, pickle, sys, warnings
import numpy as np

a, k = np.arange(70_000.0), np.arange(70_000) % 7
s, small = np.arange(12.0).reshape(3, 4), np.arange(5)
image = (np.arange(80 * 150 * 3) % 256).astype(np.uint8).reshape(80, 150, 3)
"""
#: Library -> lines of a program; those of the installed ones are one program.
PARTS = {
    "PIL": """
        import PIL.Image
        for view in (image, image[..., 0], image[::2, ::2], image[:9, :9]):
            made = PIL.Image.fromarray(view)
            print(made.size, np.array(made).sum(), np.array_equal(np.array(made), view))
        """,
    "pandas": """
        import pandas as pd
        df = pd.DataFrame({"x": range(70_000)})
        print(len(df[a > 3]), df.loc[k == 2].x.sum(), df.iloc[k[:9]].x.tolist())
        df["y"] = a
        df.loc[k > 3, "y"] = 5
        print(df.groupby(k).y.sum(), pd.Series(a).groupby(k).mean(), df.x * a, a * df.x)
        print(pd.factorize(k), pd.unique(k), pd.factorize(small), pd.Index(small), pd.cut(a, 3))
        frames = [{"m": s.mean(), "n": a.max()}, {"m": small, "s": s[0, 0]}, s, {"k": k}]
        for frame in frames:
            made = pd.DataFrame(frame, index=[0] if frame is frames[0] else None)
            print(made.dtypes, made.describe())
        print(pd.DataFrame([{"m": s.mean()}]).dtypes, pd.Series({"a": a.mean()}).dtype)
        """,
    "networkx": """
        import networkx as nx
        graph = nx.Graph(np.eye(3, k=1) + np.eye(3, k=-1))
        graph.add_nodes_from(small)
        graph.add_edges_from(np.array([[0, 4], [4, 3]]))
        print(sorted(graph.edges), nx.to_numpy_array(graph).sum())
        """,
    "scipy": """
        import scipy.sparse
        print(scipy.sparse.diags(s[0]).toarray(), scipy.sparse.csr_matrix(s).sum())
        """,
    "numba": """
        import numba

        @numba.njit
        def fold(x, out):
            for i in range(x.shape[0]):
                out[i % out.shape[0]] += x[i] * i
            return out

        print(fold(a, np.zeros(3)), fold(s[0], np.zeros(3)))
        """,
    "joblib": """
        import joblib
        joblib.dump({"a": a, "m": a.mean()}, "jl.pkl")
        print(joblib.load("jl.pkl"), joblib.hash(a), joblib.hash({"s": [s]}))
        """,
    "hashlib": """
        import hashlib
        print(hashlib.sha256(a).hexdigest(), memoryview(s)[1, 2], bytes(small), bytearray(small))
        """,
    "ctypes": """
        import ctypes
        compare = ctypes.CDLL(None).memcmp
        matrix = np.ctypeslib.ndpointer(np.float64, ndim=2)
        compare.argtypes = [matrix, matrix, ctypes.c_size_t]
        print(compare(s, s.copy(), s.nbytes), compare(s, s * 0, s.nbytes) > 0)
        print(s.ctypes.data_as(ctypes.POINTER(ctypes.c_double))[5])
        """,
    "pickle": """
        for x in (a, s, a.mean(), a[::2], small[:0], np.array([{1}, None], dtype=object)):
            for protocol in range(6):
                data = pickle.dumps({"x": [x]}, protocol)
                print(b"distarray" in data, pickle.loads(data))
        file = io.BytesIO()
        pickle._Pickler(file).dump([a, s])
        np.save("d.npy", {"a": a, "s": s}, allow_pickle=True)
        print(pickle.loads(file.getvalue()), np.load("d.npy", allow_pickle=True).item())
        """,
    "math": """
        class Tagged(np.ndarray):
            def __new__(cls, values, tag):
                self = np.asarray(values).view(cls)
                self.tag = tag
                return self

            def __array_finalize__(self, other):
                self.tag = getattr(other, "tag", None)

        class Own(np.ndarray):
            def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
                return ufunc.__name__, method, [isinstance(x, Own) for x in inputs]

        class First:
            __array_priority__ = 1e5

            def __radd__(self, other):
                return "mine"

        tagged, own, ones = Tagged(small, "t"), small.view(Own), np.ones(5)
        for found in (tagged + ones, ones - tagged, ones < tagged, np.sin(tagged), ones @ tagged,
                      tagged[1:], np.concatenate([ones, tagged]), Tagged(a, "big")[:9] + 1):
            print(isinstance(found, Tagged), getattr(found, "tag", None), np.asarray(found))
        print(own + ones, ones * own, np.add(ones, own), a[:5] + own, s + First(), a + First())
        matrix, square = np.matrix([[1.0, 2], [3, 4]]), np.ones((2, 2))
        for found in (matrix * square, square * matrix, square @ matrix, matrix + square,
                      square - matrix, np.dot(square, matrix), np.vstack([square, matrix])):
            print(type(found).__name__, np.asarray(found))
        masked = np.ma.array([1.0, 2, 3], mask=[0, 1, 0])
        for found in (masked * ones[:3], ones[:3] * masked, np.add(ones[:3], masked)):
            print(repr(found))
        """,
    "numpy": """
        nested = {"a": a, "b": [s, (k, 3)]}
        np.testing.assert_equal(nested, {"a": a.copy(), "b": [s.copy(), (k, 3)]})
        pairs = [(a, a + 1), (nested, {"a": a, "b": [s + 1, (k, 3)]}), (s, s[0]), ([s, 1], [s, 2])]
        for actual, desired in pairs:
            try:
                np.testing.assert_equal(actual, desired)
            except AssertionError as error:
                print(error)
        from numpy.testing import assert_array_almost_equal_nulp
        assert_array_almost_equal_nulp(s, s)
        """,
}


@pytest.mark.parametrize("ranks", [1, 3])
def test_ordinary_arrays(tmp_path, ranks):
    parts = [textwrap.dedent(text) for name, text in PARTS.items() if find_spec(name)]
    compare(tmp_path, HEAD + "".join(parts), ranks=ranks)


LIBRARY = """
    import numpy as np
    name = np.__name__

    def total(x):
        return float(np.asarray(x)[-1])
    """


def test_no_gather_without_a_word(tmp_path):
    write_script(tmp_path / "venv" / "site-packages", LIBRARY, "library.py")
    write_script(tmp_path / "venv" / "site-packages", LIBRARY, "mine.py")
    write_script(
        tmp_path,
        """
        import os, pickle, sys
        sys.path.append(os.path.join(os.path.dirname(__file__), "venv", "site-packages"))
        import library, mine, numpy as np, distarray
        x = np.arange(200_000.0)
        with distarray.trace() as t:
            for _ in range(3):
                print(library.total(x))
        print(t.count("library"), library.name, mine.name, mine.total(x), library.total(x[:9]))
        distarray.config.fallback = "error"
        for act in (library.total, pickle.dumps):
            try:
                act(x)
            except TypeError as error:
                print(type(error).__name__)
        """,
    )
    done = on_ranks(3, "--include", "mine", "program.py", cwd=tmp_path)
    assert done.code == 0, done.err
    wanted = (
        "199999.0\n" * 3 + "3 numpy distarray.numpy 199999.0 8.0\n" + "NotDistributedError\n" * 2
    )
    assert done.out == wanted
    (said,) = [line for line in done.err.splitlines() if "PerformanceWarning" in line]
    assert (
        "program.py:8: PerformanceWarning: numpy.asarray or a buffer gathers 1600000 bytes of"
        in said
    )
    assert "for library" in said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--include"], "argument expected for --include"),
        (["--include", "a/b", "program.py"], "'a/b'"),
        (["--include=a,b"], "no program"),
    ],
)
def test_what_cannot_be_included(tmp_path, arguments, why):
    done = on_ranks(1, *arguments, cwd=tmp_path)
    assert done.code == 2
    assert why in done.err
