"""The addresses of this host, and the device by which others are reached."""

import socket

import pytest

from distarray.comm import network


def test_own_addresses_are_reached_by_their_devices():
    devices = {name for _, name in socket.if_nameindex()}
    for address in network.addresses():
        assert not address.startswith("127.")
        if "." in address:
            assert network.device_towards(address) in devices | {None}
    assert network.device_towards("127.0.0.1") in devices


@pytest.mark.parametrize(
    ("found", "known"),
    [(["127.0.1.1"], False), (["::1", "127.0.0.1"], False), (["127.0.1.1", "10.9.8.7"], True)],
)
def test_a_name_that_stands_for_this_host_alone_is_not_known(monkeypatch, found, known):
    entries = [(0, 0, 0, "", (address, 0)) for address in found]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: entries)
    assert network.name_is_known("node7") is known


def test_a_name_without_an_address_is_not_known(monkeypatch):
    def fail(*_):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert not network.name_is_known("node7")


def test_the_address_towards_other_hosts_is_one_of_this_host(monkeypatch):
    ways = {"10.0.0.2": "10.0.0.1", "10.0.0.3": "10.0.0.1", "192.168.7.2": "192.168.7.1"}
    monkeypatch.setattr(network, "_source", ways.get)
    own = ["172.17.0.1", "192.168.7.1", "10.0.0.1"]
    monkeypatch.setattr(network, "addresses", lambda: own)
    others = [["172.17.0.1", "10.0.0.2", "192.168.7.2"], ["172.17.0.1", "10.0.0.3"]]
    assert network.address_towards(others) == "10.0.0.1"
    assert network.address_towards([["172.17.0.1"]]) == ""
    assert network.address_towards([]) == ""
