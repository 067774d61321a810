"""Several nodes of one machine: network namespaces, joined by a bridge, each with a host name.

MPICH's launcher reaches them through a script in place of ssh. Ranks of different nodes share no
memory and talk by TCP. Needs root and the program `ip` (Debian: iproute2).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

__all__ = ["Nodes", "Unavailable", "missing"]

#: What the launcher calls in place of ssh: [options] address command...
_LAUNCH = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
node={name}${{1##*.}}; shift
exec ip netns exec "$node" unshare --uts sh -c "echo $node > /proc/sys/kernel/hostname; $*"
"""


class Unavailable(Exception):
    """Why this machine cannot have nodes."""


def missing() -> str:
    """What the machine lacks; empty if nothing."""
    if sys.platform != "linux" or os.getuid():
        return "no root on Linux"
    absent = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    return f"no {' nor '.join(absent)}" if absent else ""


class Nodes:
    """A context in which there are nodes.

    Parameters
    ----------
    count : int
        How many.
    place : path
        A directory for the launcher's script.

    Raises
    ------
    Unavailable
        If the machine does not let itself be divided.
    """

    def __init__(self, count: int, place: Path) -> None:
        self._count, self._script = count, place / "launch.sh"
        number = os.getpid() % 60_000
        self._name = f"da{number}n"
        self._net = f"10.{number // 250}.{number % 250}"
        self._stack = ExitStack()

    def __enter__(self) -> Nodes:
        with ExitStack() as stack:
            bridge = f"da{self._name[2:-1]}b"
            self._ip("link", "add", bridge, "type", "bridge")
            stack.callback(self._ip, "link", "del", bridge)
            self._ip("link", "set", bridge, "up")
            for number in range(1, self._count + 1):
                self._add(stack, number, bridge)
            self._script.write_text(_LAUNCH.format(name=self._name))
            self._script.chmod(0o755)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, stack: ExitStack, number: int, bridge: str) -> None:
        node, wire = f"{self._name}{number}", f"{self._name}{number}v"
        self._ip("netns", "add", node)
        stack.callback(self._ip, "netns", "del", node)
        self._ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", node)
        self._ip("link", "set", wire, "master", bridge, "up")
        self._ip("-n", node, "address", "add", f"{self._net}.{number}/24", "dev", "eth0")
        for interface in ("eth0", "lo"):
            self._ip("-n", node, "link", "set", interface, "up")

    def _ip(self, *words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def inside(self, number: int) -> list[str]:
        """The beginning of a command that runs on a node; the first one has number 1."""
        return ["ip", "netns", "exec", f"{self._name}{number}"]

    def launcher(self, mpiexec: Sequence[str], ranks: Sequence[int]) -> list[str]:
        """The command that starts so many ranks on each node, to be followed by the program's."""
        hosts = [f"{self._net}.{number}:{count}" for number, count in enumerate(ranks, 1)]
        first = [*self.inside(1), *mpiexec]
        remote = ["-launcher", "ssh", "-launcher-exec", str(self._script)]
        return [*first, *remote, "-hosts", ",".join(hosts), "-n", str(sum(ranks))]
