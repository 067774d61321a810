"""The test bodies that name a device, once more on devices: one launch of 4 ranks for each.

Tests of 1, 2 and 3 ranks run on some of the 4 processes. The simulated HPU is compiled before,
at the first use of its source.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher import ONCE_MORE
from tests.test_on_ranks import launch, report

RANKS = 4


def missing(device: str) -> str | None:
    """What keeps the tests from running on a device here."""
    if device == "simulated":
        from tests.torch.hpu import fakehpu

        try:
            fakehpu.build()
        except FileNotFoundError:
            return "no C++ compiler"
        return None
    if device == "cuda":
        import torch

        return None if torch.cuda.is_available() else "no CUDA device"
    return None if importlib.util.find_spec("habana_frameworks") else "no habana_frameworks"


@pytest.mark.suite
@pytest.mark.parametrize(
    "device",
    [
        "simulated",
        pytest.param("cuda", marks=pytest.mark.gpu),
        pytest.param("hpu", marks=pytest.mark.gaudi),
    ],
)
def test_on_device(device: str, mpiexec: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    reason = missing(device)
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setenv("DISTARRAY_TEST_TORCH_DEVICE", device)
    monkeypatch.setenv("DISTARRAY_TEST_PARTS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    inner = ["-m", "pytest", "--mpi", "tests/torch", *ONCE_MORE]
    code, output = launch([*mpiexec, "-n", str(RANKS), sys.executable, *inner], RANKS)
    if code is None:
        pytest.fail(f"hung: the ranks on {device} did not end\n{report(output)}", pytrace=False)
    if code != 0:
        pytest.fail(f"on {device}: exit status {code}\n{report(output)}", pytrace=False)


def test_the_host_cannot_read_the_simulated_memory(own_processes: None) -> None:
    """A program that hands a device address to MPI dies, as it would with a real device."""
    reason = missing("simulated")
    if reason is not None:
        pytest.skip(reason)
    code = (
        "import ctypes, torch; from tests.torch.hpu import fakehpu; fakehpu.install()\n"
        "t = torch.ones(3).to('hpu'); print(t.tolist(), flush=True)\n"
        "ctypes.string_at(t.data_ptr(), 4)"
    )
    root = Path(__file__).resolve().parents[2]
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[1.0, 1.0, 1.0]", done.stderr
    assert done.returncode == -signal.SIGSEGV
