"""Frames that are not whole, more than there is memory for: who is read, who waits, and who is cut."""

from __future__ import annotations

import pytest

from storage_nodes.limits import (
    CONNECTION_LOOK_MS,
    FRAME_BYTES_PER_S_MIN,
    FRAMES_TURN_MS_MAX,
    KIB,
    MIB,
)
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.transport.connections import NodeConnection
from storage_nodes.protocol.frames import encode_frame
from storage_nodes.protocol.messages import Opcode, encode_message
from storage_nodes.protocol.peer_messages import PeerHello
from tests.storage_nodes.node.connected_node import HELLO, Node, acquires, look
from tests.storage_nodes.node.slow_pipe import SlowPipe

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
