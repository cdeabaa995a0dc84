"""Links to peers that read slowly: what waits, what does not, who is told to go on, and when a link is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from storage_nodes.limits import (
    FRAME_BYTES_MAX,
    LINK_BYTES_MAX,
    MIB,
    NODE_MEMORY_BYTES_MIN,
    TRANSPORT_BYTES_MAX,
    WRITE_STALL_MS_MAX,
)
from storage_nodes.model import NodeAddress
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.transport.peers import PeerLinks
from storage_nodes.protocol.messages import Opcode
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    Heartbeat,
    PeerHello,
    SnapshotChunk,
    VoteRequest,
)
from tests.storage_nodes.node.slow_pipe import SlowPipe
from tests.storage_nodes.node.test_peers import OWN, HandClock

ENTRY = b"e" * MIB


class Rig:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = HandClock()
        self.budget = MemoryBudget(NODE_MEMORY_BYTES_MIN)
        peers = [NodeAddress(number, "127.0.0.1", number, "z") for number in (2, 3)]
        self.links = PeerLinks(loop, self.clock, "c", OWN, 7, peers, lambda peer, up: None, self.budget)
        self.pipes = {number: SlowPipe(self.links._links[number], reads=False) for number in (2, 3)}
        for pipe in self.pipes.values():
            pipe.drain()
        assert self.links.greeted(PeerHello("c", 2, 3)) == ""
        self.fed: list[int] = []

    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def append(self, peer: int, partition: int = 1) -> None:
        self.links.send(peer, AppendEntries(partition, 1, 1, 0, 0, [ENTRY]))

    def fill(self, peer: int = 2) -> int:
        """Appends until there is no room; how many."""
        count = 0
        while self.links.has_room(peer):
            self.append(peer)
            count += 1
            assert count < 1_000
        self.turn()
        return count

    def hear(self, crowded: bool) -> None:
        self.links.heard(Heartbeat(2, 3, 1, 0, 7, crowded=crowded))

    def drain(self, peer: int = 2) -> None:
        while self.pipes[peer].buffer:
            self.pipes[peer].drain()
            self.turn()


@pytest.fixture
def rig() -> Iterator[Rig]:
    loop = asyncio.new_event_loop()
    yield Rig(loop)
    loop.close()


def appends(pipe: SlowPipe) -> int:
    return sum(frame.opcode == Opcode.RAFT for frame in pipe.frames)


def test_burst_of_appends_waits_and_cuts_nothing(rig: Rig) -> None:
    sent = 0
    for partition in range(5):
        rig.append(2, partition)
        sent += 1
    rig.turn()
    pipe = rig.pipes[2]
    assert pipe.most_bytes <= TRANSPORT_BYTES_MAX + 4 * MIB + 65_536 and not pipe.aborted, "one frame beyond its limit"
    rig.drain()
    assert sum(len(frame.payload) for frame in pipe.frames) > sent * MIB
    assert rig.budget.used(Kind.LINKS) == 0


def test_leaders_find_no_room_on_a_link_that_is_full_and_are_called_when_it_drains(rig: Rig) -> None:
    assert rig.fill() * MIB <= LINK_BYTES_MAX + MIB
    for number in range(3):
        rig.links.when_room(2, lambda number=number: rig.fed.append(number))  # type: ignore[misc]
    rig.turn()
    assert not rig.fed
    assert rig.links.has_room(3), "another link has room of its own"
    rig.drain()
    assert rig.fed == [0, 1, 2], "in the order in which they began to wait"


def test_room_on_one_link_does_not_depend_on_peers_that_read_nothing(rig: Rig) -> None:
    rig.budget.take(Kind.LINKS, rig.budget.shares_bytes[Kind.LINKS] * 9 // 10)
    assert rig.links.has_room(2)
    rig.fill(2)
    assert rig.links.has_room(3), "whoever holds nothing has room"


def test_leader_that_waits_for_a_link_that_is_lost_is_called(rig: Rig) -> None:
    rig.fill()
    rig.links.when_room(2, lambda: rig.fed.append(1))
    rig.links._links[2].connection_lost(None)
    rig.turn()
    assert rig.fed == [1] and rig.budget.used(Kind.LINKS) == 0


def test_crowded_peer_is_not_fed_until_it_says_that_it_is_so_no_more(rig: Rig) -> None:
    rig.hear(crowded=True)
    assert not rig.links.has_room(2)
    rig.links.when_room(2, lambda: rig.fed.append(1))
    rig.turn()
    assert not rig.fed
    rig.hear(crowded=False)
    rig.turn()
    assert rig.fed == [1]


def test_many_that_wait_are_called_in_slices(rig: Rig) -> None:
    rig.hear(crowded=True)
    for number in range(200):
        rig.links.when_room(2, lambda number=number: rig.fed.append(number))  # type: ignore[misc]
    rig.hear(crowded=False)
    rig.turn()
    assert 0 < len(rig.fed) < 200
    for _ in range(5):
        rig.turn()
    assert rig.fed == list(range(200))


def test_heartbeat_goes_past_megabytes_of_appends(rig: Rig) -> None:
    rig.fill()
    pipe = rig.pipes[2]
    in_transport = len(pipe.buffer)
    rig.links.beat_all()
    pipe.drain(in_transport + 200)
    assert pipe.frames[-1].opcode == Opcode.HEARTBEAT


def test_what_asks_for_no_room_is_bounded_too(rig: Rig) -> None:
    """Chunks of snapshots are sent again and again while no answer comes."""
    for _ in range(10):
        for _ in range(10):
            rig.links.send(2, SnapshotChunk(1, 1, 9, 1, 0, ENTRY, [], False))
        rig.turn()
    pipe = rig.pipes[2]
    assert LINK_BYTES_MAX < rig.budget.used(Kind.LINKS) <= 2 * LINK_BYTES_MAX
    assert len(pipe.buffer) <= TRANSPORT_BYTES_MAX + FRAME_BYTES_MAX
    rig.drain()
    rig.links.send(2, VoteRequest(1, 1, 1, 1))
    rig.turn()
    before = appends(pipe)
    pipe.drain()
    assert appends(pipe) == before + 1, "and it goes on"


def test_message_larger_than_all_that_may_wait_goes_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropped for its own size it would be dropped again each time that it is sent again."""
    monkeypatch.setattr("storage_nodes.node.transport.peer_link.LINK_BYTES_MAX", MIB // 4)
    for _ in range(2):
        rig.append(2)
        rig.append(2)
        rig.turn()
        rig.drain()
    assert appends(rig.pipes[2]) == 2, "the one behind it is dropped while it waits"


def test_message_that_there_is_room_for_is_sent_though_a_small_one_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a busy link something waits each time that a leader feeds its peer again (seeds 1000224, 1000227)."""
    monkeypatch.setattr("storage_nodes.node.transport.peer_link.LINK_BYTES_MAX", MIB // 4)
    rig.links.send(2, VoteRequest(1, 1, 1, 1))
    assert rig.links.has_room(2)
    rig.append(2)
    assert not rig.links.has_room(2)
    rig.turn()
    rig.drain()
    assert sum(len(frame.payload) for frame in rig.pipes[2].frames) > MIB


def test_link_is_cut_when_nothing_leaves_it_and_only_then(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.fill()
    pipe = rig.pipes[2]
    beat(rig, 3 * WRITE_STALL_MS_MAX, reads=True)
    assert not pipe.aborted and pipe.buffer, "a byte now and then is progress"
    beat(rig, WRITE_STALL_MS_MAX + 200, reads=False)
    assert pipe.aborted and "its peer reads nothing" in capsys.readouterr().out


def beat(rig: Rig, for_ms: int, reads: bool) -> None:
    for _ in range(0, for_ms, 100):
        rig.clock.now_ms += 100
        if reads:
            rig.pipes[2].drain(1_000)
        rig.links.beat_all()
