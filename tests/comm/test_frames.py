"""The frames of this process's threads, and the garbage collection meanwhile."""

import gc
import subprocess
import sys
import threading

import pytest

from distarray.comm import frames

#: Threads that begin, end and leave garbage while the main one looks at all of them.
CROWD = """
import gc, sys, threading, time
from distarray.comm.frames import current_frames

class Node:
    def __del__(self):
        sum(range(50))

def leave_garbage(depth=20):
    if depth:
        return leave_garbage(depth - 1)
    node = Node()
    node.itself = node
    time.sleep(1e-5)

def work():
    while True:
        leave_garbage()

def begin_and_end():
    while True:
        thread = threading.Thread(target=leave_garbage)
        thread.start()
        thread.join()

sys.setswitchinterval(1e-5)
gc.set_threshold(20, 5, 5)
for program in (work, work, begin_and_end, begin_and_end):
    threading.Thread(target=program, daemon=True).start()
end = time.monotonic() + 2
while time.monotonic() < end:
    current_frames()
print("alive", flush=True)
import os
os._exit(0)
"""


def outwards(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def test_each_thread_has_its_frame():
    seen, enough = {}, threading.Event()

    def waits():
        seen[threading.get_ident()] = sys._getframe()
        enough.wait()

    thread = threading.Thread(target=waits)
    thread.start()
    while not seen:
        pass
    found = frames.current_frames()
    assert sys._getframe() in outwards(found[threading.get_ident()])
    assert seen[thread.ident] in outwards(found[thread.ident])
    enough.set()
    thread.join()


@pytest.mark.parametrize("on", [True, False])
def test_collection_is_as_before(on, monkeypatch):
    within = []
    monkeypatch.setattr(frames.sys, "_current_frames", lambda: within.append(gc.isenabled()) or {})
    try:
        (gc.enable if on else gc.disable)()
        frames.current_frames()
        assert gc.isenabled() == on
    finally:
        gc.enable()
    assert within == [on and sys.version_info >= (3, 12)]


def test_a_look_at_threads_that_end_does_not_stand_still():
    done = subprocess.run(
        [sys.executable, "-c", CROWD], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "alive\n"
