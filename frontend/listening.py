"""What a server listens on, and how many connections its process may have."""

from __future__ import annotations

import contextlib
import resource
import socket
from typing import Any

from frontend.limits import CONNECTIONS_MAX, FILES_KEPT


def allow_open_files() -> int:
    """Raise this process's limit of open files as far as it may; how many connections fit under it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, max(1, soft - FILES_KEPT))


def shared_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets on which several processes listen at once: the kernel gives each connection to one of them, and those of
    a process that ends to the others. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [_shared_socket(family, address) for family, address in dict.fromkeys((one[0], one[4]) for one in found)]


def _shared_socket(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening
