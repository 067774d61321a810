"""Words that tests of programs on all ranks share."""

import numpy as np
import pytest

import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.config import config


def line(group):
    return DeviceMesh(group, (group.size,))


def raises_everywhere(group, kind, call, match=None):
    """Every rank gets an exception of this type, with the same text, and none is left waiting."""
    with pytest.raises(kind, match=match) as caught:
        call()
    texts = group.allgather_object(str(caught.value))
    assert len(set(texts)) == 1, texts


def check_as_numpy(world, call, plain, limit):
    """What a function of NumPy's module gives for ours is the same, or the same exception.

    `plain` makes values of either comparable, and `limit` is `config.replicate_below`.
    """
    wanted = _outcome(call, np, plain)

    def program(group):
        with config.override(replicate_below=limit, print_gathered=True):
            return _outcome(call, dnp, plain)

    for ranks in world.ranks:
        for found in world.run(ranks, program):
            assert repr(found) == repr(wanted)


def _outcome(call, module, plain):
    try:
        return plain(call(module))
    except Exception as error:
        return type(error).__name__, str(error)
