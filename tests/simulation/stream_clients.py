"""Clients of streams: appenders that retry, readers that follow the log from its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage_nodes.log.record_batch import read_header
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import ErrorReply, Opcode, StreamReadRequest
from tests.simulation.books import StreamBook
from tests.simulation.clients import RETRY_US, Client, Operation
from tests.simulation.queue_clients import Sender

if TYPE_CHECKING:
    from tests.simulation.world import World


class Appender(Sender):
    opcode = Opcode.STREAM_APPEND
    may_delay = False
    has_keys = False


class Reader(Client):
    """Reads on and on. `offset` is how far it is."""

    def __init__(self, world: World, number: int, partition: int) -> None:
        super().__init__(world, number)
        self.partition = partition
        self.offset = 0
        self._bytes_max = self.random.choice([1, 200, 5_000])

    def read(self) -> None:
        if self.world.is_dropped(self.partition):
            return
        wait_ms = self.random.choice([0, 0, 300, 3_000])
        request = StreamReadRequest(self.partition, self.offset, self._bytes_max, wait_ms)
        self.ask(Opcode.STREAM_READ, request, (wait_ms + 1_500) * 1_000, self._have_read)

    def is_level(self) -> bool:
        """Has it read everything that is there to be read?"""
        book = self.world.oracle.books.get(self.partition)
        return not isinstance(book, StreamBook) or not book.data or self.offset >= read_header(book.data[-1]).end_offset

    def _have_read(self, operation: Operation) -> None:
        reply = operation.reply
        if operation.outcome == "ok":
            self.offset = reply.next_offset
            self.at_leisure(self.random.randrange(1_000, 100_000), self.read)
            return
        if isinstance(reply, ErrorReply) and reply.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Trimmed away. Where the log starts now, every answer of a read says: the book knows it without asking.
            book = self.world.oracle.books[self.partition]
            assert isinstance(book, StreamBook)
            self.offset = max(self.offset, book.log_start)
        self.elsewhere(reply)
        self.later(RETRY_US, self.read)
