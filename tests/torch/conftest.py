"""One test body, every device: on the CPU with the other tests, elsewhere in launches of its own.

A test that takes `device` (the name of a torch device) runs

* on the CPU, on thread ranks and under MPI as all tests do;
* on the simulated HPU (``hpu/``), on CUDA and on a real Gaudi in the launches of
  ``test_on_devices.py``, which set ``DISTARRAY_TEST_TORCH_DEVICE`` to "simulated", "cuda" or "hpu":
  a device becomes the process's accelerator, and its backward passes run on one thread, which
  ranks that are threads would have to share.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

DEVICE = os.environ.get("DISTARRAY_TEST_TORCH_DEVICE", "cpu")

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import torch

    torch.set_num_threads(1)
    if DEVICE != "cpu":
        # What torch imports at first use, on all ranks at once and not on one after the other.
        import torch._dynamo
        import torch.testing

        torch.testing.assert_close(torch.ones(1), torch.ones(1))
    if DEVICE == "simulated":
        from tests.torch.hpu import fakehpu

        fakehpu.install()
    elif DEVICE == "hpu":
        import habana_frameworks.torch  # noqa: F401


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """What torch draws is the same on all ranks: not every rank has run every test before."""
    torch.manual_seed(0)


@pytest.fixture
def device() -> str:
    """The torch device that tensors of this run live on: "cpu", "hpu" or "cuda"."""
    return "hpu" if DEVICE == "simulated" else DEVICE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    elsewhere = [item for item in items if not _belongs(item)]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = filter(_belongs, items)


def _belongs(item: pytest.Item) -> bool:
    """Whether a test is about the device of this run."""
    if DEVICE == "cpu":
        return "accelerator" not in item.keywords
    return "device" in getattr(item, "fixturenames", ())
