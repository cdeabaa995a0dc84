"""Connections that wait to be accepted are accepted many at a time.

libuv accepts one connection in each turn of the event loop. A turn of a loaded process takes some ten milliseconds, so
it would accept a hundred connections a second; then the backlog fills, the kernel drops what comes, and every new
client waits for its second or third SYN (1 s, 3 s, 7 s, 15 s). So the listening socket is read beside libuv, by a
descriptor of its own, and up to ACCEPTED_PER_TURN_MAX connections are taken in one turn.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import structlog

from frontend.limits import ACCEPT_PAUSE_S, ACCEPTED_PER_TURN_MAX

_log = structlog.get_logger("frontend.accepting")


class Acceptor:
    """Accepts from a socket that a server has bound, listens on, and accepts from, too. `close` before the server
    closes it: the kernel refuses connections only when both have."""

    def __init__(self, listening_fd: int, connect: Callable[[], asyncio.Protocol]) -> None:
        """`connect` makes the protocol of a connection."""
        self._loop = asyncio.get_running_loop()
        self._connect = connect
        self._listening = socket.socket(fileno=os.dup(listening_fd))
        self._listening.setblocking(False)
        self._beginning: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_PER_TURN_MAX):
            try:
                accepted, _ = self._listening.accept()
            except BlockingIOError:
                return  # none waits
            except (ConnectionAbortedError, InterruptedError):
                continue  # its client has left
            except OSError as error:
                self._wait(error)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._begin(accepted), name="connection-begins")
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connect, accepted)
        except OSError:
            accepted.close()  # its client has left

    def _wait(self, error: OSError) -> None:
        """No descriptor or memory is free: the socket stays readable, and would be tried without a pause."""
        _log.warning("connections_not_accepted", reason=str(error))
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(ACCEPT_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listening, self._accept)
