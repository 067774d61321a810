"""What is handed out: the sdist and the wheel, what the index shows, the old project."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import distarray
from tests.launcher import environment

ROOT = Path(distarray.__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOB = f"{PROJECT['urls']['Source']}/blob/main/"


def run(*argv, cwd, **settings):
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=cwd,
        env=environment() | settings,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def built(own_processes, tmp_path_factory):
    """The sdist, and the wheel that is built from what it contains."""
    pytest.importorskip("hatchling")
    place = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", str(place), cwd=ROOT)
    (sdist,) = place.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on
        archive.extractall(place / "unpacked", **safe)
    (unpacked,) = (place / "unpacked").iterdir()
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(place), cwd=unpacked)
    (wheel,) = place.glob("*.whl")
    return unpacked, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A directory into which pip has installed the wheel."""
    place = tmp_path_factory.mktemp("site")
    pip = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(place)]
    run(*pip, str(built[1]), cwd=place)
    return place


def test_the_wheel_has_the_whole_package(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        (about,) = [wheel.read(name).decode() for name in names if name.endswith("/METADATA")]
    suffixes = (".py", ".pyi", ".typed")
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "distarray").rglob("*")
        if path.suffix in suffixes or path.name.endswith("py.typed")
    }
    compiled = {name for name in names if name.endswith(".so")}
    assert {name for name in names if name.startswith("distarray/")} == ours | compiled
    assert built[1].name.endswith("-none-any.whl") == (not compiled)
    assert "Project-URL: Source, " in about
    assert "Description-Content-Type: text/markdown" in about
    assert f"Version: {distarray.__version__}" in about


@pytest.mark.parametrize("settings", [{"DISTARRAY_SPEEDUPS": "0"}, {"CC": "false"}], ids=str)
def test_without_a_compiler_the_wheel_is_python(built, tmp_path, settings):
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=built[0], **settings)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_sdist_has_what_builds_and_explains_it(built):
    needed = [
        *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "Makefile"),
        *("CONTRIBUTING.md", "conda/recipe.yaml", "docs/conf.py", "tests/test_packaging.py"),
        *("examples/terrain.py", "benchmarks/run.py", "pyproject.toml", "conftest.py"),
        *("hatch_build.py", "distarray/array/speedups/ways.h"),
    ]
    assert [name for name in needed if not (built[0] / name).exists()] == []


def test_the_installed_wheel_runs_a_program(installed, tmp_path):
    code = "import numpy as np; print(np.arange(10).sum(), np.__name__)"
    out, _ = run("-m", "distarray", "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert out == "45 distarray.numpy\n"
    out, _ = run(
        "-c",
        "import distarray; print(distarray.__file__)",
        cwd=tmp_path,
        PYTHONPATH=str(installed),
    )
    assert out.startswith(str(installed))


def test_the_old_project_beside_ours_is_named(installed, tmp_path):
    """Each half of it: quiet without, said once with, and by the first rank alone."""
    code = "import distarray; print(distarray.__version__)"
    settings = {"PYTHONPATH": str(installed)}
    out, said = run("-c", code, cwd=tmp_path, **settings)
    assert said == ""
    old = installed / "distarray" / "globalapi"
    old.mkdir()
    try:
        (old / "__init__.py").touch()
        out, said = run("-c", code, cwd=tmp_path, **settings)
        assert out.strip() == distarray.__version__
        assert said.count("pip uninstall distarray distarray-mpi") == 1
        assert said.startswith("<string>:1: UserWarning")
        _, said = run("-c", code, cwd=tmp_path, PMI_RANK="1", **settings)
        assert said == ""
    finally:
        (old / "__init__.py").unlink()
        old.rmdir()


def test_links_of_the_readme_lead_somewhere_from_anywhere():
    """The index shows the README without the files beside it."""
    for name in ("README.md", "SECURITY.md"):
        links = re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text())
        assert links
        for link in links:
            assert link.startswith("https://"), f"{link} in {name} is relative"
            if link.startswith(BLOB):
                assert (ROOT / link.removeprefix(BLOB)).exists(), link
    assert "<img" not in (ROOT / "README.md").read_text()


def test_one_address_everywhere():
    source = PROJECT["urls"]["Source"]
    for name in ("Issues", "Changelog"):
        assert PROJECT["urls"][name].startswith(source + "/")
    assert f'repository-code: "{source}"\n' in (ROOT / "CITATION.cff").read_text()
    recipe = (ROOT / "conda/recipe.yaml").read_text()
    assert f"homepage: {source}\n" in recipe
    assert f"documentation: {PROJECT['urls']['Documentation']}\n" in recipe


def test_one_version_everywhere():
    version = distarray.__version__
    assert PROJECT["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n  version: {version}\n" in (ROOT / "conda/recipe.yaml").read_text()
    assert f"## {version} " in (ROOT / "CHANGELOG.md").read_text()


def test_a_notebook_can_change_the_number_of_its_ranks():
    """`%distarray ranks` saves a checkpoint, whose chunks carry checksums."""
    named = {re.split("[<>=]", name)[0] for name in PROJECT["optional-dependencies"]["notebook"]}
    assert "google-crc32c" in named


def test_the_extra_asks_for_the_torch_that_is_needed():
    oldest = ".".join(map(str, distarray.torch.OLDEST))
    for extra in ("torch", "docs"):
        assert f"torch>={oldest}" in PROJECT["optional-dependencies"][extra]
    for page in ("torch", "stability"):
        assert f"torch {oldest} " in (ROOT / f"docs/{page}.rst").read_text()


def test_the_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "conda/recipe.yaml").read_text()
    run_needs = recipe.partition("  run:\n")[2].partition("\ntests:")[0]
    for need in PROJECT["dependencies"]:
        assert f"- {need.replace('>=', ' >=')}\n" in run_needs
    assert f"- python {PROJECT['requires-python']}\n" in run_needs
