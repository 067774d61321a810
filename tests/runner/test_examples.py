"""The programs of examples/ run, and say on ranks what they say in one process."""

import re
import sys

import pytest

from launching import ROOT, on_ranks, run

pytest.importorskip("matplotlib")
EXAMPLES = ROOT / "examples"


TERRAIN = [str(EXAMPLES / "terrain.py"), "--steps", "20", "--refine", "2"]


def keep(done, directory):
    """Write what a program has said beside its files, where examples/compare.py looks for it."""
    assert done.code == 0, done.err
    (directory / "terrain.txt").write_text(done.out)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The files that one process leaves in a directory."""
    directory = tmp_path_factory.mktemp("plain")
    keep(run([sys.executable, *TERRAIN], directory), directory)
    return directory


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_terrain(tmp_path, plain, ranks):
    """What `make demo` shows, on a grid that the ranks do not divide."""
    spread = tmp_path / "spread"
    spread.mkdir()
    keep(on_ranks(ranks, *TERRAIN, cwd=spread), spread)
    said = run([sys.executable, str(EXAMPLES / "compare.py"), str(plain), str(spread)], tmp_path)
    assert said.code == 0, said.out
    assert said.out.endswith("the same\n")


def test_terrain_on_a_mesh(tmp_path, mpiexec):
    program = [sys.executable, str(EXAMPLES / "terrain_mesh.py"), "--steps", "5"]
    done = run([*mpiexec, "-n", "4", *program], tmp_path)
    assert done.code == 0, done.err
    assert "on a mesh of 2 x 2 ranks" in done.out
    messages = re.findall(r"^\[.*\]\s+([\d.]+)", done.out, re.MULTILINE)
    assert [float(m) <= 4 for m in messages] == [True] * 3
    assert (tmp_path / "relief.png").stat().st_size > 0


def test_terrain_that_is_stopped_and_goes_on(tmp_path, mpiexec):
    """On other numbers of ranks, to the same heights, bit for bit."""
    pytest.importorskip("google_crc32c")
    program = [sys.executable, str(EXAMPLES / "terrain_checkpoint.py"), "--steps=12", "--every=5"]
    starts = [
        (1, ["--checkpoint", "once", "--output", "once.png"]),
        (3, ["--stop-after", "7"]),
        (2, []),
    ]
    said = []
    for ranks, options in starts:
        done = run([*mpiexec, "-n", str(ranks), *program, *options], tmp_path)
        assert done.code == 0, done.err
        said.append(done.out)
    once, _, done = said
    assert "on 2 ranks, from step 7 on" in done
    assert "step 10: saving" in done
    assert done.splitlines()[-1] == once.splitlines()[-1]
    assert (tmp_path / "once.png").read_bytes() == (tmp_path / "relief.png").read_bytes()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "step-00000010",
        "step-00000012",
    ]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("terrain_checkpoint.py --every 0", "argument --every: 0 is not 1 or more"),
        ("terrain_checkpoint.py --output no/such/place.png", "no/such/place.png cannot be written"),
        ("climatology.py missing.h5", "'missing.h5'"),
        ("jobs/diffusion.py --size 0", "steps cannot be negative"),
    ],
)
def test_a_mistake_on_the_command_line_is_told_once(tmp_path, mpiexec, program, words):
    name, *options = program.split()
    done = run(
        [*mpiexec, "-n", "3", sys.executable, str(EXAMPLES / name), *options], tmp_path, timeout=60
    )
    assert done.code == 2
    assert (done.err.count(words), done.err.count("usage: ")) == (1, 1), done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []
