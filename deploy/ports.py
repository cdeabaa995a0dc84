"""Ports of this machine: whether nothing listens there, one that is free, and claims of those that are chosen.

Seconds pass between the choice of a port and the moment its process listens. A claim tells the other installations of
this machine. It is the name of an abstract Unix socket: one process at a time has it, it ends with that process, and it
is seen by all users within one network namespace, as ports are.
"""

from __future__ import annotations

import errno
import socket
from random import SystemRandom

from deploy import limits
from deploy.errors import EXIT_USAGE, CommandError

LOOPBACK = "127.0.0.1"
_held: dict[int, socket.socket] = {}


def choose_port(taken: set[int]) -> int:
    """A free one that no other process has chosen, claimed until this process ends. Raises CommandError."""
    generator = SystemRandom()
    for _ in range(limits.PORT_ATTEMPTS_MAX):
        port = generator.randint(limits.INTERNAL_PORT_MIN, limits.INTERNAL_PORT_MAX)
        if port not in taken and is_free(LOOPBACK, port) and claim_port(port):
            return port
    raise CommandError(
        f"no free port was found between {limits.INTERNAL_PORT_MIN} and {limits.INTERNAL_PORT_MAX}; "
        "stop what occupies them"
    )


def is_free(host: str, port: int) -> bool:
    return bind_failure(host, port) is None


def bind_failure(host: str, port: int) -> OSError | None:
    """Why nothing can listen there; None where it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
        return None


def require_free(host: str, port: int, option: str = "--port") -> None:
    failure = bind_failure(host, port)
    if failure is None:
        return
    if isinstance(failure, socket.gaierror) or failure.errno == errno.EADDRNOTAVAIL:
        text = f"--host {host} is no address of this machine (127.0.0.1: itself only; 0.0.0.0: all addresses)"
    elif failure.errno == errno.EACCES:
        text = f"port {port} may not be used by this user. Choose one from 1024 on: ./penstock up {option} 9324"
    else:
        other = port + 1 if port < limits.PORT_MAX else port - 1
        text = f"{host}:{port} is taken by another program. Choose another port: ./penstock up {option} {other}"
    raise CommandError(text, EXIT_USAGE)


def claim_port(port: int) -> bool:
    """Claim it for this process, or say False: another process has. A second claim of this process changes nothing."""
    if port in _held:
        return True
    claimed = socket.socket(socket.AF_UNIX)
    try:
        claimed.bind(f"\0penstock-port-{port}")
    except OSError:
        claimed.close()
        return False
    _held[port] = claimed
    return True


def release_claims() -> None:
    """For a process that leaves the listening to another one, which claims them again."""
    while _held:
        _held.popitem()[1].close()
