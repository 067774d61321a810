"""The program's modules get distarray.numpy; libraries keep the real one."""

from pathlib import Path

from distarray.comm import run_threads
from distarray.numpy import random
from distarray.runner.imports import ProgramFinder
from launching import compare, on_ranks, write_script

LIBRARY = """
    import numpy as np

    def name():
        return np.__name__

    def describe(x):
        a = np.asarray(x)
        return type(a).__module__, a.shape, float(a[-1])
"""


def program(directory: Path, source: str) -> Path:
    """A script with a module and a package beside it, and a library in a virtual environment."""
    write_script(directory, "import numpy\nnear = numpy.__name__", "beside.py")
    package = directory / "package"
    write_script(package, "from .inner import inner", "__init__.py")
    write_script(package, "import numpy as np\ninner = np.__name__", "inner.py")
    write_script(directory / "venv" / "site-packages", LIBRARY, "library.py")
    return write_script(directory, source)


def test_who_gets_which_numpy(tmp_path):
    program(
        tmp_path,
        """
        import os, sys
        sys.path.append(os.path.join(os.path.dirname(__file__), "venv", "site-packages"))
        import importlib
        import numpy
        import numpy as np
        from numpy import arange, pi as PI
        from numpy.exceptions import AxisError
        import numpy.typing as npt
        import beside, library, package
        import json, builtins
        scope = {}
        exec("import numpy; inside = numpy.__name__", scope)
        ours = {np.__name__, numpy.__name__, beside.near, package.inner, scope["inside"],
                importlib.import_module("numpy").__name__, __import__("numpy").__name__,
                type(arange(3)).__module__.partition(".")[0] + ".numpy"}
        print(ours, library.name(), PI, AxisError.__module__, npt.NDArray is not None)
        """,
    )
    done = on_ranks(2, "program.py", cwd=tmp_path)
    assert done.code == 0, done.err
    expected = "{'distarray.numpy'} numpy 3.141592653589793 numpy.exceptions True\n"
    assert done.out == expected


def test_what_is_missing_is_not_the_real_one(tmp_path):
    program(
        tmp_path,
        """
        import numpy as np
        import numpy.testing as testing
        from numpy.lib.stride_tricks import as_strided
        for act in ("import numpy.nosuch", "from numpy import nosuch", "np.nosuch",
                    "from numpy.nosuch import x", "import numpy.nosuch as n"):
            try:
                exec(act)
            except (ImportError, AttributeError) as error:
                print("nosuch" in str(error))
        """,
    )
    done = on_ranks(2, "program.py", cwd=tmp_path)
    assert (done.code, done.out) == (0, "True\n" * 5), done.err


def test_a_library_gets_an_array(tmp_path):
    program(
        tmp_path,
        """
        import os, sys
        sys.path.append(os.path.join(os.path.dirname(__file__), "venv", "site-packages"))
        import library, numpy as np
        print(library.describe(np.arange(100_000.0) * 2))
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert (done.code, done.out) == (0, "('numpy', (100000,), 199998.0)\n"), done.err


def test_printing_is_numpys(tmp_path):
    compare(
        tmp_path,
        """
        import numpy as np
        x = np.arange(200_000.0).reshape(400, 500)
        print(x)
        print(repr(x), x.sum(), x[3], x[3, 4], x.mean(axis=0)[:5])
        print(f"{x.max():.2f} {x.shape} {x.dtype} {len(x)}")
        y = x[1:-1:3, ::-2]
        y[...] = -1
        print(x[:4, -4:], y.T.shape)
        print(x > 5, (x > 5).sum(), list(np.arange(3)), np.ones(3), np.float64(2) * 3)
        np.set_printoptions(precision=3, threshold=10)
        print(x / 7)
        """,
    )


def test_an_error_of_numpy_is_told_once(tmp_path):
    program(tmp_path, "import numpy as np\nnp.ones(300_000) + np.ones(300_001)\n")
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert done.code == 1
    assert done.err.count("Traceback") == 1
    assert done.err.splitlines()[1].endswith('program.py", line 2, in <module>')
    assert "ValueError: operands could not be broadcast together" in done.err


def test_files_of_a_distributed_array(tmp_path):
    compare(
        tmp_path,
        """
        import numpy as np
        x = np.arange(100_000.0)
        with open("numbers.txt", "w") as file:
            for value in (x.sum(), x.min(), x[7]):
                file.write(f"{value}\\n")
        print(open("numbers.txt").read())
        import matplotlib.pyplot as plt
        figure, ax = plt.subplots()
        ax.plot(x[::1000], (x * x)[::1000])
        ax.imshow(np.arange(100_000.0).reshape(200, 500), aspect="auto")
        figure.savefig("plot.png")
        """,
    )


def test_random_numbers_are_the_same_on_any_number_of_ranks(tmp_path):
    program(
        tmp_path,
        """
        import numpy as np
        import numpy.random
        from numpy.random import default_rng
        x = default_rng(5).normal(size=(500, 300))
        np.random.seed(3)
        p = np.random.permutation(100_000)
        print(type(x).__name__, x[::100, 7], p[::30_000], np.random.rand())
        if default_rng().random() < 0.5 and numpy.random.rand() < 0.5:
            print(end=f"{x.max():.0f}"[:0])  # on all ranks, or the job hangs
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert done.code == 0, done.err

    def drawn(group):
        x = random.default_rng(5).normal(size=(500, 300)).full()
        state = random.RandomState(3)
        p = state.permutation(100_000).full()
        return f"DistArray {x[::100, 7]} {p[::30_000]} {state.rand()}\n"

    assert done.out == run_threads(1, drawn)[0]


def test_whose_a_module_is(tmp_path):
    library, home = tmp_path / "lib", tmp_path / "home"
    beside = write_script(home, "", "beside.py")
    installed = write_script(home / "venv" / "site-packages", "", "installed.py")
    write_script(library, "", "elsewhere.py")
    (home / "link.py").symlink_to(library / "elsewhere.py")
    (library / "mine.py").symlink_to(beside)
    (tmp_path / "other").symlink_to(home)
    finder = ProgramFinder(home, ["named"])
    for origin, wanted in (
        (beside, True),
        (home / "link.py", False),
        (library / "elsewhere.py", False),
        (library / "mine.py", True),
        (tmp_path / "other" / "beside.py", True),
        (installed, False),
        (Path(__file__), False),
    ):
        assert finder.is_program("module", str(origin)) is wanted, origin
    assert finder.is_program("named.part", str(library / "elsewhere.py"))
