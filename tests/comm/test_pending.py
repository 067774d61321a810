"""Conversations that last: whoever waits for them, and also if nobody does."""

import gc
import os
import threading

import numpy as np
import pytest

from distarray.comm import pending
from distarray.comm.pending import FINISHED, Finishing, Lasting, Pending, end_lasting


def ring(group, value, extent=1 << 16):
    """Send to the next rank; the array that comes from the one before, and the conversation."""
    sent, into = np.full(extent, value), np.zeros(extent, int)
    up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    if group.size == 1:
        into[...] = sent
        return into, FINISHED
    return into, Lasting(group.begin_exchange([(up, sent)], [(down, into)], "ring"))


def test_each_waits_when_it_likes(world, ranks):
    def program(group):
        down = (group.rank - 1) % group.size
        first, begun = ring(group, group.rank)
        second, other = ring(group, group.rank + 100)
        third = np.zeros(3, int)
        if group.size > 1:  # what is sent later does not overtake
            up = (group.rank + 1) % group.size
            group.exchange([(up, np.full(3, group.rank))], [(down, third)], "at once")
            assert (third == down).all()
        other.wait()
        while not begun.poke():
            pass
        begun.wait()
        begun.wait()
        assert (first == down).all() and (second == down + 100).all()

    world.run(ranks, program)


def test_what_is_dropped_ends(world, ranks):
    def program(group):
        for value in range(5):
            ring(group, value)
        gc.collect()
        into, begun = ring(group, group.rank)
        begun.wait()
        assert (into == (group.rank - 1) % group.size).all()
        group.barrier()

    world.run(ranks, program)
    end_lasting()
    assert not pending._dropped


class Counted(Pending):
    """Counts its ends; over only when it is waited for."""

    def __init__(self):
        self.ends = 0

    def poke(self):
        """Not over."""
        return self.ends > 0

    def wait(self):
        """Count."""
        self.ends += 1


def test_it_ends_once():
    counted = Counted()
    lasting = Lasting(counted)
    threads = [threading.Thread(target=lasting.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.ends == 1
    del lasting
    assert not pending._dropped


def test_a_poke_calls_no_end():
    found = []
    lasting = Lasting(Finishing(FINISHED, lambda: found.append(1)))
    assert lasting.poke() and not found
    lasting.wait()
    assert found == [1]


@pytest.mark.host
def test_it_ends_before_a_fork():
    kept, dropped = Counted(), Counted()
    lasting = Lasting(kept)
    Lasting(dropped)
    assert list(pending._dropped) == [dropped]
    child = os.fork()
    if not child:
        os._exit(kept.ends + dropped.ends != 2)
    assert os.waitpid(child, 0)[1] == 0
    assert (kept.ends, dropped.ends) == (1, 1)
    assert lasting.poke()
