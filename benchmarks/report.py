"""The report: a table of the measurements, and which of the goals are reached."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cases import Case

if TYPE_CHECKING:
    from benchmarks.run import Measurement

__all__ = ["GOALS", "rows", "targets"]

Found = dict[tuple[str, str, int], "Measurement"]


@dataclass(frozen=True)
class Goal:
    """One line of what must be reached: a figure of the measurements, and its bound."""

    what: str
    figure: Callable[[Found], float]
    bound: float
    unit: str = ""
    at_least: bool = False

    def line(self, found: Found) -> str:
        """The figure beside its bound, and whether it is kept."""
        try:
            value = self.figure(found)
        except KeyError:
            return f"not measured   {self.what}"
        kept = value >= self.bound if self.at_least else value <= self.bound
        word = "at least" if self.at_least else "at most"
        verdict = "reached    " if kept else "NOT REACHED"
        return f"{verdict}    {self.what}: {value:.3g}{self.unit}, {word} {self.bound:g}{self.unit}"


def ours(found: Found, case: str, library: str = "distarray", ranks: int = 2) -> float:
    """Median seconds of a case, on 2 ranks where nothing else is said."""
    return found[case, library, ranks].median


def faster(case: str, than: str = "numpy") -> Callable[[Found], float]:
    """How many times the speed of NumPy distarray has on 2 ranks."""
    return lambda found: ours(found, case, than, 1) / ours(found, case)


def beside(library: str, case: str, ranks: int = 2) -> Callable[[Found], float]:
    """How many times the speed of another library on as many ranks."""
    return lambda found: ours(found, case, library, ranks) / ours(found, case, ranks=ranks)


def beside_torch(case: str, ranks: int = 2) -> Callable[[Found], float]:
    """How many times the speed of torch.distributed's library."""
    return beside("dtensor", case, ranks)


def beside_gloo(size: str) -> Callable[[Found], float]:
    """How many times the speed of torch.distributed an allreduce of a tensor has on 2 ranks."""
    return beside_torch(f"torch: allreduce {size}")


GOALS = [
    Goal(
        "a + a on 64x64, over NumPy's own",
        lambda f: 1e6 * (ours(f, "add 64x64") - ours(f, "add 64x64", "numpy", 1)),
        3,
        " µs",
    ),
    Goal("float(a.sum()) on 64x64", lambda f: 1e6 * ours(f, "sum 64x64"), 12, " µs"),
    Goal(
        "ring: what is kept of a conversation",
        lambda f: 1e6 * ours(f, "ring: a conversation"),
        1,
        " µs",
    ),
    Goal("first a + b of a new shape", lambda f: 1e6 * ours(f, "new shape: add"), 150, " µs"),
    Goal("triad on 8M, speed of NumPy", faster("triad 8M"), 1.9, "x", True),
    Goal("15 operations on 8M, speed of NumPy", faster("15 operations 8M"), 4, "x", True),
    Goal(
        "15 operations on 8M, speed of JAX's compiler",
        beside("jax", "15 operations 8M"),
        2,
        "x",
        True,
    ),
    Goal("sum of products of 8M, speed of NumPy", faster("sum of products 8M"), 3, "x", True),
    Goal("root mean square of 8M, speed of NumPy", faster("root mean square 8M"), 3, "x", True),
    Goal("two reductions of 8M, speed of NumPy", faster("two reductions 8M"), 2.2, "x", True),
    Goal("two reductions of 8M, speed of JAX", beside("jax", "two reductions 8M"), 1, "x", True),
    Goal("stencil 2048², speed of NumPy", faster("stencil 2048²"), 3.3, "x", True),
    Goal(
        "stencil, messages a rank a sweep",
        lambda f: (f["stencil 2048²", "distarray", 2].messages or 0) / 10,
        2,
    ),
    Goal(
        "redistribute 32 MiB, time of a copy of the block",
        lambda f: ours(f, "redistribute 32 MiB") / ours(f, "redistribute 32 MiB", "local"),
        2,
        "x",
    ),
    Goal(
        "redistribute 32 MiB, extra memory in destinations",
        lambda f: (f["redistribute 32 MiB", "distarray", 2].peak or 0) / (16 << 20),
        1.02,
    ),
    Goal(
        "matmul 2048², speed of NumPy with two threads",
        faster("matmul 2048²", "numpy-2"),
        0.9,
        "x",
        True,
    ),
    Goal("boolean mask of 8M, speed of NumPy", faster("boolean mask 8M"), 1, "x", True),
    Goal("take of 1M from 8M, speed of NumPy", faster("take 1M of 8M"), 1.3, "x", True),
    Goal("assigning 1M to 8M, speed of NumPy", faster("assign 1M of 8M"), 1.3, "x", True),
    Goal("fft2 2000², speed of NumPy", faster("fft2 2000²"), 1.6, "x", True),
    Goal("fftn 128³, speed of NumPy", faster("fftn 128³"), 1.6, "x", True),
    *[
        Goal(f"{case}, speed of mpi4py-fft", beside("mpi4py-fft", case), 1, "x", True)
        for case in ("fft2 2000²", "fftn 128³")
    ],
    Goal("fft of 4M, speed of NumPy", faster("fft 4M"), 1.6, "x", True),
    Goal(
        "solve 2000, speed of NumPy with two threads",
        faster("solve 2000", "numpy-2"),
        1,
        "x",
        True,
    ),
    Goal(
        "cholesky 2000, speed of NumPy with two threads",
        faster("cholesky 2000", "numpy-2"),
        1,
        "x",
        True,
    ),
    Goal("inv 500, time of NumPy's", lambda f: 1 / faster("inv 500")(f), 1.3, "x"),
    Goal("det 500, time of NumPy's", lambda f: 1 / faster("det 500")(f), 1.3, "x"),
    Goal("import distarray.numpy", lambda f: f["import", "distarray", 1].median, 0.15, " s"),
    Goal("normals 4M, speed of NumPy's Philox", faster("normals 4M"), 1.6, "x", True),
    Goal("sort 4M, speed of NumPy", faster("sort 4M"), 1.5, "x", True),
    Goal("unique 4M, speed of NumPy", faster("unique 4M"), 2, "x", True),
    *[
        Goal(
            f"transformer, {way}, {ranks} ranks, speed of DTensor with FSDP2",
            beside_torch(f"torch: transformer, {way}, a step", ranks),
            1,
            "x",
            True,
        )
        for way in ("dp", "dp x tp")
        for ranks in (2, 4)
    ],
    Goal("allreduce of 1 KiB, speed of gloo", beside_gloo("1 KiB"), 10, "x", True),
    Goal("allreduce of 32 MiB, speed of gloo", beside_gloo("32 MiB"), 1, "x", True),
    Goal("to_torch of a block", lambda f: 1e6 * ours(f, "to_torch 32 MiB"), 5, " µs"),
    Goal("from_torch of a block", lambda f: 1e6 * ours(f, "from_torch 32 MiB"), 5, " µs"),
    Goal(
        "write 1 GiB as .npy, time of plain writes",
        lambda f: ours(f, "write .npy 1 GiB") / ours(f, "write .npy 1 GiB", "local"),
        1.2,
        "x",
    ),
    Goal(
        "read 1 GiB of .npy, time of plain reads",
        lambda f: ours(f, "read .npy 1 GiB") / ours(f, "read .npy 1 GiB", "local"),
        1.2,
        "x",
    ),
    Goal(
        "checkpoint of 1 GiB, speed of PyTorch's",
        lambda f: ours(f, "checkpoint 1 GiB, save", "dtensor") / ours(f, "checkpoint 1 GiB, save"),
        2,
        "x",
        True,
    ),
    Goal(
        "loading it as columns, time of loading it as it was",
        lambda f: ours(f, "checkpoint 1 GiB, load columns") / ours(f, "checkpoint 1 GiB, load"),
        1.3,
        "x",
    ),
    Goal(
        "asynchronous saving, time of copying the state",
        lambda f: (
            ours(f, "checkpoint 1 GiB, asynchronous")
            / ours(f, "checkpoint 1 GiB, asynchronous", "local")
        ),
        1.5,
        "x",
    ),
]


def index(found: Sequence["Measurement"]) -> Found:
    """Measurements by case, library and ranks."""
    return {(m.case, m.library, m.ranks): m for m in found}


def targets(found: Sequence["Measurement"]) -> str:
    """A line for each goal."""
    table = index(found)
    return "\n".join(["", *[goal.line(table) for goal in GOALS]])


def rows(case: Case, found: Sequence["Measurement"]) -> str:
    """The rows of one case: a line for each library and rank count."""
    table = index(found)
    lines = ["", f"{case.name:<24} {'median':>10} {'min':>10} {'x NumPy':>8} {'copy speed':>10}"]
    lines += [
        _row(case, measurement, table) for measurement in found if measurement.case == case.name
    ]
    return "\n".join(lines)


def _row(case: Case, m: "Measurement", table: Found) -> str:
    name = m.library if m.library.startswith("numpy") else f"{m.library} on {m.ranks}"
    base = table.get((case.name, "numpy", 1))
    ratio = f"{base.median / m.median:.2f}" if base else ""
    text = f"  {name:<22} {_seconds(m.median):>10} {_seconds(m.minimum):>10} {ratio:>8}"
    text += f" {_of_copy(case, m, table):>10}"
    if m.messages is not None:
        text += f"   {m.messages} messages, {_size(m.bytes or 0)} sent, peak {_size(m.peak or 0)}"
    return text


def _of_copy(case: Case, m: "Measurement", table: Found) -> str:
    """Speed in parts of what copying memory reaches on as many ranks, in the same run."""
    if not case.traffic or m.library == "local":
        return ""
    copy = table["copy", *(("numpy", 1) if m.library.startswith("numpy") else ("local", m.ranks))]
    copied = 16 * 16 * (1 << 20) / copy.minimum
    moved = eval(case.traffic, {**case.sizes, "p": m.ranks})
    return f"{100 * moved / m.median / copied:.0f} %"


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1 or unit == "µs":
            return f"{value * scale:.3g} {unit}"
    raise AssertionError


def _size(count: int) -> str:
    return f"{count} B" if count < 1 << 16 else f"{count / (1 << 20):.1f} MiB"
