"""The prompt of `-i`, folded tracebacks, and warnings that name the program's lines."""

import re

import pytest

from launching import on_ranks, write_script

PROGRAM = """\
import numpy as np
x = np.arange(200000.0)
for i in range(2):
    a = x / 0
b = x / 0
c = np.log(x)
d = (x + 1j).astype(float)
e = x.std(ddof=300000)
f = np.nanmean(np.full(4, np.nan))
raise ValueError("of the program")
"""
TYPED = """\
import distarray; r = distarray.default_mesh().rank
x.size
_ + 1
np.sum(x, axis=4)
if r == 1: int("a")

def
name = input()
hello
name
import os
child = os.fork()
os.waitpid(child, 0)[1]
if r == 1: exit(5)

print("never")
"""


def test_prompt(tmp_path):
    write_script(tmp_path, PROGRAM)
    done = on_ranks(2, "-i", "program.py", cwd=tmp_path, stdin=TYPED)
    assert done.code == 5, done.err
    printed = done.out.replace(">>> ", "").replace("... ", "").split()
    assert printed == ["200000", "200001", "'hello'", "0"]
    wanted = {4: 2, 5: 2, 6: 1, 7: 1, 8: 1, 9: 1}  # 0 / 0 is another kind of error
    for line, least in wanted.items():
        assert done.err.count(f"program.py:{line}: ") >= least, (line, done.err)
    assert done.err.count("program.py:4: RuntimeWarning: divide") == 1
    assert done.err.count("of the program\n") >= 1
    assert "frames inside distarray (--full-traceback shows them)" in done.err
    assert "/distarray/" not in done.err.replace(str(tmp_path), "")
    assert done.err.count("rank 1 of 2 raised") == 1
    assert "SyntaxError" in done.err


IN_IPYTHON = """\
import numpy as np, distarray; r = distarray.default_mesh().rank
x = np.arange(300000.0); x.layout
np.sum(x, axis=4)
if r == 1: int("a")

1 +* 2
x.max() + _i2.count("x")
%timeit -n 1 -r 1 x.sum()
!echo once >> lines; wc -l < lines
if r == 1: exit()

print("never")
"""


def test_ipython(tmp_path):
    pytest.importorskip("IPython")
    options = ["--colors=NoColor", "--simple-prompt", "--no-banner", f"--ipython-dir={tmp_path}"]
    done = on_ranks(2, "-m", "IPython", *options, cwd=tmp_path, stdin=IN_IPYTHON)
    assert done.code == 0, done.err
    printed = re.sub(r"In \[\d+\]: |   \.\.\.: ", "", done.out).split("\n")
    found = [line.strip() for line in printed if line.strip()]
    assert found[0] == "Out[2]: Layout((300000,) on mesh (2,): [Shard(0)])"
    assert found[1] == "Out[6]: np.float64(300001.0)"
    assert "1 loop" in found[2]
    assert found[3:] == ["1"]
    assert done.err.count("axis 4 is out of bounds") == done.err.count("SyntaxError") == 1
    assert done.err.count("rank 1 of 2 raised") == 1
    assert "/distarray/" not in done.err.replace(str(tmp_path), "")


def test_ipython_with_a_rank_that_fails_while_another_waits_for_it(tmp_path):
    pytest.importorskip("IPython")
    typed = "import numpy as np, distarray\nr = distarray.default_mesh().rank\n"
    typed += "x = np.ones(200000)\nint('a') if r == 1 else x.sum()\nprint('never')\n"
    options = ["--colors=NoColor", "--simple-prompt", f"--ipython-dir={tmp_path}"]
    done = on_ranks(2, "-m", "IPython", *options, cwd=tmp_path, stdin=typed)
    assert done.code != 0
    assert done.err.count("rank 1 of 2 raised") == done.err.count("Traceback") == 1
    assert "never" not in done.out


@pytest.mark.parametrize("full", [False, True])
def test_one_rank_alone(tmp_path, full):
    source = "import numpy as np, distarray\nx = np.ones(200000)\n"
    source += "if distarray.default_mesh().rank == 1:\n    np.sum(x, axis=4)\nx.sum()\n"
    write_script(tmp_path, source)
    options = ["--full-traceback"] * full
    done = on_ranks(3, *options, "program.py", cwd=tmp_path)
    assert done.code != 0
    assert done.err.count("rank 1 of 3 raised") == done.err.count("Traceback") == 1
    assert ("ladder.py" in done.err) == full
    assert ("--full-traceback" in done.err) != full
    assert "MPI_Abort" not in done.err
