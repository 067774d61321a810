"""A rank that fails before it has started MPI, for which the others would wait in MPI_Init."""

from __future__ import annotations

import time

from tests.faults.differing import RUNNER, run
from tests.faults.planting import Fault, Scene

#: Fails on rank 1 in the way that is its argument, before any mesh is made.
PROGRAM = """
import os, sys, threading, time
rank = next(os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
import distarray.numpy as np
how = sys.argv[1]
if rank == "1":
    if how == "hook":
        sys.excepthook = lambda *error: print("hooked", error[1], file=sys.stderr)
    if how == "hook around":
        before = sys.excepthook
        sys.excepthook = lambda *error: (print("hooked", file=sys.stderr), before(*error))
    if how == "thread":
        threading.Thread(target=lambda: [][1]).start()
        time.sleep(20)  # the job ends meanwhile
    elif how == "SystemExit":
        raise SystemExit("no input")
    elif how == "status":
        sys.exit(7)
    elif how == "os._exit":
        os._exit(7)
    elif how == "killed":
        os.kill(os.getpid(), 9)
    elif how == "syntax":
        compile("a b", "b.py", "exec")
    else:
        import a_module_that_is_missing
print("sum", np.arange(10).sum())
"""
#: How a rank fails, and a word of the output.
WAYS = {
    "import": "No module named 'a_module_that_is_missing'", "syntax": "SyntaxError",
    "SystemExit": "no input", "status": "exit status 7", "os._exit": "os._exit(7)",
    "thread": "IndexError", "hook": "hooked No module", "hook around": "hooked", "killed": "",
}  # fmt: skip
#: Seconds in which the job must have ended, on a machine with many more ranks than cores.
SOON = 30.0


def ended(scene: Scene, word: str, *arguments: str, odd: str = "", **variables: str) -> None:
    """Assert that rank 1's failure ends the job soon, with its name and this word."""
    began = time.monotonic()
    status, output = run(scene, (*arguments[:-1], odd or arguments[-1]), arguments, **variables)
    assert status not in (0, None), f"status {status}: {output}"
    assert "sum" not in output.split(), output
    assert word in output, f"no {word!r} in: {output}"
    assert not word or "rank 1 of 3 ends the job" in output, output
    assert time.monotonic() - began < SOON, f"{time.monotonic() - began:.1f} s"


def way(name: str) -> Fault:
    """The fault that a rank fails in one of the ways."""

    def plant(scene: Scene) -> None:
        (scene.directory / "fails.py").write_text(PROGRAM)
        ended(scene, WAYS[name], "fails.py", name)

    return Fault(f"before MPI: {name}", plant, quick=name == "import")


def setting(scene: Scene) -> None:
    """A setting that is none, on one rank, under plain Python and the runner."""
    word = "the environment variable DISTARRAY_FALLBACK=nonsense"
    ended(scene, word, "a.py", DISTARRAY_FALLBACK="nonsense")
    ended(scene, word, *RUNNER, "a.py", DISTARRAY_FALLBACK="nonsense")


def runner_options(scene: Scene) -> None:
    """An option that the runner does not have, on one rank."""
    ended(scene, "exit status 2", *RUNNER, "a.py", odd="--nonsense")


def by_mpi(scene: Scene) -> None:
    """A launcher whose protocol is not known: MPI is started to end the job."""
    odd = "import distarray.comm.launcher as launcher\nlauncher._known = None\n"
    odd += "import os; os.environ.pop('OMPI_COMM_WORLD_SIZE', None)\nimport missing_here\n"
    (scene.directory / "b.py").write_text(odd)
    ended(scene, "No module named 'missing_here'", "a.py", odd="b.py")


def all_ranks_alike(scene: Scene) -> None:
    """A failure of all ranks is told once."""
    (scene.directory / "b.py").write_text("import distarray\nimport missing_here\n")
    status, output = run(scene, ("b.py",), ("b.py",))
    assert status not in (0, None), f"status {status}: {output}"
    assert output.count("ends the job") == 1, output


def children(scene: Scene) -> None:
    """A child of a rank that fails is no rank, before MPI has started and afterwards."""
    (scene.directory / "b.py").write_text(
        "import os, subprocess, sys\n"
        "import distarray.numpy as np\n"
        "fails = [sys.executable, '-c', 'import distarray.numpy; import missing_here']\n"
        "for _ in range(2):\n"
        "    assert subprocess.run(fails, stderr=subprocess.DEVNULL).returncode == 1\n"
        "    child = os.fork()\n"
        "    if not child: os._exit(3)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
        "    print('sum', np.arange(10).sum())\n"
    )
    status, output = run(scene, ("b.py",), ("b.py",))
    assert status == 0, output
    assert output.count("sum 45") == 6, output


FAULTS = (
    *map(way, WAYS),
    Fault("before MPI: a setting that is none", setting, quick=True),
    Fault("before MPI: an option that is none", runner_options),
    Fault("before MPI: a launcher that is not known", by_mpi),
    Fault("before MPI: all ranks alike", all_ranks_alike),
    Fault("before MPI: children", children),
)
