"""Arrays: elementwise operations, reductions, layouts, products, indexing."""

from benchmarks.case import GRID, LINE, MILLION, Case, everywhere

__all__ = ["CASES"]

SMALL = "a = place(rng.random((64, 64)))"
THREE = "a, b, s = place(rng.random(n)), place(rng.random(n)), 3.0"
FIFTEEN = "((a + b) * (a - b) + 2.0 * a * b) / (1.0 + a * a + b * b) - 0.5 * a + 0.25 * b"
#: Expressions as functions, which JAX compiles.
FUNCTIONS = f"""
{THREE}
def formula(a, b):
    return {FIFTEEN}
def product(a, b):
    return (a * b).sum()
def deviation(a, b):
    return np.sqrt(((a - b) ** 2).mean())
def reductions(a, b):
    d = a - b
    return d.max(), (d * d).sum()
if "jax" in globals():
    formula, product, deviation, reductions = map(
        jax.jit, (formula, product, deviation, reductions)
    )
"""
SWEEPS = """
a = place(rng.random((n, n)))
def sweeps(u, count):
    for _ in range(count):
        u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.2 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]
        )
"""
#: What a rank keeps of each conversation, for when ranks wait in vain; `a + a` has none.
RING = """
from distarray.comm import calls
__name__ = "program"
class Group:
    among = None
    number = 0
    def allreduce(self):
        calls.note(self, "allreduce", None)
group = Group()
"""
#: A product with the same bits on any number of ranks.
REPEATABLE = """
from distarray.config import config
def repeatable(a, b):
    with config.override(reproducible=True):
        return a @ b
"""
COLUMNS = {
    "distarray": "a.redistribute(placements=[Shard(1)])",
    "heat": "ht.resplit(a, 1)",
    "dtensor": "a.redistribute(placements=[Shard(1)])",
    "local": "block.copy()",
}
WITH_BLOCK = "a = place(rng.random((n, n)))\nblock = local(a)"

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
    Case("ring: a conversation", RING, {"distarray": "group.allreduce()"}),
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
    Case(
        "15 operations 8M",
        FUNCTIONS,
        everywhere("formula(a, b)", jax="ready(formula(a, b))"),
        {"n": 8 * MILLION},
        {"n": 64},
        "24 * n",
    ),
    Case(
        "sum of products 8M",
        FUNCTIONS,
        everywhere("float(product(a, b))", dtensor="", heat="", jax="ready(product(a, b))"),
        {"n": 8 * MILLION},
        {"n": 64},
        "16 * n",
        messages="1",
    ),
    Case(
        "root mean square 8M",
        FUNCTIONS,
        everywhere("float(deviation(a, b))", dtensor="", heat="", jax="ready(deviation(a, b))"),
        {"n": 8 * MILLION},
        {"n": 64},
        "16 * n",
        messages="1",
    ),
    Case(
        "two reductions 8M",
        FUNCTIONS,
        everywhere(
            "[float(x) for x in reductions(a, b)]",
            dtensor="",
            heat="",
            jax="ready(reductions(a, b))",
        ),
        {"n": 8 * MILLION},
        {"n": 64},
        "16 * n",
        messages="2",
    ),
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
        "matmul 2048², reproducible",
        "a, b = place(rng.random((n, n))), place(rng.random((n, n)))\n" + REPEATABLE,
        {"numpy": "a @ b", "distarray": "repeatable(a, b)"},
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
            jax="",  # over two devices it takes minutes
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
        "assign 1M of 8M",
        "a, v = place(rng.random(n)), place(rng.random(n // 8))\n"
        "k = place(rng.integers(0, n, n // 8))",
        everywhere("a.__setitem__(k, v)", heat="", dtensor=""),  # Heat refuses other cuts
        {"n": 8 * MILLION},
        {"n": 512},
        messages="2",
    ),
]
