"""Too little memory to share: small mounts on /dev/shm, limits, ranks in namespaces of their own.

Each runs reductions, redistributions, indexing and sorting of large blocks, beside NumPy.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys

from tests.faults.planting import Fault, Scene, Unavailable
from tests.launcher import environment, run_job

__all__ = ["FAULTS"]

#: Arguments: ``full`` fills /dev/shm first; ``files`` leaves rank 1 no more files when memory is to
#: be shared. The first rank prints ``right`` if all values are.
PROGRAM = """
import resource, sys
import numpy
import distarray as da
import distarray.numpy as np
from distarray import Replicate, Shard

mesh = da.default_mesh()
if "full" in sys.argv and mesh.rank == 0:
    with open("/dev/shm/filling", "wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            pass
if "files" in sys.argv:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if mesh.rank == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    assert mesh.group.board() is None
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
mesh.group.barrier()
rng = numpy.random.default_rng(0)
a = rng.integers(0, 1000, (9, 70_003)).astype(float)
whole = [Replicate()]
x = da.distribute(a, mesh, [Shard(0)], src=None)
for fold in (np.sum, np.max):
    assert (fold(x, axis=0).redistribute(placements=whole).full() == fold(a, axis=0)).all()
assert (x.redistribute(placements=[Shard(1)]).full() == a).all()
order, values = rng.permutation(100_001), rng.random(100_001)
k, v = [da.distribute(each, mesh, [Shard(0)], src=None) for each in (order, values)]
assert (v[k].full() == values[order]).all()
assert (np.sort(v).full() == numpy.sort(values)).all()
if mesh.size() == 4:
    grid = da.init_device_mesh("cpu", (2, 2), ("a", "b"))
    for cut in ([Shard(0), Replicate()], [Replicate(), Shard(0)], [Shard(0), Shard(1)]):
        total = np.sum(da.distribute(a, grid, cut, src=None), axis=0)
        total = total.redistribute(placements=[Replicate(), Replicate()])
        assert (total.full() == a.sum(0)).all()
mesh.group.barrier()
if mesh.rank == 0:
    print("right", flush=True)
"""
#: Mounts a /dev/shm of a size of its own, and becomes the launcher.
_MOUNT = 'mount -t tmpfs -o size="$1" none /dev/shm && shift && exec "$@"'
_LESS = {"UCX_TLS": "self,tcp", "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS": "8"}


def mounted(scene: Scene, size: str) -> Scene:
    """The scene with a /dev/shm of its own."""
    prefix = ("unshare", "-m", "sh", "-c", _MOUNT, "sh", size)
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"no mount namespaces: {error}") from error
    return dataclasses.replace(scene, mpiexec=(*prefix, *scene.mpiexec))


def computed(scene: Scene, ranks: int, *arguments: str, **variables: str) -> str:
    """Run the program, and return what it has written; all values must be right."""
    program = scene.directory / "program.py"
    program.write_text(PROGRAM)
    variables = {"DISTARRAY_REPLICATE_BELOW": "1000", "OMP_NUM_THREADS": "1"} | variables
    status, output = scene.run(ranks, str(program), *arguments, timeout=240, **variables)
    assert status == 0, f"status {status}\n{output}"
    assert "right" in output, output
    return output


def dockers_default(scene: Scene) -> None:
    """64 MB, of which MPI itself takes a part."""
    output = computed(mounted(scene, "64m"), 4)
    assert "share memory" not in output, output


def filled(scene: Scene) -> None:
    """Nothing is left in /dev/shm once MPI has started."""
    for ranks in (2, 3, 4):
        computed(mounted(scene, "4m" if scene.is_openmpi else "32m"), ranks, "full")


def too_small_for_mpi(scene: Scene) -> None:
    """MPICH is ended by SIGBUS when it starts: that is said before, and the cure cures."""
    if scene.is_openmpi:
        raise Unavailable("Open MPI takes TCP then, and says so")
    small = mounted(scene, "2m")
    program = scene.directory / "program.py"
    program.write_text(PROGRAM)
    status, output = small.run(4, str(program))
    assert status not in (0, None), output
    for variable, value in _LESS.items():
        assert f"{variable}={value}" in output, output
    assert "MPICH takes" not in computed(small, 4, **_LESS)


def limited(scene: Scene) -> None:
    """One rank may not open more files: all go by messages, and one says so."""
    output = computed(scene, 3, "files")
    assert output.count("cannot share memory with the others") == 1, output
    assert "ulimit -n" in output, output


def apart(scene: Scene) -> None:
    """Each rank in a PID namespace of its own: the file is found by its name."""
    if scene.is_openmpi:
        raise Unavailable("Open MPI's ranks must be the children of its daemon")
    prefix = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*prefix, "true"], capture_output=True, timeout=60).returncode:
        raise Unavailable("no PID namespaces")
    program = scene.directory / "program.py"
    program.write_text(PROGRAM)
    argv = [*scene.mpiexec, "-n", "2", *prefix, sys.executable, str(program)]
    # MPICH itself copies by process ids.
    env = environment(DISTARRAY_REPLICATE_BELOW="1000", MPIR_CVAR_CH4_CMA_ENABLE="0")
    status, output = run_job(argv, timeout=120, cwd=scene.directory, env=env)
    assert status == 0, f"status {status}\n{output}"
    assert "right" in output, output
    assert "share memory" not in output, output


FAULTS = (
    Fault("shared memory: /dev/shm of 64 MB", dockers_default, quick=True),
    Fault("shared memory: /dev/shm full", filled),
    Fault("shared memory: /dev/shm too small for MPI", too_small_for_mpi),
    Fault("shared memory: one rank's limit", limited),
    Fault("shared memory: PID namespaces", apart),
)
