"""CLOSE_USAGE: all queues led by this node say what they metered up to now, for a report that cannot wait until the
hour ends. A few hundred partitions a turn, so that requests go on in between.

    begin  ->  round: partitions led here  ->  told, some a turn  ->  asked  ->  exported, or led elsewhere

A leader that does not serve yet, because what was committed before it is not folded, counts as one that has not
exported: it is told once it serves. What an earlier leader took is in its log, and nowhere in the usage stream.
"""

from __future__ import annotations

import asyncio

import msgspec

from storage_nodes.machines.raft.effects import Role
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.messages import CloseUsageReply, CloseUsageRequest, encode_message

PARTITIONS_PER_TURN = 256
WAITING_PER_LOOK_MAX = 64

_request = msgspec.msgpack.Decoder(CloseUsageRequest)


class UsageClosing:
    """Of one node; one round at a time, which a later one replaces."""

    def __init__(self, replicas: LocalReplicas, loop: asyncio.AbstractEventLoop) -> None:
        self._replicas = replicas
        self._loop = loop
        self._round: list[int] = []  # partitions that were not told yet
        self._asked: list[int] = []  # told; they may not have exported all of it
        self._unready: list[int] = []  # led here, but not served yet

    def answer(self, token: Token, payload: bytes) -> None:
        if _request.decode(payload).begin:
            self._round = [partition for partition, replica in self._replicas.items() if _is_concerned(replica)]
            self._asked, self._unready = [], []
            self._tell_some(self._round)
        else:
            unready, self._unready = self._unready, []
            self._tell(unready)
        self._drop_told()
        left = len(self._round) + len(self._asked) + len(self._unready)
        token.connection.answer(token, encode_message(CloseUsageReply(left)))

    def _tell_some(self, partitions: list[int]) -> None:
        if self._round is not partitions:
            return  # another round began
        self._tell(partitions[:PARTITIONS_PER_TURN])
        del partitions[:PARTITIONS_PER_TURN]
        if partitions:
            self._loop.call_soon(self._tell_some, partitions)

    def _tell(self, partitions: list[int]) -> None:
        for partition in partitions:
            replica = self._replicas.get(partition)
            if not isinstance(replica, QueueReplica) or not _is_concerned(replica):
                continue
            if replica.serving:
                replica.staged(replica.machine.usage.close(replica.now_ms()))
                replica.schedule()
                self._asked.append(partition)
            else:
                self._unready.append(partition)

    def _drop_told(self) -> None:
        """In the order in which they were told, up to where most have not exported yet: whoever asks does so many times
        while thousands are on their way."""
        waiting: list[int] = []
        looked_at = 0
        for partition in self._asked:
            looked_at += 1
            if not self._is_told(partition):
                waiting.append(partition)
                if len(waiting) == WAITING_PER_LOOK_MAX:
                    break
        self._asked[:looked_at] = waiting

    def _is_told(self, partition: int) -> bool:
        """Or led elsewhere now: whoever asks compares leaders from before and after."""
        replica = self._replicas.get(partition)
        return not isinstance(replica, QueueReplica) or not replica.serving or replica.machine.usage.is_told


def _is_concerned(replica: object) -> bool:
    """Is it a queue that this node leads, with something to say as far as that is known? What an unready leader has to
    say is not folded yet."""
    if not isinstance(replica, QueueReplica) or replica.raft.role is not Role.LEADER:
        return False
    return replica.machine.usage.is_metered or not replica.serving
