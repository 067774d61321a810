"""Writes through views of several fields leave the other fields of the records as they are."""

import numpy as np
import pytest

from distarray import DeviceMesh, Shard, distribute

KIND = np.dtype(
    {
        "names": ["x", "y", "z"],
        "formats": ["f8", ">i4", "i2"],
        "offsets": [0, 12, 16],
        "itemsize": 24,
    }
)


def _records():
    records = np.zeros(41, KIND)
    for number, name in enumerate(KIND.names):
        records[name] = np.arange(41) * (number + 1)
    return records


def _wide(x):
    return x[:40].reshape(5, 8)


#: Name -> what is written to a view of two fields.
WRITES = {
    "rows of other ranks": lambda x: x.__setitem__(slice(3), x[-3:]),
    "one record of another rank": lambda x: x.__setitem__(0, x[-1]),
    "an array of one record": lambda x: x[::-1].__setitem__(0, x[:2:3]),
    "backwards": lambda x: x.__setitem__(slice(None), x[::-1].copy()),
    "rolled": lambda x: x.__setitem__(slice(None), np.roll(x, 7)),
    "copied onto": lambda x: np.copyto(x, np.flip(x).copy()),
    "flat": lambda x: x.flat.__setitem__(slice(2, 5), x[-3:]),
    "taken": lambda x: np.take(x, [39, 0, 5], out=x[:3]),
    "columns": lambda x: _wide(x).__setitem__((slice(None), 0), _wide(x)[:, 7]),
    "another shape": lambda x: _wide(x).__setitem__(slice(2, None), x[:24].reshape(8, 3).T),
    "a number": lambda x: x.__setitem__(slice(9), (7, 8)),
}


#: Name -> the same with indices. NumPy, which one rank calls, writes the other fields, too.
BY_INDICES = {
    "indices": lambda x: x.__setitem__([0, 5], x[[39, 38]]),
    "put": lambda x: np.put(x, [0, 5], x[[39, 38]]),
    "a mask": lambda x: x.__setitem__(np.isin(np.arange(41), [0, 5]), x[[39, 38]]),
}


@pytest.mark.host
@pytest.mark.counts(lambda ranks: ranks > 1)
@pytest.mark.parametrize("name", BY_INDICES)
def test_indices_write_no_other_field(world, ranks, name):
    wanted = _records()
    wanted["z"][[0, 5]] = wanted["z"][[39, 38]]

    def program(group):
        found = distribute(_records(), DeviceMesh(group), [Shard(0)], src=None)
        BY_INDICES[name](found[["z"]])
        return found.full()

    for found in world.run(ranks, program):
        assert found.tolist() == wanted.tolist()


@pytest.mark.host
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("fields", [["x", "z"], ["y", "z"]], ids="".join)
def test_other_fields_stay(world, ranks, name, fields):
    wanted = _records()
    WRITES[name](wanted[fields])

    def program(group):
        found = distribute(_records(), DeviceMesh(group), [Shard(0)], src=None)
        WRITES[name](found[fields])
        return found.full()

    for found in world.run(ranks, program):
        for field in KIND.names:
            assert np.array_equal(found[field], wanted[field]), field
