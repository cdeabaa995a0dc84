"""When a connection is given up, second by second: a clock and a transport that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from storage_nodes.client.connection import LATE_S, PIECES_FROM_BYTES, PING_AFTER_S, PING_ANSWER_S, ClientConnection
from storage_nodes.limits import CLIENT_WRITE_BUFFER_BYTES
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import Empty, Opcode, encode_message

PONG = encode_frame(Opcode.PING, FLAG_ANSWER, 0, encode_message(Empty()))
EXCHANGE_S = PING_AFTER_S + PING_ANSWER_S


class Clock:
    """As much of an event loop as a connection uses."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def create_future(self) -> Any:
        done: list[None] = []
        return SimpleNamespace(done=lambda: bool(done), set_result=done.append)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_at(self, when_s: float, callback: Callable[..., None], *args: object) -> Any:
        timer = (when_s, lambda: callback(*args))
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer) if timer in self.timers else None)

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: object) -> Any:
        return self.call_at(self.now_s + delay_s, callback, *args)

    def run(self, seconds: float, late_s: float = 0.0) -> None:
        """Timers ring when they are due, or so much later."""
        end_s = self.now_s + seconds
        while True:
            soon, self.soon = self.soon, []
            for callback in soon:
                callback()
            due = sorted((timer for timer in self.timers if timer[0] + late_s <= end_s), key=lambda timer: timer[0])
            if not due:
                break
            self.timers.remove(due[0])
            self.now_s = max(self.now_s, due[0][0] + late_s)
            due[0][1]()
        self.now_s = end_s


class Wire:
    """A transport; what was written waits for the other end while it `holds`."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._decoder = FrameDecoder()
        self.holds = False
        self.waiting_bytes = 0
        self.opcodes: list[int] = []
        self.ids: list[int] = []
        self.pieces = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        frames = self._decoder.feed(data)
        self.opcodes += [frame.opcode for frame in frames]
        self.ids += [frame.correlation_id for frame in frames]
        if self.holds:
            self.waiting_bytes += len(data)
            if self.waiting_bytes > 64 * 1024:
                self._connection.pause_writing()

    def writelines(self, pieces: Sequence[bytes]) -> None:
        self.pieces += len(pieces)
        self.write(b"".join(pieces))

    def take(self, count: int) -> None:
        self.waiting_bytes -= count

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True
        self._connection.connection_lost(None)


def connected() -> tuple[Clock, ClientConnection, Wire, list[bytes | StorageError]]:
    clock = Clock()
    connection = ClientConnection(clock)  # type: ignore[arg-type]
    wire = Wire(connection)
    connection.connection_made(wire)  # type: ignore[arg-type]
    return clock, connection, wire, []


def test_node_that_answers_pings_is_waited_for_without_end() -> None:
    clock, connection, wire, results = connected()
    connection.ask(Opcode.SEND, b"x", results.append)
    for pings in range(1, 30):
        clock.run(PING_AFTER_S)
        assert wire.opcodes.count(Opcode.PING) == pings
        connection.data_received(PONG)
    assert not wire.is_aborted and not results


def test_error_that_nobody_can_read_leaves_the_outcome_unknown_and_the_connection_as_it_is() -> None:
    """The client may be a node's own: what escapes here would end that node."""
    for unreadable in (b"\x92\x03\xa1\xff", b"\x91" * 100_000 + b"\x01", b""):
        clock, connection, wire, results = connected()
        connection.ask(Opcode.SEND, b"x", results.append)
        connection.ask(Opcode.SEND, b"y", results.append)
        clock.run(0.001)
        connection.data_received(encode_frame(Opcode.SEND, FLAG_ANSWER | FLAG_ERROR, wire.ids[0], unreadable))
        (error,) = results
        assert isinstance(error, StorageError) and error.code is ErrorCode.OUTCOME_UNKNOWN and not wire.is_aborted
        connection.data_received(encode_frame(Opcode.SEND, FLAG_ANSWER, wire.ids[1], b"\x90"))
        assert results[1] == b"\x90"


def test_node_that_says_nothing_is_given_up_after_one_ping() -> None:
    clock, connection, wire, results = connected()
    connection.ask(Opcode.SEND, b"x", results.append)
    clock.run(EXCHANGE_S - 0.01)
    assert not wire.is_aborted
    clock.run(0.02)
    assert wire.is_aborted and wire.opcodes == [Opcode.SEND, Opcode.PING]
    assert [error.code for error in results if isinstance(error, StorageError)] == [ErrorCode.OUTCOME_UNKNOWN]


def test_anything_that_is_heard_counts() -> None:
    clock, connection, wire, results = connected()
    connection.ask(Opcode.SEND, b"x", results.append)
    for _ in range(20):
        clock.run(PING_AFTER_S * 0.9)
        connection.data_received(encode_frame(Opcode.SEND, FLAG_ANSWER, 999, b""))
    assert Opcode.PING not in wire.opcodes


def test_node_that_takes_what_waits_to_be_written_is_there_though_it_says_nothing() -> None:
    clock, connection, wire, results = connected()
    wire.holds = True
    connection.ask(Opcode.SEND, bytes(CLIENT_WRITE_BUFFER_BYTES), results.append)
    clock.run(0.01)
    for _ in range(20):
        clock.run(PING_ANSWER_S * 0.9)
        wire.take(10_000)
    assert not wire.is_aborted
    clock.run(2 * EXCHANGE_S)
    assert wire.is_aborted


def test_large_frame_leaves_in_pieces_and_is_watched_as_a_small_one() -> None:
    clock, connection, wire, answers = connected()
    wire.holds = True
    connection.ask(Opcode.SEND, bytes(PIECES_FROM_BYTES - 1), answers.append, at_once=True)
    assert wire.pieces == 0
    connection.ask(Opcode.SEND, bytes(PIECES_FROM_BYTES), answers.append, at_once=True)
    assert wire.pieces == 2 and wire.opcodes == [Opcode.SEND, Opcode.SEND]
    for _ in range(20):
        clock.run(PING_ANSWER_S * 0.9)
        wire.take(1_000)
    assert not wire.is_aborted, "the node takes what waits, all of which is counted"
    clock.run(2 * EXCHANGE_S)
    assert wire.is_aborted


def test_what_the_system_has_room_for_says_nothing_of_the_node() -> None:
    clock, connection, wire, results = connected()
    for _ in range(40):
        if connection.is_open:
            connection.ask(Opcode.SEND, b"x", results.append)
        clock.run(PING_AFTER_S / 10)
    assert wire.is_aborted, "new requests left all the time"


def test_own_loop_that_stood_still_reads_first_what_came_in() -> None:
    clock, connection, wire, results = connected()
    connection.ask(Opcode.SEND, b"x", results.append)
    clock.run(PING_AFTER_S + 0.01)
    clock.run(PING_ANSWER_S + 3 * LATE_S, late_s=2 * LATE_S)
    assert not wire.is_aborted, "late with the look: it asks once more"
    connection.data_received(PONG)
    clock.run(PING_AFTER_S / 2)
    assert not wire.is_aborted


def test_calls_of_a_lost_connection_hear_whether_they_were_written() -> None:
    clock, connection, wire, results = connected()
    wire.holds = True
    for _ in range(4):
        connection.ask(Opcode.SEND, bytes(CLIENT_WRITE_BUFFER_BYTES // 2), results.append)
    clock.run(0.01)
    assert len(wire.opcodes) == 2
    wire.abort()
    unknown, unreachable = ErrorCode.OUTCOME_UNKNOWN, ErrorCode.UNREACHABLE
    assert [error.code for error in results if isinstance(error, StorageError)] == [unknown] * 2 + [unreachable] * 2


def test_call_that_was_not_written_is_taken_back_and_the_node_never_hears_of_it() -> None:
    clock, connection, wire, results = connected()
    wire.holds = True
    numbers = [connection.ask(Opcode.SEND, bytes(CLIENT_WRITE_BUFFER_BYTES), results.append) for _ in range(3)]
    clock.run(0.01)
    assert [connection.cancel(number) for number in numbers] == [True, False, False]
    wire.holds = False
    connection.resume_writing()
    clock.run(0.01)
    assert wire.opcodes == [Opcode.SEND, Opcode.CANCEL] and not results
