"""The programs of examples/ that need torch, on ranks and beside one process."""

from __future__ import annotations

import copy
import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402
from distarray import Shard  # noqa: E402
from tests.launcher import SETTINGS  # noqa: E402
from tests.torch.training import grid  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def example(name):
    """A program of examples/ as a module; nothing is run."""
    if str(ROOT / "examples") not in sys.path:  # where its own imports are
        sys.path.append(str(ROOT / "examples"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- the programs of DTensor's tutorials ------------------------------------------------------

SHAPES = {
    "rows, gathered again": "(222, 88) here",
    "placements": "(222, 12) (888, 3) (888, 12) (444, 12)",
    "rows to columns to replicas": "(32, 8) -> (32, 2) -> (32, 8)",
    "a module with cut layers": "fc1.weight (2, 8) here",
    "chunks of a matrix, squared": "(4, 4) as [Shard(0)]",
    "rows times columns": "(4, 4) as [Shard(0)]",
}


@pytest.mark.parametrize("name", SHAPES)
def test_dtensor_notes(world, ranks, name):
    """On four ranks the local shapes are those that DTensor has."""
    program = example("torch_dtensor_notes").PROGRAMS[name]

    def body(group):
        return program(da.DeviceMesh(group, (group.size,)), torch.device("cpu"))

    for text, right in world.run(ranks, body):
        assert right
        if ranks == 4:
            assert text == SHAPES[name]


def test_rows_cut_twice(world, ranks):
    """Five rows cut by both dimensions of a mesh; also once the mesh has been flattened."""
    values = np.arange(15.0).reshape(5, 3)

    def body(group):
        mesh = grid(group)
        x = da.distribute(values, mesh, [Shard(0), Shard(0)], src=None)
        before = x.full()
        flat = mesh.flatten()
        moved = x.redistribute(flat, [Shard(0)]).full()
        return len(x.to_local()), before, x.full(), moved

    results = world.run(ranks, body)
    for _, *wholes in results:
        for whole in wholes:
            np.testing.assert_array_equal(whole, values)
    if ranks == 4 and len(results) == 4:
        assert [rows for rows, *_ in results] == [2, 1, 1, 1]


def test_scalars_are_global(world, ranks):
    """What DTensor gives a rank's own value for."""

    def body(group):
        x = da.distribute(np.arange(14.0).reshape(7, 2), None, [Shard(0)], src=None)
        return float(x.sum()), bool((x > 12).any()), float(x.sum() + 10), float(x.mean())

    assert set(world.run(ranks, body)) == {(91.0, True, 101.0, 6.5)}


# -- the transformer --------------------------------------------------------------------------


@functools.cache
def trained_alone():
    program = example("torch_transformer")
    torch.manual_seed(0)
    model = program.Transformer(23, context=6, width=12, heads=4, blocks=2).double()
    options = program.arguments(["--steps", "4", "--batch", "5"])
    text = torch.from_numpy(np.random.default_rng(0).integers(0, 23, 200))
    start = copy.deepcopy(model)
    return start, options, text, program.train(model, text, options, "cpu", context=6), model


@pytest.mark.parametrize("replicate", [False, True])
def test_transformer_learns_what_one_process_learns(world, ranks, replicate):
    """Loss curve and parameters, in double precision; 23 characters on two ranks."""
    program = example("torch_transformer")
    start, options, text, losses, whole = trained_alone()

    def body(group):
        mesh = grid(group)
        model = program.parallel(copy.deepcopy(start), mesh, replicate)
        found = program.train(model, text, options, "cpu", mesh, context=6)
        return found, {n: a.full() for n, a in dt.module_state(model, mesh).items()}

    for found, arrays in world.run(ranks, body):
        np.testing.assert_allclose(found, losses, rtol=1e-12)
        for name, parameter in whole.named_parameters():
            np.testing.assert_allclose(
                arrays[name], parameter.detach().numpy(), rtol=1e-7, atol=1e-10, err_msg=name
            )


def test_transformer_program(mpiexec, tmp_path):
    """As it is started: prints its comparison, and draws it."""
    program = [sys.executable, str(ROOT / "examples" / "torch_transformer.py")]
    settings = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*mpiexec, "-n", "4", *program, "--steps", "3", "--double"],
        cwd=tmp_path,
        env=dict(os.environ) | SETTINGS | settings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "2 x 2 ranks (dp x tp)" in done.stdout
    assert float(done.stdout.split("largest relative difference: ")[1].split()[0]) < 1e-12
    assert (tmp_path / "transformer.png").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("torch_transformer", ["--tp", "3"], "does not divide"),
        ("torch_transformer", ["--output", "curve.abc"], "is none of"),
        ("torch_tensor_parallel", ["--device", "hpu"], "no Gaudi software here"),
    ],
)
def test_command_lines(own_processes, tmp_path, name, options, words):
    """A mistake, or a device that is not there, is told in a line, with status 2."""
    program = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *options]
    settings = dict(os.environ) | SETTINGS | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
