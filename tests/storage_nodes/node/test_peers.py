"""Liveness of a node pair: request-response, per incarnation, without storms."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from storage_nodes.limits import HEARTBEAT_INTERVAL_MS, PEER_TIMEOUT_MS
from storage_nodes.model import NodeAddress
from storage_nodes.node.clock import NodeClock
from storage_nodes.node.peers import BEAT_AGAIN_MS, PeerLinks
from storage_nodes.protocol.messages import Heartbeat, PeerHello

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


class Rig:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = HandClock()
        self.changes: list[tuple[int, bool]] = []
        self.links = PeerLinks(loop, self.clock, "c", 1, 7, [PEER], lambda peer, up: self.changes.append((peer, up)))
        self.link = self.links._links[2]
        self.wire = Wire()
        self.link.connection_made(cast(Any, self.wire))
        assert self.links.greeted(PeerHello("c", 2, 3))

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


def test_beat_of_an_earlier_incarnation_of_the_peer_counts_for_nothing(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms, incarnation=2)
    assert rig.changes == []


def test_restarted_peer_goes_down_and_comes_up_anew(rig: Rig) -> None:
    rig.hear(echo=rig.clock.now_ms)
    assert rig.links.greeted(PeerHello("c", 2, 4))
    rig.hear(echo=rig.clock.now_ms, incarnation=4)
    assert rig.changes == [(2, True), (2, False), (2, True)]


def test_older_incarnation_is_turned_away(rig: Rig) -> None:
    assert rig.links.greeted(PeerHello("c", 2, 4))
    assert not rig.links.greeted(PeerHello("c", 2, 3))


def test_messages_of_an_older_incarnation_count_until_a_newer_one_greets(rig: Rig) -> None:
    assert rig.links.is_newest(2, 3)
    assert rig.links.greeted(PeerHello("c", 2, 4))
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


def test_peer_silent_while_this_node_has_its_turns_is_down_in_time(rig: Rig) -> None:
    rig.links.beat_all()
    rig.hear(echo=rig.clock.now_ms)
    began_ms = rig.clock.now_ms
    while rig.changes[-1] == (2, True):
        rig.clock.now_ms += HEARTBEAT_INTERVAL_MS
        rig.links.beat_all()
    assert rig.clock.now_ms - began_ms <= PEER_TIMEOUT_MS + HEARTBEAT_INTERVAL_MS
