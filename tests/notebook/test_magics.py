"""What needs no ranks: which cells go to them, what is loaded when, how loops are counted."""

import ast
import subprocess
import sys

import pytest

from tests.launcher import ROOT, environment


@pytest.fixture
def magics(own_processes):
    pytest.importorskip("ipyparallel")
    from IPython.core.interactiveshell import InteractiveShell

    from distarray.notebook.magics import Magics

    return Magics(InteractiveShell.instance())


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("x = 1\n", "{ranks('x = 1\\n')}"),
        ("# note\nx = 1\n", "{ranks('# note\\nx = 1\\n')}"),
        ("%distarray ranks 3\nx = 1\n", "%distarray ranks 3\n{ranks('x = 1\\n')}"),
        ("# note\n%load_ext a\n\n", "# note\n%load_ext a\n"),
        ("%timeit x\n", "{ranks('%timeit x\\n')}"),
        ("%%time\nx\n", "{ranks('%%time\\nx\\n')}"),
        ("%%bash\nls\n", "%%bash\nls\n"),
        ("\n%%distarray local\nx = 1\n", "x = 1\n"),
        ("%distarray local x = 1\n", "x = 1\n"),
        ("\n%distarray local\nx = 1\n", "x = 1\n"),
        ("\n", "\n"),
    ],
)
def test_which_cells_go_to_the_ranks(magics, cell, wanted):
    at = wanted.find("{ranks(")
    if at >= 0:
        source = ast.literal_eval(wanted[at + 7 : -2])
        call = f"get_ipython().run_cell_magic('distarray', 'cell', {source!r})\n"
        wanted = wanted[:at] + call
    assert "".join(magics.redirect(cell.splitlines(keepends=True))) == wanted


def test_unknown_commands_name_the_known_ones(magics):
    from IPython.core.error import UsageError

    with pytest.raises(UsageError, match="%distarray ranks N"):
        magics.command("something")
    with pytest.raises(UsageError, match="takes a number of ranks, not '0'"):
        magics.command("ranks 0")


def in_python(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_loaded_before_the_extension_is(own_processes):
    code = "import sys, distarray; assert callable(distarray.load_ipython_extension)\n"
    code += "print([m for m in sys.modules if 'notebook' in m or 'IPython' in m or 'ipyp' in m])"
    assert in_python(code) == "[]\n"


def test_without_ipyparallel_the_extra_is_named(own_processes):
    code = "import sys; sys.modules['ipyparallel'] = None\nimport distarray\n"
    code += "try: distarray.load_ipython_extension(None)\nexcept ImportError as e: print(e)"
    assert "pip install 'distarray-mpi[notebook]'" in in_python(code)


def test_loops_count_their_passes(own_processes):
    from distarray.notebook.stopping import STEP, CountPasses

    source = "n = 0\nfor i in range(3):\n    while n < i: n += 1\n"
    source += "def f():\n    for j in (1, 2): pass\nf()\n[k for k in range(9)]\n"
    tree = CountPasses().visit(ast.parse(source))
    passes = []
    exec(compile(tree, "<cell>", "exec"), {STEP: lambda: passes.append(1)})
    assert len(passes) == 3 + 2 + 2


def test_how_many_ranks_there_are_if_nobody_says(own_processes, monkeypatch):
    pytest.importorskip("ipyparallel")
    from distarray.notebook.engines import default_ranks

    for name in ("DISTARRAY_RANKS", "SLURM_NTASKS", "SLURM_NPROCS"):
        monkeypatch.delenv(name, raising=False)
    assert default_ranks() >= 1
    monkeypatch.setenv("SLURM_NTASKS", "12")
    assert default_ranks() == 12
    monkeypatch.setenv("DISTARRAY_RANKS", "5")
    assert default_ranks() == 5
