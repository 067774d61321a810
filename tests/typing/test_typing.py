"""Programs under a type checker: one run of mypy over all of them, as strict as it can be."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api", reason="the extra test is not installed")

ROOT = Path(__file__).resolve().parents[2]
#: Strict, with a word for each error. What is installed besides is not read: it only takes time.
CONFIG = """\
[mypy]
strict = true
show_error_codes = true
[mypy-torch.*,ml_dtypes.*,cupy.*,h5py.*,zarr.*,netCDF4.*,mpi4py.*]
follow_imports = skip
ignore_missing_imports = true
"""

HEAD = """\
import {module} as np
import distarray
from distarray import DistArray

def revealed(x: DistArray, i: int, j: int, mesh: distarray.DeviceMesh) -> None:
"""

#: Expressions that are typed alike whichever module is `np`.
ANYWHERE = {
    "DistArray": """
        x + 1, 2.5 * x, 1 - x, x / x, x // 2, x % 3, x ** 2, 2 ** x, -x, +x, abs(x), ~x, x @ x
        x < 1, x >= x, x == x, x != 0, (x > 0) & (x < 1), x | x, x << 1, x + [1, 2]
        x[1:], x[::-1], x[:, 0], x[0, ...], x[..., None], x[None], x[x > 0], x[[0, 2]]
        x[x.argsort()], x["field"], x[1:-1, 2:] - x[:-2, 2:], x[1:].T
        x.sum(axis=0), x.mean(0), x.max(axis=(0, 1)), x.std(axis=-1, keepdims=True)
        x.argmin(axis=1), x.cumsum(), x.T, x.mT, x.real, x.imag, x.conj(), x.copy()
        x.reshape(-1), x.reshape(2, -1), x.reshape((2, 3)), x.ravel(), x.transpose(1, 0)
        x.astype("f4"), x.astype(np.float32), x.clip(0, 1), x.round(2), x.squeeze()
        x.take([0, 1]), x.repeat(2), x.argsort(), x.swapaxes(0, 1), x.view()
        x.redistribute(placements=[distarray.Shard(0)]), x.redistribute(distarray.Replicate())
        distarray.distribute([1.0, 2.0]), distarray.distribute(x.full(), mesh)
        distarray.DistArray.from_local(x.to_local(), mesh, [distarray.Shard(0)])
    """,
    "Any": "x[0], x[i, j], x[-1, 0], x.sum(), x.mean(), x.max(), x.argmax(), x.item(), x.take(0)",
    "tuple[DistArray, ...]": "x.nonzero()",
    "tuple[DistArray, DistArray]": "divmod(x, 2)",
    "tuple[int, ...]": "x.shape, mesh.shape",
    "int": "x.ndim, x.size, x.nbytes, len(x), int(x), mesh.size(), mesh.rank",
    "float": "float(x), float(x.sum()), float(x[0])",
    "bool": "bool(x), bool((x > 0).all())",
    "str": "str(x), x.device",
    "dtype[Any]": "x.dtype",
    "ndarray[Any, Any]": "x.full()",
    "ndarray[tuple[Any, ...], dtype[Any]]": "x.to_local()",
    "ndarray[Any, Any] | None": "x.gather()",
    "Layout": "x.layout",
    "DeviceMesh": "x.mesh, x.device_mesh, mesh['a'], distarray.init_device_mesh('cpu', (4,))",
    "tuple[Placement, ...]": "x.placements",
}

#: Expressions that NumPy's own stubs take for arrays of NumPy's.
OURS = {
    "DistArray": """
        np.sqrt(x) * 2 + x, np.exp(-x), np.add(1, x), np.maximum(x, 0), np.matmul(x, x)
        np.hypot(x, x), np.isnan(x), np.logical_and(x > 0, x < 1), np.sin(x, out=x)
        np.zeros(3), np.ones((2, 3), dtype=np.float32), np.full(3, 1.5), np.empty_like(x)
        np.zeros((4, 4), mesh=mesh, placements=[distarray.Shard(0)]), np.arange(10), np.eye(3)
        np.arange(0.0, 1.0, 0.1), np.array([1, 2]), np.asarray([1.0]), np.linspace(0, 1, 5)
        np.concatenate([x, x]), np.stack((x, x), axis=1), np.vstack([x, x]), np.hstack([x, x])
        np.where(x > 0, x, 0), np.where(x > 0, 1, x), np.clip(x, 0, 1), np.round(x, 2), np.abs(x)
        np.sum(x, axis=0), np.mean(x, axis=(0, 1)), np.std(x, axis=0, ddof=1), np.cumsum(x)
        np.median(x, axis=0), np.percentile(x, 50, axis=0), np.argmax(x, axis=1), np.diff(x)
        np.transpose(x), np.reshape(x, (2, -1)), np.ravel(x), np.roll(x, 1), np.flip(x)
        np.squeeze(x), np.copy(x)
        np.tile(x, 2), np.pad(x, 1), np.expand_dims(x, 0), np.broadcast_to(x, (3, 4))
        np.sort(x), np.argsort(x), np.unique(x), np.take(x, [0, 1]), np.searchsorted(x, x)
        np.outer(x, x), np.cross(x, x), np.kron(x, x), np.interp(x, x, x), np.bincount(x)
        np.linalg.inv(x), np.linalg.solve(x, x), np.linalg.norm(x, axis=0), np.linalg.eigh(x)[1]
        np.linalg.svd(x).S, np.linalg.qr(x).Q, np.fft.fft(x), np.fft.ifftn(x), np.fft.fftfreq(8)
        np.isclose(x, x), np.nan_to_num(x), np.polyval([1, 2], x), np.tril(x), np.diag(x)
    """,
    "Any": """
        np.sum(x), np.mean(x), np.max(x), np.dot(x, x), np.linalg.norm(x), np.linalg.det(x)
        np.sqrt(2.0), np.unique(x, return_counts=True), np.einsum('i,i', x, x), np.take(x, 0)
        np.random.default_rng(0).normal(size=3), np.random.rand(3), np.searchsorted(x, 2)
    """,
    "tuple[DistArray, ...]": "np.nonzero(x), np.where(x > 0), np.meshgrid(x, x), np.unstack(x)",
    "tuple[DistArray, DistArray]": "np.modf(x), np.divmod(x, 2), np.histogram(x)",
    "list[DistArray]": "np.split(x, 2), np.array_split(x, 3)",
    "bool": "np.allclose(x, x), np.array_equal(x, x)",
    "int": "np.ndim(x)",
    "tuple[int, ...]": "np.shape(x)",
    "float": "np.pi, np.inf",
}

#: Programs without an error; `np` is distarray.numpy unless a program imports it itself.
GOOD = {
    "the one of the manual": """
        def f(x: DistArray) -> DistArray:
            return np.sqrt(x) * 2 + x
    """,
    "an array first, NumPy's functions": """
        import numpy

        def f(x: DistArray) -> DistArray:
            return x + numpy.sqrt(x) * 2
    """,
    "heat": """
        def step(u: DistArray, r: float) -> DistArray:
            v = u.copy()
            v[1:-1] += r * (u[2:] - 2 * u[1:-1] + u[:-2])
            return v

        def run(n: int) -> float:
            u = np.zeros(n)
            u[n // 2] = 1.0
            for _ in range(100):
                u = step(u, 0.25)
            return float(u.sum())
    """,
    "standard scores": """
        def scores(data: DistArray) -> DistArray:
            mean, deviation = data.mean(axis=0), data.std(axis=0)
            return (data - mean) / np.where(deviation > 0, deviation, 1)
    """,
    "k-means": """
        def assign(points: DistArray, centres: DistArray) -> DistArray:
            distances = ((points[:, None, :] - centres[None]) ** 2).sum(axis=-1)
            return distances.argmin(axis=1)

        def update(points: DistArray, labels: DistArray, k: int) -> DistArray:
            return np.stack([points[labels == i].mean(axis=0) for i in range(k)])
    """,
    "conjugate gradients": """
        def solve(a: DistArray, b: DistArray, tolerance: float = 1e-10) -> DistArray:
            x = np.zeros_like(b)
            r = b - a @ x
            p, rs = r.copy(), float(r @ r)
            while rs > tolerance:
                q = a @ p
                alpha = rs / float(p @ q)
                x += alpha * p
                r -= alpha * q
                rs, old = float(r @ r), rs
                p = r + rs / old * p
            return x
    """,
    "power iteration": """
        def largest(a: DistArray) -> tuple[float, DistArray]:
            v = np.ones(a.shape[0]) / np.sqrt(a.shape[0])
            for _ in range(20):
                w = a @ v
                v = w / np.linalg.norm(w)
            return float(v @ (a @ v)), v
    """,
    "Monte Carlo": """
        def pi(n: int, seed: int = 0) -> float:
            rng = np.random.default_rng(seed)
            x, y = rng.random(n), rng.random(n)
            return 4 * float((x**2 + y**2 < 1).mean())
    """,
    "a least-squares fit": """
        def fit(x: DistArray, y: DistArray) -> DistArray:
            design = np.stack([np.ones_like(x), x, x**2], axis=1)
            return np.linalg.solve(design.T @ design, design.T @ y)
    """,
    "spectra": """
        def smooth(x: DistArray, cut: float) -> DistArray:
            spectrum = np.fft.rfft(x)
            spectrum[np.fft.rfftfreq(x.size) > cut] = 0
            return np.fft.irfft(spectrum, n=x.size)
    """,
    "placements": """
        def rows_to_columns(n: int) -> DistArray:
            mesh = distarray.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            x = np.ones((n, n), mesh=mesh, placements=[distarray.Shard(0), distarray.Replicate()])
            local = x.to_local()
            local[:] = mesh.rank
            if isinstance(x.placements[0], distarray.Shard):
                x = x.redistribute(placements=[distarray.Shard(1), distarray.Replicate()])
            whole = x.gather(root=0)
            if whole is not None:
                print(whole.shape)
            return x
    """,
    "ndarray as an annotation, rows": """
        def norms(x: np.ndarray) -> list[float]:
            x[x < 0] = 0
            x[0], x[1:] = 1.0, x[1:] / 2
            return [float(np.sqrt((row**2).sum())) for row in x]
    """,
    "a table": """
        def report(x: DistArray) -> str:
            counts, edges = np.histogram(x, bins=10)
            rows = [f"{float(e):.2f} {int(c)}" for e, c in zip(edges, counts)]
            order = np.argsort(counts)[::-1]
            return "\\n".join(rows) + str(order[:3].tolist()) + f"{x.mean():.3f}"
    """,
}

#: Programs whose last line is refused, and the word that mypy has for it.
REFUSED = {
    "no such attribute": ("attr-defined", "x.layuot"),
    "no such method": ("attr-defined", "x.rehsape(3)"),
    "no such name": ("attr-defined", "np.sqroot(x)"),
    "a name of distarray's that is none": ("attr-defined", "distarray.init_mesh()"),
    "no such keyword": ("call-overload", "x.sum(axes=0)"),
    "no such keyword of a function": ("call-overload", "np.sum(x, axes=0)"),
    "no such keyword of a creation": ("call-arg", "np.zeros(3, placement=distarray.Shard(0))"),
    "placements that are none": ("list-item", "x.redistribute(placements=['rows'])"),
    "an operand that is none": ("arg-type", "x + object()"),
    "a key that is none": ("call-overload", "x[1.5]"),
    "an array for a list": ("assignment", "y: list[float] = x * 2"),
    "an array for one of NumPy's": ("assignment", "y: numpy.ndarray = np.sqrt(x)"),
    "a gathered array that may not be there": ("union-attr", "x.gather().shape"),
}  # fmt: skip


def expressions(text: str) -> list[str]:
    """The expressions of a table's cell, which commas outside of brackets divide."""
    found, depth, current = [], 0, ""
    for letter in text.strip().replace("\n", ","):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            found.append(current.strip())
            current = ""
        else:
            current += letter
    return [each for each in (*found, current.strip()) if each]


def cases() -> list[tuple[str, str, str]]:
    """Module, expression and the type that it has."""
    return [
        (module, expression, kind)
        for module, tables in (("numpy", [ANYWHERE]), ("distarray.numpy", [ANYWHERE, OURS]))
        for table in tables
        for kind, text in table.items()
        for expression in expressions(text)
    ]


def written(folder: Path) -> None:
    """Every program as a file."""
    for module in ("numpy", "distarray.numpy"):
        lines = [f"    reveal_type({e})" for m, e, _ in cases() if m == module]
        text = HEAD.format(module=module) + "\n".join(lines) + "\n"
        (folder / f"types_{module.replace('.', '_')}.py").write_text(text)
    top = "import numpy\nimport distarray.numpy as np\n" + "".join(HEAD.splitlines(True)[1:3])
    for position, program in enumerate(GOOD.values()):
        program = textwrap.dedent(program).replace("import numpy\n", "")
        (folder / f"good_{position}.py").write_text(top + program)
    for position, (_, line) in enumerate(REFUSED.values()):
        (folder / f"refused_{position}.py").write_text(
            f"{top}def f(x: DistArray) -> None:\n    {line}\n"
        )


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What mypy says, by file and line."""
    folder = tmp_path_factory.mktemp("programs")
    written(folder)
    (folder / "mypy.ini").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(ROOT))
        options = ["--config-file", str(folder / "mypy.ini"), "--no-error-summary", "--strict"]
        cache = ["--cache-dir", str(ROOT / ".mypy_cache" / "typing"), "--hide-error-context"]
        files = [str(path) for path in sorted(folder.glob("*.py"))]
        out, err, _ = api.run([*options, *cache, *files])
    assert not err, err
    lines: dict[str, dict[int, str]] = {}
    for line in out.splitlines():
        place = re.match(r"(.*?):(\d+): (.*)", line)
        assert place is not None, line
        of_file = lines.setdefault(Path(place[1]).stem, {})
        of_file[int(place[2])] = of_file.get(int(place[2]), "") + place[3]
    assert all(re.match("types_|good_|refused_", name) for name in lines), out
    return lines


def plain(message: str) -> str:
    """A revealed type without the modules of its names."""
    kind = re.sub(r"[\w.]*\.(?=\w)", "", message.partition('"')[2].rpartition('"')[0])
    return kind.partition(", fallback")[0]


@pytest.mark.parametrize("module", ["numpy", "distarray.numpy"])
def test_expressions_have_the_types_that_users_expect(said, module):
    lines = said[f"types_{module.replace('.', '_')}"]
    first = HEAD.count("\n") + 1
    rows = [(e, kind) for m, e, kind in cases() if m == module]
    found = {e: plain(lines.get(first + n, "nothing")) for n, (e, _) in enumerate(rows)}
    assert found == dict(rows)


@pytest.mark.parametrize("name", GOOD)
def test_programs_pass(said, name):
    assert said.get(f"good_{[*GOOD].index(name)}", {}) == {}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_refused(said, name):
    lines = said.get(f"refused_{[*REFUSED].index(name)}", {})
    assert [f"[{REFUSED[name][0]}]" in message for message in lines.values()] == [True], lines
