"""The ledger counts messages, names the user's line, and can forbid communication."""

import linecache
import threading

import numpy as np
import pytest

from distarray import comm
from distarray.comm import forbid_communication, ledger, trace
from distarray.comm.agree import agree
from distarray.errors import CommunicationForbidden, DistArrayError
from distarray.layout.placement import Fold


def test_a_trace_counts(world, ranks):
    def program(group):
        up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        block = np.arange(6.0).reshape(2, 3)
        with trace() as outer:
            with trace() as inner:
                group.allreduce(block, Fold.SUM, "sum of blocks")
            if group.size > 1:
                group.exchange([(up, block[:, :2])], [(down, np.empty((2, 2)))], "halo")
            group.alltoall_varied([np.zeros(5)] * group.size)
        group.barrier()
        if group.size == 1:
            assert outer.events == inner.events == []
            return
        assert [event.kind for event in outer] == ["allreduce", "exchange", "alltoall"]
        assert [event.bytes for event in outer] == [48, 32, 40 * (group.size - 1)]
        assert outer.messages == 3
        assert outer.bytes == 80 + 40 * (group.size - 1)
        assert len(inner) == inner.count("allreduce") == 1
        reduced, sent = outer.events[:2]
        assert reduced.note == "sum of blocks"
        assert list(reduced.peers) == list(range(group.size))
        assert sent.peers == (up,)
        file, _, line = sent.where.rpartition(":")
        assert file == __file__
        assert "halo" in linecache.getline(file, int(line))
        assert "exchange" in str(outer)
        assert "32 B" in str(outer)
        assert "total" in str(outer)
        assert "3 events" in repr(outer)

    world.run(ranks, program)


def test_notes_come_from_the_context_too(world, ranks):
    def program(group):
        with trace() as t, ledger.note(("Shard(0)", "Replicate()")):
            group.allgather(np.zeros(3))
        assert [event.note for event in t] == ["('Shard(0)', 'Replicate()')"] * (group.size > 1)

    world.run(ranks, program)


def test_forbidden(world, ranks):
    def program(group):
        block = np.ones(1000)
        with forbid_communication():
            np.sum(block)
            if group.size > 1:
                with pytest.raises(CommunicationForbidden) as caught:
                    group.allreduce(block, Fold.SUM, "a total")
                assert "allreduce (a total) would send 7.8 KiB" in str(caught.value)
                assert __file__ in str(caught.value)
                with pytest.raises(CommunicationForbidden):
                    group.exchange([(group.size - 1, block)], [])
                with pytest.raises(CommunicationForbidden):
                    group.barrier()
        assert group.allreduce(block, Fold.SUM)[0] == group.size

    world.run(ranks, program)


def test_nobody_listens_afterwards():
    def failing():
        with trace():
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    threads = [threading.Thread(target=lambda: trace().__enter__) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    assert ledger.watching == 0


def test_agreement(world, ranks):
    class Local(Exception):
        """Cannot be pickled."""

        def __reduce__(self):
            raise TypeError

    def program(group):
        agree(group, None)
        own = ValueError(f"bad on {group.rank}")
        with pytest.raises(ValueError, match="bad on 0"):
            agree(group, own)
        last = group.size - 1
        with pytest.raises(ValueError, match=f"bad on {last}") as caught:
            agree(group, own if group.rank == last else None)
        assert (caught.value is own) == (group.rank == last)
        with pytest.raises((DistArrayError, Local), match="alone"):
            agree(group, Local("alone") if group.rank == last else None)
        group.barrier()

    world.run(ranks, program)


def test_only_what_forbids_guards():
    """A trace or a profile leaves the program the ways that it has without."""

    def program(group):
        found = [group.guarded]
        with ledger.trace():
            found.append(group.guarded)
            with ledger.forbid_communication():
                found.append(group.guarded)
        return [*found, group.guarded]

    assert comm.run_threads(1, program) == [[False, False, True, False]]
