"""Cells of a real Jupyter kernel on ranks: what is shown, errors, interrupts, values, restarts."""

import contextlib
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.notebook.kernels import a_kernel, settings

pytest.importorskip("ipyparallel")
pytest.importorskip("ipykernel")

RANK = "import distarray\nrank = distarray.default_mesh().rank\n"


@pytest.fixture
def kernel(mpiexec, tmp_path):
    with a_kernel(tmp_path, DISTARRAY_RANKS="2") as found:
        yield found


def test_cells(kernel):
    first = kernel.run("import numpy as np\nx = np.arange(300000.0)\nprint(x.sum())\nx")
    assert first.out == "44999850000.0\n"
    assert first.results[0]["text/plain"].startswith("array([0.00000e+00, 1.00000e+00,")
    assert "<svg" in first.results[0]["text/html"]
    assert "2 ranks" in kernel.run("%distarray").out
    assert "Shard(0)" in kernel.run("x.layout").text

    counted = kernel.run("Out[2] is x")
    assert counted.counts == [5]
    order = kernel.run("from IPython.display import display\nprint('a')\ndisplay(1)\nprint('b')")
    assert (order.out, [found["text/plain"] for found in order.displays]) == ("a\nb\n", ["1"])
    assert kernel.run("import sys\nprint('aside', file=sys.stderr)").err == "aside\n"
    warned = kernel.run("y = x / 0")
    assert len(re.findall(r"Cell In\[\d+\]:1: RuntimeWarning: divide by zero", warned.err)) == 1
    assert kernel.run("!echo hi > said; cat said; echo more >> said").out.split() == ["hi"]
    assert kernel.run("open('said').read()").text == r"'hi\nmore\n'"
    drawn = kernel.run("import matplotlib.pyplot as plt\nplt.plot(x[::10000])\nplt.show()")
    assert [sorted(found) for found in drawn.displays] == [["image/png", "text/plain"]]
    assert "1 loop" in kernel.run("%timeit -n 1 -r 2 x.sum()").out
    assert kernel.run("%%time\ny = x.sum()").out.count("Wall time") == 1

    kernel.run("%distarray pull x y")
    assert kernel.run("%distarray local type(x).__name__, x.shape").text == "('ndarray', (300000,))"
    assert kernel.run("%%distarray local\nprint(float(y))").out == "44999850000.0\n"
    assert kernel.run("%distarray local\nz = 5\nprint(z)").out == "5\n"
    asked = kernel.run("x?")
    assert asked.errors == []
    assert "DistArray" in asked.out
    assert kernel.run("%distarray pull nowhere").errors == ["NameError"]
    assert "%distarray ranks N" in kernel.run("%distarray nothing").err
    assert kernel.complete("y = x.redis") == ["x.redistribute"]
    assert kernel.complete("np.arang") == ["np.arange"]

    assert kernel.run("%unload_ext distarray").errors == []
    assert kernel.run("type(x).__name__").text == "'ndarray'"


def test_errors_and_interrupts(kernel):
    assert not kernel.run(f"import numpy as np\nx = np.zeros(300000)\n{RANK}").errors
    assert kernel.run("def f(:").errors == ["SyntaxError"]
    everywhere = kernel.run("x[0] = 1\n1 / 0\nx[0] = 2")
    assert everywhere.errors == ["ZeroDivisionError"]
    assert everywhere.traceback.count("Traceback") == 1
    assert re.search(r'File "Cell In\[\d+\]", line 2', everywhere.traceback)
    assert "raised" not in everywhere.traceback
    assert kernel.run("float(x.sum())").text == "1.0"

    alone = kernel.run("k = 0\nfor k in range(3): rank or int('one')\nx[0] = 3")
    assert alone.errors == ["ValueError"]
    assert alone.traceback.count("Traceback") == alone.traceback.count("rank 0 of 2 raised") == 1
    assert "of k, all ranks have rank 0's value now" in alone.err
    assert kernel.run("x[0] += distarray.default_mesh().group.allgather_object(k)[-1]").errors == []
    assert kernel.run("float(x.sum())").text == "1.0", "k is 0 on all ranks, and x as before"
    assert kernel.run("input('?')").errors == ["RuntimeError"]
    assert kernel.run("exit()").errors == ["SystemExit"]

    stopped = kernel.run("i = 0\nwhile True: i += 1", interrupt_after=1.0)
    assert stopped.errors == ["KeyboardInterrupt"]
    assert stopped.traceback.count("Traceback") == 1
    same = "len(set(distarray.default_mesh().group.allgather_object(i)))"
    assert kernel.run(same).text == "1"
    # The ranks wait for one another in each step, and are stopped after the same one.
    steps = "x[:] = 0\nwhile True:\n    x[1:] = x[:-1] + 1\n    x[:1] += 1\n    s = x.sum()"
    assert kernel.run(steps, interrupt_after=1.0).errors == ["KeyboardInterrupt"]
    assert kernel.run("bool(s == x.sum() or x[0] == x[-1])").text == "True"
    napped = kernel.run("import time\ntime.sleep(60)", interrupt_after=0.5)
    assert napped.errors == ["KeyboardInterrupt"]
    assert napped.seconds < 30
    assert kernel.run("float(x[0]) > 0").text == "True", "the ranks are the same"


def test_restarts(kernel, tmp_path):
    program = "import numpy as np\nx = np.arange(300001.0)\nk = [3]\ndef f(a): return a * k[0]\n"
    assert not kernel.run(f"{program}lost = object()\n{RANK}").errors
    more = kernel.run("%distarray ranks 3")
    assert "3 ranks" in more.out
    assert "not kept: lost" in more.err
    assert kernel.run("float(f(x).sum()), k, x.layout.mesh_shape").text == (
        f"({3.0 * 300000 * 300001 / 2}, [3], (3,))"
    )
    assert not list(tmp_path.glob(".distarray-ranks-*")), "the checkpoint is removed"
    assert "number of ranks" in kernel.run("%distarray ranks many").err

    kernel.run("rank = distarray.default_mesh().rank\ndef g(): return rank == 1 and int('one')")
    waiting = kernel.run("g() or x.sum()")
    assert waiting.errors == ["ValueError"]
    assert "other ranks wait in vain" in waiting.err
    assert "started anew, without variables" in waiting.err
    assert kernel.run("x").errors == ["NameError"]

    dead = kernel.run(f"import os\n{RANK}if rank == 1: os.kill(os.getpid(), 9)\nrank * 0")
    assert dead.errors == ["RankLost"]
    assert "a rank has ended, and the others with it" in dead.err
    assert kernel.run("1 + 2").text == "3"


def test_ranks_that_part_in_a_cell(kernel):
    program = "import numpy as np\nimport distarray\nx = np.arange(300001.0)\n"
    assert not kernel.run(f"{program}{RANK}distarray.config.wait_limit = 2.0").errors
    parted = kernel.run("if rank == 0:\n    x.sum()")
    assert parted.errors == ["RankLost"]
    assert "1 of 2 ranks waits in DistArray.sum at Cell In[" in parted.traceback
    assert "rank 1 is in the wait at a statement's end at Cell In[" in parted.traceback
    assert "interactiveshell" not in parted.traceback
    assert parted.seconds < 30
    assert kernel.run("1 + 2").text == "3"


def test_nothing_outlives_a_kernel_that_is_killed(kernel):
    pid = int(kernel.run("%distarray local __import__('os').getpid()").text)
    assert not kernel.run("1").errors
    assert len(started_by(pid)) >= 4, "mpiexec, two ranks, the controller"
    kernel.manager.signal_kernel(9)
    until = time.monotonic() + 30
    while started_by(pid) and time.monotonic() < until:
        time.sleep(0.2)
    assert not started_by(pid)


def started_by(kernel):
    """The processes that have been started for the ranks of a kernel."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"DISTARRAY_KERNEL={kernel}\0".encode() in (place / "environ").read_bytes():
                found.append(place.name)
    return found


def test_engines_that_there_are_are_joined(mpiexec, tmp_path):
    home = settings(tmp_path, PYTHONHASHSEED="0")
    cluster = [sys.executable, "-m", "ipyparallel.cluster"]
    start = [*cluster, "start", "--engines=mpi", "-n", "2", "--daemonize", "--log-level=40"]
    start += [f"--MPIEngineSetLauncher.mpi_cmd={list(mpiexec)}"]
    subprocess.run(start, env=home, cwd=tmp_path, check=True, timeout=60)
    try:
        with a_kernel(tmp_path) as kernel:
            until = time.monotonic() + 60
            while not list(tmp_path.glob("ipythondir/*/security/cluster-.json")):
                assert time.monotonic() < until
            pid = "import distarray, os\ndistarray.default_mesh().size(), os.getppid()"
            joined = kernel.run(pid).text
            assert joined.startswith("(2, ")
            stopped = kernel.run("while True: pass", interrupt_after=0.5)
            assert stopped.errors == ["KeyboardInterrupt"]
            assert kernel.run("%distarray stop").errors == []
        with a_kernel(tmp_path) as kernel:
            assert kernel.run(pid).text == joined, "they are the same"
    finally:
        subprocess.run([*cluster, "stop", "--log-level=40"], env=home, check=True, timeout=60)
