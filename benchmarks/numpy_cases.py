"""The rest of NumPy: transforms, random numbers, sorting, linear algebra, statistics."""

from benchmarks.case import LINE, MILLION, Case, everywhere

__all__ = ["CASES"]

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
#: NumPy's, or ours; the same bits for the first 16,384 numbers.
PHILOX = "np.random.Generator(np.random.Philox(5))"

CASES = [
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
        messages="2 if n > 1 << 14 else 0",
    ),
    Case(
        "permutation 4M",
        "",
        everywhere(PHILOX + ".permutation(n)", heat="ht.random.randperm(n)", dtensor=""),
        {"n": 4 * MILLION},
        {"n": 64},
    ),
    Case(
        "sort 4M",
        LINE,
        everywhere("np.sort(a)", heat="ht.sort(a)", dtensor="", jax="ready(np.sort(a))"),
        {"n": 4 * MILLION},
        {"n": 80_000},
        messages="p + 3 if n >= p * p << 14 else 5",  # samples, lengths, the keys, an end; a check
    ),
    Case(
        "argsort 4M",
        LINE,
        everywhere("np.argsort(a)", heat="", dtensor="", jax="ready(np.argsort(a))"),
        {"n": 4 * MILLION},
        {"n": 80_000},
        messages="2 * p + 1 if n >= p * p << 14 else 6",  # samples, lengths, keys, places, an end
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
        {"n": 80_000},
        messages="2",
    ),
    Case(
        "searchsorted 1M in 4M",
        "a = place(numpy.sort(rng.random(n)))\nv = place(rng.random(n // 4))",
        everywhere("np.searchsorted(a, v)", heat="", dtensor=""),
        {"n": 4 * MILLION},
        {"n": 80_000},
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
        messages="p if n < 1024 else p - 1 + 16",
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
        {"n": 80_000},
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
        {"n": 80_000},
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
]
