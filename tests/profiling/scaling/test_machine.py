"""The three numbers of a machine: given, refused, measured."""

import json

import pytest

from distarray.profiling.scaling.machine import Machine, byte_count, measure, parsed


def test_what_users_write():
    assert parsed("1.5us,12GB/s, 8GiB/s") == Machine(1.5e-6, 12e9, 8 * 2.0**30)
    assert parsed("2e-6,1e10,2e10") == Machine(2e-6, 1e10, 2e10)
    assert byte_count("4GiB") == 4 * 2.0**30
    assert str(parsed("1.5us,1GiB,2GiB")).startswith("latency 1.5 us, bandwidth 1.0 GiB/s")


@pytest.mark.parametrize("text", ["1us", "1us,2,3,4", "1us,0,1", "1kg,1GB,1GB", "1..2us,1GB,1GB"])
def test_what_is_no_machine(text):
    with pytest.raises(ValueError, match=r"a machine is|no quantity above 0"):
        parsed(text)


def test_a_collective_is_a_tree_of_messages():
    machine = Machine(1e-6, 1e9, 1e9)
    assert machine.seconds(3, 0, 1e6, 64) == pytest.approx(3e-6 + 1e-3)
    assert machine.seconds(0, 2, 0, 64) == pytest.approx(12e-6)
    assert machine.seconds(5, 0, 0, 1) == pytest.approx(5e-6)


def test_one_rank_alone_measures_its_memory(own_processes, tmp_path):
    measure(str(tmp_path / "machine.json"))
    latency, bandwidth, memory = json.loads((tmp_path / "machine.json").read_text())
    assert latency == 0
    assert min(bandwidth, memory) > 1e6
