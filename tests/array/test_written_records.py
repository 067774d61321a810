"""Records read from an array are views of it: what is assigned to their fields reaches it."""

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Shard
from distarray.config import config

pytestmark = pytest.mark.host

KIND = [("a", int), ("b", float), ("c", "f4", 3)]


def _assigned(x):
    x[3]["a"] = 7
    record = x[-1]
    record["b"] = 5
    record["c"][1] = 2
    return float(record["b"])


def _in_a_loop(x):
    for number, record in enumerate(x):
        record["a"] = number
        record["c"][0] = number


def _of_a_view(x):
    for record in x[::-2][:5]:
        record["b"] = 1 / 3
    x.reshape(-1)[1:][3]["b"] = 2


def _between_reads(x):
    line, total = x["a"], 0
    for k in range(40):
        total += int(line[k % len(x)])
    x[2]["a"] = 4
    return total + int(line[2])


def _kept_while_elements_are_read(x):
    line, record, total = x["a"], x[2], 0
    for k in range(40):
        total += int(line[k % len(x)])
    record["a"] = 4
    return total + int(line[2])


def _kept_beside_a_reshape(x):
    record = x[5]
    grid = x["b"].reshape(-1, len(x) // 2)
    record["b"] = 6
    return float(grid.sum())


def _refused(x):
    x.setflags(write=False)
    said = []
    for record in (x[1], next(iter(x))):
        with pytest.raises(ValueError, match="read-only") as error:
            record["a"] = 1
        said.append(str(error.value))
    return said


PROGRAMS = {
    "assigned": _assigned,
    "in a loop": _in_a_loop,
    "of a view": _of_a_view,
    "between reads of elements": _between_reads,
    "kept while elements are read": _kept_while_elements_are_read,
    "kept beside a reshape": _kept_beside_a_reshape,
    "refused": _refused,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("size", [10, 34])
def test_as_numpys(world, ranks, name, size):
    wanted = np.zeros(size, KIND)
    wanted["a"] = np.arange(size)
    values = wanted.copy()
    said = PROGRAMS[name](wanted)

    def program(group):
        with config.override(replicate_below=0):
            x = distarray.distribute(values, DeviceMesh(group), [Shard(0)], src=None)
            assert PROGRAMS[name](x) == said
            assert x.full().tobytes() == wanted.tobytes()

    world.run(ranks, program)
