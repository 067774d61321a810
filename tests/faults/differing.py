"""Ranks that differ: in program, arguments, settings, versions, threads, processors.

Rank 1 of three is started with something else. Every rank must raise the same error before anything
is computed; what differs between processors is said once.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.planting import Fault, Scene, Unavailable

ROOT = Path(__file__).resolve().parents[2]
#: Becomes the program of this rank: {"all": [...], "odd": [...]}, each python's arguments after
#: the variables that are set.
START = """
import json, os, sys
rank = next(os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
variables, words = json.loads(sys.argv[1])["odd" if rank == "1" else "all"]
os.execve(sys.executable, [sys.executable, *words], {**os.environ, **variables})
"""
PROGRAM = "import distarray.numpy as np\nprint('sum', np.arange(10).sum())\n"
RUNNER = ("-m", "distarray")


def run(
    scene: Scene, odd: tuple[str, ...], plain: tuple[str, ...] = ("a.py",), **variables: str
) -> tuple[int | None, str]:
    """Run `plain` on three ranks, but `odd`, with these variables, on rank 1."""
    (scene.directory / "start.py").write_text(START)
    (scene.directory / "a.py").write_text(PROGRAM)
    plan = json.dumps({"all": ({}, plain), "odd": (variables, odd)})
    return scene.run(3, "start.py", plan)


def refused(outcome: tuple[int | None, str], *words: str) -> None:
    """Assert that the job has ended by an error that names rank 1 and has these words, once."""
    status, output = outcome
    assert status not in (0, None), f"status {status}: {output}"
    assert "sum" not in output.splitlines(), output
    assert output.count("the ranks differ") == 1, output
    for word in ("on rank 0", "on rank 1", *words):
        assert word in output, f"no {word!r} in: {output}"


def script(scene: Scene) -> None:
    """Another script under plain Python."""
    (scene.directory / "b.py").write_text(PROGRAM.replace("10", "11"))
    refused(run(scene, ("b.py",)), "the program", "a.py", "b.py")


def script_under_the_runner(scene: Scene) -> None:
    """Another script, and other arguments, under the runner."""
    (scene.directory / "b.py").write_text(PROGRAM.replace("10", "11"))
    outcome = run(scene, (*RUNNER, "b.py", "--fine"), (*RUNNER, "a.py", "--coarse"))
    refused(outcome, "the program", "a.py", "b.py", "['--coarse']", "['--fine']")


def same_script_elsewhere(scene: Scene) -> None:
    """The same text under another path is the same program."""
    (scene.directory / "b.py").write_text(PROGRAM)
    status, output = run(scene, ("b.py",))
    assert status == 0, output
    assert output.count("sum 45") == 3, output


def module(scene: Scene) -> None:
    """Another module beside the same script: found at the first meeting, by the runner later."""
    for place, value in (("one", "1"), ("two", "2")):
        (scene.directory / place).mkdir()
        (scene.directory / place / "a.py").write_text(f"import beside\n{PROGRAM}")
        (scene.directory / place / "beside.py").write_text(f"x = {value}\n")
    for runner in ((), RUNNER):
        status, output = run(scene, (*runner, "two/a.py"), (*runner, "one/a.py"))
        assert status not in (0, None), f"status {status}: {output}"
        assert "module beside: sha256" in output, output


def arguments(scene: Scene) -> None:
    """Another argument."""
    refused(run(scene, ("a.py", "0.1"), ("a.py", "0.01")), "['0.01']", "['0.1']")


def setting(scene: Scene) -> None:
    """Another value of a setting, by its variable."""
    outcome = run(scene, ("a.py",), DISTARRAY_REPLICATE_BELOW="0")
    refused(outcome, "config.replicate_below: 524288 on rank 0, 0 on rank 1")


def every_setting(scene: Scene) -> None:
    """Each setting in turn."""
    values = {
        "DEVICE": "cuda", "FALLBACK": "error", "FUSE": "off", "GATHER_LIMIT": "5", "CHECK": "1",
        "REPRODUCIBLE": "1", "WAIT_LIMIT": "30", "BLAS_THREADS": "0", "GPU_MESSAGES": "mpi",
    }  # fmt: skip
    for name, value in values.items():
        refused(run(scene, ("a.py",), **{f"DISTARRAY_{name}": value}), f"config.{name.lower()}:")


def late_setting(scene: Scene) -> None:
    """A setting that one rank changes after the first meeting."""
    (scene.directory / "late.py").write_text(
        "import sys, distarray, distarray.numpy as np\n"
        "mesh, config = distarray.default_mesh(), distarray.config\n"
        "if mesh.rank == 1: config.reproducible = True\n"
        "if 'mesh' in sys.argv: distarray.init_device_mesh('cpu', mesh.size())\n"
        "if 'check' in sys.argv: config.check = True\n"
        "print('sum', np.sum(distarray.distribute(np.arange(9.0), src=None)))\n"
    )
    for words in (("late.py", "mesh"), ("late.py", "check"), (*RUNNER, "late.py")):
        status, output = run(scene, words, words)
        assert status not in (0, None), f"status {status}: {output}"
        assert "config.reproducible" in output, output


def python_options(scene: Scene) -> None:
    """Python with -O, which runs no assertions."""
    refused(run(scene, ("-O", "a.py")), "options of Python: -O 0", "-O 1")


def versions(scene: Scene) -> None:
    """Another version of this library and of NumPy, as a rank says itself."""
    lied = "import sys, numpy, distarray; distarray.__version__ = numpy.__version__ = '0.0.7'\n"
    lied += "import runpy; sys.argv = ['a.py']; runpy.run_path('a.py', run_name='__main__')\n"
    (scene.directory / "lied.py").write_text(lied)
    outcome = run(scene, ("lied.py",))
    refused(outcome, "NumPy: ", "distarray: ", "0.0.7 on rank 1")


def threads(scene: Scene) -> None:
    """Another number of threads, by a variable."""
    refused(run(scene, ("a.py",), OMP_NUM_THREADS="1"), "OMP_NUM_THREADS: not set on rank 0")


def processor(scene: Scene) -> None:
    """Fewer instructions of the processor: the result may differ in last digits, and is said."""
    import numpy as np

    umath = np._core._multiarray_umath
    there = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    if not there:
        raise Unavailable("NumPy has no loops for this processor that could be switched off")
    status, output = run(scene, ("a.py",), NPY_DISABLE_CPU_FEATURES=" ".join(there))
    assert status == 0, output
    assert output.count("sum 45") == 3, output
    assert output.count("different processors") == 1, output
    assert there[0] in output.partition("only rank 0")[2], output


def parts_of_a_launch(scene: Scene) -> None:
    """Programs of one launch that make meshes on communicators of their own are no fault."""
    parts = (
        "from mpi4py import MPI\nimport distarray\n"
        "world = MPI.COMM_WORLD\n"
        "comm = world.Split(int(world.rank == 1))\n"
        "with distarray.DeviceMesh(comm): print('size', distarray.default_mesh().size())\n"
    )
    (scene.directory / "b.py").write_text(parts)
    (scene.directory / "c.py").write_text(f"{parts}# another program\n")
    status, output = run(scene, ("c.py", "ocean"), ("b.py", "air"))
    assert status == 0, output
    assert sorted(output.split()) == ["1", "2", "2", "size", "size", "size"], output


FAULTS = (
    Fault("ranks that differ: script", script, quick=True),
    Fault("ranks that differ: script under the runner", script_under_the_runner, quick=True),
    Fault("ranks that differ: processor", processor, quick=True),
    Fault("ranks that differ: setting", setting),
    Fault("ranks that differ: programs of a launch", parts_of_a_launch),
    Fault("ranks that differ: same script elsewhere", same_script_elsewhere),
    Fault("ranks that differ: module", module),
    Fault("ranks that differ: arguments", arguments),
    Fault("ranks that differ: every setting", every_setting),
    Fault("ranks that differ: late setting", late_setting),
    Fault("ranks that differ: options of Python", python_options),
    Fault("ranks that differ: versions", versions),
    Fault("ranks that differ: threads", threads),
)
