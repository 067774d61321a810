"""The kernels of the benchmarks give what they give with NumPy."""

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from benchmarks.kernels import KERNELS
from distarray.array import mirroring

RANKS = (1, 3)
#: Kernels whose arrays are too small for messages to pay.
SILENT = ("correlation", "conjugate_gradients", "spins", "page_rank")


def parts(found):
    """A result, or its parts, as NumPy's arrays."""
    results = found if isinstance(found, tuple) else (found,)
    return [part.full() if hasattr(part, "full") else np.asarray(part) for part in results]


@pytest.mark.host
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel(world, name, monkeypatch):
    monkeypatch.setattr(mirroring, "names_blocks", lambda: False)  # the tests' code does
    kernel = KERNELS[name]
    wanted = parts(kernel.function(np, *kernel.prepared(np)))

    def program(group):
        for found, whole in zip(parts(kernel.function(dnp, *kernel.prepared(dnp))), wanted):
            np.testing.assert_allclose(found, whole, rtol=1e-7, atol=1e-9)

    for ranks in set(RANKS) & set(world.ranks):
        world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize("name", SILENT)
def test_a_loop_over_matrices_of_up_to_two_mib_sends_nothing(world, name):
    kernel = KERNELS[name]

    def program(group):
        with distarray.trace() as sent:
            kernel.function(dnp, *kernel.prepared(dnp))
        assert not sent.events

    world.run(RANKS[-1], program)
