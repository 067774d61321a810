"""The harness finds what is planted in operators, and finds nothing else in them."""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("expecttest", reason="torch's database of operators needs it")

import torch

from tests.launcher import ROOT, environment
from tests.torch.opinfo.judging import Case, compare, merged, verdict, whole
from tests.torch.opinfo.layouts import WAYS, Operands

RIGHT, REFUSED, WRONG = Case("right"), Case("refused", "ValueError: no"), Case("wrong", "2, not 1")
GATHERED = Case("right", gathered=True)


@pytest.mark.parametrize(
    ("ranks", "wanted"),
    [
        ([[RIGHT, RIGHT], [RIGHT, RIGHT]], "right"),
        ([[RIGHT, RIGHT], [RIGHT, GATHERED]], "gathered"),
        ([[RIGHT, REFUSED], [RIGHT, REFUSED]], "part"),
        ([[REFUSED, REFUSED], [REFUSED, REFUSED]], "refused"),
        ([[RIGHT, REFUSED], [WRONG, REFUSED]], "wrong"),
        ([[RIGHT, WRONG], [RIGHT, REFUSED]], "parted"),
    ],
)
def test_one_rank_is_enough(ranks, wanted):
    assert verdict(merged(ranks))[0] == wanted


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([1.0, 2.0, 3.5]),
        torch.tensor([[1.0, 2.0, 3.0]]),
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
        torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
        None,
    ],
)
def test_results_differ_in_values_shape_type_and_gradient(other):
    wanted = [torch.tensor([1.0, 2.0, 3.0])]
    compare([whole(wanted[0])], wanted, tracked=True)
    with pytest.raises(AssertionError):
        compare([whole(other)], wanted, tracked=True)


def test_ways_cut_the_operands_that_they_name():
    found = [torch.ones(4, 3), torch.ones(()), torch.ones(2, 3, 5)]
    said = {way: str(Operands(way, found)) for way in WAYS}
    assert said == {
        "first": "Shard(0) Replicate() Shard(0)",
        "last": "Shard(1) Replicate() Shard(2)",
        "replicated": "Replicate() Replicate() Replicate()",
        "head": "Shard(0) Replicate() Replicate()",
        "tail": "Replicate() Replicate() Shard(0)",
    }


def test_planted_faults_are_found(mpiexec, tmp_path):
    faulthandler.cancel_dump_traceback_later()  # the ranks watch over themselves
    faults = {"abs": "wrong", "cos": "gathers", "isfinite": "waits", "isnan": "lone"}
    out = tmp_path / "verdicts"
    argv = [sys.executable, "-m", "tests.torch.opinfo", "--ranks", "2", "--out", str(out)]
    argv += ["--forms", "function,gradient", "--samples", "1", "--patience", "8"]
    argv += ["--planted", *[f"{name}={fault}" for name, fault in faults.items()]]
    run = subprocess.run(
        [*argv, "--only", *faults, "exp"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    entries = [json.loads(line) for line in out.read_text().splitlines()]
    found = {(entry["variant"], entry["form"]): entry for entry in entries}
    assert {key: entry["verdict"] for key, entry in found.items()} == {
        ("abs", "function"): "wrong",
        ("abs", "gradient"): "wrong",
        ("cos", "function"): "gathered",
        ("cos", "gradient"): "gathered",
        ("exp", "function"): "right",
        ("exp", "gradient"): "right",
        ("isfinite", "function"): "hang",
        ("isnan", "function"): "parted",
    }, run.stdout
    assert "in waits" in found["isfinite", "function"]["reason"]
    assert "ValueError: planted" in found["isnan", "function"]["reason"]


def test_the_most_used_are_in_the_database():
    code = """if True:
        from tests.torch.opinfo.variants import most_used, samples, variants
        names = most_used()
        assert len(names) == len(set(names)) == 200, len(names)
        assert set(names) <= set(variants()), set(names) - set(variants())
        op = variants()["linalg.solve"]
        one, other = [[(s.input, *s.args) for s in samples(op, 3, False)] for _ in range(2)]
        assert len(one) == 3
        assert all(x.equal(y) for xs, ys in zip(one, other) for x, y in zip(xs, ys))
    """
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment(), cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
