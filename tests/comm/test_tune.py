"""Settings of a process for speed, and what starting the library leaves alone."""

import os
import platform
import subprocess
import sys
import threading
import types

import pytest

from distarray.comm import tune


class Node:
    """A communicator whose ranks all run on one node, with given core masks."""

    def __init__(self, masks):
        self.masks = masks

    def Split_type(self, kind):
        return self

    def Get_rank(self):
        return 0

    def allgather(self, mine):
        return [self.masks[0], *self.masks[1:]]

    def Free(self):
        self.masks = None


@pytest.mark.parametrize(
    ("masks", "share"),
    [
        ([(0, 1, 2, 3)], 4),
        ([(0, 1, 2, 3), (0, 1, 2, 3)], 2),
        ([(0, 1), (2, 3)], 2),
        ([(0,), (0,), (0,)], 1),
        ([(0, 1, 2), (0, 1, 2)], 1),
    ],
)
def test_the_share_of_cores(monkeypatch, masks, share):
    monkeypatch.setattr(tune, "_allowed_cores", lambda: masks[0])
    monkeypatch.setattr(tune, "_node_rank", 0)
    assert tune.share_of_cores(Node(masks)) == share


def test_blas_threads_are_set():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    before = {lib["filepath"]: lib["num_threads"] for lib in threadpoolctl.threadpool_info()}
    try:
        tune.blas_threads(1)
        blas = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
        assert all(lib["num_threads"] == 1 for lib in blas)
    finally:
        tune.blas_threads(max(before.values(), default=1))


def test_any_thread_limits_blas():
    """Also where another thread has set the number before: ranks may be threads of one process."""
    threadpoolctl = pytest.importorskip("threadpoolctl")
    blas = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    before = [library.num_threads for library in blas]
    inside, leave, seen = threading.Barrier(2, timeout=60), threading.Event(), {}

    def work(name):
        with tune.one_blas_thread():
            inside.wait()
            if name == "second":
                assert leave.wait(60)
            seen[name] = [library.num_threads for library in blas]

    try:
        tune.blas_threads(2)
        threads = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
        for thread in threads:
            thread.start()
        threads[0].join()
        leave.set()
        threads[1].join()
        seen["after"] = [library.num_threads for library in blas]
    finally:
        tune.blas_threads(max(before, default=1))
    assert seen["first"] == seen["second"] == [1] * len(blas)
    assert seen["after"] == [2] * len(blas)


def test_the_arena_is_kept_on_glibc():
    code = "from distarray.comm.tune import keep_freed_memory; print(keep_freed_memory())"
    job = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert job.stdout.strip() == str(platform.libc_ver()[0] == "glibc"), job.stderr


def test_the_user_decides_about_threads(monkeypatch):
    called = []
    monkeypatch.setattr(tune, "_node_rank", 0)
    monkeypatch.setattr(tune, "blas_threads", called.append)
    monkeypatch.setattr(tune, "keep_freed_memory", lambda: called.append("arena"))
    monkeypatch.setattr(tune, "_started", False)
    for name in tune.USER_CHOICES:
        monkeypatch.delenv(name, raising=False)
    tune.start(2, 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    tune.start(2, 2)
    assert called[0] == "arena"
    assert len(called) == 2


def test_each_rank_of_a_node_takes_a_gpu(monkeypatch):
    used = []
    runtime = types.SimpleNamespace(getDevice=lambda: 0, getDeviceCount=lambda: 4)
    device = lambda number: types.SimpleNamespace(use=lambda: used.append(number))  # noqa: E731
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime, Device=device))
    monkeypatch.setattr(tune, "_node_rank", 6)
    tune.use_own_gpu(cupy)
    runtime.getDevice = lambda: 2
    tune.use_own_gpu(cupy)
    assert used == [2]


def test_importing_starts_no_mpi():
    code = (
        "import sys, distarray.comm, distarray.comm.mesh, distarray.comm.threads; "
        "assert not any(name.startswith('mpi4py') for name in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
