"""Objects that cannot be sent are an error on the rank that sends and on the one that waits."""

import numpy as np
import pytest

from distarray.comm.threads import run_threads


def test_elements_that_cannot_be_sent():
    def program(group):
        block = np.array([(i for i in ())], object)
        away, landing = [(1 - group.rank, block)], [(1 - group.rank, np.empty(1, object))]
        with pytest.raises(TypeError, match="cannot be sent"):
            group.exchange(away if group.rank == 0 else [], landing if group.rank else [])

    run_threads(2, program, timeout=30)
