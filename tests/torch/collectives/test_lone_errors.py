"""Errors of one rank alone, which it can tell without a message: the job ends."""

import os
import subprocess
import sys

import pytest

from tests.launcher import SETTINGS

pytest.importorskip("torch")

PROGRAM = """
import os, sys
import torch
from torch import nn
import distarray.torch as dt
from distarray import default_mesh

mesh, how = default_mesh(), sys.argv[1]
wrong = mesh.rank == 1
if how == "width":
    plan = {"0": dt.ColwiseParallel(), "1": dt.RowwiseParallel()}
    model = dt.parallelize_module(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6)), mesh, plan)
    model(torch.ones(4, 7 if wrong else 6)).sum().backward()
elif how in ("rows", "a row"):
    plan = {"0": dt.ColwiseParallel(), "1": dt.RowwiseParallel()}
    model = dt.parallelize_module(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6)), mesh, plan)
    model(torch.ones((5 if how == "a row" else 50000) if wrong else 4, 6))
else:
    model = dt.fully_shard(nn.Linear(6, 8), mesh)
    if wrong:
        model.weight.data = torch.ones(7, 3)
    model(torch.ones(4, 6)).sum().backward()
print("went on", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("width", "rank 1 was handed a tensor of shape (4, 7); the layer takes 6 features"),
        ("data", "and was given a tensor of shape (7, 3)"),
        ("a row", "the ranks pass different numbers of elements"),
        ("rows", "the ranks pass different numbers of elements"),  # in shared memory, and by MPI
    ],
)
def test_the_job_ends(mpiexec, how, words):
    job = subprocess.run(
        [*mpiexec, "-n", "3", sys.executable, "-c", PROGRAM, how],
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        timeout=100,  # instead of the batch system's limit; it takes a second when all is quiet
    )
    assert job.returncode != 0
    assert "went on" not in job.stdout  # no rank has taken it for a result
    if "row" in how:  # told by the rank that comes last, or by MPI on several
        assert words in job.stderr
        return
    assert job.stderr.count("ends the job") == job.stderr.count(words) == 1, job.stderr
    assert "rank 1 of 3 ends the job" in job.stderr
