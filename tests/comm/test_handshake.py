"""The handshake: who differs from rank 0, in what; and threads, the fewest of any rank."""

import sys

import numpy as np
import pytest

from distarray.comm import handshake, process_traits, tune
from distarray.comm.process_traits import Trait


class Line:
    """The part of a communicator that the comparison uses, over a group."""

    def __init__(self, group):
        self.group = group

    def Get_rank(self):
        return self.group.rank

    def bcast(self, obj, root=0):
        return self.group.broadcast_object(obj, root)

    def allgather(self, obj):
        return self.group.allgather_object(obj)


def trait(value):
    return Trait(value, value, "a cure")


@pytest.mark.host
def test_both_values_and_the_ranks_are_named_alike(world, ranks):
    def program(group):
        own = {"speed": trait("slow" if group.rank == 0 else "fast"), "colour": trait("red")}
        return handshake._differences(Line(group), own)

    for found in world.run(ranks, program):
        if ranks == 1:
            assert found == ""
            continue
        assert "speed: slow on rank 0, fast on rank 1" in found
        assert ("ranks 1-" in found) == (ranks > 2)
        assert "colour" not in found
        assert found.endswith("a cure")


@pytest.mark.host
def test_what_only_some_ranks_have_is_no_difference(world, ranks):
    def program(group):
        own = {"the program": trait("a")}
        if group.rank == 0:
            own["module plots"] = trait("b")
        return handshake._differences(Line(group), own)

    assert set(world.run(ranks, program)) == {""}


def test_digests_fit_and_tell_sets_apart():
    first = handshake._digest(["a", "b"])
    assert first == handshake._digest(["b", "a"]) != handshake._digest(["a", "c"])
    assert 0 <= first < 2**56


def test_a_program_is_its_text(tmp_path):
    for name, text in (("a", "#!/usr/bin/python\nx"), ("b", "#!/opt/python\nx"), ("c", "y")):
        (tmp_path / name).write_text(text)
    a, b, c = [process_traits._content(str(tmp_path / name)) for name in "abc"]
    assert a == b != c
    assert process_traits._content(str(tmp_path / "nowhere")) == "nowhere"


def test_own_modules_are_those_beside_the_script(tmp_path, monkeypatch):
    for name in ("main", "own", "site-packages/foreign"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        module = type(sys)(path.stem)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__" if name == "main" else path.stem, module)
    assert list(process_traits.modules()) == ["module own"]


def test_the_processor_is_named_by_what_numpy_uses(monkeypatch):
    found = process_traits.processor()
    monkeypatch.setitem(np._core._multiarray_umath.__cpu_features__, "AVX_OF_TOMORROW", True)
    assert process_traits.processor() - found == {"AVX_OF_TOMORROW"}


def test_threads_are_the_fewest_and_never_more_again(monkeypatch):
    called = []
    monkeypatch.setattr(tune, "_threads", 0)
    monkeypatch.setattr(tune, "_share", 0)
    monkeypatch.setattr(tune, "_started", True)
    monkeypatch.setattr(tune, "own_threads", lambda: True)
    monkeypatch.setattr(tune, "blas_threads", called.append)
    tune.start(4, 2)
    tune.start(8, 8)  # a communicator of this rank alone: replicated results stay the same
    assert called == [2, 2]
    assert tune.this_node().cores == 4
