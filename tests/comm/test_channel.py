"""The side channel: ranks of a node, and nodes, tell one another where they are without MPI."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from distarray.comm.nameless_file import create_file
from distarray.comm.waits.channel import SLOT, Channel
from distarray.comm.waits.wire import Node, Wire, listener

ROOT = Path(__file__).resolve().parents[2]
OTHER = """
import os, sys
from distarray.comm.waits.channel import Channel
there = Channel(os.open(sys.argv[1], os.O_RDWR), (0, 1), 1)
there.write(7, {"doing": "waits", "moves": 7, "since": 0.0})
print("ready", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.usefixtures("own_processes")


@pytest.fixture
def two(tmp_path):
    """The channel of this process, and another process that has the file, too."""
    descriptor, path = create_file(str(tmp_path))
    here = Channel(descriptor, (0, 1), 0)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, path],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "ready\n"
    yield here, other
    other.kill()
    other.communicate()
    here.close()


def test_ranks_read_what_others_write(two):
    here, _ = two
    found = here.read()[1]
    assert (found["doing"], found["moves"], found["still"]) == ("waits", 7, True)
    assert found["age"] > 0
    assert found["since_beat"] < 60
    assert not found["gone"]
    assert not here.read()[0]["still"]  # it has said nothing yet
    here.write(3, {"doing": "computes", "moves": 3})
    here.write(4, None)
    found = here.read()[0]
    assert (found["moves"], found["still"]) == (4, False)


def test_a_killed_process_is_gone(two):
    here, other = two
    other.kill()
    other.wait()
    found = here.read()[1]
    assert found["gone"]
    assert found["doing"] == "waits"


def test_what_is_too_long_is_cut(two):
    here, _ = two
    book = [["group", n, True, "allreduce", "np.sum", "x" * 3000] for n in range(64)]
    here.write(1, {"moves": 1, "recent": book, "counts": {}})
    kept = here.read()[0]["recent"]
    assert 0 < len(kept) < 64
    assert kept == book[-len(kept) :]
    here.write(2, {"moves": 2, "call": "y" * (2 * SLOT)})
    assert here.read()[0]["moves"] == 2


def test_the_group_that_a_rank_waits_in_is_always_told(two):
    """A rank in hundreds of communicators: the whole table was left out, and the readers failed."""
    here, _ = two
    counts = {f"1.{n:08x}": n for n in range(9000)}
    book = [["1.00000000", n, True, "allreduce", "np.sum", "x" * 300] for n in range(64)]
    entry = book[-1]
    needs = [[rank, rank + 1, 1] for rank in range(0, 20_000, 3)]
    report = {"moves": 3, "doing": "waits", "path": ["a.py:1"] * 9000, "entry": entry}
    here.write(3, {**report, "counts": counts, "recent": book, "whole": True, "needs": needs})
    found = here.read()[0]
    assert (found["moves"], found["doing"], found["entry"]) == (3, "waits", entry)
    assert found["counts"]["1.00000000"] == 0
    assert not found["whole"]
    assert found["needs"] is None  # all ranks, never some of them
    assert found["path"] == ["a.py:1"] * len(found["path"])


def test_hundreds_of_groups_are_told_whole(two):
    here, _ = two
    report = {"moves": 1, "doing": "waits", "counts": {f"1.{n:08x}": n for n in range(1500)}}
    here.write(1, report)
    assert here.read()[0]["counts"] == report["counts"]


def test_a_stopped_process_is_not_gone(two):
    here, other = two
    assert not here.read()[1]["stopped"]
    other.send_signal(signal.SIGSTOP)
    until = time.monotonic() + 30
    while not here.read()[1]["stopped"] and time.monotonic() < until:
        time.sleep(0.05)
    found = here.read()[1]
    assert (found["stopped"], found["gone"]) == (True, False)
    other.send_signal(signal.SIGCONT)
    while here.read()[1]["stopped"] and time.monotonic() < until:
        time.sleep(0.05)
    assert not here.read()[1]["stopped"]


def test_all_are_asked(two):
    here, _ = two
    assert here.asked() == (0.0, 0.0)
    here.ask()
    first, late = here.asked()
    assert time.monotonic() - first < 60
    assert late == 0.0
    here.ask(late=True)
    assert time.monotonic() - here.asked()[1] < 60
    assert here.claim()
    here.release()


def test_a_descriptor_that_belongs_to_another_file_is_left_alone(two, tmp_path):
    """A program may close all descriptors that it knows nothing of."""
    here, _ = two
    mine = tmp_path / "mine"
    mine.write_bytes(b"the user's")
    file = os.open(mine, os.O_RDWR)
    os.dup2(file, here._file)
    os.close(file)
    here.write(5, {"moves": 5})
    assert mine.read_bytes() == b"the user's"


@pytest.fixture
def wires(monkeypatch):
    """Two ends of one job, and one of another."""
    ends = []
    for secret in (b"ours", b"ours", b"theirs"):
        heard = []
        end = Wire(listener("127.0.0.1"), secret, lambda told: {"heard": told}, heard.append)
        end._own, end.heard = "elsewhere", heard
        end.start()
        ends.append(end)
    yield ends
    for end in ends:
        end.stop()
        end.close()


def at(*ends):
    ports = [end._door.getsockname()[1] for end in ends]
    return Node((0,), "127.0.0.1", ports)


def test_nodes_answer_one_another(wires):
    one, two, _ = wires
    assert one.ask(at(two), "table") == {"heard": "table"}
    assert two.ask(at(one), "table") == {"heard": "table"}


def test_strangers_are_not_answered(wires):
    one, two, stranger = wires
    assert stranger.ask(at(one), "table") is None
    assert one.ask(at(stranger, two), "table") == {"heard": "table"}  # the next rank does


def strangers(end, count, says=b""):
    """Connections from nowhere, which say something and then nothing more."""
    lines = []
    for _ in range(count):
        lines.append(socket.create_connection(end._door.getsockname(), 10))
        lines[-1].sendall(says)
    return lines


@pytest.mark.parametrize("says", [b"", b"x", b"GET / HTTP/1.0\r\n" * 40])
def test_strangers_do_not_delay_the_job(wires, says):
    one, two, _ = wires
    lines = strangers(two, 40, says)
    start = time.monotonic()
    assert one.ask(at(two), "table") == {"heard": "table"}
    two.stop()  # as before each fork
    assert time.monotonic() - start < 5  # one after the other they would take 40 s
    two.start()
    for line in lines:
        line.close()


def test_strangers_are_sent_away_soon(wires):
    _, two, _ = wires
    (line,) = strangers(two, 1)
    line.settimeout(30)
    start = time.monotonic()
    while line.recv(64):
        line.sendall(b"x")
    assert time.monotonic() - start < 10
    line.close()


def test_more_strangers_than_places(wires):
    one, two, _ = wires
    lines = strangers(two, 300)
    found = [one.ask(at(two, two), "table") for _ in range(3)]
    assert {"heard": "table"} in found
    for line in lines:
        line.close()


@pytest.mark.parametrize("drips", [False, True])
def test_an_answer_that_is_not_the_jobs_is_not_taken(wires, drips):
    """Of a gigabyte that a stranger promises nothing is read; a slow one is given up."""
    one, *_ = wires
    with socket.create_server(("127.0.0.1", 0)) as door, ThreadPoolExecutor(1) as threads:

        def answer():
            line, _ = door.accept()
            with line, suppress(OSError):
                line.sendall(bytes(16))
                head = (1 << 30).to_bytes(4, "little") + bytes(32)
                for byte in head if drips else ():
                    line.sendall(bytes([byte]))
                    time.sleep(0.2)
                line.sendall(head + bytes(1 << 20))

        told = threads.submit(answer)
        start = time.monotonic()
        assert one.ask(Node((0,), "127.0.0.1", door.getsockname()[1:]), "table") is None
        assert time.monotonic() - start < 5
        told.result(30)


def test_a_question_is_answered_once(wires):
    """What was recorded from the network and is sent again is no question."""
    one, two, _ = wires
    recorded = []
    with socket.create_server(("127.0.0.1", 0)) as between, ThreadPoolExecutor(1) as threads:

        def relay():
            here, _ = between.accept()
            with here, socket.create_connection(two._door.getsockname(), 10) as there:
                here.sendall(there.recv(16, socket.MSG_WAITALL))
                recorded.append(here.recv(4096))
                there.sendall(recorded[0])
                while data := there.recv(4096):
                    here.sendall(data)

        told = threads.submit(relay)
        through = Node((0,), "127.0.0.1", between.getsockname()[1:])
        assert one.ask(through, "table") == {"heard": "table"}
        told.result(30)
    (line,) = strangers(two, 1, recorded[0])
    line.settimeout(30)
    assert len(line.recv(16, socket.MSG_WAITALL)) == 16
    assert line.recv(1) == b""
    line.close()


def test_only_the_address_that_was_asked_for_is_listened_at(wires):
    one, *_ = wires
    assert one._door.getsockname() == one._ear.getsockname()
    assert one._door.getsockname()[0] == "127.0.0.1"


def test_last_words_are_sent_before_the_door_is_closed(wires):
    one, two, stranger = wires
    stranger.send(at(two), b"a stranger's")
    one.send(at(two), b"ours")
    one.close()
    until = time.monotonic() + 20
    while not two.heard and time.monotonic() < until:
        time.sleep(0.01)
    assert two.heard == [b"ours"]


def test_last_words_of_other_nodes_are_kept(two):
    here, _ = two
    assert here.words_of(3) == b""
    here.keep_words(3, b'["sys.exit(0)", ["a.py:3"], null]')
    assert here.words_of(3) == b'["sys.exit(0)", ["a.py:3"], null]'
    assert here.words_of(4) == b""


def test_closed_doors_say_that_nobody_is_there(wires):
    one, two, _ = wires
    door = at(two)
    two.stop()
    assert one.ask(door, "table") is None  # it may be busy
    two.close()
    assert one.ask(door, "table") == {}
