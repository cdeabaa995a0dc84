"""Connections of clients that read slowly, never greet, or send a byte now and then; and what becomes of leases."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from storage_nodes.limits import (
    CONNECTION_ANSWERS_BYTES_MAX,
    CONNECTION_LOOK_MS,
    FRAME_BYTES_PER_S_MIN,
    FRAME_MS_MAX,
    FRAMES_TURN_MS_MAX,
    GREETING_MS_MAX,
    KIB,
    MIB,
    NODE_MEMORY_BYTES_MIN,
    OVERLOADED_RETRY_MS,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    TRANSPORT_BYTES_MAX,
    WRITE_BYTES,
    WRITE_STALL_MS_MAX,
)
from storage_nodes.model import Acks
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.transport import connection_table as table_module
from storage_nodes.node.transport.connection_table import ConnectionTable
from storage_nodes.node.transport.connections import NodeConnection, Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ERROR, encode_frame
from storage_nodes.protocol.messages import Cancel, ErrorReply, Hello, Opcode, SendRequest, encode_message
from storage_nodes.protocol.peer_messages import PeerHello
from tests.storage_nodes.node.slow_pipe import SlowPipe

HELLO = encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("c", "client")))
ANSWER = b"x" * MIB


class Node:
    """Answers each ACQUIRE at once with a megabyte, and keeps all other requests."""

    cluster_id = "c"
    node_id = 1

    def __init__(self, bytes_max: int = NODE_MEMORY_BYTES_MIN) -> None:
        self.soon: list[Callable[[], None]] = []
        self.room = NodeRoom(MemoryBudget(bytes_max), lambda: 0.0, lambda: None)
        self.asked: list[Token] = []
        self.lost: list[int] = []
        self.cancelled_ids: list[int] = []
        loop: Any = SimpleNamespace(
            call_soon=lambda work, *items: self.soon.append(lambda: work(*items)),
            call_later=lambda _s, work: self.soon.append(work),
        )
        self.table = ConnectionTable(self, loop)  # type: ignore[arg-type]

    def turn(self) -> None:
        pass

    def request(self, token: Token, payload: bytes) -> None:
        self.asked.append(token)
        if token.opcode == Opcode.ACQUIRE:
            token.connection.answer(token, ANSWER, lambda: self.lost.append(token.request_id))

    def cancelled(self, token: Token, partition: int) -> None:
        self.cancelled_ids.append(token.request_id)

    def peer_greeted(self, hello: PeerHello) -> str:
        return ""

    def connect(self, reads: bool = True, greets: bool = True) -> tuple[NodeConnection, SlowPipe]:
        connection = self.table.accept()
        pipe = SlowPipe(connection, reads)
        if greets:
            connection.data_received(HELLO)
            self.run()
        return connection, pipe

    def run(self) -> None:
        """Turns of the loop, until nothing is left to do."""
        while self.soon:
            soon, self.soon = self.soon, []
            for work in soon:
                work()


def acquires(*ids: int) -> bytes:
    return b"".join(encode_frame(Opcode.ACQUIRE, 0, number, b"") for number in ids)


def answered(pipe: SlowPipe, opcode: int = Opcode.ACQUIRE) -> list[int]:
    return [frame.correlation_id for frame in pipe.frames if frame.opcode == opcode]


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


def look(node: Node, until_ms: int, from_ms: int = 0, meanwhile: Callable[[], None] = lambda: None) -> None:
    for now_ms in range(from_ms + 500, until_ms + 1, 500):
        meanwhile()
        node.table.look(now_ms)


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


# --- frames that are not whole ------------------------------------------------------------------------------

LARGE = encode_frame(Opcode.SEND, 0, 7, bytes(4 * MIB - 100))
PART_BYTES = 3 * MIB
CROWD = 5  # parts of frames that take more than their share


def crowd(node: Node) -> list[tuple[NodeConnection, SlowPipe]]:
    """Clients in the middle of a large frame each, more than there is room for."""
    clients = [node.connect() for _ in range(CROWD)]
    for connection, _ in clients:
        connection.data_received(LARGE[:PART_BYTES])
    return clients


def reading(clients: list[tuple[NodeConnection, SlowPipe]]) -> list[bool]:
    return [connection.is_reading for connection, _ in clients]


def test_clients_whose_frames_take_too_much_memory_are_read_one_after_the_other_and_all_come_to_an_end() -> None:
    node = Node()
    clients = crowd(node)
    assert reading(clients) == [True, False, False, False, False]
    idle, _ = node.connect()
    idle.data_received(encode_frame(Opcode.SEND, 0, 8, b"x"))
    assert idle.is_reading and node.asked[-1].request_id == 8, "a frame that is whole is no matter"
    clients[0][0].data_received(LARGE[PART_BYTES:])
    assert reading(clients) == [True, True, False, False, False]
    clients[1][0].data_received(LARGE[PART_BYTES:] + LARGE[:PART_BYTES])
    assert reading(clients) == [True, False, True, False, False], "its next one is the last to begin"
    for connection, _ in clients[2:] + clients[1:2]:
        assert connection.is_reading
        connection.data_received(LARGE[PART_BYTES:])
    assert all(reading(clients)) and not any(pipe.aborted for _, pipe in clients)
    assert len(node.asked) == CROWD + 2 and node.room.budget.used(Kind.FRAMES) == 0


@pytest.mark.parametrize(("bytes_per_look", "is_cut"), [(1, True), (FRAME_BYTES_PER_S_MIN // 2 + 100, False)])
def test_client_for_whom_the_others_wait_is_cut_where_it_is_slow_and_else_lets_the_next_one_go_on(
    bytes_per_look: int, is_cut: bool
) -> None:
    node = Node()
    clients = crowd(node)
    connection, pipe = clients[0]
    at = PART_BYTES

    def trickle() -> None:
        nonlocal at
        if not pipe.aborted and connection.is_reading:
            connection.data_received(LARGE[at : at + bytes_per_look])
            at += bytes_per_look

    look(node, FRAMES_TURN_MS_MAX + 2 * CONNECTION_LOOK_MS, meanwhile=trickle)
    assert [pipe.aborted for _, pipe in clients] == [is_cut, False, False, False, False]
    if is_cut:
        connection.connection_lost(None)
    assert reading(clients)[1:] == [True, False, False, False]
    for connection, _ in clients[1:]:
        connection.data_received(LARGE[PART_BYTES:])
    if not is_cut:
        connection, _ = clients[0]
        assert connection.is_reading
        connection.data_received(LARGE[at:])
    assert len(node.asked) == CROWD - is_cut


def test_who_has_not_greeted_or_does_not_read_its_answers_holds_up_nobody() -> None:
    node = Node()
    stranger, _ = node.connect(greets=False)
    stranger.data_received(LARGE[:PART_BYTES])
    deaf, _ = node.connect(reads=False)
    deaf.data_received(acquires(*range(20)) + LARGE[:PART_BYTES])
    node.run()
    clients = [node.connect() for _ in range(3)]
    for connection, _ in clients:
        connection.data_received(LARGE[:PART_BYTES])
    assert reading(clients) == [True, False, False] and not stranger.is_reading and not deaf.is_reading


def test_turn_goes_on_when_the_only_clients_that_could_have_it_read_their_answers_again() -> None:
    node = Node()
    clients = []
    for _ in range(CROWD):
        connection, pipe = node.connect(reads=False)
        connection.data_received(acquires(*range(20)) + LARGE[:PART_BYTES])
        node.run()
        clients.append((connection, pipe))
    assert not any(reading(clients))
    for _, pipe in clients:
        while pipe.buffer:
            pipe.drain(MIB)
            node.run()
    assert reading(clients) == [True, False, False, False, False]
    for connection, _ in clients:
        connection.data_received(LARGE[PART_BYTES:])
        node.run()
    assert all(reading(clients))


def test_first_one_that_does_not_read_its_answers_gives_its_turn_away() -> None:
    node = Node()
    connection, pipe = node.connect(reads=False)
    connection.data_received(LARGE[:PART_BYTES])
    others = [node.connect() for _ in range(CROWD - 1)]
    for one, _ in others:
        one.data_received(LARGE[:PART_BYTES])
    assert reading(others) == [False, False, False, False] and connection.is_reading
    connection.data_received(LARGE[PART_BYTES:] + acquires(*range(20)) + LARGE[:PART_BYTES])
    node.run()
    assert connection.holds and reading(others) == [True, False, False, False]
    look(node, 10_000, meanwhile=lambda: pipe.drain(2_000))
    assert reading(others).count(True) == 1


def test_peer_that_greets_while_there_is_no_room_is_read() -> None:
    """Its greeting and the first part of a large frame come in one read: until then it was taken for a stranger."""
    node = Node()
    crowd(node)
    peer = node.table.accept()
    pipe = SlowPipe(peer, True)
    hello = encode_frame(Opcode.PEER_HELLO, 0, 0, encode_message(PeerHello("c", 2, 5)))
    peer.data_received(hello + encode_frame(Opcode.RAFT, 0, 0, bytes(2 * MIB))[:MIB])
    assert peer.peer == 2 and peer.is_reading and not pipe.aborted


def test_many_slow_clients_all_come_to_an_end() -> None:
    """A turn is not long enough for a frame. Passed on for ever, turns would fill the memory with beginnings."""
    node = Node()
    clients = [node.connect() for _ in range(60)]
    came = dict.fromkeys(clients, 256 * KIB)
    for client in clients:
        client[0].data_received(LARGE[: came[client]])

    def bring() -> None:
        for client in [one for one in clients if one[0].is_reading and came[one] < len(LARGE)][:1]:
            at, came[client] = came[client], came[client] + 512 * KIB
            client[0].data_received(LARGE[at : came[client]])

    look(node, 700 * CONNECTION_LOOK_MS * 2, meanwhile=bring)
    assert not any(pipe.aborted for _, pipe in clients)
    assert len(node.asked) == len(clients)


def test_half_a_greeting_is_read_to_its_end() -> None:
    node = Node()
    crowd(node)
    late, pipe = node.connect(greets=False)
    late.data_received(HELLO[:10])
    assert late.is_reading
    late.data_received(HELLO[10:])
    node.run()
    assert late.is_client and not pipe.aborted


def test_frames_of_peers_take_no_room_of_clients() -> None:
    node = Node()
    for node_id in range(2, 12):
        peer = node.table.accept()
        SlowPipe(peer, True)
        hello = encode_frame(Opcode.PEER_HELLO, 0, 0, encode_message(PeerHello("c", node_id, 5)))
        peer.data_received(hello + LARGE[:PART_BYTES])
        assert peer.is_reading
    clients = [node.connect() for _ in range(2)]
    for connection, _ in clients:
        connection.data_received(LARGE[:PART_BYTES])
    assert reading(clients) == [True, True] and not any(pipe.aborted for _, pipe in clients)


def test_newest_gives_way_where_the_first_parts_alone_are_too_much() -> None:
    node = Node()
    clients = [node.connect() for _ in range(9)]
    for connection, _ in clients:
        connection.data_received(LARGE[:PART_BYTES])
    assert [pipe.aborted for _, pipe in clients] == [False] * 8 + [True]


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


STRANGE = {
    "client of another cluster": encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("d", "client"))),
    "node of another cluster": encode_frame(Opcode.PEER_HELLO, 0, 0, encode_message(PeerHello("d", 2, 1))),
    "request before a greeting": acquires(1),
    "claim of 2**31 bytes": (2**31).to_bytes(4, "little") + HELLO[4:],
    "HTTP": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "flipped bit": HELLO[:-1] + bytes([HELLO[-1] ^ 1]),
}


@pytest.mark.parametrize("sent", STRANGE)
def test_stranger_is_hung_up_on_at_once_and_does_nothing(sent: str) -> None:
    """S34."""
    node = Node()
    connection, pipe = node.connect(greets=False)
    connection.data_received(STRANGE[sent] + acquires(7))
    node.run()
    assert pipe.aborted and not node.asked and not pipe.frames, sent
