"""Classes and hooks of the program: ``__array__``, ``sys.excepthook``, ``mock.patch``."""

import sys

import pytest

from launching import compare, on_ranks, run

PROGRAM = """
import numpy as np

class Current:
    def __init__(self, data): self.data = np.asarray(data, float)
    def __array__(self, dtype=None, copy=None):
        return self.data if dtype is None else self.data.astype(dtype)

class Old(Current):
    def __array__(self): return self.data

class Packed(Current):
    def __dlpack__(self, **asked): return self.data.__dlpack__(**asked)
    def __dlpack_device__(self): return self.data.__dlpack_device__()

for kind, size in ((Current, 3), (Current, 20_000), (Old, 3), (Packed, 3)):
    v = kind(np.arange(1.0, size + 1))
    print(np.sum(v), np.add(v, 1)[:3], np.concatenate([v, v])[-3:], np.sort(v)[:3])
    print(np.array(v).dtype, np.shape(v), np.max(v), np.linalg.norm(v))
    print(np.full(size, v)[:2], np.ones_like(v)[:2], (np.arange(size) + v)[:3])
    print(np.from_dlpack(v)[:2] if kind is Packed else "")

from unittest import mock
with mock.patch("numpy.sum", return_value=5):
    print(np.sum([1]))
print(np.sum([1]))
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_objects_with_arrays_in_them(tmp_path, ranks):
    compare(tmp_path, PROGRAM, ranks=ranks)


@pytest.mark.parametrize("hook", ["lambda t, v, tb: print('saved', t.__name__)", "lambda: 0"])
def test_the_programs_excepthook(tmp_path, hook):
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.excepthook = {hook}\nraise KeyError('x')\n")
    wanted = run([sys.executable, "program.py"], tmp_path)
    found = on_ranks(3, "program.py", cwd=tmp_path)
    assert found.code != 0
    assert found.out == wanted.out
    assert ("Error in sys.excepthook" in found.err) == ("Error in sys.excepthook" in wanted.err)
    assert ("KeyError" in found.err) == ("KeyError" in wanted.err)
