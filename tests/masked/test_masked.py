"""Masked arrays compared with NumPy's: values, masks, fill values, sharing, errors."""

import pickle

import numpy as np
import pytest

import distarray as da
import distarray.numpy as dnp
from distarray.comm import forbid_communication
from distarray.config import config
from tests.everywhere import check_as_numpy

pytestmark = pytest.mark.host


def masked(m, n=7):
    x = m.arange(float(n))
    return m.ma.masked_array(x, mask=x % 3 == 1)


def grid(m):
    x = m.arange(24.0).reshape(6, 4)
    return m.ma.masked_array(x, mask=x % 5 == 2, fill_value=-1)


def shared(m):
    x = m.arange(7.0)
    a = m.ma.masked_array(x, mask=x < 2)
    x[:] = 1
    a[3] = m.ma.masked
    a.data[4] = 9
    return a, x


def hard(m):
    a = masked(m)
    a.harden_mask()
    a[1] = 3
    a[0] = m.ma.masked
    a.soften_mask()
    a[4] = 8
    return a


def unshared(m):
    a = masked(m)
    b = a[:5]
    b.unshare_mask()
    b[0] = m.ma.masked
    c = a[:5]
    c.mask[2] = True
    return a, b, c, c.sharedmask, b.sharedmask


def viewed(m):
    a = grid(m)
    rows = a.reshape(-1)
    rows[3] = m.ma.masked
    rows.data[4] = 100
    return a, a.T[1:3], a[::-2, 1:], rows[20:]


def in_place(m):
    a = masked(m)
    a += 1
    a[a > 4] *= 2
    a /= m.arange(7.0) - 3
    return a


def assigned(m):
    a = masked(m)
    a[:3] = [9, 8, 7]
    a[4:6] = masked(m)[:2]
    a[m.ma.masked_array(m.arange(7) == 6, mask=False)] = m.ma.masked
    a.mask[0] = True
    return a


def grown(m):
    a = m.ma.array(m.arange(4))
    first = a.mask is m.ma.nomask
    a[2] = m.ma.masked
    return first, a, m.ma.getmask(m.arange(3)) is m.ma.nomask


def read(m):
    a = masked(m)
    return a[1] is m.ma.masked, a[2], [x is m.ma.masked for x in a], float(a[5])


def of_records(m):
    a = m.ma.array([(1, 2.0), (3, 4.0)], mask=[(0, 1), (1, 0)], dtype=[("a", int), ("b", float)])
    a["a"][0] = 7
    return a, a["b"], a.filled()


def packed(m):
    found = pickle.loads(pickle.dumps(grid(m)))
    return found, type(found).__name__


def dumped(m):
    found = pickle.loads(grid(m).dumps())
    return found, type(found).__name__


def with_nan(m):
    x = m.arange(6.0)
    x[2] = m.nan
    return m.ma.masked_invalid(x), m.ma.fix_invalid(x, fill_value=0), m.ma.masked_invalid(x).mean()


def chosen(m):
    x = m.arange(9) % 4
    return (
        m.ma.masked_equal(x, 2), m.ma.masked_where(x > 1, x), m.ma.masked_inside(x, 1, 2),
        m.ma.masked_outside(x, 1, 2), m.ma.masked_values(x * 1.0, 3), m.ma.masked_not_equal(x, 1),
    )  # fmt: skip


CALLS = {
    "from lists": lambda m: m.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]),
    "from masked lists": lambda m: m.ma.array([masked(m), masked(m)]),
    "shared": shared,
    "hard and soft": hard,
    "unshared": unshared,
    "views": viewed,
    "in place": in_place,
    "assigned": assigned,
    "nomask": grown,
    "elements": read,
    "records": of_records,
    "pickled": packed,
    "dumped": dumped,
    "not finite": with_nan,
    "chosen by value": chosen,
    "arithmetic": lambda m: masked(m) * 2 - masked(m)[::-1] / 3 + m.arange(7),
    "division by zero": lambda m: masked(m) / m.arange(-3, 4),
    "functions": lambda m: (
        m.ma.sqrt(masked(m) - 2), m.log(masked(m) + 1), m.ma.power(masked(m), 2),
    ),
    "comparison": lambda m: (masked(m) > 2, masked(m) == masked(m)[::-1], masked(m) >= 3),
    "NumPy's operands": lambda m: (np.arange(7) + masked(m), np.float64(2) * masked(m)),
    "with the constant": lambda m: (masked(m) + m.ma.masked, m.ma.masked * 2 is m.ma.masked),
    "reductions": lambda m: [
        getattr(grid(m), name)(axis=axis)
        for name in ("sum", "prod", "mean", "var", "std", "min", "max", "any", "all", "count")
        for axis in (None, 0, 1)
    ],
    "all masked": lambda m: (
        m.ma.masked_all(5).sum() is m.ma.masked,
        m.ma.masked_all((2, 5)).mean(axis=0),
        m.ma.masked_all(5).max() is m.ma.masked,
    ),
    "by functions": lambda m: (
        m.sum(grid(m)), m.mean(grid(m), axis=0), m.max(grid(m)), m.ptp(grid(m)),
    ),
    "statistics": lambda m: (
        m.ma.median(grid(m)), m.ma.median(grid(m), axis=0), m.ma.average(grid(m), axis=1),
        m.ma.cov(grid(m)), grid(m).anom(axis=0),
    ),
    "scans": lambda m: (masked(m).cumsum(), masked(m).cumprod(), m.ma.diff(masked(m))),
    "sorts": lambda m: (m.ma.sort(masked(m)[::-1]), masked(m).argsort(), m.sort(grid(m), axis=0)),
    "places": lambda m: (masked(m).argmin(), grid(m).argmax(axis=0), masked(m).nonzero()),
    "filled": lambda m: (grid(m).filled(), m.ma.filled(masked(m), -5), masked(m).compressed()),
    "fill values": lambda m: (
        masked(m).fill_value, grid(m).fill_value, m.ma.maximum_fill_value(1.0),
    ),
    "joined": lambda m: (m.ma.concatenate([masked(m), masked(m)]), m.ma.vstack([grid(m), grid(m)])),
    "by mr_": lambda m: m.ma.mr_[masked(m), 0, m.ma.masked],
    "turned": lambda m: (
        m.roll(grid(m), 1, axis=0), m.ma.swapaxes(grid(m), 0, 1), m.ma.ravel(grid(m)),
    ),
    "repeated": lambda m: (m.repeat(masked(m), 2), m.ma.resize(masked(m), (3, 7))),
    "taken": lambda m: (m.take(masked(m), [1, 2, 5]), grid(m)[[1, 3]], grid(m)[grid(m) > 9]),
    "where": lambda m: (
        m.ma.where(masked(m) > 3, masked(m), -1), m.ma.choose([0, 1], [masked(m)[:2], [7, 8]]),
    ),
    "clipped": lambda m: (m.clip(masked(m), 1, 4), masked(m).round(0)),
    "products": lambda m: (m.ma.dot(grid(m), grid(m).T), m.ma.outer(masked(m), masked(m)[:2])),
    "sets": lambda m: (m.ma.unique(masked(m)), m.ma.isin(masked(m), [1, 2])),
    "runs": lambda m: (m.ma.clump_masked(masked(m)), m.ma.notmasked_edges(masked(m))),
    "rows and columns": lambda m: (m.ma.compress_rows(grid(m)), m.ma.mask_rowcols(grid(m))),
    "types": lambda m: (masked(m).astype(int), masked(m).view("i8"), grid(m).real),
    "bytes": lambda m: (masked(m).tobytes(), masked(m).tolist(), masked(m).toflex()),
    "printed": lambda m: (str(masked(m)), repr(grid(m)), format(masked(m)), str(m.ma.masked)),
    "made": lambda m: (
        m.ma.zeros(3), m.ma.arange(5), m.ma.empty_like(masked(m)).shape, m.zeros_like(masked(m)),
    ),
    "error: another size": lambda m: m.ma.array(m.arange(5), mask=[0, 1]),
    "error: files": lambda m: masked(m).tofile("x"),
    "error: the constant": lambda m: m.ma.masked.__setitem__((), 1),
    "error: shape": lambda m: setattr(masked(m), "shape", (2, 3)),
}  # fmt: skip


def rounded(x):
    """The elements as a list: sums of parts differ from NumPy's in the last bits."""
    return (np.round(x, 12) if x.dtype.kind == "f" else x).tolist()


def plain(value):
    """What can be compared: of arrays data types, elements where they are not masked, and masks."""
    if value is np.ma.masked or value is dnp.ma.masked:
        return "masked"
    if isinstance(value, da.DistArray):
        value = value.full()
    if isinstance(value, np.ma.MaskedArray):
        fill = value.fill_value.tolist()
        return type(value).__name__, value.dtype, rounded(value), value.mask.tolist(), fill
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype, rounded(value)
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("limit", [0, 1 << 16])
def test_as_numpy(world, name, limit):
    check_as_numpy(world, CALLS[name], plain, limit)


def test_parts_are_distributed(world):
    """The data and the mask are cut, and what is computed of them is."""

    def program(group):
        x = dnp.arange(1e5)
        a = dnp.ma.masked_array(x, mask=x < 5)
        x[:] = 1
        assert a.sum() == 99995
        for y in (a, a * 2, dnp.sqrt(a), a[3:], a.reshape(100, 1000), dnp.ma.masked_invalid(x)):
            assert isinstance(y, da.DistArray)
            assert not y.data.layout.is_replicated or group.size == 1
            if y.mask is not dnp.ma.nomask:
                assert not y.mask.layout.is_replicated or group.size == 1

    for ranks in world.ranks:
        world.run(ranks, program)


def test_what_is_not_sent(world):
    """Arithmetic, views, reads of attributes and printing are each rank's own affair."""

    def program(group):
        x = dnp.arange(1e5)
        a = dnp.ma.masked_array(x, mask=x < 5)
        with forbid_communication():
            b = a[10:]
            b.mask  # noqa: B018
            repr(a), str(b), (a.shape, a.dtype, a.fill_value, a.layout)
            a.view(), a.data, a.T, dnp.ma.getmaskarray(a)

    for ranks in world.ranks:
        world.run(ranks, program)


def test_numpys_own(world):
    """Libraries get NumPy's masked arrays, and theirs can be mixed with ours."""

    def program(group):
        with config.override(replicate_below=0):
            a, own = masked(dnp), masked(np)
            found = np.asanyarray(a)
            assert type(found) is np.ma.MaskedArray
            assert plain(found) == plain(own)
            for take in (np.ma.asarray, np.ma.masked_invalid, lambda x: np.ma.concatenate([x])):
                taken = take(a)
                assert type(taken) is np.ma.MaskedArray
                assert plain(taken.filled(-1)) == plain(own.filled(-1))
            assert np.ma.is_masked(a) and np.ma.count(a) == np.ma.count(own)
            assert isinstance(own, dnp.ma.MaskedArray) and dnp.ma.isMA(own)
            assert isinstance(np.ma.masked, type(dnp.ma.masked)) is False
            assert plain(dnp.ma.masked_where(a > 3, own)) == plain(np.ma.masked_where(own > 3, own))
            assert plain(dnp.ma.filled(own, 0)) == plain(np.ma.filled(own, 0))
            assert plain(dnp.ma.sqrt(own)) == plain(np.ma.sqrt(own))
            assert repr(dnp.ma.array(own)[:1].full()) == repr(own[:1])
            assert plain(dnp.ma.array(own) + a) == plain(own + own)
            assert plain(own + a) == plain(a + own) == plain(own + own)

    for ranks in world.ranks:
        world.run(ranks, program)


def test_the_constant_as_a_number(world):
    """Written into an array it is a NaN, of which NumPy warns."""

    def program(group):
        with config.override(replicate_below=0):
            x = dnp.zeros(3)
            x[1] = dnp.ma.masked
            assert dnp.isnan(x).tolist() == [False, True, False]
            assert dnp.isnan(dnp.array([3.0, dnp.ma.masked])).tolist() == [False, True]
            with pytest.raises(dnp.ma.MaskError):
                dnp.zeros(3, int)[0] = dnp.ma.masked

    for ranks in world.ranks:
        with pytest.warns(UserWarning, match="masked element"):
            world.run(ranks, program)
