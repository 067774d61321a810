"""A few cells of the table, where transformers is installed, and what its command says."""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import subprocess
import sys

import pytest

from tests.launcher import ROOT, environment

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed (the extra models)",
)


def test_models_agree_with_one_process(mpiexec, tmp_path):
    faulthandler.cancel_dump_traceback_later()  # the ranks watch over themselves
    out = tmp_path / "verdicts"
    argv = [sys.executable, "-m", "tests.torch.models_table", "--ranks", "2", "--out", str(out)]
    argv += ["--models", "Llama", "GPT-2", "--ways", "tensor", "sharded+uneven", "sharded+compile"]
    run = subprocess.run(
        argv, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    entries = [json.loads(line) for line in out.read_text().splitlines()]
    found = {(e["variant"], e["form"]): e["verdict"] for e in entries}
    for model in ("Llama", "GPT-2"):
        assert found[model, "tensor"] == found[model, "sharded+uneven"] == "right", run.stdout
        assert found[model, "sharded+compile"] == "refused", run.stdout
    assert "fully_shard: LlamaForCausalLM cannot be compiled" in run.stdout


def test_differences_are_found(mpiexec):
    """Gradients that are summed where their mean is wanted."""
    code = """if True:
        import distarray.torch as dt
        from distarray.comm import init_device_mesh
        from tests.torch.models_table import ways
        right = dt.data_parallel
        dt.data_parallel = lambda model, mesh, dim, fold: right(model, mesh, dim, fold="sum")
        try:
            ways.run("ViT", "data", init_device_mesh("cpu", (2,)).group)
        except ways.Difference as error:
            print("differs:", error)
    """
    argv = [*mpiexec, "-n", "2", sys.executable, "-c", code]
    run = subprocess.run(
        argv, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("differs: losses") == 2, run.stdout
