"""Ports that an installation has chosen and not yet listens on, known to the other installations of this machine.

Seconds pass between the choice and the moment its process listens. A claim is the name of an abstract Unix socket: one
process at a time has it, it ends with that process, and it is seen by all users within one network namespace, as ports
are.
"""

from __future__ import annotations

import socket

_held: dict[int, socket.socket] = {}


def claim(port: int) -> bool:
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


def release_all() -> None:
    """For a process that leaves the listening to another one, which claims them again."""
    while _held:
        _held.popitem()[1].close()
