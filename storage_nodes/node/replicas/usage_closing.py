"""CLOSE_USAGE: all queues led by this node say what they metered up to now, for a report that cannot wait until the
hour ends. A few hundred partitions a turn, so that requests go on in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.messages import CloseUsageReply, CloseUsageRequest, encode_message

PARTITIONS_PER_TURN = 256

_request = msgspec.msgpack.Decoder(CloseUsageRequest)


class UsageClosing:
    """Of one node; one round at a time, which a later one replaces."""

    def __init__(self, replicas: LocalReplicas, loop: asyncio.AbstractEventLoop) -> None:
        self._replicas = replicas
        self._loop = loop
        self._round: list[int] = []  # partitions that may not have exported all of it
        self._begun = 0  # so many of the round were told

    def answer(self, token: Token, payload: bytes) -> None:
        if _request.decode(payload).begin:
            self._round = [replica.partition for replica in self._metered(list(self._replicas))]
            self._begun = 0
            self._tell_some(self._round)
        asked = self._round[: self._begun]
        asked = [replica.partition for replica in self._metered(asked) if not replica.machine.is_usage_told]
        token.connection.answer(token, encode_message(CloseUsageReply(len(asked) + len(self._round) - self._begun)))

    def _tell_some(self, asked: list[int]) -> None:
        if self._round is not asked:
            return  # another round began
        upto = self._begun + PARTITIONS_PER_TURN
        for replica in self._metered(asked[self._begun : upto]):
            replica.staged(replica.machine.close_usage(replica.now_ms()))
            replica.schedule()
        self._begun = min(upto, len(asked))
        if self._begun < len(asked):
            self._loop.call_soon(self._tell_some, asked)

    def _metered(self, partitions: list[int]) -> Iterator[QueueReplica]:
        """Those that this node leads, and that have something to say."""
        for partition in partitions:
            replica = self._replicas.get(partition)
            if isinstance(replica, QueueReplica) and replica.serving and replica.machine.is_metered:
                yield replica
