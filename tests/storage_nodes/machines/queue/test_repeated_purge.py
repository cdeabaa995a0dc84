"""A purge that is tried again because its answer was lost: it hears what it did, and purges nothing more."""

from __future__ import annotations

import pytest

from storage_nodes.limits import PURGE_INTERVAL_MS
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition


def purge(partition: Partition, token: str, attempt: bytes) -> object:
    partition.perform(partition.leader.purge(token, partition.now_ms, attempt))
    partition.commit()
    return partition.answers[token]


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("fails_over", [False, True])
def test_repeat_is_answered_and_takes_nothing(fifo: bool, fails_over: bool) -> None:
    partition = Partition(QueueConfig(fifo=fifo))
    partition.send_keyed((b"a", b""), (b"b", b""), (b"c", b""))
    assert purge(partition, "p", b"mine") == (ErrorCode.OK, 3)
    sent = partition.send_keyed((b"a", b""), (b"b", b""), (b"a", b""))
    leased = partition.acquire("x", 1)
    partition.commit()
    if fails_over:
        partition.fail_over()
        partition.commit()
    assert purge(partition, "q", b"mine") == (ErrorCode.OK, 3)
    assert purge(partition, "r", b"another") == (ErrorCode.PURGE_IN_PROGRESS, 0)
    assert purge(partition, "s", b"") == (ErrorCode.PURGE_IN_PROGRESS, 0)
    partition.check()
    if not leased:
        leased = partition.delivered["x"]
    given = [pick.offset for pick in leased]
    partition.delete("d", [(pick.offset, pick.delivery) for pick in leased])
    partition.commit()
    while True:
        token = f"y{len(given)}"
        partition.acquire(token, 10)
        partition.commit()
        picks = partition.delivered.get(token) or []
        if not picks:
            break
        given += [pick.offset for pick in picks]
        partition.delete(token + "d", [(pick.offset, pick.delivery) for pick in picks])
        partition.commit()
    assert sorted(given) == list(sent)
    partition.check()


def test_next_purge_with_the_same_name_much_later_is_still_the_same() -> None:
    partition = Partition()
    partition.send(2)
    assert purge(partition, "p", b"mine") == (ErrorCode.OK, 2)
    partition.send(1)
    restored = QueueMachine()
    restored.restore(partition.follower.checkpoint())
    assert restored.checkpoint() == partition.follower.checkpoint()
    partition.now_ms += PURGE_INTERVAL_MS
    assert purge(partition, "q", b"mine") == (ErrorCode.OK, 2)
    assert purge(partition, "r", b"another") == (ErrorCode.OK, 1)
