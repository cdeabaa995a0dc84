"""Connections of clients that read slowly, never greet, or send a byte now and then; and what becomes of leases."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.limits import (
    CONNECTION_ANSWERS_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_BYTES_PER_S_MIN,
    FRAME_MS_MAX,
    GREETING_MS_MAX,
    MIB,
    OVERLOADED_RETRY_MS,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    TRANSPORT_BYTES_MAX,
    WRITE_BYTES,
    WRITE_STALL_MS_MAX,
)
from storage_nodes.model import Acks
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.transport import connection_table as table_module
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ERROR, HEADER_BYTES, encode_frame
from storage_nodes.protocol.messages import Cancel, ErrorReply, Hello, Opcode, SendRequest, encode_message
from storage_nodes.protocol.peer_messages import PeerHello
from tests.storage_nodes.node.connected_node import ANSWER, HELLO, Node, acquires, look
from tests.storage_nodes.node.slow_pipe import SlowPipe


def answered(pipe: SlowPipe, opcode: int = Opcode.ACQUIRE) -> list[int]:
    return [frame.correlation_id for frame in pipe.frames if frame.opcode == opcode]


# --- what nobody can read ---------------------------------------------------------------------------------------

NO_TEXT, DEEP = b"\xa2\xff\xfe", b"\x91" * 100_000 + b"\xc0"
PEER_HELLO = encode_frame(Opcode.PEER_HELLO, 0, 1, encode_message(PeerHello("c", 2, 7)))


# A field behind those that are known is not looked at, but for how deep it goes.
@pytest.mark.parametrize(
    ("greeting", "opcode", "fields"),
    [
        (b"", Opcode.HELLO, b"\xa1c" + NO_TEXT),
        (b"", Opcode.HELLO, b"\xa1c" + DEEP),
        (b"", Opcode.PEER_HELLO, b"\xa1c\x02\x07\x00" + NO_TEXT),
        (b"", Opcode.PEER_HELLO, b"\xa1c\x02\x07\x00\xa1h\x01\xa1z\x00\x00\x00\x93\x01\x01\x01" + DEEP),
        (HELLO, Opcode.CANCEL, b"\x01" + DEEP),
        (PEER_HELLO, Opcode.RAFT, b"\x07\x90" + DEEP),
    ],
)
def test_frame_that_nobody_can_read_ends_its_connection_and_no_more(
    greeting: bytes, opcode: int, fields: bytes
) -> None:
    """Text that is no UTF-8 and arrays that are nested too deeply raise other errors than all else; an error that comes
    out of here would end the process."""
    node = Node()
    connection, pipe = node.connect(greets=False)
    connection.data_received(greeting + encode_frame(opcode, 0, 1, b"\xdc\x00\x20" + fields + b"\x00" * 32))
    node.run()
    assert pipe.aborted


# --- answers ------------------------------------------------------------------------------------------------


def test_burst_of_answers_waits_and_arrives_in_order() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    for number in range(7):
        connection.data_received(acquires(number))
    node.run()
    assert pipe.most_bytes <= TRANSPORT_BYTES_MAX + WRITE_BYTES + 2 * len(ANSWER) and not pipe.aborted
    assert node.room.budget.used(Kind.ANSWERS) > 4 * MIB
    while pipe.buffer:
        pipe.drain(100_000)
        node.run()
    assert answered(pipe) == list(range(7))
    assert node.room.budget.used(Kind.ANSWERS) <= TRANSPORT_BYTES_MAX // 2, "as it was found when it had drained"
    node.table.look(1_000)
    assert node.room.budget.used(Kind.ANSWERS) == 0 and not pipe.aborted


def test_client_that_does_not_read_is_not_read_and_others_are() -> None:
    """One read brings requests for a hundred megabytes: no more of them are handled than the budget takes."""
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(*range(100)))
    node.run()
    budget_answers = CONNECTION_ANSWERS_BYTES_MAX // len(ANSWER)
    assert len(node.asked) <= budget_answers + 1 and not pipe.reading
    other, other_pipe = node.connect()
    other.data_received(acquires(1, 2, 3))
    node.run()
    assert answered(other_pipe) == [1, 2, 3] and other_pipe.reading
    while pipe.buffer:
        pipe.drain()
        node.run()
    assert answered(pipe) == list(range(100)) and pipe.reading, "all went on when it read again"


def test_client_that_only_pings_and_does_not_read_is_not_read() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    pings = encode_frame(Opcode.PING, 0, 1, b"\x90") * 10_000
    while pipe.reading:
        connection.data_received(pings)
        node.run()
        assert node.room.budget.used(Kind.ANSWERS) < 2 * CONNECTION_ANSWERS_BYTES_MAX
    while pipe.buffer:
        pipe.drain()
        node.run()
    assert pipe.reading and not node.room.budget.used(Kind.ANSWERS)


def test_requests_that_arrive_behind_held_ones_stay_behind_them() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(*range(20)))
    connection.data_received(acquires(20))  # was on its way when reading paused
    node.run()
    pipe.drain()
    connection.data_received(acquires(21))
    while pipe.buffer:
        node.run()
        pipe.drain()
    assert [token.request_id for token in node.asked] == list(range(22))


def test_connection_with_too_many_answers_takes_no_more_leases() -> None:
    """Polls that were parked before are answered from outside, however many there are."""
    node = Node()
    connection, _pipe = node.connect(reads=False)
    answers = 0
    while not connection.is_full:
        connection.answer(Token(connection, 1, Opcode.ACQUIRE), ANSWER)
        answers += 1
    assert answers == 2 * CONNECTION_ANSWERS_BYTES_MAX // len(ANSWER)


def test_slow_connections_share_what_may_wait_and_a_quick_one_is_served() -> None:
    node = Node()
    share = node.room.budget.shares_bytes[Kind.ANSWERS]
    slow = []
    for _ in range(50):
        connection, _pipe = node.connect(reads=False)
        connection.data_received(acquires(*range(20)))
        node.run()
        slow.append(connection)
    outflows = [connection._out for connection in slow if connection._out is not None]
    assert sum(out.bytes for out in outflows) < share + len(ANSWER)
    assert node.room.budget.used(Kind.ANSWERS) == sum(out.bytes + out.passed_bytes for out in outflows)
    assert all(out.passed_bytes >= len(ANSWER) for out in outflows), "one answer of each is in its transport"
    assert slow[0].is_full and not slow[0].is_reading
    quick, pipe = node.connect()
    quick.data_received(acquires(*range(5)))
    node.run()
    assert answered(pipe) == list(range(5)) and not quick.is_full


def test_leases_of_answers_that_were_not_written_are_given_back_when_the_connection_is_lost() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(*range(6)))
    node.run()
    handed_over = connection._out.written - 1 if connection._out else 0  # the greeting was first
    assert 0 < handed_over < 6
    connection.connection_lost(None)
    assert node.lost == list(range(handed_over, 6)), "what the transport has cannot be known"
    assert node.room.budget.total == 0
    pipe.drain_all()


def test_connection_that_is_lost_in_the_turn_of_its_answers_gives_back_what_was_not_written() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(*range(6)))
    handed_over = len(pipe.buffer) // len(ANSWER)
    connection.connection_lost(None)
    assert 0 < handed_over < 6 and node.lost == list(range(handed_over, 6))


def test_answer_to_a_lost_connection_is_given_back() -> None:
    node = Node()
    connection, _ = node.connect()
    connection.connection_lost(None)
    connection.answer(Token(connection, 5, Opcode.ACQUIRE), ANSWER, lambda: node.lost.append(5))
    node.run()
    assert node.lost == [5]


# --- liveness -----------------------------------------------------------------------------------------------


def ping(number: int) -> bytes:
    return encode_frame(Opcode.PING, 0, number, b"\x90")


def test_ping_is_answered_whatever_waits() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(*range(20)) + ping(99))
    node.run()
    while pipe.buffer:
        pipe.drain()
        node.run()
    assert answered(pipe, Opcode.PING) == [99]


def test_client_that_is_not_read_for_want_of_memory_hears_that_the_node_is_there() -> None:
    node = Node()
    connection, pipe = node.connect()
    node.room.budget.take(Kind.SENDS, node.room.budget.bytes_max)
    assert node.room.look()
    node.table.look_at_reading()
    assert not pipe.reading
    node.table.look(1_000)
    node.run()
    assert answered(pipe, Opcode.PING) == [0]
    node.room.budget.give(Kind.SENDS, node.room.budget.bytes_max)
    assert node.room.look()
    node.table.look_at_reading()
    assert pipe.reading and connection.is_reading


# --- what is cut --------------------------------------------------------------------------------------------


def test_connection_of_which_nothing_is_read_is_cut_in_time_and_not_before(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(1, 2))
    node.run()
    look(node, WRITE_STALL_MS_MAX)
    assert not pipe.aborted
    look(node, WRITE_STALL_MS_MAX + 1_000, WRITE_STALL_MS_MAX)
    assert pipe.aborted
    assert "nothing of its answers was read" in capsys.readouterr().out


def test_time_in_which_the_node_itself_stood_still_cuts_nobody() -> None:
    node = Node()
    connection, unread = node.connect(reads=False)
    connection.data_received(acquires(1, 2))
    node.run()
    slow, frame = node.connect()
    slow.data_received(encode_frame(Opcode.SEND, 0, 7, bytes(9))[:-1])
    _, silent = node.connect(greets=False)
    look(node, 2_000)
    later_ms = 2_000 + 10 * (WRITE_STALL_MS_MAX + FRAME_MS_MAX + GREETING_MS_MAX)
    node.table.look(later_ms)
    assert not (unread.aborted or frame.aborted or silent.aborted)
    look(node, later_ms + WRITE_STALL_MS_MAX + FRAME_MS_MAX, later_ms)
    assert unread.aborted and frame.aborted and silent.aborted


def test_connection_that_is_read_slowly_lives() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(1, 2))
    node.run()
    look(node, 10 * WRITE_STALL_MS_MAX, meanwhile=lambda: pipe.drain(100))
    assert not pipe.aborted and pipe.buffer


def test_connection_that_does_not_greet_is_cut() -> None:
    node = Node()
    _, silent = node.connect(greets=False)
    _, client = node.connect()
    look(node, GREETING_MS_MAX)
    assert not silent.aborted
    look(node, GREETING_MS_MAX + 1_000, GREETING_MS_MAX)
    assert silent.aborted and not client.aborted


@pytest.mark.parametrize(("bytes_per_look", "is_cut"), [(1, True), (FRAME_BYTES_PER_S_MIN // 2 + 100, False)])
def test_frame_that_trickles_in_is_cut_and_a_slow_one_is_not(bytes_per_look: int, is_cut: bool) -> None:
    node = Node()
    connection, pipe = node.connect()
    frame = encode_frame(Opcode.SEND, 0, 7, bytes(3 * MIB))
    at = 0

    def trickle() -> None:
        nonlocal at
        if not pipe.aborted:
            connection.data_received(frame[at : at + bytes_per_look])
            at += bytes_per_look

    look(node, 3 * FRAME_MS_MAX, meanwhile=trickle)
    assert pipe.aborted is is_cut
    if not is_cut:
        connection.data_received(frame[at:])
        assert [token.request_id for token in node.asked] == [7]


def test_time_in_which_a_connection_is_not_read_does_not_count_against_its_frame() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(acquires(*range(20)) + encode_frame(Opcode.SEND, 0, 7, b"x")[:-1])
    node.run()
    look(node, 3 * FRAME_MS_MAX, meanwhile=lambda: pipe.drain(10))
    assert not pipe.aborted


def test_connections_are_bounded_and_clients_leave_room_for_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(table_module, "CLIENT_CONNECTIONS_MAX", 2)
    node = Node()
    pipes = [node.connect()[1] for _ in range(4)]
    assert [bool(pipe.frames and pipe.frames[0].flags & FLAG_ERROR) for pipe in pipes[:3]] == [False, False, True]
    assert pipes[3].aborted


# --- what is refused ----------------------------------------------------------------------------------------


def errors(pipe: SlowPipe) -> list[tuple[int, int, int]]:
    """Request id, code and hint of each."""
    refused = [frame for frame in pipe.frames if frame.flags & FLAG_ERROR]
    replies = [(frame.correlation_id, msgspec.msgpack.decode(frame.payload, type=ErrorReply)) for frame in refused]
    return [(request_id, reply.code, reply.retry_after_ms) for request_id, reply in replies]


def test_whoever_is_refused_for_want_of_room_hears_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "CLIENT_CONNECTIONS_MAX", 1)
    node = Node()
    connection, pipe = node.connect()
    _, turned_away = node.connect()
    sends = [encode_frame(Opcode.SEND, 0, number, b"") for number in range(REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX + 1)]
    connection.data_received(b"".join(sends))
    # As a machine refuses, which knows nothing of time.
    connection.refuse(node.asked[0], StorageError(ErrorCode.OVERLOADED, "too many"))
    connection.refuse(node.asked[1], StorageError(ErrorCode.NOT_LEADER, "not here"))
    node.run()
    overloaded = (ErrorCode.OVERLOADED, OVERLOADED_RETRY_MS)
    assert errors(turned_away) == [(1, *overloaded)]
    assert errors(pipe) == [
        (REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, *overloaded), (0, *overloaded), (1, ErrorCode.NOT_LEADER, 0)
    ]  # fmt: skip


def test_client_that_comes_while_the_node_is_exhausted_is_not_read() -> None:
    node = Node()
    node.room.budget.take(Kind.SENDS, node.room.budget.bytes_max)
    assert node.room.look()
    connection, pipe = node.connect()
    assert answered(pipe, Opcode.HELLO) == [1] and not pipe.reading and not connection.is_reading


class AllNode(Node):
    """Sends wait for a voter that is away."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = Appends(self.room)

    def request(self, token: Token, payload: bytes) -> None:
        self.appends.take(token, payload, None)

    def cancelled(self, token: Token, partition: int) -> None:
        assert partition == 7 and self.appends.give_up(token)
        self.cancelled_ids.append(token.request_id)


def test_sends_for_all_voters_that_were_given_up_do_not_use_up_the_connection() -> None:
    node = AllNode()
    connection, pipe = node.connect()
    payload = encode_message(SendRequest(7, [b"\x00"], True, Acks.ALL))
    for number in range(2, 52):
        connection.data_received(encode_frame(Opcode.SEND, 0, number, payload))
        if number % 2:
            connection.data_received(encode_frame(Opcode.CANCEL, 0, 0, encode_message(Cancel(number))))
    node.run()
    assert errors(pipe) == [(number, ErrorCode.OUTCOME_UNKNOWN, 0) for number in range(3, 52, 2)]
    assert connection._in_flight == 25
    connection.connection_lost(None)
    assert sorted(node.cancelled_ids) == list(range(2, 52)) and connection._in_flight == 0


# --- what no client and no node sends -------------------------------------------------------------------------


# What comes, and what the log says of it.
STRANGE = {
    "client of another cluster": (
        encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("d", "client"))), "a client of another cluster",
    ),
    "node of another cluster": (
        encode_frame(Opcode.PEER_HELLO, 0, 0, encode_message(PeerHello("d", 2, 1))), "a node of another cluster",
    ),
    "request before a greeting": (acquires(1), f"opcode {int(Opcode.ACQUIRE)} before the greeting"),
    "claim of 2**31 bytes": (
        HELLO[:8] + (2**31).to_bytes(4, "big") + HELLO[12:],
        f"claims {2**31} bytes, at most {FRAME_BYTES_MAX} are taken",
    ),
    "HTTP": (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", "first byte 0x47 is not a frame's"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), "first byte 0x16 is not a frame's"),
    "flipped bit": (HELLO[:-1] + bytes([HELLO[-1] ^ 1]), "checksum does not match"),
}  # fmt: skip


@pytest.mark.parametrize("sent", STRANGE)
def test_stranger_is_hung_up_on_at_once_and_does_nothing(sent: str, capsys: pytest.CaptureFixture[str]) -> None:
    """S34."""
    node = Node()
    connection, pipe = node.connect(greets=False)
    said, why = STRANGE[sent]
    connection.data_received(said + acquires(7))
    assert pipe.aborted, "at once, and not in a later turn"
    node.run()
    assert not node.asked and not pipe.frames and node.room.budget.total == 0
    assert why in capsys.readouterr().out


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("greets", [True, False])
def test_claimed_length_takes_no_memory_before_its_bytes_come(greets: bool, length: int) -> None:
    node = Node()
    connection, pipe = node.connect(greets=greets)
    head = HELLO[:8] + length.to_bytes(4, "big") + HELLO[12:HEADER_BYTES]
    for at in range(HEADER_BYTES - 1):
        connection.data_received(head[at : at + 1])
        assert node.room.budget.used(Kind.FRAMES) == at + 1 and not pipe.aborted
    connection.data_received(head[-1:])
    assert pipe.aborted is (length > FRAME_BYTES_MAX) and node.room.budget.used(Kind.FRAMES) <= HEADER_BYTES
    connection.connection_lost(None)
    assert node.room.budget.used(Kind.FRAMES) == 0
