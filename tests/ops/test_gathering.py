"""No function gathers a large operand, but for those that are written down here with the reason.

Each function of NumPy's that dispatches is called with arrays cut in two ways. No rank may hand
the bulk of its block to more than one other rank, which is what a gather does; the ledger of
communication says what each message held.
"""

import re
from math import prod

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.coverage import entries
from distarray.layout import Shard

N = 1 << 15
RNG = np.random.default_rng(0)
F, G = RNG.standard_normal((2, N))
SQUARE = RNG.standard_normal((96, 96))
#: Operands: `f`, `g`, `s` lines of numbers, `m`, `w` matrices, `t` with three dimensions, ...
OPERANDS = {
    "f": F,
    "g": G,
    "s": np.sort(F),
    "c": F + 1j * G,
    "m": F.reshape(128, 256),
    "w": G.reshape(128, 256),
    "t": F.reshape(32, 32, 32),
    "v": F[: N // 3 * 3].reshape(-1, 3),
    "tall": F.reshape(-1, 8),
    "a": SQUARE,
    "p": SQUARE @ SQUARE.T + 96 * np.eye(96),
    "i": RNG.integers(0, 1 << 40, N),
    "j": RNG.integers(0, N, N),
    "j2": RNG.integers(0, 128, (128, 256)),
    "k": RNG.integers(0, 1000, N),
    "b": F > 0,
    "u": RNG.integers(0, 255, N).astype("u1"),
    "days": np.datetime64("2020-01-01") + RNG.integers(0, 1000, N),
    "row": G[:256].copy(),
    "few": np.sort(F)[::100].copy(),
}

CALLS = """
all(b) allclose(f, g) amax(f) amin(f) angle(c) any(b) append(f, g) apply_along_axis(np.sum, 1, m)
apply_over_axes(np.sum, t, [0, 2]) argmax(f) argmin(f) argpartition(f, 99) argsort(f) argwhere(b)
around(f, 2) array(f) array_equal(f, g) array_equiv(f, g) array_split(f, 7) asanyarray(f)
asarray(f) ascontiguousarray(m.T) asfortranarray(m) astype(f, "f4") atleast_1d(f) atleast_2d(f)
atleast_3d(f) average(f, weights=k) bincount(k) block([[m, w]]) broadcast_arrays(m, row)
broadcast_to(row, (128, 256)) busday_count(days, days[0]) busday_offset(days, 3, roll="forward")
choose(b.astype(int), [f, g]) clip(f, -1, 1) column_stack((f, g)) compress(b, f)
concatenate((f, g)) convolve(f, few) copy(f) copyto(f, g) corrcoef(tall.T) correlate(f, few)
count_nonzero(b) cov(tall.T) cross(v, v) cumprod(f) cumsum(f) cumulative_prod(f)
cumulative_sum(f) datetime_as_string(days) delete(f, 99) diag(m) diagflat(row) diagonal(m) diff(f)
digitize(f, few) dot(f, g) dsplit(t, 8) dstack((m, w)) ediff1d(f) einsum("ij,ij->j", m, w)
expand_dims(f, 0) extract(b, f) fft.fft(f) fft.fft2(m) fft.fftn(t) fft.fftshift(m) fft.hfft(c)
fft.ifft(c) fft.ifft2(m) fft.ifftn(t) fft.ifftshift(f) fft.ihfft(f) fft.irfft(c) fft.irfft2(m)
fft.irfftn(t) fft.rfft(f) fft.rfft2(m) fft.rfftn(t) fill_diagonal(m, 1.0) fix(f) flatnonzero(b)
flip(m) fliplr(m) flipud(m) full_like(f, 3) gradient(f) histogram(f, 100) histogram2d(f, g, 50)
histogram_bin_edges(f, "fd") histogramdd(v, 5) hsplit(m, 8) hstack((f, g)) i0(f) imag(c)
inner(f, g) insert(f, 1000, 2.0) interp(f, few, few) intersect1d(i, j) is_busday(days)
isclose(f, g) iscomplex(c) isin(i, j) isneginf(f) isposinf(f) isreal(c) kron(m[:8], w[:8, :8])
lexsort((k, i)) lib.scimath.arccos(f) lib.scimath.arcsin(f) lib.scimath.arctanh(f)
lib.scimath.log(f) lib.scimath.log10(f) lib.scimath.log2(f) lib.scimath.logn(2, f)
lib.scimath.power(f, 2) lib.scimath.sqrt(f) lib.stride_tricks.sliding_window_view(f, 9)
linalg.cholesky(p) linalg.cond(a) linalg.cross(v, v) linalg.det(a) linalg.diagonal(m)
linalg.eig(a) linalg.eigh(p) linalg.eigvals(a) linalg.eigvalsh(p) linalg.inv(a)
linalg.lstsq(tall, f[: N // 8]) linalg.matmul(m, w.T) linalg.matrix_norm(m)
linalg.matrix_power(a, 3) linalg.matrix_rank(a) linalg.matrix_transpose(m)
linalg.multi_dot([a, a, a]) linalg.norm(f) linalg.outer(row, f) linalg.pinv(a) linalg.qr(tall)
linalg.slogdet(a) linalg.solve(a, a) linalg.svd(tall, False) linalg.svdvals(tall)
linalg.tensordot(t, t, axes=((1, 2), (1, 2))) linalg.tensorinv(a.reshape(8, 12, 96))
linalg.tensorsolve(a.reshape(8, 12, 96), a[0].reshape(8, 12)) linalg.trace(m)
linalg.vecdot(m, w) linalg.vector_norm(m) matrix_transpose(m) max(f) mean(f) median(f)
meshgrid(row, row) min(f) moveaxis(t, 0, -1) nan_to_num(f) nanargmax(f) nanargmin(f)
nancumprod(f) nancumsum(f) nanmax(f) nanmean(f) nanmedian(f) nanmin(f) nanpercentile(f, 30)
nanprod(f) nanquantile(f, 0.3) nanstd(f) nansum(f) nanvar(f) nonzero(b) outer(row, f) packbits(b)
pad(f, 3) partition(f, 99) percentile(f, 30) piecewise(f, [f < 0], [np.abs]) place(f, b, g)
poly(row) polyadd(f, g) polyder(f) polydiv(f, row) polyfit(f, g, 3) polyint(f) polymul(f, row)
polysub(f, g) polyval([1.0, 2], f) prod(f) ptp(f) put(f, j, g) put_along_axis(m, j2, w, 1)
putmask(f, b, g) quantile(f, 0.3) ravel(m) ravel_multi_index((j2,), (128,)) real(c)
real_if_close(c) repeat(f, 4) require(f) reshape(f, (256, -1)) resize(f, 99) roll(f, 17)
rollaxis(t, 2) roots(row) rot90(m) round(f) searchsorted(s, f) select([b], [f], g) setdiff1d(i, j)
setxor1d(i, j) sinc(f) sort(f) sort_complex(f) split(m, 8) squeeze(m[:, None]) stack((f, g))
std(f) sum(f) swapaxes(t, 0, 2) take(f, j) take_along_axis(m, j2, 0)
tensordot(t, t, axes=((1, 2), (1, 2))) tile(f, 2) trace(m) transpose(m) trapezoid(f) tril(m)
trim_zeros(f) triu(m) union1d(i, j) unique(f) unique_all(k) unique_counts(k) unique_inverse(k)
unique_values(i) unpackbits(u) unravel_index(j, (128, 256)) unstack(t) unwrap(f) vander(f, 5)
var(f) vdot(f, g) vsplit(m, 8) vstack((f, g)) where(b, f, g)
"""

#: Functions that read no element of an operand, make arrays of nothing, print or keep files.
OTHERS = """
arange array2string array_repr array_str can_cast common_type diag_indices_from einsum_path empty
empty_like eye frombuffer fromfile fromfunction fromiter fromstring full genfromtxt geomspace
identity iscomplexobj isrealobj ix_ linspace loadtxt logspace may_share_memory min_scalar_type ndim
ones ones_like result_type save savetxt savez savez_compressed shape shares_memory size tri
tril_indices_from triu_indices_from zeros zeros_like
"""

#: What hands an operand whole to several ranks, by functions, and why.
GATHERED = {
    "a small matrix is gathered once, and every rank calls LAPACK": """
        linalg.cond linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
        linalg.matrix_rank linalg.pinv linalg.slogdet linalg.tensorsolve
    """,
    "rows times columns: every rank needs the smaller operand whole": """
        linalg.matmul linalg.matrix_power linalg.multi_dot
    """,
}

RANKS = 4
WAYS = {
    "rows": ((RANKS,), lambda ndim: [Shard(0)]),
    "grid": ((2, 2), lambda ndim: [Shard(0), Shard(ndim - 1)]),
}


def calls():
    """The calls of the table, by lines' ends and brackets."""
    found, call = [], ""
    for word in CALLS.split():
        call = f"{call} {word}".lstrip()
        if call.count("(") == call.count(")"):
            found.append(call)
            call = ""
    return found


def function(call):
    return call.partition("(")[0]


def operands(call, mesh, place):
    """What a call reads, cut; with the names that it knows otherwise."""
    read = set(re.findall(r"\w+", call))
    laid = {
        name: distarray.distribute(values.copy(), mesh, place(values.ndim), src=None)
        for name, values in OPERANDS.items()
        if name in read
    }
    return laid, {"np": dnp, "N": N, **laid}


def is_gather(event, block):
    """Whether a rank has handed its block to most others: a gather is three blocks of four."""
    if event.kind.startswith(("allgather", "broadcast")):
        return event.bytes > block / 2
    return event.kind == "exchange" and event.bytes > 2 * block


def largest_block(values):
    arrays = [v for v in values if isinstance(v, distarray.DistArray)]
    return max([prod(v.layout.local_shape(v.mesh.coords)) * v.itemsize for v in arrays])


@pytest.mark.counts(lambda n: n == RANKS)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
def test_what_is_gathered(world, ranks, way):
    shape, place = WAYS[way]

    def program(group):
        mesh, found = DeviceMesh(group, shape), set()
        for call in calls():
            laid, known = operands(call, mesh, place)
            block = largest_block(laid.values())
            with distarray.trace() as trace:
                result = eval(f"np.{call}", known)
            parts = result if isinstance(result, (tuple, list)) else [result]
            block = max(block, largest_block([*parts, *laid.values()]))
            if any(is_gather(event, block) for event in trace.events):
                found.add(function(call))
        return found

    with config.override(replicate_below=0):
        found = set().union(*world.run(ranks, program))
    assert found <= set(" ".join(GATHERED.values()).split())


def test_all_functions_are_called():
    known = {*map(function, calls()), *OTHERS.split()}
    ledger = {e.name.removeprefix("numpy.") for e in entries() if e.implementation is not None}
    assert {n for n in ledger if not n.startswith(("char.", "strings.", "lib.recf"))} <= known
    assert set(" ".join(GATHERED.values()).split()) <= known
