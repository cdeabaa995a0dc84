"""The write side of a client's connection: what the client does not read is held for a limited time
and up to a limited number of bytes.

    open       bytes go to the kernel at once; only what it does not take is held here
    paused     more than the high-water mark is held: senders wait. The client must take WRITE_BYTES_PER_S_MIN in each
               window of WRITE_WINDOW_S, or it is cut
    closing    what is held still goes out, under the same rule
    over       the connection is gone, and what is written is thrown away

All connections together hold ANSWERS_HELD_BYTES_MAX: beyond it, the one that has been paused for the longest is cut.
A connection that keeps up costs nothing: it is looked at only once the event loop has asked for a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import structlog

from frontend.flood_log import FloodLog
from frontend.limits import (
    ANSWERS_HELD_BYTES_MAX,
    CONNECTION_HELD_BYTES_MAX,
    WRITE_BYTES_PER_S_MIN,
    WRITE_WINDOW_S,
)

_slow_readers = FloodLog(structlog.get_logger("frontend.writing"), "slow_reader_cut")


class PausedClients:
    """The connections of this process whose clients read more slowly than they are written to, oldest pause first."""

    def __init__(self) -> None:
        self._held: dict[ClientTransport, int] = {}
        self.held_bytes = 0
        self.cut = 0

    def note(self, client: ClientTransport, held_bytes: int) -> None:
        """How much a paused one holds now. May cut others, or this one."""
        self.held_bytes += held_bytes - self._held.get(client, 0)
        self._held[client] = held_bytes
        if held_bytes > CONNECTION_HELD_BYTES_MAX:
            client.cut(f"more than {CONNECTION_HELD_BYTES_MAX} bytes wait to be read")
        while self.held_bytes > ANSWERS_HELD_BYTES_MAX:
            next(iter(self._held)).cut("answers that wait to be read take too much memory")

    def forget(self, client: ClientTransport) -> None:
        self.held_bytes -= self._held.pop(client, 0)


paused_clients = PausedClients()


class ClientTransport:
    """What the protocols write through. Besides, it writes the head of an answer together with what follows it.

    uvicorn writes head and body one after the other, and each write is a system call that the kernel answers by running
    the receiver's half of the connection too: about a tenth of what a request costs. A head is held until the next
    write, or to the end of this turn of the event loop.
    """

    __slots__ = (
        "_before_bytes", "_call_later", "_call_soon", "_head", "_lingers", "_over", "_transport", "_window",
        "is_closing",
    )  # fmt: skip

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, lingers: Callable[[], bool]
    ) -> None:
        self._transport = transport
        # Asked for with every answer: what is looked up by `__getattr__` costs an error that nobody sees.
        self.is_closing = transport.is_closing
        self._call_soon = loop.call_soon
        self._call_later = loop.call_later
        self._head = b""
        self._window: asyncio.TimerHandle | None = None
        self._before_bytes = 0
        self._over = False
        self._lingers = lingers  # asked before the connection is closed: True where it is closed later, by the asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._over:
            return  # uvloop takes a write then for an error of the caller
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._call_soon(self.flush)
        else:
            self._transport.write(data)

    def write_answer(self, data: bytes) -> None:
        """A whole answer."""
        if self._head:
            self.write(data)
        elif not self._over:
            self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """What is held goes out first, if the client takes it."""
        self.flush()
        if self._lingers():
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self.paused()

    def is_refused(self) -> bool:
        """Whether the client's host has answered what was written with a reset; found while nothing is read, too."""
        watched = select.poll()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            watched.register(self._transport.get_extra_info("socket").fileno(), 0)
            return bool(watched.poll(0))
        return False

    # --- said by the protocols ---

    def paused(self) -> None:
        if self._window is None and not self._over:
            self._before_bytes = self._unacknowledged_bytes()
            self._window = self._call_later(WRITE_WINDOW_S, self._look)
            paused_clients.note(self, self._transport.get_write_buffer_size())

    def resumed(self) -> None:
        # What is left of a connection that closes must go out as well: nobody will write, and wait, again.
        if not self._transport.is_closing():
            self._watch_no_more()

    def ended(self) -> None:
        """The connection is lost. (uvicorn closes it once more; what was held then counts for nothing.)"""
        self._over = True
        self._head = b""
        self._watch_no_more()

    def _watch_no_more(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            window.cancel()
            paused_clients.forget(self)

    # --- the watch ---

    def _look(self) -> None:
        unacknowledged_bytes = self._unacknowledged_bytes()
        taken_bytes = self._before_bytes - unacknowledged_bytes
        if unacknowledged_bytes and taken_bytes < WRITE_BYTES_PER_S_MIN * WRITE_WINDOW_S:
            self.cut(f"the client took {max(taken_bytes, 0)} bytes in {WRITE_WINDOW_S:g} s")
            return
        self._before_bytes = unacknowledged_bytes
        self._window = self._call_later(WRITE_WINDOW_S, self._look)
        paused_clients.note(self, self._transport.get_write_buffer_size())

    def _unacknowledged_bytes(self) -> int:
        """What the client's host has not acknowledged. The kernel's part counts too: it asks for more only once it has
        sent a third of a buffer of megabytes, and until then a slow reader would look like one that does not read."""
        count = bytearray(4)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
        return self._transport.get_write_buffer_size() + int.from_bytes(count, sys.byteorder)

    def cut(self, reason: str) -> None:
        """End the connection at once; what it holds is thrown away."""
        peer = self._transport.get_extra_info("peername")
        held_bytes = self._transport.get_write_buffer_size()
        self.ended()
        paused_clients.cut += 1
        _slow_readers.warn(time.monotonic(), reason=reason, client=str(peer), held_bytes=held_bytes)
        self._transport.abort()
