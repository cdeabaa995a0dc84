"""Planted bugs of clocks: leaders that take the time from one wall clock, or keep it badly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

from storage_nodes.log.partition_log import PartitionLog
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.stream_replica import StreamReplica


def _leader_time() -> Any:
    return import_module("storage_nodes.node.replicas.leader_time").LeaderTime


def _own_clock(stack: ExitStack) -> None:
    """Nobody asks the others what time it is, nor whether the own clock is wrong."""
    agreement = import_module("storage_nodes.node.clocks.clock_agreement").ClockAgreement
    real = agreement.look

    def look(self: Any, own_wall_ms: int, mono_ms: int, _registered: Any) -> None:
        real(self, own_wall_ms, mono_ms, ())

    stack.enter_context(mock.patch.object(agreement, "look", look))


@contextmanager
def forgets_the_last_stamp() -> Iterator[None]:
    """B35: a leader's time begins at agreed time, whatever the last stamp of its log is.

    The check of whoever appends goes too.
    """
    unknown: Any = property(lambda self: 0, lambda self, value: None)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(PartitionLog, "last_stamp_ms", unknown))
        for kind in (QueueReplica, StreamReplica):
            stack.enter_context(mock.patch.object(kind, "folded_ms", lambda self: 0))
        yield


@contextmanager
def expires_by_one_clock() -> Iterator[None]:
    """B36: a retention ends by the leader's own wall clock. It leads also where that is wrong, and stamps rightly."""
    kind = _leader_time()
    real = kind.now_ms

    def now_ms(self: Any) -> int:
        time_ms = real(self)
        self.ahead_ms = time_ms - self._clock.wall_ms()
        return int(time_ms)

    with leads_with_a_wrong_clock(), mock.patch.object(kind, "now_ms", now_ms):
        yield


@contextmanager
def leads_with_a_wrong_clock() -> Iterator[None]:
    """B37: a node whose clock is off stands for election and goes on leading. What time it is, it still asks."""
    agreement = import_module("storage_nodes.node.clocks.clock_agreement").ClockAgreement
    right: Any = property(lambda self: False, lambda self, value: None)
    with mock.patch.object(agreement, "is_off", right, create=True):
        yield


@contextmanager
def time_stands_still() -> Iterator[None]:
    """B38: where the last stamp is ahead of the own clock, a leader's time stands still until that has caught up."""
    kind = _leader_time()

    def now_ms(self: Any) -> int:
        self._mono_ms = self._clock.mono_ms()
        self._now_ms = max(self._now_ms, self._clock.wall_ms())
        self.ahead_ms = 0
        return int(self._now_ms)

    with ExitStack() as stack:
        _own_clock(stack)
        stack.enter_context(mock.patch.object(kind, "now_ms", now_ms))
        yield


@contextmanager
def judges_greetings_by_the_clock() -> Iterator[None]:
    """B48: a process that lost its directory is let in only where its incarnation, a wall time, is the higher one."""
    peer = import_module("storage_nodes.node.transport.peer_link").PeerLink
    with mock.patch.object(peer, "is_newer", lambda self, hello: hello.incarnation > self.incarnation):
        yield
