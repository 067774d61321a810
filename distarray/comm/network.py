"""Network devices of this host, and the choice of the device by which other hosts are reached."""

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["address_towards", "addresses", "device_towards", "name_is_known"]

#: Linux's request for the address of a network device.
_SIOCGIFADDR = 0x8915


def _devices() -> dict[str, str]:
    """Return the devices that have an address, and their addresses."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                asked = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def _of_name(name: str) -> list[str]:
    """Return the addresses to which a host name resolves on this host."""
    with contextlib.suppress(OSError):
        return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None)]
    return []


def _is_outward(address: str) -> bool:
    return not ipaddress.ip_address(address.partition("%")[0]).is_loopback


def addresses() -> list[str]:
    """Return the addresses of this host, those of its own network devices first."""
    found = [*_devices().values(), *_of_name(socket.gethostname())]
    return [address for address in dict.fromkeys(found) if _is_outward(address)]


def name_is_known(name: str) -> bool:
    """Return True if a host name resolves here to an address that other hosts can reach."""
    return any(map(_is_outward, _of_name(name)))


def address_towards(hosts: Iterable[Sequence[str]]) -> str:
    """Return this host's address by which most of the other hosts are reached; send nothing.

    Parameters
    ----------
    hosts : iterable of sequence of str
        The addresses of each of the other hosts.

    Returns
    -------
    str
        Empty if no other host can be reached.
    """
    own = addresses()
    ways: Counter[str] = Counter()
    for theirs in hosts:
        # An address that this host has, too, is local to each host, such as its containers' bridge.
        ways.update({_source(address) or "" for address in theirs if address not in own})
    return max(own, key=lambda address: ways[address]) if any(map(ways.get, own)) else ""


def device_towards(address: str) -> str | None:
    """Return the device by which an address is reached; None if there is none. Send nothing."""
    own = _source(address)
    return next((name for name, known in _devices().items() if known == own), None)


def _source(address: str) -> str | None:
    """Return this host's source address of packets to an address; None if it is unreachable."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as line:
        try:
            line.connect((address, 9))
        except OSError:
            return None
        return str(line.getsockname()[0])
