"""That a peer went down or came up: a slice of the replicas hears of it in a turn, and none too late."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import PEER_NEWS_SLICE_PARTITIONS as SLICE
from storage_nodes.limits import TURN_SLICE_MS_MAX
from storage_nodes.node.node import StorageNode
from storage_nodes.node.transport.peer_state_notifier import PeerStateNotifier
from storage_nodes.protocol.peer_messages import VoteReply

PEER = 2
PARTITIONS = 3 * SLICE + 10
UP, DOWN = (PEER, True), (PEER, False)


class Hearing:
    """Stands for a replica: what it hears of its peers."""

    def __init__(self, leader: int = 0) -> None:
        self.raft = SimpleNamespace(leader=leader)
        self.heard: list[tuple[int, bool]] = []

    def peer_changed(self, peer: int, up: bool) -> None:
        self.heard.append((peer, up))


class Scene:
    def __init__(self, count: int = PARTITIONS) -> None:
        self.replicas = {partition: Hearing() for partition in range(count)}
        self.booked: list[Callable[[], None]] = []
        self.now_ms = 1_000
        loop: Any = SimpleNamespace(call_soon=lambda call, *args: self.booked.append(lambda: call(*args)))
        self.news = PeerStateNotifier(loop, lambda: self.replicas, lambda: self.now_ms)

    def turn(self) -> None:
        booked, self.booked = self.booked, []
        for call in booked:
            call()

    def turns(self) -> None:
        while self.booked:
            self.turn()
        assert not self.news.pending_down and not self.news._pending_up and not self.news._turning
        assert not self.news._unasked

    def told(self) -> int:
        return sum(bool(replica.heard) for replica in self.replicas.values())


@pytest.mark.parametrize("up", [True, False])
def test_news_reach_a_slice_of_the_replicas_in_a_turn_in_their_order(up: bool) -> None:
    scene = Scene()
    scene.news.changed(PEER, up)
    assert scene.told() == SLICE and scene.replicas[0].heard, "the cluster's own group is first"
    scene.turn()
    assert scene.told() == 2 * SLICE
    scene.turns()
    assert all(replica.heard == [(PEER, up)] for replica in scene.replicas.values())


def test_replicas_that_the_peer_led_hear_first_that_it_is_down() -> None:
    scene = Scene()
    led = [scene.replicas[partition] for partition in range(SLICE, 2 * SLICE)]
    for replica in led:
        replica.raft.leader = PEER
    scene.news.changed(PEER, False)
    assert all(replica.heard == [DOWN] for replica in led) and scene.told() == SLICE


def test_those_that_a_peer_led_are_found_in_later_slices_and_by_what_they_know_then() -> None:
    scene = Scene()
    led = [scene.replicas[partition] for partition in range(SLICE, 2 * SLICE + 2)]
    for replica in led:
        replica.raft.leader = PEER
    scene.news.changed(PEER, False)
    led[-1].raft.leader = 3
    scene.turn()
    assert all(replica.heard == [DOWN] for replica in led[:-1]) and not led[-1].heard
    scene.turns()
    assert all(replica.heard == [DOWN] for replica in scene.replicas.values())


@pytest.mark.parametrize("up", [True, False])
def test_slice_ends_when_it_takes_long(up: bool) -> None:
    scene = Scene()

    def slow(peer: int, is_up: bool) -> None:
        scene.now_ms += TURN_SLICE_MS_MAX // 2
        Hearing.peer_changed(scene.replicas[0], peer, is_up)

    scene.replicas[0].peer_changed = slow  # type: ignore[method-assign]
    scene.replicas[1].peer_changed = slow  # type: ignore[method-assign]
    scene.news.changed(PEER, up)
    assert len(scene.replicas[0].heard) == 2 and scene.told() == 1, "these two, and nobody else"
    scene.turns()
    assert scene.told() == PARTITIONS - 1


def test_message_for_a_replica_that_has_not_had_its_turn_lets_it_hear_first_that_a_peer_is_down() -> None:
    """Nothing of the peer's next incarnation overtakes that."""
    scene = Scene()
    scene.news.changed(PEER, False)
    scene.news.changed(3, False)
    last = scene.replicas[PARTITIONS - 1]
    scene.news.notify_before_message(PARTITIONS - 1)
    assert last.heard == [DOWN, (3, False)]
    scene.news.notify_before_message(PARTITIONS - 1)
    scene.turns()
    assert last.heard == [DOWN, (3, False)], "and once only"


def test_peer_that_is_up_again_before_all_heard_that_it_was_down_is_first_down_then_up_for_each() -> None:
    scene = Scene()
    scene.news.changed(PEER, False)
    scene.news.changed(PEER, True)
    assert scene.told() == SLICE, "one turn at a time"
    scene.turns()
    assert all(replica.heard == [DOWN, UP] for replica in scene.replicas.values())


def test_peer_that_goes_down_again_is_no_news_where_nobody_heard_that_it_was_up() -> None:
    scene = Scene()
    scene.news.changed(PEER, True)
    told = [replica for replica in scene.replicas.values() if replica.heard]
    scene.news.changed(PEER, False)
    scene.turns()
    assert all(replica.heard == ([UP, DOWN] if replica in told else []) for replica in scene.replicas.values())


def test_replica_that_waits_to_hear_down_and_up_hears_down_once_when_the_peer_flaps() -> None:
    scene = Scene()
    scene.news.changed(PEER, False)
    for up in (True, False, True):
        scene.news.changed(PEER, up)
    scene.turns()
    assert all(replica.heard[:1] == [DOWN] and replica.heard[-1] == UP for replica in scene.replicas.values())
    assert scene.replicas[PARTITIONS - 1].heard == [DOWN, UP]


def test_replica_made_while_others_wait_to_hear_of_a_peer_hears_that_it_goes_down() -> None:
    """It was told by its making that the peer is up, though an earlier one of its partition was not."""
    scene = Scene()
    scene.news.changed(PEER, True)
    made = scene.replicas[PARTITIONS - 1] = Hearing()
    scene.news.changed(PEER, False)
    scene.turns()
    assert made.heard == [DOWN]


def test_node_tells_a_replica_who_is_down_before_it_handles_a_message_for_it() -> None:
    scene = Scene()
    last = scene.replicas[PARTITIONS - 1]
    handled: list[tuple[int, bool]] = []
    last.receive = lambda sender, message: handled.extend(last.heard)  # type: ignore[attr-defined]
    node: Any = SimpleNamespace(peer_states=scene.news, replicas=scene.replicas)
    scene.news.changed(PEER, False)
    StorageNode._raft_message(node, 3, VoteReply(PARTITIONS - 1, 5, True, False, False))
    assert handled == [DOWN]
