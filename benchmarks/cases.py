"""The table: what is measured, in the words of each library.

A statement is timed as :mod:`timeit` times it. What it may use:

* `np` (NumPy, or `distarray.numpy`, `jax.numpy`, `dask.array`), `ht` (Heat), `torch`, each in its
  own library's statements, and `numpy` in all; JAX's `ready(result)` waits for it;
* `rng`, a NumPy generator, equal on every rank; the sizes of the case, such as `n`;
* `place(values)`, which makes the library's array of NumPy values, cut along the first dimension
  (`place(values, 1)`: the second; `place(values, None)`: on every rank);
* `i`, the number of the repetition, in `before`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CASES", "Case"]

MILLION = 1 << 20


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    name : str
    setup : str
        Run once; `before` is run before each repetition and not timed.
    statements : mapping of str to str
        What is timed. Keys: "numpy" (one process), "numpy-2" (two BLAS threads), "distarray",
        "heat", "dtensor", "jax", "dask", "mpi4py-fft", and "local": what each rank does by itself,
        for comparison.
    sizes, tiny : mapping of str to int
        The sizes measured, and those that the tests run.
    traffic : str
        Bytes that have to be read and written at the least, over all ranks; "" where time is not
        a matter of memory. `p` is the number of ranks.
    messages : str
        Messages that the busiest rank sends in one call, on `p` > 1 ranks; a collective is one.
    """

    name: str
    setup: str
    statements: Mapping[str, str]
    sizes: Mapping[str, int] = field(default_factory=dict)
    tiny: Mapping[str, int] = field(default_factory=dict)
    traffic: str = ""
    messages: str = "0"
    before: str = ""


def everywhere(statement: str, **others: str) -> dict[str, str]:
    """One statement for every library but those that spell it otherwise ("": not at all)."""
    spelled = dict.fromkeys(("numpy", "distarray", "heat", "dtensor"), statement) | others
    return {library: text for library, text in spelled.items() if text}


SMALL = "a = place(rng.random((64, 64)))"
GRID = "a = place(rng.random((n, n)))"
LINE = "a = place(rng.random(n))"
THREE = "a, b, s = place(rng.random(n)), place(rng.random(n)), 3.0"

FIFTEEN = "((a + b) * (a - b) + 2.0 * a * b) / (1.0 + a * a + b * b) - 0.5 * a + 0.25 * b"

SWEEPS = """
a = place(rng.random((n, n)))
def sweeps(u, count):
    for _ in range(count):
        u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.2 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]
        )
"""

PCA = """
a = place(rng.random((n, 64)) * (1.0 + numpy.arange(64)))
def principal(linalg, x, count):
    x = x - x.mean(axis=0)
    values = linalg.svd(x, full_matrices=False)[1]
    return values[:count] ** 2 / (x.shape[0] - 1)
"""

KMEANS = """
a = rng.random((n, 16))
start = a[:8].copy()
a, start = place(a), place(start, None)
def lloyd(np, x, centers, count):
    for _ in range(count):
        squares = (x * x).sum(axis=1)[:, None] + (centers * centers).sum(axis=1)
        nearest = (squares - 2.0 * (x @ centers.T)).argmin(axis=1)
        members = (nearest[:, None] == np.arange(8)).astype(x.dtype)
        centers = (members.T @ x) / members.sum(axis=0)[:, None]
    return centers
"""

OVERLAP = """
import distarray
a = place(rng.random((n, n)))
def laplace(u):
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]
"""
COLUMNS = {
    "distarray": "a.redistribute(placements=[Shard(1)])",
    "heat": "ht.resplit(a, 1)",
    "dtensor": "a.redistribute(placements=[Shard(1)])",
    "local": "block.copy()",
}
#: NumPy's, or ours; the same bits for the first 16,384 numbers.
PHILOX = "np.random.Generator(np.random.Philox(5))"
WITH_BLOCK = "a = place(rng.random((n, n)))\nblock = local(a)"

TOY = """
from benchmarks.toy import step_of
step = step_of("dtensor" if "torch" in globals() else "distarray")
"""
TRANSFORMER = """
from benchmarks.transformer import step_of
library = "dtensor" if "torch" in globals() else "distarray"
step = step_of(library, p, tp, width, context, batch)
"""
LARGE_MODEL = {"width": 128, "context": 64, "batch": 12}
TINY_MODEL = {"width": 32, "context": 4, "batch": 6}
ALLREDUCE = """
if "torch" in globals():
    from torch.distributed import all_reduce
else:
    import torch, distarray.torch
    from functools import partial
    all_reduce = partial(distarray.torch.all_reduce_, mesh=distarray.default_mesh())
t = torch.zeros(n) + 0
"""
BRIDGE = """
from distarray.torch import from_torch, to_torch
a = place(rng.random((n, n)))
t = to_torch(a)
like = {"mesh": a.mesh, "placements": a.placements, "shape": a.shape}
"""
FILES = """
from benchmarks.plain import Plain, scratch
a = place(numpy.full(n, 0.5))
path = scratch() + "/a.npy"
plain = Plain(scratch() + "/a.raw", a)
"""
WRITTEN = (
    FILES
    + """
numpy.save(path, a)
plain.write()
"""
)
#: A GiB in arrays of 4 MiB. Few arrays are as large, lest ranks share a file.
STATE = """
from benchmarks.states import state
s = state(globals(), n, rows)
a = place(numpy.zeros(4))
"""
LARGE_STATE, TINY_STATE = {"n": 256, "rows": 512}, {"n": 2, "rows": 768}

CASES = [
    Case(
        "copy",
        "x = numpy.zeros(n // p)\ny = numpy.ones(n // p)",
        {"numpy": "numpy.copyto(x, y)", "local": "numpy.copyto(x, y)"},
        {"n": 16 * MILLION},
        {"n": 64},
        traffic="16 * n",
    ),
    Case("add 64x64", SMALL, everywhere("a + a")),
    Case(
        "sum 64x64",
        SMALL,
        everywhere("float(a.sum())", dtensor="float(a.sum().full_tensor())"),
        messages="1",
    ),
    Case(
        "new shape: add",
        "",
        everywhere("a + b"),
        before="a = place(rng.random((65 + i, 63)))\nb = place(rng.random(63), None)",
    ),
    Case(
        "new shape: shifted",
        "",
        everywhere("a[1:] + a[:-1]", heat="", dtensor=""),
        before="a = place(rng.random((65 + i, 61)))",
        messages="1",
    ),
    Case("triad 8M", THREE, everywhere("a + s * b"), {"n": 8 * MILLION}, {"n": 64}, "24 * n"),
    Case("15 operations 8M", THREE, everywhere(FIFTEEN), {"n": 8 * MILLION}, {"n": 64}, "24 * n"),
    Case(
        "stencil 2048²",
        SWEEPS,
        everywhere("sweeps(a, sweeps_timed)", dtensor=""),
        {"n": 2048, "sweeps_timed": 10},
        {"n": 24, "sweeps_timed": 1},
        traffic="16 * n * n * sweeps_timed",
        messages="min(p - 1, 2) * sweeps_timed",
    ),
    Case(
        "sum axis 0 2048²",
        GRID,
        everywhere("a.sum(axis=0)", dtensor="a.sum(dim=0).full_tensor()"),
        {"n": 2048},
        {"n": 16},
        traffic="8 * n * n",
        messages="1",
    ),
    Case(
        "sum axis 1 2048²",
        GRID,
        everywhere("a.sum(axis=1)", dtensor="a.sum(dim=1)"),
        {"n": 2048},
        {"n": 16},
        traffic="8 * n * n",
    ),
    Case(
        "redistribute 32 MiB",
        WITH_BLOCK,
        COLUMNS,
        {"n": 2048},
        {"n": 16},
        traffic="16 * n * n",
        messages="p - 1",
    ),
    Case(
        "redistribute 128 MiB",
        WITH_BLOCK,
        COLUMNS,
        {"n": 4096},
        {"n": 16},
        traffic="16 * n * n",
        messages="p - 1",
    ),
    Case(
        "matmul 2048²",
        "a, b = place(rng.random((n, n))), place(rng.random((n, n)))",
        everywhere("a @ b") | {"numpy-2": "a @ b"},
        {"n": 2048},
        {"n": 16},
        messages="p - 1",
    ),
    Case(
        "Gram 1M x 64",
        "a = place(rng.random((n, 64)))",
        everywhere("a.T @ a", dtensor="(a.T @ a).full_tensor()") | {"numpy-2": "a.T @ a"},
        {"n": MILLION},
        {"n": 4096},
        traffic="8 * 64 * n",
        messages="1",
    ),
    Case(
        "cumsum 8M",
        LINE,
        everywhere(
            "np.cumsum(a)",
            heat="ht.cumsum(a, 0)",
            dtensor="torch.cumsum(a, 0)",
            jax="ready(np.cumsum(a))",
            dask="np.cumsum(a, 0).persist()",
        ),
        {"n": 8 * MILLION},
        {"n": 64},
        traffic="16 * n",
        messages="1",
    ),
    Case(
        "boolean mask 8M",
        LINE,
        everywhere("a[a > 0.5]", dtensor=""),
        {"n": 8 * MILLION},
        {"n": 64},
        traffic="12 * n",
        messages="1",
    ),
    Case(
        "take 1M of 8M",
        "a = place(rng.random(n))\nk = place(rng.integers(0, n, n // 8))",
        everywhere("a[k]"),
        {"n": 8 * MILLION},
        {"n": 512},
        messages="p + 1",
    ),
    Case(
        "fft2 2000²",
        "a = place(rng.random((n, n)) + 1j * rng.random((n, n)))",
        everywhere(
            "np.fft.fft2(a)",
            heat="ht.fft.fft2(a)",
            dtensor="torch.fft.fft2(a)",
            jax="ready(np.fft.fft2(a))",
        )
        | {"mpi4py-fft": "a()"},
        {"n": 2000},
        {"n": 24},
        messages="p - 1",
    ),
    Case(
        "fftn 128³",
        "a = place(rng.random((n, n, n)) + 1j * rng.random((n, n, n)))",
        everywhere(
            "np.fft.fftn(a)",
            heat="ht.fft.fftn(a)",
            dtensor="torch.fft.fftn(a)",
            jax="ready(np.fft.fftn(a))",
        )
        | {"mpi4py-fft": "a()"},
        {"n": 128},
        {"n": 12},
        messages="p - 1",
    ),
    Case(
        "fft 4M",
        "a = place(rng.random(n) + 1j * rng.random(n))",
        everywhere(
            "np.fft.fft(a)",
            heat="ht.fft.fft(a)",
            dtensor="torch.fft.fft(a)",
            jax="ready(np.fft.fft(a))",
        ),
        {"n": 4 * MILLION},
        {"n": 512},
        messages="(3 if n > 1 << 17 else 1) * (p - 1)",
    ),
    Case(
        "normals 4M",
        "",
        everywhere(
            PHILOX + ".standard_normal(n)",
            heat="ht.random.randn(n, dtype=ht.float64, split=0)",
            dtensor="",
            jax="ready(jax.random.normal(jax.random.key(5), n))",
            dask="np.random.default_rng(5).standard_normal(n, chunks=-(-n // p)).persist()",
        ),
        {"n": 4 * MILLION},
        {"n": 64},
    ),
    Case(
        "permutation 4M",
        "",
        everywhere(PHILOX + ".permutation(n)", heat="ht.random.randperm(n)", dtensor=""),
        {"n": 4 * MILLION},
        {"n": 64},
        messages="p + 3 if n > 1 << 16 else 0",
    ),
    Case(
        "sort 4M",
        LINE,
        everywhere("np.sort(a)", heat="ht.sort(a)", dtensor="", jax="ready(np.sort(a))"),
        {"n": 4 * MILLION},
        {"n": 40_000},
        messages="6 if n >= p << 15 else 5",  # samples, bounds, two of cuts, the keys; a check
    ),
    Case(
        "argsort 4M",
        LINE,
        everywhere("np.argsort(a)", heat="", dtensor="", jax="ready(np.argsort(a))"),
        {"n": 4 * MILLION},
        {"n": 40_000},
        messages="6",
    ),
    Case(
        "unique 4M",
        "a = place(rng.integers(0, 1000, n))",
        everywhere(
            "np.unique(a)",
            heat="ht.unique(a, sorted=True)",
            dtensor="",
            jax="ready(np.unique(a))",
            dask="np.unique(a).compute()",
        ),
        {"n": 4 * MILLION},
        {"n": 40_000},
        messages="2",
    ),
    Case(
        "searchsorted 1M in 4M",
        "a = place(numpy.sort(rng.random(n)))\nv = place(rng.random(n // 4))",
        everywhere("np.searchsorted(a, v)", heat="", dtensor=""),
        {"n": 4 * MILLION},
        {"n": 40_000},
        messages="p + 1",
    ),
    Case(
        "solve 2000",
        "a, b = place(rng.standard_normal((n, n))), place(rng.random(n))",
        everywhere("np.linalg.solve(a, b)", heat="", dtensor="", jax="ready(np.linalg.solve(a, b))")
        | {"numpy-2": "np.linalg.solve(a, b)"},
        {"n": 2000},
        {"n": 24},
        messages="2 * (p - 1) + (1 if n < 1024 else 33)",  # panels of 128: broadcasts, then sums
    ),
    Case(
        "cholesky 2000",
        "a = rng.random((n, n))\na = place(a + a.T + 2 * n * numpy.eye(n))",
        everywhere("np.linalg.cholesky(a)", heat="", dtensor="", jax="ready(np.linalg.cholesky(a))")
        | {"numpy-2": "np.linalg.cholesky(a)"},
        {"n": 2000},
        {"n": 24},
        messages="p if n < 1024 else 2 * (p - 1) + 16",
    ),
    Case(
        "inv 500",
        "a = place(rng.standard_normal((n, n)))",
        everywhere(
            "np.linalg.inv(a)",
            heat="ht.linalg.inv(a)",
            dtensor="",
            jax="ready(np.linalg.inv(a))",
        ),
        {"n": 500},
        {"n": 24},
        messages="p",
    ),
    Case(
        "det 500",
        "a = place(rng.standard_normal((n, n)) / n**0.5)",
        everywhere(
            "np.linalg.det(a)",
            heat="ht.linalg.det(a)",
            dtensor="",
            jax="ready(np.linalg.det(a))",
        ),
        {"n": 500},
        {"n": 24},
        messages="p",
    ),
    Case(
        "eigh 2048",
        "a = rng.random((n, n))\na = place(a + a.T)",
        everywhere("np.linalg.eigh(a)[0]", heat="", dtensor="")
        | {"numpy-2": "np.linalg.eigh(a)[0]"},
        {"n": 2048},
        {"n": 24},
        messages="p if n < 2048 else 8 * (p - 1) + 3 * n",
    ),
    Case(
        "qr 262144 x 32",
        "a = place(rng.random((n, 32)))",
        everywhere(
            "np.linalg.qr(a)[1].diagonal()",
            heat="ht.linalg.qr(a)[1]",
            dtensor="torch.linalg.qr(a)",
            jax="ready(np.linalg.qr(a)[1])",
            dask="np.linalg.qr(a)[1].compute()",
        ),
        {"n": 1 << 18},
        {"n": 2048},
        messages="(p - 1).bit_length() + 1",
    ),
    Case(
        "svd 20000 x 50",
        "a = place(rng.random((n, 50)))",
        everywhere(
            "np.linalg.svd(a, full_matrices=False)[1]",
            heat="ht.linalg.svd(a, full_matrices=False)[1]",
            dtensor="torch.linalg.svd(a, full_matrices=False)",
            jax="ready(np.linalg.svd(a, full_matrices=False)[1])",
            dask="np.linalg.svd(a)[1].compute()",
        ),
        {"n": 20_000},
        {"n": 1000},
        messages="(p - 1).bit_length() + 2",
    ),
    Case(
        "lstsq 262144 x 32",
        "a, b = place(rng.random((n, 32))), place(rng.random(n))",
        everywhere("np.linalg.lstsq(a, b)[3]", heat="", dtensor=""),
        {"n": 1 << 18},
        {"n": 2048},
        messages="(p - 1).bit_length() + 2",
    ),
    Case(
        "PCA 200000 x 64",
        PCA,
        everywhere(
            "principal(np.linalg, a, 8)",
            heat="principal(ht.linalg, a, 8)",
            dtensor="",
            jax="ready(principal(np.linalg, a, 8))",
        ),
        {"n": 200_000},
        {"n": 1000},
        messages="(p - 1).bit_length() + 3",
    ),
    Case(
        "k-means 200000 x 16",
        KMEANS,
        everywhere(
            "lloyd(np, a, start, 10)",
            heat="ht.cluster.KMeans(8, start, 10, -1.0).fit(a)",
            dtensor="",
            jax="ready(lloyd(np, a, start, 10))",
            dask="lloyd(np, a, start, 10).compute()",
        ),
        {"n": 200_000},
        {"n": 1000},
        messages="20",
    ),
    Case(
        "median 4M",
        LINE,
        everywhere("np.median(a)", heat="ht.median(a)", dtensor="", jax="ready(np.median(a))"),
        {"n": 4 * MILLION},
        {"n": 40_000},
        messages="6 if n > 1 << 18 else 4",  # sizes; samples and counts, a round; candidates
    ),
    Case(
        "percentile 4M",
        LINE,
        everywhere(
            "np.percentile(a, [25, 50, 75])",
            heat="ht.percentile(a, [25, 50, 75])",
            dtensor="",
            jax="ready(np.percentile(a, numpy.array([25, 50, 75])))",
        ),
        {"n": 4 * MILLION},
        {"n": 40_000},
        messages="6 if n > 1 << 18 else 4",
    ),
    Case(
        "histogram 4M",
        LINE,
        everywhere(
            "float(np.histogram(a, 50)[0].sum())",
            heat="float(ht.histogram(a, 50)[0].sum())",
            dtensor="",
            dask="float(np.histogram(a, 50, (0.0, 1.0))[0].sum())",
        ),
        {"n": 4 * MILLION},
        {"n": 64},
        messages="2",
    ),
    Case(
        "convolve 4M x 101",
        "a, v = place(rng.random(n)), place(rng.random(101), None)",
        everywhere("np.convolve(a, v, 'same')", heat="ht.convolve(a, v, 'same')", dtensor=""),
        {"n": 4 * MILLION},
        {"n": 4096},
        messages="min(p - 1, 2)",
    ),
    Case(
        "map_overlap 2048²",
        OVERLAP,
        {
            "numpy": "laplace(numpy.pad(a, 1, 'wrap'))",
            "distarray": "distarray.map_overlap(laplace, a, 1, 'periodic')",
        },
        {"n": 2048},
        {"n": 24},
        traffic="32 * n * n",
        messages="min(p - 1, 2) + 1",  # and what they agree on
    ),
    Case(
        "vectorize 512k",
        LINE + "\nhat = np.vectorize(lambda v: 2 * v if v < 0.5 else 2 - 2 * v)",
        everywhere("hat(a)", heat="", dtensor=""),
        {"n": MILLION // 2},
        {"n": 64},
        messages="3",
    ),
    Case(
        "apply_along_axis 4096 x 256",
        "a = place(rng.random((n, 256)))",
        everywhere("np.apply_along_axis(numpy.ptp, 1, a)", heat="", dtensor=""),
        {"n": 4096},
        {"n": 64},
        messages="3",
    ),
    Case(
        "torch: tensor-parallel MLP, a step",  # forward, backward, AdamW
        TOY,
        {"distarray": "step()", "dtensor": "step()"},
        messages="1",
    ),
    # Gathered: two blocks twice, the rest once; scattered: three units.
    Case(
        "torch: transformer, dp, a step",
        TRANSFORMER,
        {"distarray": "step()", "dtensor": "step()"},
        LARGE_MODEL | {"tp": 1},
        TINY_MODEL | {"tp": 1},
        messages="8",
    ),
    Case(
        "torch: transformer, dp x tp, a step",
        TRANSFORMER,
        {"distarray": "step()", "dtensor": "step()"},
        LARGE_MODEL | {"tp": 2},
        TINY_MODEL | {"tp": 2},
        messages="(8 if p > 2 else 0) + (14 if p % 2 == 0 else 0)",
    ),
    Case(
        "torch: allreduce 1 KiB",
        ALLREDUCE,
        {"distarray": "all_reduce(t)", "dtensor": "all_reduce(t)"},
        {"n": 256},
        {"n": 256},
        messages="1",
    ),
    Case(
        "torch: allreduce 32 MiB",
        ALLREDUCE,
        {"distarray": "all_reduce(t)", "dtensor": "all_reduce(t)"},
        {"n": 8 * MILLION},
        {"n": 1000},
        messages="1",
    ),
    Case("to_torch 32 MiB", BRIDGE, {"distarray": "to_torch(a)"}, {"n": 2048}, {"n": 16}),
    Case(
        "from_torch 32 MiB",
        BRIDGE,
        {"distarray": "from_torch(t, check=False, **like)"},
        {"n": 2048},
        {"n": 16},
    ),
    Case(
        "from_torch, compared",
        BRIDGE,
        {"distarray": "from_torch(t, **like)"},
        {"n": 2048},
        {"n": 16},
        messages="1",
    ),
    Case(
        "write .npy 1 GiB",
        FILES,
        {
            "numpy": "numpy.save(path, a)",
            "distarray": "numpy.save(path, a)",
            "local": "plain.write()",
        },
        {"n": 128 * MILLION},
        {"n": 64},
        messages="5",  # whether the path is one; all are here; it is open; the values; all is well
    ),
    Case(
        "read .npy 1 GiB",
        WRITTEN,
        {
            "numpy": "numpy.load(path)",
            "distarray": "np.load(path, placements=[Shard(0)])",
            "local": "plain.read()",
        },
        {"n": 128 * MILLION},
        {"n": 64},
        messages="p + 3",  # whether the path is one; the header, well read; the values, well read
    ),
    Case(
        "checkpoint 1 GiB, save",
        STATE,
        everywhere("s.save()", dask="s.save()", heat=""),
        LARGE_STATE,
        TINY_STATE,
        messages="8",
    ),
    Case(
        "checkpoint 1 GiB, load",
        STATE,
        {
            "numpy": "s.load() and a",
            "distarray": "s.load() and a",
            "dtensor": "s.load()",
            "dask": "s.load()",
        },
        LARGE_STATE,
        TINY_STATE,
        messages="11",
    ),
    Case(
        "checkpoint 1 GiB, load columns",
        STATE,
        {"distarray": "s.load_columns() and a", "dtensor": "s.load_columns()"},
        LARGE_STATE,
        TINY_STATE,
        messages="11 + 2 * (p - 1) if p > 1 else 0",
    ),
    Case(
        "checkpoint 1 GiB, asynchronous",
        STATE,
        {"distarray": "s.save_behind()", "local": "s.copy()"},
        LARGE_STATE,
        TINY_STATE,
        messages="6",
        before="s.wait() if hasattr(s, 'wait') else None",
    ),
]
