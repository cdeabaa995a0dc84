"""Liveness of a node pair: request-response, per incarnation, without storms."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from storage_nodes.limits import HEARTBEAT_INTERVAL_MS, HEARTBEAT_LATE_MS, PEER_TIMEOUT_MS
from storage_nodes.model import NodeAddress
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.transport.peer_link import BEAT_AGAIN_MS, RECONNECT_PAUSE_S_MAX
from storage_nodes.node.transport.peers import PeerLinks
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Opcode, encode_message
from storage_nodes.protocol.peer_messages import Heartbeat, PeerHello, PeerRefusal

OWN = NodeAddress(1, "127.0.0.1", 9, "a")
PEER = NodeAddress(2, "127.0.0.1", 1, "b")


class HandClock(NodeClock):
    def __init__(self) -> None:
        self.now_ms = 10_000

    def mono_ms(self) -> int:
        return self.now_ms


class Wire:
    """Counts what would be written to the peer."""

    def __init__(self) -> None:
        self.frames = 0

    def write(self, data: bytes) -> None:
        self.frames += 1

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        pass


class Rig:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = HandClock()
        self.changes: list[tuple[int, bool]] = []
        self.links = PeerLinks(loop, self.clock, "c", OWN, 7, [PEER], lambda peer, up: self.changes.append((peer, up)))
        self.link = self.links._links[2]
        self.wire = Wire()
        self.link.connection_made(cast(Any, self.wire))
        assert self.links.greeted(PeerHello("c", 2, 3)) == ""

    def hear(self, echo: int, seq: int = 1, incarnation: int = 3, own_incarnation: int = 7) -> None:
        self.links.heard(Heartbeat(2, incarnation, seq, echo, own_incarnation))


@pytest.fixture
def rig() -> Iterator[Rig]:
    loop = asyncio.new_event_loop()
    yield Rig(loop)
    loop.close()


def test_peer_that_echoes_a_fresh_beat_is_up(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms)
    assert rig.changes == [(2, True)]


def test_peer_that_hears_nothing_is_down_however_often_it_beats(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms)
    heard = rig.clock.now_ms
    for _ in range(10):
        rig.clock.now_ms += 100
        rig.hear(echo=heard)
    assert rig.changes == [(2, True), (2, False)]
    assert rig.clock.now_ms - heard > PEER_TIMEOUT_MS


def test_echo_meant_for_an_earlier_incarnation_counts_for_nothing(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms + 1_000_000, own_incarnation=6)
    assert rig.changes == []


def test_echo_of_a_beat_that_is_yet_to_be_sent_counts_for_nothing(rig: Rig) -> None:
    """Else a peer that invents it would be up, and give leases, without end."""
    rig.hear(echo=rig.clock.now_ms + 1)
    assert rig.changes == []
    rig.hear(echo=rig.clock.now_ms, seq=2)
    rig.hear(echo=rig.clock.now_ms + 1_000_000, seq=3)
    rig.clock.now_ms += PEER_TIMEOUT_MS + 1
    rig.links.check(rig.link)
    assert rig.changes == [(2, True), (2, False)]


def test_beat_of_an_earlier_incarnation_of_the_peer_counts_for_nothing(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms, incarnation=2)
    assert rig.changes == []


def test_restarted_peer_goes_down_and_comes_up_anew(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms)
    assert rig.links.greeted(PeerHello("c", 2, 4)) == ""
    rig.hear(echo=rig.clock.now_ms, incarnation=4)
    assert rig.changes == [(2, True), (2, False), (2, True)]


def test_older_incarnation_is_turned_away(rig: Rig) -> None:
    assert rig.links.greeted(PeerHello("c", 2, 4)) == ""
    assert "another process" in rig.links.greeted(PeerHello("c", 2, 3))


def test_messages_of_an_older_incarnation_count_until_a_newer_one_greets(rig: Rig) -> None:
    assert rig.links.is_newest(2, 3)
    assert rig.links.greeted(PeerHello("c", 2, 4)) == ""
    assert not rig.links.is_newest(2, 3)
    assert rig.links.is_newest(2, 4)


def test_flood_of_stale_beats_after_a_cut_is_answered_at_a_bounded_rate_and_the_link_recovers(rig: Rig) -> None:
    """A one-way cut lets heartbeats pile up; delivered at once they must set off no storm, nor keep the peer down."""
    rig.clock.now_ms += 4_000
    before = rig.wire.frames
    for backlog in range(500):
        rig.hear(echo=1, seq=backlog + 2)
    assert rig.wire.frames - before <= 1
    rig.clock.now_ms += BEAT_AGAIN_MS
    rig.hear(echo=rig.clock.now_ms - 5, seq=600)
    assert rig.changes == [(2, True)]


def test_own_stall_is_not_taken_for_the_silence_of_a_peer(rig: Rig) -> None:
    rig.links.beat_all()
    rig.hear(echo=rig.clock.now_ms)
    for _ in range(3):
        rig.clock.now_ms += PEER_TIMEOUT_MS  # nothing ran here
        rig.links.beat_all()
    assert rig.changes == [(2, True)]
    for _ in range(PEER_TIMEOUT_MS // HEARTBEAT_INTERVAL_MS + 1):
        rig.clock.now_ms += HEARTBEAT_INTERVAL_MS
        rig.links.beat_all()
    assert rig.changes == [(2, True), (2, False)], "and it excuses no longer silence"


def test_node_that_stood_still_for_longer_than_its_peers_wait_takes_none_for_up(rig: Rig) -> None:
    """They have elected others meanwhile: it must not act as a leader when it wakes."""
    rig.links.beat_all()
    rig.hear(echo=rig.clock.now_ms)
    rig.clock.now_ms += HEARTBEAT_INTERVAL_MS + PEER_TIMEOUT_MS
    rig.links.beat_all()
    assert rig.changes == [(2, True), (2, False)]


def test_every_peer_hears_of_this_node_before_a_peer_that_went_down_costs_it_time() -> None:
    """With thousands of replicas to tell the others would find this node silent, too."""
    loop = asyncio.new_event_loop()
    clock, wires = HandClock(), [Wire(), Wire()]
    beaten: list[list[int]] = []
    peers = [PEER, NodeAddress(3, "127.0.0.1", 2, "c")]
    links = PeerLinks(loop, clock, "c", OWN, 7, peers, lambda _peer, _up: beaten.append([w.frames for w in wires]))
    for wire, link in zip(wires, links._links.values(), strict=True):
        link.connection_made(cast(Any, wire))
    assert links.greeted(PeerHello("c", 2, 3)) == ""
    links.heard(Heartbeat(2, 3, 1, clock.now_ms, 7))
    before = [wire.frames for wire in wires]
    clock.now_ms += PEER_TIMEOUT_MS
    links.beat_all()
    assert beaten[1:] == [[frames + 1 for frames in before]]
    loop.close()


def test_what_comes_in_after_a_pause_is_preceded_by_the_news_that_there_was_one(rig: Rig) -> None:
    """A client's request may be handled before any timer rings: the leader that it asks must know by then."""
    gaps: list[int] = []
    rig.links.on_stall = gaps.append
    rig.links.beat_all()
    rig.hear(echo=rig.clock.now_ms)
    rig.clock.now_ms += PEER_TIMEOUT_MS
    rig.links.look_at_clock()
    rig.hear(echo=rig.clock.now_ms)
    assert gaps == [] and rig.changes == [(2, True)]
    rig.clock.now_ms += PEER_TIMEOUT_MS + 1
    rig.links.look_at_clock()
    assert gaps == [PEER_TIMEOUT_MS + 1] and rig.changes == [(2, True), (2, False)]
    rig.links.look_at_clock()
    assert len(gaps) == 1


def test_heartbeat_that_is_late_leaves_before_what_came_in_is_handled() -> None:
    """A turn that brings much may last for longer than the peers wait."""
    loop = asyncio.new_event_loop()
    clock, wires = HandClock(), [Wire(), Wire()]
    peers = [PEER, NodeAddress(3, "127.0.0.1", 2, "c")]
    links = PeerLinks(loop, clock, "c", OWN, 7, peers, lambda _peer, _up: None)
    for wire, link in zip(wires, links._links.values(), strict=True):
        link.connection_made(cast(Any, wire))
    links.beat_all()
    for late_ms, beats in ((HEARTBEAT_LATE_MS, 0), (1, 1), (1, 0)):
        before = [wire.frames for wire in wires]
        clock.now_ms += late_ms
        links.look_at_clock()
        assert [wire.frames for wire in wires] == [frames + beats for frames in before]
    loop.close()


def test_peer_silent_while_this_node_has_its_turns_is_down_in_time(rig: Rig) -> None:
    rig.links.beat_all()
    rig.hear(echo=rig.clock.now_ms)
    began_ms = rig.clock.now_ms
    while rig.changes[-1] == (2, True):
        rig.clock.now_ms += HEARTBEAT_INTERVAL_MS
        rig.links.beat_all()
    assert rig.clock.now_ms - began_ms <= PEER_TIMEOUT_MS + HEARTBEAT_INTERVAL_MS


# --- nodes that come, move and go ---------------------------------------------------------------------------


def test_stranger_is_let_in_once_the_cluster_log_names_it(rig: Rig) -> None:
    assert "not registered" in rig.links.greeted(PeerHello("c", 3, 1))
    rig.links.admit(NodeAddress(3, "127.0.0.1", 3, "c"))
    assert rig.links.greeted(PeerHello("c", 3, 1)) == ""


def test_greeting_meant_for_another_node_is_refused(rig: Rig) -> None:
    assert rig.links.greeted(PeerHello("c", 2, 3, to=8)) == "this is node 1, not node 8"
    assert rig.links.greeted(PeerHello("c", 2, 3, to=1)) == ""


def test_expelled_node_goes_down_and_is_never_let_in_again(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms)
    rig.links.expel(2)
    assert rig.changes == [(2, True), (2, False)] and not rig.links.is_up(2)
    assert "was decommissioned" in rig.links.greeted(PeerHello("c", 2, 9))


def test_own_word_of_a_peer_about_its_address_is_tried_first_then_the_one_before(rig: Rig) -> None:
    rig.links.greeted(PeerHello("c", 2, 3, 1, "127.0.0.1", 2, "b"))
    moved = NodeAddress(2, "127.0.0.1", 2, "b")
    assert rig.link.addresses == [moved, PEER] and rig.links.claims() == [moved]
    rig.links.admit(NodeAddress(2, "127.0.0.1", 3, "b"))
    assert [address.port for address in rig.link.addresses] == [3, 2], "two are remembered"


class Listener:
    """A port that takes connections, keeps their greetings, and may answer them."""

    def __init__(self, answer: bytes = b"") -> None:
        self.greetings: list[PeerHello] = []
        self.answer = answer

    async def start(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for opcode, _, _, payload in FrameDecoder().feed(await reader.read(10_000)):
            if opcode == Opcode.PEER_HELLO:
                self.greetings.append(msgspec.msgpack.decode(payload, type=PeerHello))
        writer.write(self.answer)
        await reader.read()
        writer.close()


async def test_peer_that_moved_is_found_at_its_other_address() -> None:
    listener = Listener()
    port = await listener.start()
    links = PeerLinks(asyncio.get_running_loop(), NodeClock(), "c", OWN, 7, [PEER], lambda peer, up: None)
    links.admit(NodeAddress(2, "127.0.0.1", port, "b"))
    links.admit(PEER)  # the last word is wrong: nobody listens there
    links.start()
    async with asyncio.timeout(5):
        while not listener.greetings:
            await asyncio.sleep(0.01)
    await links.close()


@pytest.mark.parametrize("host", ["node-4..x", "x" * 64])
async def test_address_that_no_resolver_takes_is_told_and_the_right_one_found(
    capsys: pytest.CaptureFixture[str], host: str
) -> None:
    """It used to end the dialing for good: a corrected address was never tried."""
    listener = Listener()
    links = PeerLinks(
        asyncio.get_running_loop(), NodeClock(), "c", OWN, 7, [NodeAddress(2, host, 1, "b")], lambda *_: None
    )
    links.start()
    await asyncio.sleep(0.3)
    links.admit(NodeAddress(2, "127.0.0.1", await listener.start(), "b"))
    async with asyncio.timeout(5):
        while not listener.greetings:
            await asyncio.sleep(0.01)
    await links.close()
    assert capsys.readouterr().out.count(host) == 1, "told once, however often it is dialed"


async def test_node_that_is_refused_says_why_once_and_keeps_asking(capsys: pytest.CaptureFixture[str]) -> None:
    payload = encode_message(ErrorReply(1, "node 1 was decommissioned"))
    listener = Listener(encode_frame(Opcode.PEER_HELLO, FLAG_ANSWER | FLAG_ERROR, 0, payload))
    peer = NodeAddress(2, "127.0.0.1", await listener.start(), "b")
    links = PeerLinks(asyncio.get_running_loop(), NodeClock(), "c", OWN, 7, [peer], lambda peer, up: None)
    links.start()
    async with asyncio.timeout(10):
        while len(listener.greetings) < 2:
            await asyncio.sleep(0.01)
    await links.close()
    assert capsys.readouterr().out.count("node 1 was decommissioned") == 1


def test_greeting_of_an_earlier_process_that_is_read_late_is_refused(rig: Rig) -> None:
    assert rig.links.greeted(PeerHello("c", 2, 9)) == ""
    rig.clock.now_ms += 1_000
    assert "another process" in rig.links.greeted(PeerHello("c", 2, 8))
    # The same where it had been refused, and told of it, before the known one greeted.
    assert "another process" in rig.links.greeted(PeerHello("c", 2, 8, age_ms=10, told_ms=9_999, told_by=7))


def test_process_that_answers_and_was_started_after_the_known_one_lived_is_the_newest(rig: Rig) -> None:
    """Whatever the two incarnations are: one clock may have been far ahead, or the other one behind."""
    assert rig.links.greeted(PeerHello("c", 2, 4_000_000)) == ""
    lived_ms = rig.clock.now_ms
    rig.hear(echo=lived_ms, incarnation=4_000_000)
    rig.clock.now_ms += 300
    told_ms = rig.clock.now_ms
    later = PeerHello("c", 2, 5, age_ms=told_ms - lived_ms - 100, told_ms=told_ms, told_by=7)
    assert "another process" in rig.links.greeted(later), "the known one lives"
    rig.clock.now_ms += PEER_TIMEOUT_MS
    rig.links.beat_all()
    assert not rig.link.up
    earlier = PeerHello("c", 2, 6, age_ms=told_ms - lived_ms + PEER_TIMEOUT_MS + 100, told_ms=told_ms, told_by=7)
    assert "another process" in rig.links.greeted(earlier), "it ran when the known one lived"
    of_others = PeerHello("c", 2, 5, age_ms=0, told_ms=told_ms, told_by=6)
    assert "another process" in rig.links.greeted(of_others), "an earlier process of this node told that"
    assert rig.links.greeted(later) == ""
    assert rig.links.is_newest(2, 5) and not rig.links.is_newest(2, 4_000_000)


def test_drift_of_two_monotonic_clocks_locks_out_nobody(rig: Rig) -> None:
    day_ms = 86_400_000
    rig.clock.now_ms += 10 * day_ms
    assert rig.links.greeted(PeerHello("c", 2, 4_000_000)) == ""
    rig.hear(echo=rig.clock.now_ms, incarnation=4_000_000)
    rig.clock.now_ms += day_ms
    rig.links.beat_all()
    # It was started 10 s after the known one lived last, and takes its age for 20 s more.
    later = PeerHello("c", 2, 5, age_ms=day_ms + 10_000, told_ms=rig.clock.now_ms, told_by=7)
    assert rig.links.greeted(later) == ""


def test_refusal_that_was_long_under_way_locks_out_nobody(rig: Rig) -> None:
    """The age is that of the moment in which the refusal came in (seed 8002851)."""
    assert rig.links.greeted(PeerHello("c", 2, 4_000_000)) == ""
    rig.hear(echo=rig.clock.now_ms, incarnation=4_000_000)
    lived_ms = rig.clock.now_ms
    rig.clock.now_ms += 2 * PEER_TIMEOUT_MS
    rig.links.beat_all()
    # Started 50 ms after the known one lived last, told at once, heard half a second later.
    later = PeerHello("c", 2, 5, age_ms=510, told_ms=lived_ms + 60, told_by=7)
    assert rig.links.greeted(later) == ""


def test_process_that_is_not_the_newest_any_more_is_asked_to_greet_again(rig: Rig) -> None:
    """Else a greeting of an ended process that was read late would silence the living one for ever (seed 7030010)."""
    assert rig.links.heard(Heartbeat(2, 3, 1, rig.clock.now_ms, 7)) == ""
    assert rig.links.greeted(PeerHello("c", 2, 4)) == ""
    assert "another process" in rig.links.heard(Heartbeat(2, 3, 2, rig.clock.now_ms, 7))
    assert rig.links.heard(Heartbeat(5, 1, 1, 0, 0)) == "", "nobody knows it"


async def test_node_that_is_refused_says_back_what_it_was_told() -> None:
    payload = encode_message(PeerRefusal(1, "another process", told_ms=123, told_by=9))
    listener = Listener(encode_frame(Opcode.PEER_HELLO, FLAG_ANSWER | FLAG_ERROR, 0, payload))
    peer = NodeAddress(2, "127.0.0.1", await listener.start(), "b")
    links = PeerLinks(asyncio.get_running_loop(), NodeClock(), "c", OWN, 7, [peer], lambda peer, up: None)
    links.start()
    async with asyncio.timeout(10):
        while len(listener.greetings) < 2:
            await asyncio.sleep(0.01)
    await links.close()
    first, second = listener.greetings[:2]
    assert (first.age_ms, first.told_ms, first.told_by) == (0, 0, 0)
    assert (second.told_ms, second.told_by) == (123, 9) and 0 <= second.age_ms < RECONNECT_PAUSE_S_MAX * 1000
