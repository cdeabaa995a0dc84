"""Folding what is committed: entries that have to be read from disk, and a snapshot that comes in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.log.record_batch import build_batch, read_header
from storage_nodes.node.replicas import fold_turn, folding
from storage_nodes.node.replicas.fold_turn import FoldTurn
from storage_nodes.node.replicas.folding import fold_committed
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.stopped_replicas import ReplicaError, StopKind


class Follower(Replica):
    """Its log holds one entry of one record at each offset up to 30; below 20 they are on disk."""

    def __init__(self) -> None:
        self.reads: list[tuple[Callable[[], list[bytes]], Callable[[list[bytes]], None]]] = []
        self.folded: list[int] = []
        self.epochs: list[int] = []
        self.entries = entries = [build_batch(offset, 1, 1_000, [b"x"]) for offset in range(30)]
        log: Any = SimpleNamespace(
            read_hot=self._hot, read_cold=lambda at, _: entries[at : at + 5],
            epoch_at=lambda end: read_header(entries[end - 1]).epoch,
        )  # fmt: skip
        self.later: list[Callable[[], None]] = []
        loop: Any = SimpleNamespace(call_soon=lambda call, *args: self.later.append(partial(call, *args)))
        host: Any = SimpleNamespace(
            run_cold=lambda read, done, damaged=None: self.reads.append((read, done)), fold_turn=FoldTurn(loop)
        )  # fmt: skip
        raft: Any = SimpleNamespace(commit=30)
        self.host, self.log, self.raft = host, log, raft
        self.applied, self.closed, self.serving, self.applying_later = 0, False, False, False
        self._trust_at = self._lead_at = -1

    def _hot(self, at: int, bytes_max: int) -> list[bytes] | None:
        """At least one."""
        found = self.entries[at:]
        while len(found) > 1 and sum(map(len, found)) > bytes_max:
            found.pop()
        return found if at >= 20 else None

    def next_turn(self) -> None:
        calls, self.later = self.later, []
        for call in calls:
            call()

    def fold(self, header: Any, batch: bytes) -> None:
        self.folded.append(read_header(batch).base_offset)
        self.epochs.append(read_header(batch).epoch)

    def schedule(self) -> None:
        pass

    def answer_read(self) -> None:
        read, done = self.reads.pop(0)
        done(read())


def test_entries_on_disk_are_folded_in_order_and_then_those_in_memory() -> None:
    follower = Follower()
    fold_committed(follower)
    while follower.reads:
        follower.answer_read()
    assert follower.folded == list(range(30)) and follower.applied == 30


def test_what_was_read_before_a_snapshot_came_says_nothing_about_what_follows_it() -> None:
    """An empty read means that nothing is there any more: a late one must not be taken for that (seed 60003702)."""
    follower = Follower()
    fold_committed(follower)
    follower.applied = 25  # a snapshot was installed
    follower.answer_read()
    assert follower.folded == list(range(25, 30)) and follower.applied == 30


def test_entries_that_were_replaced_while_they_were_read_are_not_folded() -> None:
    """The thread may have read them before a new leader's entries took their place, which are committed by now."""
    follower = Follower()
    follower.raft.commit = 3
    fold_committed(follower)
    read, done = follower.reads.pop()
    read_before = read()
    follower.entries[3:] = [build_batch(offset, 2, 1_000, [b"y"]) for offset in range(3, 30)]
    follower.raft.commit = 30
    done(read_before)
    while follower.reads:
        follower.answer_read()
    assert follower.folded == list(range(30)) and follower.epochs == [1] * 3 + [2] * 27


def test_entries_that_became_committed_while_they_were_read_are_folded_at_once() -> None:
    follower = Follower()
    follower.raft.commit = 3
    fold_committed(follower)
    follower.raft.commit = 5
    follower.answer_read()
    assert follower.folded == list(range(5)) and not follower.reads


def test_empty_read_says_nothing_about_what_came_after_it_began() -> None:
    follower = Follower()
    follower.raft.commit = 3
    fold_committed(follower)
    _, done = follower.reads.pop()
    follower.raft.commit = 30
    done([])
    while follower.reads:
        follower.answer_read()
    assert follower.folded == list(range(3, 30))


def test_fold_that_raises_ends_at_its_entry_and_folds_no_further() -> None:
    follower = Follower()
    follower.applied = 20

    def fold(header: Any, batch: bytes) -> None:
        if header.base_offset == 23:
            raise ValueError("no such color")
        follower.folded.append(header.base_offset)

    follower.fold = fold  # type: ignore[method-assign]
    with pytest.raises(ReplicaError) as stopped:
        fold_committed(follower)
    assert (stopped.value.kind, stopped.value.offset, follower.applied) == (StopKind.ENTRY, 23, 23)
    assert isinstance(stopped.value.__cause__, ValueError) and follower.folded == [20, 21, 22]


def test_fold_that_raises_after_a_read_from_disk_stops_its_replica() -> None:
    follower = Follower()
    stops: list[ReplicaError] = []
    stopped: Any = SimpleNamespace(failed=lambda replica, error: stops.append(error))
    follower.host.stopped = stopped
    follower.fold = lambda header, batch: 1 // 0  # type: ignore[method-assign, assignment]
    fold_committed(follower)
    follower.answer_read()
    assert [(stop.kind, stop.offset) for stop in stops] == [(StopKind.ENTRY, 0)] and not follower.reads


def test_what_became_committed_together_is_folded_a_part_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that waited for its turn hears of megabytes at once."""
    follower = Follower()
    for module in (folding, fold_turn):
        monkeypatch.setattr(module, "FOLD_TURN_BYTES", 3 * len(follower.entries[20]))
    follower.applied, follower.raft.commit = 20, 27
    fold_committed(follower)
    fold_committed(follower)  # more is heard of in the same turn
    assert follower.folded == [20, 21, 22]
    follower.raft.commit = 30
    follower.next_turn()
    assert follower.folded == list(range(20, 26))
    follower.next_turn()
    follower.closed = True
    follower.next_turn()
    assert follower.folded == list(range(20, 29)), "it went no further than it was when it was closed"


def test_batch_with_an_attribute_of_a_later_version_is_not_folded() -> None:
    follower = Follower()
    follower.applied = 20
    later = bytearray(follower.entries[21])
    later[21] |= 0x40
    follower.entries[21] = bytes(later)
    with pytest.raises(ReplicaError) as stopped:
        fold_committed(follower)
    assert (stopped.value.kind, stopped.value.offset) == (StopKind.UNKNOWN_ENTRY, 21) and follower.folded == [20]
