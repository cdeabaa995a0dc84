"""Network namespaces that a test makes for its nodes: a bridge, a veth pair each, and silent drops by direction.

A drop is a classic-BPF filter with direct action on the egress of the sender's own interface, by destination address:
packets vanish, nobody gets an error, the other direction works. Everything is removed by name at the end; names carry
the process number, so that two runs do not meet.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence

from tests.blackbox.faults.disks import run

PREFIX_BITS = 24
CLIENT = 0  # the clients' side: the bridge itself
CLIENT_HOST_NUMBER = 254


class Network:
    """Node n is at <prefix>.n, the clients at <prefix>.254."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = list(nodes)
        self._tag = f"pb{os.getpid() % 100_000}"
        self._subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        try:
            self._build()
        except BaseException:
            self.remove()
            raise

    def address(self, node: int) -> str:
        return f"{self._subnet}.{node or CLIENT_HOST_NUMBER}"

    def namespace(self, node: int) -> str:
        return f"{self._tag}-n{node}"

    def drop(self, sender: int, receiver: int) -> None:
        """Packets from sender to receiver vanish. Either may be CLIENT, but not the sender."""
        assert sender != CLIENT, "drops stand on the nodes' own interfaces"
        bytecode = drop_to(self.address(receiver))
        self._inside(sender, "tc", "filter", "add", "dev", "eth0", "egress", "bpf", "da", "bytecode", bytecode)

    def isolate(self, node: int) -> None:
        """Two-way cut from the other nodes; the clients still reach it."""
        for other in self._nodes:
            if other != node:
                self.drop(node, other)
                self.drop(other, node)

    def heal(self) -> None:
        for node in self._nodes:
            self._inside(node, "tc", "filter", "del", "dev", "eth0", "egress")

    def remove(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(subprocess.CalledProcessError):
                run("ip", "netns", "del", self.namespace(node))
            with contextlib.suppress(subprocess.CalledProcessError):
                run("ip", "link", "del", f"{self._tag}v{node}")
        with contextlib.suppress(subprocess.CalledProcessError):
            run("ip", "link", "del", self._tag)

    def _build(self) -> None:
        run("ip", "link", "add", self._tag, "type", "bridge")
        run("ip", "addr", "add", f"{self.address(CLIENT)}/{PREFIX_BITS}", "dev", self._tag)
        run("ip", "link", "set", self._tag, "up")
        for node in self._nodes:
            outer, space = f"{self._tag}v{node}", self.namespace(node)
            run("ip", "netns", "add", space)
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", outer, "master", self._tag)
            run("ip", "link", "set", outer, "up")
            self._inside(node, "ip", "addr", "add", f"{self.address(node)}/{PREFIX_BITS}", "dev", "eth0")
            self._inside(node, "ip", "link", "set", "eth0", "up")
            self._inside(node, "ip", "link", "set", "lo", "up")
            self._inside(node, "tc", "qdisc", "add", "dev", "eth0", "clsact")

    def _inside(self, node: int, *command: str) -> None:
        run("ip", "netns", "exec", self.namespace(node), *command)


def drop_to(address: str) -> str:
    """Classic BPF: an IPv4 packet to this address is shot (2), anything else is left alone (-1)."""
    (number,) = struct.unpack(">I", socket.inet_aton(address))
    program = [
        (0x28, 0, 0, 12),  # ldh [12]: the ethertype
        (0x15, 0, 3, 0x0800),  # not IPv4: to the last line
        (0x20, 0, 0, 30),  # ld [30]: the destination
        (0x15, 0, 1, number),
        (0x06, 0, 0, 2),
        (0x06, 0, 0, 0xFFFFFFFF),
    ]
    return ",".join([str(len(program)), *(" ".join(map(str, line)) for line in program)])


@functools.cache
def missing() -> str:
    """Why namespaces cannot be used on this machine; empty where they can, shown by cutting a ping's way."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "tc", "nsenter"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    network: Network | None = None
    try:
        network = Network((1, 2))
        network.drop(1, 2)
        network.heal()
    except subprocess.CalledProcessError as error:
        return f"namespaces or filters do not work here: {error.stderr.decode().strip()[-200:]}"
    finally:
        if network is not None:
            network.remove()
    return ""
