"""Words that tests of programs on all ranks share."""

import pytest

from distarray.comm import DeviceMesh


def line(group):
    return DeviceMesh(group, (group.size,))


def raises_everywhere(group, kind, call, match=None):
    """Every rank gets an exception of this type, with the same text, and none is left waiting."""
    with pytest.raises(kind, match=match) as caught:
        call()
    texts = group.allgather_object(str(caught.value))
    assert len(set(texts)) == 1, texts
