"""A transport whose other end reads when the test says so."""

from __future__ import annotations

from typing import Any

from storage_nodes.protocol.frames import Frame, FrameDecoder


class SlowPipe:
    """As asyncio's: more than `high` makes it call pause_writing, less than `low` resume_writing."""

    def __init__(self, protocol: Any, reads: bool = True) -> None:
        self.protocol = protocol
        self.reads = reads  # does the other end read at once?
        self.buffer = bytearray()
        self.sent = FrameDecoder()
        self.frames: list[Frame] = []
        self.most_bytes = 0
        self.aborted = False
        self.reading = True
        self._high = self._low = 0
        self._paused = False
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return len(self.buffer)

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def write(self, data: bytes) -> None:
        self.buffer += data
        self.most_bytes = max(self.most_bytes, len(self.buffer))
        if self.reads:
            self.drain()
        elif len(self.buffer) > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def drain(self, size: int = 2**40) -> None:
        """The other end reads so much."""
        self.frames += self.sent.feed(bytes(self.buffer[:size]))
        del self.buffer[:size]
        if self._paused and len(self.buffer) <= self._low:
            self._paused = False
            self.protocol.resume_writing()

    def drain_all(self) -> None:
        while self.buffer:
            self.drain()

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True
