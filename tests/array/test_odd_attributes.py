"""Attributes and protocols that few programs ask for, as NumPy's own tests do."""

import copy
import pickle
import sys
import tempfile

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches

pytestmark = pytest.mark.host  # about the host's memory

PLAIN = np.dtype([("a", "i4"), ("b", "f8", (2,))])
#: Records of which a buffer does not say all.
UNTOLD = (np.dtype([(("title", "a"), "i4")]), np.dtype([("a", "i1"), ("b", "f8")], align=True))


def whole(group, values):
    return distarray.distribute(values, DeviceMesh(group), [Replicate()], src=None)


def test_records_in_buffers(world, ranks):
    def program(group):
        x = whole(group, np.ones(3, PLAIN))
        assert memoryview(x).format == memoryview(np.ones(3, PLAIN)).format
        assert np.dtype(x.__array_interface__["typestr"]).itemsize == PLAIN.itemsize
        for dtype in (PLAIN, *UNTOLD):
            found = np.asarray(whole(group, np.ones(3, dtype))).dtype
            assert repr(found) == repr(dtype)
            assert found.isalignedstruct == dtype.isalignedstruct

    world.run(ranks, program)


def test_memory_of_others(world, ranks):
    def program(group):
        x = whole(group, np.arange(4.0))

        class Owner:
            __array_struct__ = x.__array_struct__

        np.asarray(Owner())[0] = 9
        assert x.to_local()[0] == 9
        assert sys.getsizeof(x) > x.nbytes

    world.run(ranks, program)


def test_some_bytes_of_each_element(world):
    def program(group):
        for placement in (Replicate(), Shard(0)):
            values = np.arange(5.0) + 1j
            x = distarray.distribute(values.copy(), DeviceMesh(group), [placement], src=None)
            assert_matches(x.getfield("f8", 8), values.imag)
            x.setfield(7, "f8", 8)
            assert_matches(x, np.arange(5.0) + 7j)
            with pytest.raises(TypeError):
                x.getfield(object)

    for ranks in world.ranks:
        world.run(ranks, program)


def test_views_of_a_program_s_own_arrays():
    class Derived(dnp.ndarray):
        pass

    x = dnp.arange(3.0).view(Derived)
    assert type(x) is Derived
    assert type(x.view(dnp.ndarray)) is distarray.DistArray
    assert type(x.view(type=dnp.ndarray)) is distarray.DistArray
    assert x.view("i8").dtype == "i8"


def test_objects_copied_deeply(world, ranks):
    def program(group):
        x = whole(group, np.array([[1], [2]], object)[:, :1])
        x[0] = [[]]
        twin = copy.deepcopy(x)
        assert twin.to_local()[0, 0] is not x.to_local()[0, 0]

    world.run(ranks, program)


def test_arrays_in_arrays(world, ranks):
    def program(group):
        line = dnp.ones(3)
        rows = dnp.array([[line, line + 1], line + 2], dtype=object)
        assert type(rows[0]) is list
        assert np.asarray(rows[1]).tolist() == [3, 3, 3]
        rows[0] = line
        assert np.asarray(rows[0] + rows[1]).tolist() == [4, 4, 4]
        if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
            assert dnp.array([line, line], dtype=object, ndmax=1).shape == (2,)
        with pytest.raises(AttributeError):
            rows.flat.index = 3

    world.run(ranks, program)


class Led:
    """An array of another library, which makes arrays like itself."""

    def __array_function__(self, function, types, args, kwargs):
        return NotImplemented if function is dnp.eye else (function, args)


class Made:
    """What says itself which array it is."""

    def __array__(self, dtype=None, copy=None):
        return dnp.arange(3)


@pytest.mark.parametrize("name", ["zeros", "ones", "array", "loadtxt", "fromfile"])
def test_like_others(world, ranks, name):
    def program(group):
        function = getattr(dnp, name)
        assert function(3, like=Led()) == (function, (3,))
        with pytest.raises(TypeError, match="must be an array-like"):
            function(3, like=object())

    world.run(ranks, program)


def test_like_others_that_decline():
    with pytest.raises(TypeError, match=r"no implementation found for 'numpy\.eye'"):
        dnp.eye(3, like=np.ones(3).view(Masked))
    assert np.asarray(dnp.array(Made())).tolist() == [0, 1, 2]


class Masked(np.ndarray):
    """A kind of array that makes none like itself."""

    def __array_function__(self, function, types, args, kwargs):
        return NotImplemented


def test_functions_are_found_by_name():
    assert pickle.loads(pickle.dumps(dnp.zeros)) is dnp.zeros
    assert "zeros" in repr(dnp.zeros)


def test_files_mapped(world):
    """A file object, on one rank even one without a name."""
    if 1 not in world.ranks:
        pytest.skip("each of several ranks would have a temporary file of its own")

    def program(group):
        for kind in (tempfile.NamedTemporaryFile, tempfile.TemporaryFile):
            with kind() as file:
                x = dnp.memmap(file, "f4", "w+", shape=(3, 4))
                x[1] = 5
                x.flush()
                file.seek(0)
                assert np.fromfile(file, "f4").sum() == 20
                assert (x.filename is None) == (type(file.name) is int)

    world.run(1, program)
