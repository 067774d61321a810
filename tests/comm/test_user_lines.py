"""The line of a program and the activity of a process, read from its stack."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import FunctionType, SimpleNamespace

import numpy as np

import distarray.ops.linalg  # noqa: F401 (its package says how its functions are shown)
from distarray.comm import calls
from distarray.comm import user_lines as lines
from distarray.comm.waits import stacks

HERE = Path(__file__).name
#: What MPI would be, a group, and a function of NumPy's: each in a module of the house.
MPI = """
WAITS_FOR_RANKS = True


def wait(self):
    self.lock.acquire(True, 30)
"""
GROUP = """
def exchange(self, sends, receives):
    self.note(self, "exchange", "rows", 0)
    self.wait(self)
"""
SOLVE = """
def solve(x, many=1):
    x.exchange(x, [(1, x.block), (2, x.block)], [(2, x.block)])
"""
PENDING = """
WAITS_FOR_RANKS = True


def wait(self):
    self.lock.acquire(True, 30)
"""
ARRAY = """
def __array_function__(self, func, types, args, kwargs):
    solve(group)


def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
    solve(group)
"""
PASSAGE = """
def passed(function, *args):
    return function(*args)
"""


def module(name: str, text: str) -> dict:
    """The names of a module that is not there."""
    names = {"__name__": name}
    exec(compile(text, f"/house/{name}.py", "exec"), names)
    return names


def seen_in(function, *args, lock, aside=False):
    """What this process is seen doing while a thread of it is in a function that waits."""
    result = []

    def watch():
        until = time.monotonic() + 30
        while not result and time.monotonic() < until:
            look = stacks.look()
            if look.doing == "waits":
                result.append(look)
            time.sleep(0.001)
        lock.release()

    lock.acquire()
    watcher = threading.Thread(target=watch)
    watcher.start()
    if aside:
        worker = threading.Thread(target=lambda: function(*args))  # a thread waits
        worker.start()
        worker.join()
    else:
        function(*args)  # the main one waits
    watcher.join()
    lock.release()
    return result[0]


def number_of(text: str) -> int:
    """The line of this file that ends in a text."""
    found = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(found, 1) if line.endswith(f"# {text}"))


def at(text: str) -> str:
    return f"{HERE}:{number_of(text)}"


def test_frames_of_the_house_are_none_of_the_users():
    numpy = module("numpy.lib.odd", PASSAGE)["passed"]
    torch = module("torch.nn.odd", PASSAGE)["passed"]
    found = numpy(torch, lines.user_line)  # through both
    assert found.endswith(at("through both"))
    mine = module("numpylike", PASSAGE)["passed"]
    assert mine(lines.user_line) == "/house/numpylike.py:3"


def test_ways_are_told_from_the_inside_out():
    def inner():
        return lines.places(sys._getframe())  # inner

    def outer(depth):
        return outer(depth - 1) if depth else inner()  # outer

    found = outer(5)
    assert len(found) == 4
    assert found[0].endswith(at("inner"))
    assert all(place.endswith(at("outer")) for place in found[1:])


def test_expressions_are_those_of_the_instruction():
    frames = []

    def kept(*_):
        frame = sys._getframe(1)
        frames.append(lines.expression(frame.f_code, frame.f_lasti))

    kept(1), kept(2)
    kept(
        3,
    )
    (
        kept("äöü"),
        kept("a text that is much longer than what a line of the message can hold, so it is"),
    )
    assert frames[:4] == ["kept(1)", "kept(2)", "kept(", 'kept("äöü")']
    assert len(frames[4]) == 60
    assert frames[4].endswith("...")


def test_programs_without_a_file_have_lines():
    names = {"__name__": "program", "lines": lines, "sys": sys}
    exec("here = sys._getframe()\nfound = lines.places(here)", names)
    assert names["found"][0] == "<string>:2"
    assert lines.expression(names["here"].f_code, 0) == ""


def test_files_below_the_working_directory_are_short(monkeypatch, tmp_path):
    monkeypatch.chdir(Path(__file__).parent)
    assert lines.places(sys._getframe())[0].startswith(f"{HERE}:")
    monkeypatch.chdir(tmp_path)
    assert lines.places(sys._getframe())[0].startswith(__file__)
    away = tmp_path / "removed"
    away.mkdir()
    monkeypatch.chdir(away)
    away.rmdir()
    assert lines.places(sys._getframe())[0].startswith(os.fspath(Path(__file__)))


def group_that_waits():
    """What `solve` takes, and the name under which the user calls it."""
    group = SimpleNamespace(number=7, among=None, lock=threading.Lock(), note=calls.note)
    group.wait = module("distarray.comm.mpi", MPI)["wait"]
    group.exchange = module("distarray.comm.group", GROUP)["exchange"]
    group.block = np.ones(3)
    return group, module("distarray.ops.linalg.odd", SOLVE)["solve"]


def test_who_waits_is_seen_with_the_call_and_its_line():
    group, solve = group_that_waits()
    look = seen_in(solve, group, lock=group.lock)
    assert (look.doing, look.aside) == ("waits", False)
    assert look.call == "np.linalg.solve"
    assert look.arguments == "SimpleNamespace, 1"
    assert look.path[0].endswith(at("the main one waits"))
    assert (look.peers, look.size) == ((1, 2), 3 * group.block.nbytes)
    assert look.begun is not None
    assert (look.begun.group, look.begun.kind, look.begun.note) == (group, "exchange", "rows")
    assert look.begun.number == 7  # not all ranks of the group take part
    assert look.begun.where == look.path[0]


def test_a_thread_that_waits_is_told_from_the_main_one():
    group, solve = group_that_waits()
    look = seen_in(solve, group, lock=group.lock, aside=True)
    assert (look.doing, look.call, look.aside) == ("waits", "np.linalg.solve", True)
    assert look.path[0].endswith(at("a thread waits"))


def test_who_waits_for_what_was_begun_before_is_in_that_conversation():
    group, solve = group_that_waits()
    group.wait = lambda _: None
    solve(group, many=2)  # it begins
    pending = SimpleNamespace(lock=group.lock, call=calls.latest())
    group.note(SimpleNamespace(number=0), "barrier", None)
    look = seen_in(module("distarray.comm.pending", PENDING)["wait"], pending, lock=group.lock)
    assert look.begun is not None
    assert (look.begun.kind, look.peers) == ("exchange", None)
    assert look.begun.where.endswith(at("it begins"))
    assert look.path[0].endswith(at("the main one waits"))


def test_functions_of_numpy_are_named_as_the_program_has_them():
    group, solve = group_that_waits()
    names = module("distarray.array.odd", ARRAY) | {"solve": solve, "group": group}

    class Array:
        __array_function__ = FunctionType(names["__array_function__"].__code__, names)
        __array_ufunc__ = FunctionType(names["__array_ufunc__"].__code__, names)

    look = seen_in(np.concatenate, [Array()], 0, lock=group.lock)
    assert (look.call, look.arguments) == ("np.concatenate", "[Array], 0")
    look = seen_in(np.add.reduce, Array(), lock=group.lock)
    assert look.call == "np.add.reduce"
    assert look.path[0].endswith(at("the main one waits"))
