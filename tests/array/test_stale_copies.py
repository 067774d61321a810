"""Gathered copies that libraries have when their array is written to."""

import warnings

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray.array import distribute
from distarray.array.stale_copies import _told
from distarray.comm import DeviceMesh, run_threads
from distarray.comm.ledger import trace
from distarray.config import config
from distarray.errors import StaleCopyWarning
from distarray.layout import Shard

RANKS = 3


def told(program, ranks=RANKS):
    """The texts of the warnings of a program of an array, of each rank."""

    def act(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.arange(60.0), mesh, [Shard(0)])
        return program(x)

    _told.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_threads(ranks, act)
    return [str(w.message) for w in caught if w.category is StaleCopyWarning]


WRITES = {
    "set_item": lambda x: x.__setitem__(0, 5),
    "slice": lambda x: x.__setitem__(slice(3, 40), 5),
    "in_place": lambda x: x.__imul__(2),
    "with_array": lambda x: x.__iadd__(x.copy()),
    "out": lambda x: np.add(x, 1, out=x),
    "power": lambda x: x.__ipow__(2),
    "at": lambda x: np.add.at(x, [1, 2], 1),
    "copyto": lambda x: np.copyto(x, 3),
    "put": lambda x: np.put(x, [1], 3),
    "fill": lambda x: x.fill(3),
    "sort": lambda x: x.sort(),
    "view": lambda x: x[3:].__setitem__(0, 5),
    "grid": lambda x: x.reshape(2, 30).__setitem__(0, 5),
    "mask": lambda x: x.__setitem__(x > 3, 5),
    "byteswap": lambda x: x.byteswap(inplace=True),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_told(name):
    def program(x):
        held = np.asarray(x)
        WRITES[name](x)
        return held

    texts = told(program)
    assert len(texts) == RANKS
    assert "np.asarray took at" in texts[0] and "does not see what" in texts[0]


HOLDERS = {
    "asarray": np.asarray,
    "memoryview": memoryview,
    "frombuffer": np.frombuffer,
    "buffer": lambda x: np.ndarray(60, buffer=x),
    "part": lambda x: np.asarray(x)[3:].reshape(19, 3),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_holders_are_told(name):
    def program(x):
        held = HOLDERS[name](x)
        x[0] = 1
        return held

    assert len(told(program)) == RANKS


def test_copies_that_are_dead_are_not_told():
    def program(x):
        np.asarray(x).sum()
        held = np.array(x), np.asarray(x, np.float32), np.asarray(x).copy(), x.full()
        x[0] = 1
        return held

    assert not told(program)


def test_another_array_is_not_told():
    def program(x):
        held = np.asarray(x)
        y = x + 1
        y[0] = 1
        y += x
        return held

    assert not told(program)


def test_copies_in_cycles_are_not_told():
    def program(x):
        cycle = [np.asarray(x)]
        cycle.append(cycle)
        del cycle
        x[0] = 1

    assert not told(program)


def test_one_rank_that_has_a_copy_tells_all():
    def program(x):
        held = np.asarray(x)
        if x.mesh.rank:
            del held
        x[0] = 1

    assert len(told(program)) == RANKS


def test_it_is_an_error_on_all_ranks():
    def program(x):
        held = np.asarray(x)
        if x.mesh.rank:
            del held
        with config.override(stale="error"), pytest.raises(StaleCopyWarning):
            x[0] = 7
        assert float(x[0]) == 0
        with config.override(stale="allow"):
            x[0] = 8

    assert not told(program)


def test_a_write_costs_a_message_once():
    def program(x):
        np.asarray(x)
        with trace() as first:
            x *= 2
        with trace() as second:
            x *= 2
        asked = [[event for event in t if "gathered" in event.note] for t in (first, second)]
        assert [len(events) for events in asked] == [1, 0]

    told(program)
