"""The stand-in for CuPy refuses what it must, so that the other tests mean something.

It is looked at in a process of its own: installed here, it would pass for a GPU with every test
that comes later.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
START = """
import sys; sys.path[:0] = [{here!r}, {root!r}]
import numpy as np, standin
xp = standin.install()
from standin import counts
a = xp.asarray(np.arange(6.0).reshape(2, 3)); counts.reset()
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    start = START.format(here=str(HERE), root=str(HERE.parents[1]))
    argv = [sys.executable, "-c", start + code]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


pytestmark = pytest.mark.usefixtures("own_processes")

REFUSED = [
    # implicit ways between host and device
    ("np.asarray(a)", "TypeError"),
    ("np.add(a, np.ones(3))", "TypeError"),
    ("a + np.ones(3)", "TypeError"),
    ("np.concatenate([a, np.ones((1, 3))])", "TypeError"),
    ("np.where(a > 0, np.ones(3), 0)", "TypeError"),
    ("a[np.array([0, 1])]", "IndexError"),
    ("a[:, np.array([True, False, True])]", "IndexError"),
    ("a.__setitem__(0, np.ones(3))", "TypeError"),
    ("a.__setitem__(0, [1, 2, 3])", "ValueError"),
    ("np.ones(4)[a[0].astype(int)]", "IndexError|TypeError"),
    ("range(a[0, 0].astype(int))", "TypeError"),
    ("hash(a)", "TypeError"),
    # what CuPy does not have
    ("a.astype(int, casting='safe')", "TypeError"),
    ("a.flags.writeable", "AttributeError"),
    ("np.sum(a, where=a > 0)", "TypeError"),
    ("np.max(a, initial=0)", "TypeError"),
    ("np.take(a, a.astype(int), mode='clip')", "TypeError"),
    ("np.add(a, a, order='C')", "TypeError"),
    ("np.modf(a, out=(a, a))", "ValueError"),
    ("np.spacing(a)", "TypeError"),
    ("np.vecdot(a, a)", "TypeError"),
    ("np.insert(a, 0, 1.0)", "TypeError"),
    ("xp.insert", "AttributeError"),
    ("np.maximum.reduce(a)", "NotImplementedError"),
    ("np.subtract.accumulate(a)", "NotImplementedError"),
    ("np.multiply.reduceat(a, a[0].astype(int))", "NotImplementedError"),
    *[(f"xp.empty(3, {name!r})", "ValueError") for name in ("M8[s]", "g", "S3", "U2", "O", ">f8")],
]


def test_what_is_refused() -> None:
    lines = [
        "def name(f):\n    try: f()\n    except Exception as e: return type(e).__name__\n",
        *[f"print(name(lambda: {code}))\n" for code, _ in REFUSED],
    ]
    done = run("".join(lines))
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    for (code, wanted), name in zip(REFUSED, found, strict=True):
        assert name in wanted.split("|"), f"{code}: {name}, not {wanted}"


def test_crossings_are_counted() -> None:
    done = run(
        "b = a * 2 + np.float64(1); s = b.sum(); print(counts.to_host, counts.scalars)\n"
        "assert type(s) is xp.ndarray and s.shape == (); float(s); bool(s); s.item(); a.get()\n"
        "a.set(np.ones((2, 3))); xp.asarray(np.ones(2))\n"
        "print(counts.to_host, counts.to_device, counts.scalars)\n"
    )
    assert done.stdout.split("\n")[:2] == ["0 0", "1 2 3"], done.stderr


@pytest.mark.parametrize("way", ["a.data.ptr", "a.__cuda_array_interface__['data'][0]"])
def test_memory_cannot_be_read_from_the_host(way: str) -> None:
    """What a missed staging would do: the process ends at once, with no wrong answer."""
    done = run(f"import ctypes; print(ctypes.c_double.from_address({way}).value)")
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == ""


def test_a_device_buffer_in_mpis_hands_ends_the_process() -> None:
    """mpi4py takes the pointer of a device array; a transport that is not GPU-aware reads it."""
    pytest.importorskip("mpi4py")
    done = run(
        "from mpi4py import MPI\n"
        "MPI.COMM_SELF.Sendrecv(a, 0, recvbuf=np.empty((2, 3)), source=0); print('came back')"
    )
    assert done.returncode != 0
    assert "came back" not in done.stdout
