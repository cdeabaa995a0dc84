"""What waits for an fsync, and what becomes of it when its replica is closed first."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from storage_nodes.node.committer import Committer
from storage_nodes.protocol.peer_messages import AppendReply


class Log:
    """Takes one group at a time."""

    def __init__(self) -> None:
        self.staged_bytes = 1

    def take_group(self) -> Any:
        self.staged_bytes = 0
        return SimpleNamespace(length_bytes=1)

    def group_written(self, _group: Any) -> list[tuple[int, int]]:
        return []


def test_answer_of_a_replica_that_was_closed_meanwhile_is_not_sent() -> None:
    """Its log may be empty by then (damage), and the leader would count what is not there any more (R5)."""
    soon: list[Callable[[], None]] = []
    sent: list[tuple[int, int]] = []
    loop: Any = SimpleNamespace(call_soon=soon.append, time=lambda: 0.0)
    log: Any = Log()
    # Never started: the test says when a group is written.
    committer = Committer(loop, log, lambda _: None, lambda peer, m: sent.append((peer, m.partition)), lambda _: None)
    for partition in (1, 2):  # of the group that is being written from here on
        committer.send_after_sync(9, AppendReply(partition, 1, True, 5))
    soon.pop()()
    log.staged_bytes = 1
    for partition in (1, 2):  # of the one that gathers behind it
        committer.send_after_sync(8, AppendReply(partition, 1, True, 6))
    committer.forget(1)
    committer._written(SimpleNamespace(length_bytes=1), 0.0)  # type: ignore[arg-type]
    committer._written(SimpleNamespace(length_bytes=1), 0.0)  # type: ignore[arg-type]
    assert sent == [(9, 2), (8, 2)]
