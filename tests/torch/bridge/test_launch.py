"""Ranks told to torch and to the Gaudi software, from what each launcher says."""

import os
import re
import subprocess
import sys

import pytest

from distarray.comm import run_threads
from distarray.errors import MeshError
from distarray.torch.bridge.launch import Place, gaudi_variables, place_by_launcher, torch_variables
from tests.launcher import SETTINGS

MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}
BATCH_STEP = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    "environ, place",
    [
        (MPICH, Place(5, 8, 1, 4)),
        (OPEN_MPI, Place(5, 8, 1, 4)),
        (SLURM, Place(5, 8, 1, 0)),
        (SLURM | {"SLURM_NTASKS_PER_NODE": "4"}, Place(5, 8, 1, 4)),
        (SLURM | {"PMI_RANK": "5", "PMI_SIZE": "8"}, Place(5, 8, 1, 0)),  # srun --mpi=pmi2
        (BATCH_STEP | MPICH, Place(5, 8, 1, 4)),  # mpiexec in a batch script
        (BATCH_STEP | OPEN_MPI, Place(5, 8, 1, 4)),
        ({}, None),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, None),
    ],
)
def test_what_launchers_say(environ, place):
    assert place_by_launcher(environ) == place


def test_what_torch_reads():
    assert torch_variables(Place(5, 8, 1, 4)) == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
    }


@pytest.mark.parametrize(
    "environ, module",
    [
        ({}, "1"),
        ({"HABANA_VISIBLE_MODULES": "4,6"}, "6"),
        ({"HLS_MODULE_ID": "7", "HABANA_VISIBLE_MODULES": "4,6"}, "7"),
        ({"PT_HPU_LAZY_MODE": "1"}, "1"),
    ],
)
def test_what_a_gaudi_reads(environ, module):
    found = gaudi_variables(Place(5, 8, 1, 4), environ)
    assert found == {"HLS_MODULE_ID": module, "ID": "5", "PT_HPU_LAZY_MODE": "0"}


def test_more_ranks_than_gaudis():
    with pytest.raises(ValueError, match="HABANA_VISIBLE_MODULES=3 has 1 modules"):
        gaudi_variables(Place(5, 8, 1, 4), {"HABANA_VISIBLE_MODULES": "3"})


def test_threads_have_one_environment():
    import distarray.torch as bridge

    def program(group):
        with pytest.raises(MeshError, match="threads"):
            bridge.start()

    run_threads(2, program)
    with pytest.raises(ValueError, match="device is one of"):
        bridge.start("tpu")


PROGRAM = """
import os, sys, types
import distarray.torch as bridge
from distarray.comm import world_group

group = world_group()
device = bridge.start()
assert "habana_frameworks" not in sys.modules
import torch

assert device == torch.device("cpu")
assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (str(group.rank), str(group.size))
assert (os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]) == (str(group.rank), "2")
assert "HLS_MODULE_ID" not in os.environ
torch.distributed.init_process_group("gloo")  # by the environment alone
total = torch.ones(1)
torch.distributed.all_reduce(total)
assert total.item() == group.size
torch.distributed.destroy_process_group()


def refused(device, words):
    try:
        bridge.start(device)
    except (RuntimeError, ValueError) as error:
        assert words in str(error), error
    else:
        raise SystemExit(f"no error: {words}")


if not torch.cuda.is_available():
    refused("cuda", "no CUDA device")
if not hasattr(torch, "hpu"):
    refused("hpu", "no Gaudi software")
    assert os.environ["HLS_MODULE_ID"] == str(group.rank)
    assert os.environ["PT_HPU_LAZY_MODE"] == "0"
    # Loaded before, in lazy mode
    os.environ["PT_HPU_LAZY_MODE"] = "1"
    sys.modules["habana_frameworks"] = types.ModuleType("habana_frameworks")
    refused("hpu", "before import torch")
print("told", group.rank)
"""


def test_a_job_is_told(mpiexec):
    clean = {name: v for name, v in os.environ.items() if not name.startswith(("RANK", "MASTER"))}
    job = subprocess.run(
        [*mpiexec, "-n", "2", sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean | SETTINGS,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    words = re.findall(r"told|\d", job.stdout)  # lines of two ranks may run together
    assert sorted(words) == ["0", "1", "told", "told"]
