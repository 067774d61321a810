"""Programs whose ranks part from one another, for test_waits.py: one function for each.

In each, the line where most ranks wait ends in `# many`, that of the others in `# few`.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import distarray
import distarray.numpy as np
from distarray import Shard, default_mesh


def split_into_nodes():
    """Let ranks 0 and 1 take 2 and 3 for another node's, before they watch one another."""
    from mpi4py import MPI

    from distarray.comm.waits import scope

    node = MPI.COMM_WORLD.rank // 2
    scope._near = lambda comm: comm.Split(node)
    scope.address_towards = lambda hosts: f"127.0.0.{1 + node}"


def end_later(seconds: float):
    """Nobody else ends it."""
    threading.Timer(seconds, os._exit, (7,)).start()


def first_alone():
    """One rank alone makes the first mesh: the others cannot know of it yet."""
    from mpi4py import MPI

    end_later(12)
    if MPI.COMM_WORLD.rank:
        time.sleep(30)
    default_mesh()  # few


if sys.argv[1] == "first_alone":
    first_alone()
if "nodes" in sys.argv[1]:
    split_into_nodes()
mesh = default_mesh()
rank = mesh.rank


def cut(n: int = 64):
    """An array that is cut over the ranks, which have talked before."""
    x = np.arange(8.0 * n).reshape(n, 8).redistribute(placements=[Shard(0)])
    np.sum(x)
    return x


def different_shapes():
    x = cut()
    if rank == 1:
        x[:, :5].full()  # few
    else:
        x.full()
    np.max(x)  # many


def different_reductions():
    x = cut()
    if rank == 1:
        np.argmax(x)  # few
    else:
        np.sum(x)  # many


def branch_on_local_values():
    x = cut()
    while x.to_local().max() < 600:
        x = x * 2
        np.min(x)  # many
    np.sum(x)  # few


def redistribute_on_one_rank():
    x = cut()
    if rank == 2:
        x.redistribute(placements=[Shard(1)])  # few
    np.sum(x)  # many


def full_on_one_rank():
    x = cut()
    if rank == 0:
        x.full()  # few
    np.sum(x)  # many


def method_without_arguments():
    x = cut()
    if rank == 0:
        x.full()  # few
    x.sum()  # many


def only_rank_0():
    x = cut()
    if rank == 0:
        print(np.mean(x))  # few
    for _ in range(3):
        x = x + 1
    sys.exit()  # many


def exit_on_one_rank():
    x = cut()
    if rank == 2:
        sys.exit(0)  # few
    np.sum(x)  # many


def left_early():
    x = cut()
    if rank != 3:
        np.min(x)  # many


def caught_on_one_rank():
    x = cut()
    try:
        if rank == 3:
            raise ValueError("its file is missing")
        np.sum(x)  # many
    except ValueError:
        pass
    np.sort(x, axis=0)  # few


def one_more_in_a_loop():
    x = cut()
    for _ in range(6 if rank == 1 else 5):
        np.sum(x)  # few
    np.sort(x, axis=0)  # many


def one_less_of_exchanges():
    x = cut()
    for _ in range(4 if rank == 1 else 5):
        x[1:] + x[:-1]  # many
    x.full()  # few


def parts_of_the_mesh():
    grid = distarray.init_device_mesh("cpu", (2, 2), ("dp", "tp"))
    x = np.arange(640.0).reshape(80, 8).redistribute(mesh=grid, placements=[Shard(0), Shard(1)])
    np.sum(x)
    if rank == 1:
        np.sum(x, axis=1).full()  # few
    np.sum(x)  # many


def writing_on_some():
    x = cut()
    if rank < 3:
        distarray.io.write("x.npy", x)  # many
    np.sort(x, axis=0)  # few


def saving_on_some():
    x = cut()
    if rank:
        distarray.checkpoint.save("state", {"x": x})  # many
    np.cumsum(x, axis=0)  # few


def batch(model):
    import torch

    model(torch.ones(4, 8)).sum().backward()


def forward_on_one_rank():
    import torch

    import distarray.torch as dt

    model = dt.fully_shard(torch.nn.Linear(8, 8), mesh)
    batch(model)
    if rank == 1:
        model(torch.ones(4, 8))  # few
    np.sum(cut())  # many


def backward_on_one_rank():
    import torch

    import distarray.torch as dt

    model = dt.data_parallel(torch.nn.Linear(8, 8), mesh)
    batch(model)
    loss = model(torch.ones(4, 8)).sum()
    if rank == 3:
        loss.backward()  # few
    np.sum(cut())  # many


def one_more_batch():
    import torch

    import distarray.torch as dt

    model = dt.data_parallel(torch.nn.Linear(8, 8), mesh)
    for _ in range(4 if rank == 2 else 3):
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()  # few
    np.max(cut())  # many


def full_before_others_come():
    x = cut()
    if rank == 0:
        x.full()  # few
    time.sleep(4)
    np.sum(x)  # many


def checked():
    distarray.config.wait_limit = 60.0
    distarray.config.check = True
    x = cut()
    if rank == 2:
        np.sum(x)
        sys.exit(0)  # few
    np.sum(x)
    np.max(x)  # many


def forked():
    x = cut()
    child = os.fork()
    if not child:
        time.sleep(3)
        os._exit(0)
    if rank == 2:
        np.sort(x, axis=0)  # few
    else:
        np.max(x)  # many


def nodes():
    x = cut()
    if rank == 2:
        np.sort(x, axis=0)  # few
    else:
        np.max(x)  # many


def one_of_two_nodes_leaves():
    x = cut()
    if rank < 2:
        sys.exit(0)  # few
    np.max(x)  # many


def ways_of_their_own():
    from mpi4py import MPI

    end_later(9)
    x = cut()
    if rank == 0:
        worker = threading.Thread(target=time.sleep, args=(60,), daemon=True)
        worker.start()
        worker.join()  # thread
    if rank == 1:
        MPI.COMM_WORLD.recv(source=0, tag=5)  # message
    if rank == 3:
        MPI.COMM_WORLD.Barrier()  # barrier
    np.sum(x)  # many


def computing():
    x = cut()
    if rank == 1:
        time.sleep(5)  # few
    print(float(np.sum(x)))  # many


def waiting_on():
    distarray.config.end_waits = False
    end_later(9)
    x = cut()
    if rank == 2:
        np.sort(x, axis=0)  # few
    else:
        np.max(x)  # many


if __name__ == "__main__":
    globals()[sys.argv[1]]()
