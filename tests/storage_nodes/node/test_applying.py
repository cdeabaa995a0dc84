"""Folding what is committed: entries that have to be read from disk, and a snapshot that comes in between."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from storage_nodes.log.record_batch import build_batch, read_header
from storage_nodes.node.replicas.folding import fold_committed
from storage_nodes.node.replicas.replica import Replica


class Follower(Replica):
    """Its log holds one entry of one record at each offset up to 30; below 20 they are on disk."""

    def __init__(self) -> None:
        self.reads: list[tuple[Callable[[], list[bytes]], Callable[[list[bytes]], None]]] = []
        self.folded: list[int] = []
        entries = [build_batch(offset, 1, 1_000, [b"x"]) for offset in range(30)]
        log: Any = SimpleNamespace(
            read_hot=lambda at, _: entries[at:] if at >= 20 else None, read_cold=lambda at, _: entries[at : at + 5]
        )
        host: Any = SimpleNamespace(run_cold=lambda read, done: self.reads.append((read, done)))
        raft: Any = SimpleNamespace(commit=30)
        self.host, self.log, self.raft = host, log, raft
        self.applied, self.closed, self.serving, self.applying_cold = 0, False, False, False
        self._trust_at = self._lead_at = -1

    def fold(self, header: Any, batch: bytes) -> None:
        self.folded.append(read_header(batch).base_offset)

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
