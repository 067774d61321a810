"""Programs that see one memory in several ways say what they say with NumPy, on 1 to 6 ranks."""

from __future__ import annotations

import textwrap
import warnings

import numpy as np
import pytest

import distarray.numpy as dnp
from tests.explore.alias_programs import PROGRAMS
from tests.explore.program import draw_program, on_threads


def _said(text, module, side):
    said = []

    def say(*values):
        said.append([v if isinstance(v, (str, tuple)) else f"{complex(v):.9g}" for v in values])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(textwrap.dedent(text), {"np": module, "n": side, "say": say})
    return said


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_say_what_they_say_with_numpy(world, ranks, name):
    for side in (400, 201):
        wanted = _said(PROGRAMS[name], np, side)
        for found in world.run(ranks, lambda group, n=side: _said(PROGRAMS[name], dnp, n)):
            assert found == wanted


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_random_programs_do_as_with_numpy(start, own_processes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(start, start + 20):
            program = draw_program(seed, aliases=True)
            failure = on_threads(program)
            assert failure is None, f"{failure}\n{program}"
