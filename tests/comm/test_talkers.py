"""One thread talks for a rank; others are refused on all ranks, unless nothing has to be sent."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DistArray, Replicate, Shard
from distarray.comm import DeviceMesh, forbid_communication
from distarray.config import config
from distarray.errors import CommunicationForbidden
from tests.everywhere import line, raises_everywhere


def first(x):
    """The first element of rank 1: what is done around it concerns two ranks."""
    return -(-len(x) // x.mesh.size())


#: What needs other ranks, of an array that is cut; some of it not on every rank.
TALKING = {
    "sum": lambda x: float((x + 1).sum()),
    "sort": np.sort,
    "element": lambda x: x[-1],
    "shift": lambda x: x[1:] + x[:-1],
    "two elements": lambda x: x[first(x) - 1 : first(x) + 1] + x[first(x) : first(x) + 2],
    "rows by index": lambda x: x[[3, 0]],
    "reshape": lambda x: np.reshape(x, (4, -1)).redistribute(placements=[Shard(1)]),
    "full": DistArray.full,
    "asarray": np.asarray,
    "printing": str,
    "redistribute": lambda x: x.redistribute(placements=[Replicate()]),
    "a large fold": lambda x: (np.ones((9, 40_000)) + x[:9, None]).sum(axis=0).full(),
    "saying something": lambda x: x.mesh.group.broadcast_object(1),
    "meeting": lambda x: x.mesh.group.barrier(),
    "a generator without a seed": lambda x: dnp.random.default_rng().random(),
}
#: What every rank can do by itself, of a whole array and one that is cut.
SILENT = {
    "a whole array": lambda w, x: float((w * w).sum()) == 30.0,
    "its elements": lambda w, x: float(w[2]) == 2.0 and np.sort(-w)[0] == -4,
    "with others": lambda w, x: np.concatenate([w, np.ones(3)]).shape == (8,),
    "a block": lambda w, x: (2 * x + x).to_local().tolist() == (3 * x.to_local()).tolist(),
    "a new array": lambda w, x: (dnp.ones(24) + dnp.zeros(24)).shape == x.shape,
    "a seeded generator": lambda w, x: dnp.random.default_rng(5).random() < 1,
}


def in_threads(call, count=3):
    """What `call` gives in each of some threads at the same time."""
    together = Barrier(count)

    def run(number):
        together.wait(60)
        return call()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.parametrize("check", [False, True])
def test_other_threads_are_refused_what_must_be_sent(world, ranks, check):
    def program(group):
        mesh = line(group)
        x = distarray.distribute(np.arange(24.0), mesh, Shard(0))
        with mesh, config.override(replicate_below=0):
            for name, talk in TALKING.items():

                def call(talk=talk):
                    with mesh, config.override(check=check, print_gathered=True):
                        return talk(x)

                if group.size == 1:
                    in_threads(call, 1)
                else:
                    raises_everywhere(
                        group, CommunicationForbidden, lambda: in_threads(call), "main thread"
                    )
                assert float(x.sum()) == 276.0, name  # and the main thread goes on

    world.run(ranks, program)


def test_other_threads_do_what_needs_no_other_rank(world, ranks):
    def program(group):
        mesh = line(group)
        x = distarray.distribute(np.arange(24.0), mesh, Shard(0))
        whole = distarray.distribute(np.arange(5.0), mesh, Replicate())
        for check in (False, True):
            for name, act in SILENT.items():

                def call(act=act, check=check):
                    with mesh, config.override(check=check, replicate_below=0):
                        return act(whole, x)

                assert in_threads(call) == [True] * 3, name

    world.run(ranks, program)


def test_who_has_nothing_to_send_is_refused_like_the_others(world, ranks):
    """Under ``forbid_communication()``, whose way it goes, in the main thread."""

    def program(group):
        x = distarray.distribute(np.arange(24.0), line(group), Shard(0))
        if group.size > 1:
            with pytest.raises(CommunicationForbidden), forbid_communication():
                TALKING["two elements"](x)

    world.run(ranks, program)


@pytest.mark.mpi
def test_threads_with_communicators_of_their_own(world):
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("this MPI is not started for several threads")

    def program(group):
        comms = [MPI.COMM_WORLD.Dup() for _ in range(3)]
        together = Barrier(len(comms))

        def work(number):
            together.wait(60)
            with DeviceMesh(comms[number]):
                x = dnp.arange(70_000.0) + number
                sums = [float((x * k).sum()) for k in range(20)]
                return sums, float(np.sort(-x)[0]), x[::777].full().tolist()

        with ThreadPoolExecutor(len(comms)) as pool:
            found = list(pool.map(work, range(len(comms))))
        for number, (sums, least, some) in enumerate(found):
            y = np.arange(70_000.0) + number
            assert sums == [float((y * k).sum()) for k in range(20)]
            assert (least, some) == (-y[-1], y[::777].tolist())
        for comm in comms:
            comm.Free()

    world.run(world.group.size, program)
