"""`==` and `!=` of structured arrays against NumPy on every layout."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Shard
from distarray.testing import assert_same_error, mesh_shapes, shapes

from .likeness import Case, check, operands
from .sortable import RECORD, WHOLE, tied

pytestmark = pytest.mark.host
OTHER = np.dtype([("a", "i4"), ("b", "f4"), ("c", "S3")])


@settings(max_examples=40)
@given(data=st.data())
def test_records_compare_as_in_numpy(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = data.draw(shapes())
    other = data.draw(st.sampled_from([shape, shape[1:], (1, *shape[1:])]))
    compare = data.draw(st.sampled_from([operator.eq, operator.ne]))
    kind = data.draw(st.sampled_from([RECORD, OTHER]))
    values = tied(shape, RECORD, 1), tied(other, kind, 2)
    found = [data.draw(operands(mesh_shape, v, WHOLE)) for v in values]
    check(world, Case(ranks, mesh_shape, tuple(found), True), compare)


BAD = [
    lambda a: a == 3,
    lambda a: a != "text",
    lambda a: a == np.arange(4),
    lambda a: a == np.zeros(4, [("z", "i4")]),
    lambda a: a == np.zeros(3, RECORD),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_errors_are_numpys(world, ranks, number):
    values = tied((4,), RECORD, 1)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_same_error(lambda: BAD[number](x), lambda: BAD[number](values))

    world.run(ranks, program)
