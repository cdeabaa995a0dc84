"""CLOSE_USAGE at one node: who is told, and who is counted as not exported. The replicas are stand-ins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from storage_nodes.machines.raft.effects import Role
from storage_nodes.node.replicas import usage_closing
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.usage_closing import UsageClosing
from storage_nodes.protocol.messages import CloseUsageReply, CloseUsageRequest, encode_message


class LedQueue(QueueReplica):
    """Nothing but what a round asks of a replica."""

    __slots__ = ("told", "usage")

    def __init__(self, partition: int, role: Role = Role.LEADER, serving: bool = True) -> None:
        self.partition, self.serving, self.told = partition, serving, 0
        self.raft = cast(Any, SimpleNamespace(role=role))
        self.usage = SimpleNamespace(is_metered=serving, is_told=False, close=self._close)
        self.machine = cast(Any, SimpleNamespace(usage=self.usage))

    def now_ms(self) -> int:
        return 0

    def staged(self, effects: Iterable[object]) -> None:
        self.told += 1

    def schedule(self) -> None:
        pass

    def serves(self) -> None:
        """What was committed before is folded."""
        self.serving = self.usage.is_metered = True

    def exports(self) -> None:
        self.usage.is_told = True

    def _close(self, now_ms: int) -> list[object]:
        return []


class Asker:
    """The connection of whoever asks the node."""

    def __init__(self, closing: UsageClosing) -> None:
        self._closing, self._answer = closing, b""

    def answer(self, token: object, payload: bytes) -> None:
        self._answer = payload

    def ask(self, begin: bool = False) -> int:
        token = cast(Any, SimpleNamespace(connection=self))
        self._closing.answer(token, encode_message(CloseUsageRequest(begin)))
        return msgspec.msgpack.decode(self._answer, type=CloseUsageReply).partitions


def node_with(*queues: LedQueue) -> tuple[Asker, dict[int, LedQueue]]:
    replicas = {queue.partition: queue for queue in queues}
    return Asker(UsageClosing(cast(LocalReplicas, replicas), asyncio.get_running_loop())), replicas


async def test_none_is_passed_over_where_thousands_are_asked_for_again_and_again() -> None:
    """Each answer looks at some of them only; the last one to export is waited for, wherever it stands."""
    queues = [LedQueue(number) for number in range(1, 4 * usage_closing.WAITING_PER_LOOK_MAX + 1)]
    asker, _ = node_with(*queues)
    assert asker.ask(begin=True) == len(queues)
    waiting = queues[::2]
    for queue in queues[1::2]:
        queue.exports()
    left = [asker.ask() for _ in range(3)]
    assert left[0] < len(queues) and left == sorted(left, reverse=True) and left[-1] >= len(waiting)
    for queue in waiting[1:]:
        queue.exports()
    assert asker.ask() == 1, "an answer passes what has exported without a bound"
    waiting[0].exports()
    assert asker.ask() == 0


async def test_leader_that_does_not_serve_yet_is_counted_and_told_once_it_serves() -> None:
    queue = LedQueue(1, serving=False)
    asker, _ = node_with(queue)
    assert asker.ask(begin=True) == 1, "what it has to say is not folded yet"
    assert asker.ask() == 1 and queue.told == 0
    queue.serves()
    assert asker.ask() == 1 and queue.told == 1
    queue.exports()
    assert asker.ask() == 0 and queue.told == 1


async def test_leader_that_never_served_and_was_deposed_is_not_waited_for() -> None:
    queue = LedQueue(1, serving=False)
    asker, _ = node_with(queue)
    assert asker.ask(begin=True) == 1
    queue.raft.role = Role.FOLLOWER
    assert asker.ask() == 0, "who asks sees that the leader changed"


async def test_leader_that_turns_out_to_have_nothing_to_say_is_not_waited_for() -> None:
    queue = LedQueue(1, serving=False)
    asker, _ = node_with(queue)
    assert asker.ask(begin=True) == 1
    queue.serving = True
    assert asker.ask() == 0 and queue.told == 0


async def test_followers_and_deleted_partitions_are_not_asked() -> None:
    asker, replicas = node_with(LedQueue(1), LedQueue(2, Role.FOLLOWER, serving=False), LedQueue(3))
    assert asker.ask(begin=True) == 2
    del replicas[3]
    assert asker.ask() == 1


async def test_round_goes_on_over_turns_and_a_later_one_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_closing, "PARTITIONS_PER_TURN", 2)
    queues = [LedQueue(number) for number in range(5)]
    asker, _ = node_with(*queues)
    assert asker.ask(begin=True) == 5 and [queue.told for queue in queues] == [1, 1, 0, 0, 0]
    assert asker.ask(begin=True) == 5
    for _ in range(3):
        await asyncio.sleep(0)
    assert [queue.told for queue in queues] == [2, 2, 1, 1, 1]
    for queue in queues:
        queue.exports()
    assert asker.ask() == 0
