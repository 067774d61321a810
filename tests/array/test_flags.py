"""`x.flags` are those of the whole array, the same on all ranks."""

import numpy as np
import pytest

from distarray import DeviceMesh, Replicate, Shard, distribute, trace

PLANE = np.arange(35.0).reshape(5, 7)
MADE = {
    "as it is": lambda x: x,
    "turned": lambda x: x.T,
    "every second row": lambda x: x[::2],
    "every second column": lambda x: x[:, ::2],
    "one row": lambda x: x[:1],
    "a line": lambda x: x[:, 0],
    "in Fortran order": np.asfortranarray,
    "nothing": lambda x: x[:0],
    "copied": lambda x: x.T.copy(),
}
NAMES = ("c_contiguous", "f_contiguous", "contiguous", "fnc", "forc", "writeable", "aligned")
ITEMS = ("C_CONTIGUOUS", "F_CONTIGUOUS", "FORTRAN", "W", "ALIGNED", "FNC")


@pytest.mark.host
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("dim", [0, 1])
def test_stored_as_numpys(world, ranks, name, dim):
    wanted = MADE[name](PLANE.copy()).flags

    def program(group):
        made = MADE[name](distribute(PLANE, DeviceMesh(group), [Shard(dim)], src=None))
        found = made.flags
        return [getattr(found, n) for n in NAMES], [found[n] for n in ITEMS]

    expected = [getattr(wanted, n) for n in NAMES], [wanted[n] for n in ITEMS]
    for found in world.run(ranks, program):
        assert found == expected


@pytest.mark.host
@pytest.mark.parametrize("name", [name for name in MADE if name not in ("nothing", "one row")])
@pytest.mark.parametrize("dim", [0, 1])
def test_strides_are_numpys(world, ranks, name, dim):
    wanted = MADE[name](PLANE.copy()).strides

    def program(group):
        return MADE[name](distribute(PLANE, DeviceMesh(group), [Shard(dim)], src=None)).strides

    assert set(world.run(ranks, program)) == {wanted}


@pytest.mark.host
def test_set_and_compared(world, ranks):
    def program(group):
        x = distribute(PLANE, DeviceMesh(group), [Shard(0)], src=None)
        before = x.flags
        assert "C_CONTIGUOUS : True" in repr(before)
        with trace() as messages:
            x.flags.writeable = False
            assert not x.flags.writeable
            assert not x.flags["WRITEABLE"]
        assert not messages.events
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        assert x.flags == x.flags
        return x.flags == x.T.flags

    assert set(world.run(ranks, program)) == {False}


ALLOWING = {
    "attribute": lambda x: setattr(x.flags, "writeable", True),
    "item": lambda x: x.flags.__setitem__("WRITEABLE", True),
    "method": lambda x: x.setflags(write=True),
}


@pytest.mark.host
@pytest.mark.parametrize("how", ALLOWING)
def test_refused_on_all_ranks(world, ranks, how):
    """Also on those that have nothing of the view."""

    def program(group):
        x = distribute(PLANE, DeviceMesh(group), [Shard(0)], src=None)
        x.setflags(write=False)
        view = x[:1, ...]
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            ALLOWING[how](view)
        assert not view.flags.writeable
        x.setflags(write=True)
        ALLOWING[how](view)
        view[...] = 7
        assert float(x.sum()) == PLANE[1:].sum() + 7 * PLANE.shape[1]

    world.run(ranks, program)


def _given_another_type(x):
    x.setflags(write=False)
    x.dtype = "i8"
    x.flags.writeable = True


def _given_another_shape(x):
    x.setflags(write=False)
    x.shape = (7, 5)
    x.flags.writeable = True
    x[0, 0] = 5


def _view_of_reshaped(x):
    view = x.view()
    x.shape = (7, 5, 1)
    x.setflags(write=False)
    view.flags.writeable = True


def _part_of_reshaped(x):
    x.setflags(write=False)
    part = np.split(x, [])[0]
    x.shape = 35
    part.flags.writeable = True


def _view_of_raveled(x):
    line = np.ravel(x[::2, ::2])
    line.setflags(write=False)
    np.array_split(line, 1)[0].flags.writeable = True


def _view_of_expanded(x):
    line = np.reshape(x[::2, ::2], (1, 12, 1))
    line.setflags(write=False)
    line[0].flags.writeable = True


def _line_of_nothing(x):
    line = x[:0].ravel()
    line.setflags(write=False)
    x[0] = 1.0


def _reshape_of_allowed(x):
    same = np.broadcast_to(x.ravel(), 35)
    same.flags.writeable = True
    same.reshape(7, 5)[2, 3] = 6.0
    same[4] = 1.0


def _view_of_flattened(x):
    line = x.flatten()
    line.setflags(write=False)
    line[1:].flags.writeable = True


def _reshaped_beside_a_view(x):
    view = x[1:]
    x.shape = 35
    x.flags.writeable = False
    x.flags.writeable = True
    x.shape = (5, 7)
    x[2, 2] = view[1, 3] = -1.0


RIGHTS = [
    _given_another_type,
    _given_another_shape,
    _view_of_reshaped,
    _part_of_reshaped,
    _view_of_raveled,
    _view_of_expanded,
    _reshape_of_allowed,
    _view_of_flattened,
    _line_of_nothing,
    _reshaped_beside_a_view,
]


@pytest.mark.host
@pytest.mark.parametrize("act", RIGHTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()], ids=str)
def test_who_may_allow_writes(world, ranks, act, placement):
    def outcome(x):
        try:
            act(x)
        except ValueError as error:
            return str(error), None
        return x.flags.owndata, x.base is None

    wanted = PLANE.copy()
    expected = outcome(wanted)

    def program(group):
        x = distribute(PLANE, DeviceMesh(group), [placement], src=None)
        return outcome(x), x.full()

    for found, values in world.run(ranks, program):
        assert found == expected
        assert np.array_equal(values, wanted)
