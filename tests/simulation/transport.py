"""One end of a connection: a transport with buffers, as asyncio's and uvloop's are.

What was written counts until the other end's protocol has read it. As much as sockets hold on the way (`socket_bytes`
of the world) is out of sight; the rest stands in the write buffer of the sender, who is told to pause and to go on. A
process that stands still reads nothing, nor does a protocol that paused reading: whoever writes to it notices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tests.simulation.network import Network

RESET_DELAY_US = 300
HIGH_BYTES_DEFAULT = 64 * 1024


class End(Protocol):
    """A process as the network sees it."""

    process_id: int

    @property
    def is_up(self) -> bool: ...
    def post(self, callback: Callable[..., object], *args: Any) -> None: ...


class SimTransport:
    """`on_write` lets an observer see and `on_arrival` announce what passes."""

    def __init__(self, network: Network, own: End, other: End) -> None:
        self.own = own
        self.protocol: Any = None
        self.on_accept: Callable[[Any], None] | None = None
        self.peer: SimTransport
        self.closed = False
        self.last_us = 0
        self.on_write: Callable[[bytes], None] | None = None
        self.on_arrival: Callable[[bytes], None] | None = None
        self.unread_bytes = 0  # written, and the other end has not read it
        self.read_us = -1_000_000_000  # when some of it was read last
        self.hindered_us = -1_000_000_000  # when something written here was lost, or came late, last
        self._network = network
        self._other = other
        self._high_bytes = network.faults.socket_bytes + HIGH_BYTES_DEFAULT
        self._low_bytes = network.faults.socket_bytes + HIGH_BYTES_DEFAULT // 4
        self._is_pausing = False
        self._is_reading = True
        self._arrived: deque[tuple[bytes, int]] = deque()  # while reading is paused

    # --- asyncio.Transport ----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.closed or not data:
            return
        if self.on_write is not None:
            self.on_write(data)
        self.unread_bytes += len(data)
        self._network.carry(self, self._other, data)
        if self.unread_bytes > self._high_bytes and not self._is_pausing:
            self._is_pausing = True
            self.protocol.pause_writing()

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return max(0, self.unread_bytes - self._network.faults.socket_bytes)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        socket_bytes = self._network.faults.socket_bytes
        return self._low_bytes - socket_bytes, self._high_bytes - socket_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_BYTES_DEFAULT if low is None else 4 * low
        socket_bytes = self._network.faults.socket_bytes
        self._high_bytes = socket_bytes + high
        self._low_bytes = socket_bytes + (high // 4 if low is None else low)
        if self.unread_bytes > self._high_bytes and not self._is_pausing:
            self._is_pausing = True
            self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            if self._arrived:
                self.own.post(self._read_on)

    def is_reading(self) -> bool:
        return self._is_reading and not self.closed

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return default

    def close(self) -> None:
        if not self.closed:
            self._network.close(self, RESET_DELAY_US)

    def abort(self) -> None:
        if not self.closed:
            self._network.on_cut(self)
            self.close()

    # --- the network ----------------------------------------------------------------------------------------------

    def arrive(self, data: bytes, counted_bytes: int) -> None:
        """`counted_bytes`: 0 of what comes once more."""
        if not self.closed:
            self.own.post(self._receive, data, counted_bytes)

    def _receive(self, data: bytes, counted_bytes: int) -> None:
        if self.closed:
            return
        if not self._is_reading or self._arrived:
            self._arrived.append((data, counted_bytes))
            return
        if counted_bytes:
            self.peer.was_read(counted_bytes)
        if self.on_arrival is not None:
            self.on_arrival(data)
        self.protocol.data_received(data)

    def _read_on(self) -> None:
        while self._arrived and self._is_reading and not self.closed:
            data, counted_bytes = self._arrived.popleft()
            if counted_bytes:
                self.peer.was_read(counted_bytes)
            if self.on_arrival is not None:
                self.on_arrival(data)
            self.protocol.data_received(data)

    def was_lost(self, count: int) -> None:
        """On the way: nothing waits for it, and nobody read it."""
        self.hindered_us = self._network.now_us
        self._left(count)

    def was_read(self, count: int) -> None:
        """By the other end."""
        self.read_us = self._network.now_us
        self._left(count)

    def _left(self, count: int) -> None:
        self.unread_bytes -= count
        if self._is_pausing and self.unread_bytes <= self._low_bytes and not self.closed:
            self._is_pausing = False
            self.own.post(self._resume)

    def _resume(self) -> None:
        if not self.closed and not self._is_pausing:
            self.protocol.resume_writing()

    def lost(self) -> None:
        if not self.closed:
            self.closed = True
            self.own.post(self.protocol.connection_lost, None)
