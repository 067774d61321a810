"""A program whose ranks have children of every kind; each writes what it has seen to a file."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy

import distarray
import distarray.numpy as np
from distarray.errors import CommunicationForbidden

METHODS = ("fork", "spawn", "forkserver")
SIZE = 100_000
CODE = """
import distarray, distarray.numpy as np
print(distarray.default_mesh().size(), int(np.arange(100_000).sum()))
from mpi4py import MPI
print(MPI.COMM_WORLD.size, distarray.DeviceMesh(MPI.COMM_WORLD).size())
"""
MPI4PY = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"


def total(k):
    """What a child computes, as if it were alone."""
    return int(np.arange(SIZE).sum()) + k * distarray.default_mesh().size()


def described(x):
    """What has come of an array on its way to a child; and one to send back."""
    return [type(x).__module__, list(numpy.shape(x)), float(numpy.sum(x))], np.ones(SIZE)


def attempt(call):
    """What a call gives, or that it was refused."""
    try:
        return call()
    except CommunicationForbidden as error:
        notes = getattr(error, "__notes__", [])
        return "refused" if "child of rank" in str(error) else " ".join([str(error), *notes])


def pools(method):
    """Sums of pools' children."""
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        with context.Pool(2) as pool:
            return pool.map(total, range(3))
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        return list(executor.map(total, range(3)))


def carried(method, whole, cut):
    """What arrives of arrays that cross by pickle, in both directions."""
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=answer, args=(cut, theirs))  # pickled here, by all ranks
    child.start()
    seen = ours.recv()
    child.join()
    if method == "forkserver":
        return seen
    with context.Pool(1) as pool:
        (there, back), again = pool.apply(described, (whole,)), pool.apply(described, (cut.full(),))
        refused = attempt(lambda: pool.apply(described, (cut,)))
    return seen, there, again[0], [type(back).__module__, float(back.sum())], refused


def answer(x, pipe):
    """The target of a process; a forked one has the array itself, and a part of it alone."""
    pipe.send(attempt(lambda: described(x)[0]))


def forked(call):
    """What a call gives in a child that the program has forked."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, json.dumps(call()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        return json.loads(file.read())


def inherited(whole, grid, cut):
    """What a forked child can do with the arrays of its parent."""

    def mixed():
        whole[:2] = np.zeros(2)
        with distarray.config.override(check=True):
            return np.concatenate([whole, np.ones(2)]).tolist()

    def saved():
        path = Path(f"child-{os.getpid()}.npy")
        np.save(path, whole)
        return numpy.load(path).tolist()

    made = np.ones(SIZE)
    return {
        "mesh": distarray.default_mesh().size(),
        "whole": [(whole + 1).tolist(), float(whole.sum()), float((whole * np.ones(5)).sum())],
        "vectorized": np.vectorize(lambda v: v + 1)(whole).tolist(),
        "mixed": mixed(),
        "saved": saved(),
        "grid": float(grid.sum()),
        "block": (cut * 2).to_local().tolist() == (2 * cut.to_local()).tolist(),
        "sum": attempt(lambda: float(cut.sum())),
        "element": attempt(lambda: float(cut[3])),
        "asarray": attempt(lambda: numpy.asarray(cut).tolist()),
        "beside": attempt(lambda: (cut + made).to_local().tolist()),
        "joined": attempt(lambda: np.concatenate([made, cut]).to_local().tolist()),
        "assigned": attempt(lambda: made.__setitem__(slice(None), cut)),
        "made": float((made + made).sum()),
        "drawn": 0 <= float(np.random.default_rng().random()) < 1,
    }


def ended():
    """How children end that come to their end as programs do; the parent's MPI goes on."""
    statuses = []
    for status in (0, 3, "words", ValueError("a child's"), KeyboardInterrupt()):
        sys.stdout.flush()
        if not (child := os.fork()):
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            Path(f"end-{os.getppid()}").write_text("child")
            raise status if isinstance(status, BaseException) else SystemExit(status)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return statuses


def run(argv):
    """The words of a command that this rank starts."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    return done.stdout.split() if done.returncode == 0 else done.stderr[-500:]


def main(how, *launcher):
    seen = {}
    if how == "before MPI":
        with ThreadPoolExecutor(4) as threads:
            seen["threads"] = attempt(lambda: list(threads.map(total, range(8))))
        seen |= {method: pools(method) for method in METHODS[:2]}
        seen["program"] = run([sys.executable, "-c", CODE])
    whole, cut = np.arange(5.0), np.arange(float(SIZE))
    mesh = cut.mesh
    if how == "after MPI":
        import mpi4py.MPI as MPI

        grid = np.ones((4, 5))
        seen = {method: pools(method) for method in METHODS}
        seen |= {f"carried by {method}": carried(method, whole, cut) for method in METHODS}
        seen["inherited"] = forked(lambda: inherited(whole, grid, cut))
        seen["program"] = run([sys.executable, "-c", CODE])
        seen["mpi4py"] = run([sys.executable, "-c", MPI4PY])
        seen["job"] = run([*launcher, "-n", "2", sys.executable, "-c", MPI4PY])
        seen["communicator"] = forked(lambda: distarray.DeviceMesh(MPI.COMM_SELF, 1).size())
        seen["ended"] = ended()
    assert float(cut.sum()) == SIZE * (SIZE - 1) / 2
    seen["ranks"] = mesh.size()
    Path(f"rank-{mesh.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
