"""Shares of a node's memory, and what it says when one is used up."""

from __future__ import annotations

import pytest

from storage_nodes.limits import MIB, NODE_MEMORY_BYTES_MIN, RETRY_AFTER_MS_MAX, RETRY_AFTER_MS_MIN
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.peer_messages import AppendEntries, RaftMessage, SnapshotChunk, VoteRequest


class Scene:
    def __init__(self) -> None:
        self.writing_s = 0.0
        self.staged = 0
        self.told: list[bool] = []
        self.budget = MemoryBudget(NODE_MEMORY_BYTES_MIN)
        self.budget.watch(Kind.STAGED, lambda: self.staged)
        self.room = NodeRoom(self.budget, lambda: self.writing_s, lambda: self.told.append(self.room.crowded))


def test_shares_are_the_whole() -> None:
    budget = MemoryBudget(1_000 * MIB)
    assert sum(budget.shares_bytes) == budget.bytes_max == 1_000 * MIB
    assert len(budget.shares_bytes) == len(Kind) and min(budget.shares_bytes) > 0


def test_one_that_holds_much_gives_way_to_one_that_holds_nothing() -> None:
    budget = MemoryBudget(NODE_MEMORY_BYTES_MIN)
    share = budget.shares_bytes[Kind.SENDS]
    held = 0
    while budget.may_hold(Kind.SENDS, held):
        budget.take(Kind.SENDS, MIB)
        held += MIB
    assert share // 2 <= held <= share // 2 + MIB
    assert budget.may_hold(Kind.SENDS, 0)
    budget.take(Kind.SENDS, budget.free(Kind.SENDS))
    assert not budget.may_hold(Kind.SENDS, 0)


def test_giving_back_what_was_not_taken_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        MemoryBudget().give(Kind.INBOX, 1)


def test_refusal_says_when_to_come_again_by_how_long_the_disk_hangs() -> None:
    scene = Scene()
    scene.budget.take(Kind.SENDS, scene.budget.shares_bytes[Kind.SENDS])
    hints = []
    for scene.writing_s in (0.0, 0.5, 60.0):
        with pytest.raises(StorageError) as raised:
            scene.room.require_room(0)
        assert raised.value.code is ErrorCode.OVERLOADED and raised.value.traits.retriable
        hints.append(raised.value.retry_after_ms)
    assert hints == [RETRY_AFTER_MS_MIN, 1_000, RETRY_AFTER_MS_MAX]


def test_peers_are_told_once_to_stop_and_once_to_go_on() -> None:
    scene = Scene()
    share = scene.budget.shares_bytes[Kind.STAGED]
    for scene.staged in (0, share // 3, share // 2 + 1, share, share // 3, share // 5, share // 3):
        scene.room.look()
    assert scene.told == [True, False]


def test_appends_are_dropped_while_their_share_is_used_up_and_nothing_else() -> None:
    scene = Scene()
    small: list[RaftMessage] = [VoteRequest(1, 1, 1, 1), AppendEntries(1, 1, 1, 5, 5, [])]
    large: list[RaftMessage] = [AppendEntries(1, 1, 1, 5, 5, [b"x"]), SnapshotChunk(1, 1, 9, 1, 0, b"", [], False)]
    assert scene.room.takes_appends()
    scene.staged = scene.budget.shares_bytes[Kind.STAGED]
    assert not scene.room.takes_appends()
    assert scene.room.without_appends(small + large) == small


def test_requests_are_not_read_while_everything_is_used_up() -> None:
    scene = Scene()
    scene.budget.take(Kind.ANSWERS, scene.budget.bytes_max)
    assert scene.room.look() and scene.room.exhausted
    assert not scene.room.look(), "said once"
    scene.budget.give(Kind.ANSWERS, scene.budget.bytes_max // 5)
    assert not scene.room.look() and scene.room.exhausted, "not for a moment"
    scene.budget.give(Kind.ANSWERS, scene.budget.bytes_max // 5)
    assert scene.room.look() and not scene.room.exhausted
