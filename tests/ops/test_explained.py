"""Rehearsed functions: what is explained is what is sent, in bytes and messages, rank by rank."""

import warnings

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import Shard
from distarray.array import wrap
from distarray.comm.ledger import forbid_communication, trace
from distarray.engines.factoring import small
from distarray.engines.rehearsing.group import RehearsalGroup
from distarray.engines.rehearsing.hollow import Hollow, Unknown, hollow
from distarray.layout import Layout
from distarray.ops.explained import EXPLAINED
from distarray.ops.linalg import spectra, square, svd

ROWS, COLUMNS = [Shard(0)], [Shard(1)]
pytestmark = pytest.mark.counts(lambda n: n in (2, 3, 4))


def cut(shape, placements=ROWS, dtype="f8"):
    """An array of mixed values, cut into uneven blocks."""
    values = numpy.random.default_rng(5).permutation(int(numpy.prod(shape)))
    return distarray.distribute(values.reshape(shape).astype(dtype), None, placements, src=None)


def definite(n=13):
    values = numpy.random.default_rng(1).random((n, n))
    return distarray.distribute(values @ values.T + n * numpy.eye(n), None, ROWS, src=None)


def operands():
    """The operands of the table, by letter."""
    found = {"x": cut((13, 10)), "y": cut((13, 10), COLUMNS), "v": cut((61,)), "q": definite()}
    found |= {"z": cut((7, 5, 6)), "t": cut((29, 4)), "i": cut((13, 10), dtype="i8")}
    return found | {"p": cut((9, 3)), "c": cut((2, 500)), "f": cut((8, 8, 8), dtype="f4")}


_SEVERAL = ["fft2", "ifft2", "fftn", "ifftn", "rfft2", "irfft2", "rfftn", "irfftn"]
_SQUARE = ["cholesky", "inv", "det", "slogdet", "eigh", "eigvalsh", "eigvals", "eig"]
_TURNS = ["ravel", "transpose", "flip", "fliplr", "flipud", "squeeze", "copy", "rot90"]
_FOUND = ["unique", "nonzero", "flatnonzero", "argwhere"]
#: Calls, by the names of :data:`EXPLAINED`; of others those of the module.
CALLS = {
    "": "NAME(x); NAME(x, axis=0); NAME(x, axis=1)",
    "fft": "NAME(x); NAME(x, axis=0); NAME(y); NAME(v); NAME(v, 64)",
    "linalg": "NAME(q); NAME(t)",
    **dict.fromkeys(
        ["fft2", "ifft2", "fftn", "ifftn", "rfft2", "irfft2", "rfftn", "irfftn"],
        "NAME(x); NAME(z); NAME(f)",
    ),
    "fftshift": "NAME(x); NAME(v)",
    "ifftshift": "NAME(x); NAME(v)",
    **dict.fromkeys(_SQUARE, "NAME(q)"),
    "norm": "NAME(x); NAME(v); NAME(x, axis=0)",
    "solve": "NAME(q, q); NAME(q, q[:, 0])",
    "lstsq": "NAME(t, t[:, 0], rcond=None)",
    "matrix_power": "NAME(q, 3)",
    "multi_dot": "NAME([x, y.T, x])",
    "percentile": "NAME(x, 30, axis=1); NAME(x, 30, axis=0)",
    "quantile": "NAME(x, 0.3, axis=1); NAME(v, 0.3)",
    "ediff1d": "NAME(v)",
    "gradient": "NAME(v); NAME(x)",
    "diff": "NAME(v); NAME(x, axis=0); NAME(x)",
    "trapezoid": "NAME(v); NAME(x, axis=0)",
    "unwrap": "NAME(v)",
    "concatenate": "NAME([x, x]); NAME([x, y], axis=1); NAME([y, y], axis=1); NAME([v, v, v])",
    "stack": "NAME([x, y]); NAME([x, x], axis=2)",
    **dict.fromkeys(["vstack", "hstack", "dstack"], "NAME([x, y]); NAME([x, x])"),
    "column_stack": "NAME([v, v])",
    "block": "NAME([[x, y], [x, y]])",
    "append": "NAME(v, v)",
    "reshape": "NAME(x, (10, 13)); NAME(x, 130); NAME(z, (35, 6)); NAME(y, (26, 5))",
    **dict.fromkeys(
        ["ravel", "transpose", "flip", "fliplr", "flipud", "squeeze", "copy", "rot90"],
        "NAME(x); NAME(y)",
    ),
    "roll": "NAME(x, 3); NAME(x, 3, axis=0); NAME(x, 1, axis=1); NAME(v, -7)",
    "moveaxis": "NAME(z, 0, 2)",
    "swapaxes": "NAME(z, 0, 1)",
    "expand_dims": "NAME(x, 0)",
    "broadcast_to": "NAME(v, (3, 61))",
    "split": "NAME(x, 2, axis=1); NAME(x, [4, 9])",
    "array_split": "NAME(x, 3); NAME(v, 4)",
    "meshgrid": "NAME(v, v)",
    "take": "NAME(x, [1, 5, 12], axis=0); NAME(x, [1, 2], axis=1); NAME(x, [3, 4])",
    "take_along_axis": "NAME(x, numpy.full((13, 1), 3), axis=1)",
    "repeat": "NAME(x, 2, axis=0); NAME(v, 3)",
    "tile": "NAME(v, 3); NAME(x, (2, 1))",
    "pad": "NAME(x, 2); NAME(v, 3, mode='wrap'); NAME(x, 1, mode='edge')",
    "delete": "NAME(v, 3); NAME(x, [1, 2], axis=0)",
    "insert": "NAME(v, 3, 9.0)",
    "resize": "NAME(v, 100)",
    "compress": "NAME([True, False] * 6, x, axis=0)",
    "extract": "NAME(v > 3, v)",
    "choose": "NAME(i % 2, [x, y])",
    "select": "NAME([x > 3], [x])",
    "where": "NAME(x > 3, x, y)",
    "clip": "NAME(x, 1, 5)",
    "tril": "NAME(x)",
    "triu": "NAME(x, 1)",
    "diag": "NAME(q); NAME(v)",
    "diagonal": "NAME(q)",
    "trace": "NAME(q)",
    "convolve": "NAME(v, numpy.ones(3)); NAME(v, v[:9])",
    "correlate": "NAME(v, numpy.ones(3))",
    "interp": "NAME(v, numpy.arange(3.0), numpy.arange(3.0))",
    "searchsorted": "NAME(v, numpy.arange(3.0)); NAME(numpy.arange(3.0), v)",
    "digitize": "NAME(v, numpy.arange(3.0))",
    "histogram": "NAME(v, bins=10, range=(0, 60)); NAME(v)",
    "bincount": "NAME(i[:, 0])",
    "cov": "NAME(x)",
    "corrcoef": "NAME(x)",
    "dot": "NAME(x, q[:10, :4]); NAME(v, v)",
    "vdot": "NAME(v, v)",
    "inner": "NAME(x, y)",
    "outer": "NAME(v, v)",
    "tensordot": "NAME(x, y.T, axes=1)",
    "einsum": "NAME('ij,jk->ik', x, y.T); NAME('ij->j', x)",
    "kron": "NAME(x, v[:3])",
    "cross": "NAME(p, p)",
    "vander": "NAME(v, 3)",
    "polyval": "NAME([1, 2, 3], v)",
    "sort": "NAME(x); NAME(x, axis=0)",
    "argsort": "NAME(x); NAME(x, axis=0)",
    "partition": "NAME(x, 3); NAME(v, 3)",
    "argpartition": "NAME(x, 3); NAME(v, 3)",
    "intersect1d": "NAME(v, v)",
    "isin": "NAME(v, numpy.arange(3.0))",
    **dict.fromkeys(["array_equal", "allclose", "isclose"], "NAME(x, x); NAME(x, y)"),
    **dict.fromkeys(
        ["unique", "nonzero", "flatnonzero", "argwhere", "nan_to_num", "angle", "sinc"],
        "NAME(x); NAME(v)",
    ),
    "round": "NAME(x, 1)",
    "packbits": "NAME(x > 3)",
    "reduce": "np.add.reduce(x); np.logical_and.reduce(x, axis=1); np.add.reduce(v)",
    "accumulate": "np.add.accumulate(x); np.add.accumulate(v)",
    "outers": "np.add.outer(v, v)",
    "out": "np.add(x, y, out=x); np.multiply(x, 2.0, where=x > 3)",
}
_OTHERS = ["reduce", "accumulate", "outers", "out"]
#: Functions of which values decide what is sent, for the calls of the table.
REFUSED = {
    *[
        "lstsq",
        "extract",
        "choose",
        "bincount",
        "unique",
        "nonzero",
        "flatnonzero",
        "argwhere",
        "intersect1d",
    ],
    *["partition", "argpartition", "histogram", "quantile", "take_along_axis", "compress"],
}


def calls(module, name):
    """Function, arguments and keywords of each call of a name."""
    text = CALLS.get(name, CALLS[module])
    function = f"np.{module}.{name}" if module else f"np.{name}"
    kept = []

    def taken(called, *args, **keywords):
        kept.append((called, args, keywords))

    for call in text.split("; "):
        head, rest = call.replace("NAME", function).split("(", 1)
        scope = {"np": np, "numpy": numpy, "taken": taken, **operands()}
        eval(f"taken({head}, {rest}", scope)
    return kept


def explained(function, args, keywords):
    """The plan, or None where values decide."""
    try:
        plan = distarray.explain(function, *args, **keywords)
    except ValueError as error:
        text = str(error)
    else:
        assert str(plan)
        return plan
    assert f"what {function.__name__} sends here is decided by" in text
    return None


def compared(function, args, keywords):
    """What is explained for this rank, and what it sends; None if it is refused."""
    rank = distarray.default_mesh().rank
    with forbid_communication():
        plan = explained(function, args, keywords)
    with trace() as t, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = function(*args, **keywords)
    if plan is None or plan.then:
        return None
    told = [sum(step.sent[rank] for step in plan.steps), sum(s.counts[rank] for s in plan.steps)]
    first = result[0] if isinstance(result, (tuple, list)) else result
    if isinstance(first, distarray.DistArray):
        assert first.layout.placements == plan.result.placements
        assert first.to_local().nbytes <= plan.nbytes
    return told, [t.bytes, t.messages]


NAMES = [(module, name) for module, names in EXPLAINED.items() for name in names.split()]


@pytest.mark.parametrize(("module", "name"), [*NAMES, *[("", name) for name in _OTHERS]])
def test_what_is_explained_is_sent(world, ranks, module, name):
    def program(group):
        with distarray.config.override(replicate_below=64):
            return [compared(*call) for call in calls(module, name)]

    found = world.run(ranks, program)
    assert all(row is None or row[0] == row[1] for rank in found for row in rank), found
    assert any(row for rank in found for row in rank) or name in REFUSED


LARGE = ["qr", "cholesky", "slogdet", "inv", "solve", "eigvals", "svdvals", "eigh"]


@pytest.mark.parametrize("name", LARGE)
def test_matrices_that_all_ranks_factor_together(world, ranks, name, monkeypatch):
    monkeypatch.setattr(square, "BLOCKED_FROM", 64)
    monkeypatch.setattr(small, "SMALL_BYTES", 1 << 10)
    monkeypatch.setattr(svd, "SQUARE_BYTES", 1 << 10)
    monkeypatch.setattr(spectra, "HERMITIAN_FROM", 64)
    function = getattr(np.linalg, name)

    def program(group):
        with distarray.config.override(replicate_below=64):
            q, t = definite(253), cut((311, 5))
            given = [(q, q)] if name == "solve" else [(q,)]
            given += [(t,)] if name in ("qr", "svdvals") else []
            return [compared(function, args, {}) for args in given]

    found = world.run(ranks, program)
    assert all(row is None or row[0] == row[1] for rank in found for row in rank), found
    assert any(row for rank in found for row in rank) or name in ("eigh", "svdvals")


@pytest.mark.parametrize("dtype", ["f8", "i8"])
@pytest.mark.parametrize("values", ["mixed", "sorted", "equal", "backwards"])
def test_of_a_sort_a_bound_is_explained(world, ranks, dtype, values):
    made = {
        "mixed": numpy.random.default_rng(3).permutation(9001),
        "sorted": numpy.arange(9001),
        "equal": numpy.ones(9001),
        "backwards": numpy.arange(9001)[::-1],
    }[values].astype(dtype)

    def program(group):
        with distarray.config.override(replicate_below=64):
            x = distarray.distribute(made, None, ROWS, src=None)
            found = []
            for function in (np.sort, np.argsort):
                with forbid_communication():
                    plan = distarray.explain(function, x)
                with trace() as t:
                    result = function(x)
                assert plan.result.placements == result.layout.placements
                assert plan.nbytes >= result.to_local().nbytes
                assert plan._repr_html_().count("<svg") == 1  # of the result
                found.append(
                    (
                        sum(
                            e.bytes
                            for e in t
                            if e.kind in ("alltoall", "exchange") and e.note != "splitters"
                        ),
                        plan,
                    )
                )
            return found

    for each in zip(*world.run(ranks, program), strict=True):
        assert sum(sent for sent, _ in each) <= each[0][1].at_most
        assert "how the values fall decides" in str(each[0][1])


def test_what_is_no_function_of_numpys_is_refused(world, ranks):
    def program(group):
        x = cut((13, 10))
        with forbid_communication():
            for other in (print, lambda x: x, len, 5):
                with pytest.raises(ValueError, match=r"takes a function of NumPy's, such as"):
                    distarray.explain(other, x)
            with pytest.raises(ValueError, match=r"does not know piecewise: .*trace\(\) around"):
                distarray.explain(np.piecewise, x, [x > 1], [1])
            with pytest.raises(ValueError, match="array split does not result"):
                distarray.explain(np.split, x, 4)  # NumPy's own error, before anything is sent

    world.run(ranks, program)


def test_explaining_leaves_no_trace(world, ranks):
    """Only one rank explains, and the ranks stay in step."""

    def program(group):
        with distarray.config.override(replicate_below=64):
            x = cut((61,))
            first = x[3]
            with trace() as t:
                if group.rank == 0:
                    distarray.explain(np.fft.fft, x)
                    distarray.explain(np.roll, x, 3)
            assert len(t) == 0
            return [float(first), float(x[4]), float(x[5]), float(np.roll(x, 1)[0])]

    found = world.run(ranks, program)
    assert all(values == found[0] for values in found)


def test_on_many_ranks_some_are_rehearsed():
    group = RehearsalGroup(0, tuple(range(1000)), [])
    mesh = distarray.DeviceMesh(group, (1000,), device_type="cpu")
    layout = Layout.chunked((8000, 8000), (1000,), ROWS)
    x = wrap(hollow((8, 8000), "c16"), layout, mesh)
    plan = distarray.explain(np.fft.fft, x, axis=0)
    (step,) = plan.steps
    assert step.total == pytest.approx(8000**2 * 16 * 0.999)
    assert step.sent == []
    assert plan.result.placements == tuple(COLUMNS)
    assert "exchange, about 975.6 MiB in all" in str(plan)


def test_hollow_arrays_have_shapes_and_no_values():
    x = hollow((1 << 20, 1 << 10))
    assert (x + 1).shape == x.shape
    assert isinstance(x[3:, ::2].T.reshape(-1), Hollow)
    assert np.fft.rfft(x, axis=0).shape == ((1 << 19) + 1, 1 << 10)
    assert not np.isnan(x).any()
    for read in (lambda: bool(x[0, 0]), lambda: x[x > 1], lambda: float(x.sum()), x.tolist):
        with pytest.raises(Unknown):
            read()


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_sums_in_order_are_not_told_as_plain_ones(world, ranks):
    """Under `config.reproducible` ranks send other messages: told as they are, or refused."""

    def program(group):
        mesh = distarray.DeviceMesh(group, (ranks,))
        a = distarray.distribute(numpy.ones((700 * ranks, 30)), mesh, [Shard(0)], src=None)
        line = distarray.distribute(numpy.ones(30), mesh, src=None)
        with distarray.config.override(reproducible=True):
            for function, operands in ((np.matmul, (a.T, a)), (np.sum, (a,))):
                with pytest.raises(ValueError, match="the order of sums under"):
                    distarray.explain(function, *operands)
            return distarray.explain(np.matmul, a, line).sent

    assert set(world.run(ranks, program)) == {0}
