"""Parked groups: what follows a dead letter in its group is held until somebody says so, whoever leads."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.limits import PURGE_INTERVAL_MS
from storage_nodes.machines.queue.delivery import by_group
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import ParkedGroup, QueueConfig
from tests.storage_nodes.machines.queue.partition import VISIBILITY_MS, Partition

CONFIG = QueueConfig(fifo=True, max_receives=1, dead_letter_partition=7, park_groups=True)
OK = ErrorCode.OK


@pytest.fixture
def partition() -> Partition:
    return Partition(CONFIG)


def send(partition: Partition, groups: str) -> list[int]:
    return list(partition.send_keyed(*[(group.encode(), b"") for group in groups]))


def take(partition: Partition, token: str, count: int = 10) -> list[int]:
    partition.acquire(token, count)
    partition.commit()
    return [pick.offset for pick in partition.delivered[token]]


def bury_first(partition: Partition, token: str = "bury") -> int:
    """The first message that is available dies and is moved."""
    (offset,) = take(partition, token, 1)
    partition.pass_ms(VISIBILITY_MS)
    move_all(partition)
    return offset


def move_all(partition: Partition) -> None:
    while partition.moves:
        offsets = [letter.offset for letter in partition.moves.pop().letters]
        partition.perform(partition.leader.moved(offsets, partition.now_ms))
        partition.commit()


def unpark(partition: Partition, *groups: bytes) -> list[ErrorCode]:
    token = ("unpark", len(partition.log))
    partition.perform(partition.leader.unpark(token, list(groups), partition.now_ms))
    partition.commit()
    return partition.answers[token]  # type: ignore[return-value]


def test_group_of_a_dead_letter_is_held_and_others_are_not(partition: Partition) -> None:
    a1, a2, b1, b2 = send(partition, "aabb")
    assert bury_first(partition) == a1
    assert take(partition, "one") == [b1, b2]
    (a3,) = send(partition, "a")
    assert take(partition, "two") == []
    assert partition.leader.stats(partition.now_ms).parked_groups == 1
    since_ms = partition.now_ms
    assert partition.leader.parked_groups(b"", 10) == [ParkedGroup(b"a", since_ms, a1, 2)]
    partition.fail_over()
    assert take(partition, "three") == []
    assert unpark(partition, b"a") == [OK]
    assert take(partition, "four") == [a2, a3], "in order"
    partition.check()


def test_long_poll_is_woken_when_the_group_is_unparked(partition: Partition) -> None:
    _, a2 = send(partition, "aa")
    bury_first(partition)
    partition.acquire("long", wait_ms=20_000)
    partition.commit()
    assert "long" not in partition.delivered
    assert unpark(partition) == [OK]
    assert [pick.offset for pick in partition.delivered["long"]] == [a2]


def test_unpark_is_answered_when_it_is_committed_and_names_what_is_not_held(partition: Partition) -> None:
    send(partition, "aa")
    bury_first(partition)
    partition.perform(partition.leader.unpark("lost", [b"a"], partition.now_ms))
    assert "lost" not in partition.answers
    partition.fail_over()
    assert partition.refused["lost"].code is ErrorCode.OUTCOME_UNKNOWN
    assert unpark(partition, b"b", b"a", b"a") == [ErrorCode.UNKNOWN_RECORD, OK, ErrorCode.UNKNOWN_RECORD]
    assert unpark(partition) == []


def test_groups_are_listed_by_name_page_by_page(partition: Partition) -> None:
    send(partition, "cab")
    take(partition, "all")
    partition.pass_ms(VISIBILITY_MS)
    move_all(partition)
    page = partition.leader.parked_groups(b"", 2)
    assert [one.group for one in page] == [b"a", b"b"]
    assert [one.group for one in partition.leader.parked_groups(b"b", 2)] == [b"c"]


def test_nothing_is_parked_without_the_setting_or_a_dead_letter_queue() -> None:
    partition = Partition(msgspec.structs.replace(CONFIG, park_groups=False))
    _, a2 = send(partition, "aa")
    bury_first(partition)
    assert take(partition, "next") == [a2]
    partition = Partition(QueueConfig(fifo=True, park_groups=True))
    a1, a2 = send(partition, "aa")
    for number in range(5):
        assert take(partition, f"again {number}") == [a1, a2]
        partition.pass_ms(VISIBILITY_MS)


def test_queue_that_parks_no_more_hands_out_what_it_held(partition: Partition) -> None:
    _, a2 = send(partition, "aa")
    bury_first(partition)
    partition.perform(partition.leader.configure("c", msgspec.structs.replace(CONFIG, park_groups=False)))
    partition.commit()
    assert take(partition, "next") == [a2]


def test_purge_forgets_what_was_parked(partition: Partition) -> None:
    send(partition, "aa")
    bury_first(partition)
    partition.pass_ms(PURGE_INTERVAL_MS)
    partition.purge("p")
    partition.commit()
    (a3,) = send(partition, "a")
    assert take(partition, "next") == [a3]


def test_no_more_dead_letters_move_when_too_many_groups_are_held(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_group, "PARKED_GROUPS_MAX", 1)
    a1, a2, b1, b2 = send(partition, "aabb")
    bury_first(partition)
    assert take(partition, "b", 1) == [b1]
    partition.pass_ms(VISIBILITY_MS)
    assert not partition.moves and take(partition, "held by its dead letter") == []
    assert unpark(partition, b"a") == [OK]
    assert [letter.offset for letter in partition.moves[0].letters] == [b1]
    assert (a1, b2) != (a2, b1)
    partition.check()


def test_parked_groups_stand_in_the_checkpoint_and_may_be_missing_from_an_old_one(partition: Partition) -> None:
    send(partition, "aa")
    bury_first(partition)
    blob = partition.leader.checkpoint()
    restored = QueueMachine()
    restored.restore(blob)
    assert restored.state.parked_count == 1 and restored.checkpoint() == blob
    fields = msgspec.msgpack.decode(blob)
    fields[5] = fields[5][:2]
    restored = QueueMachine()
    restored.restore(msgspec.msgpack.encode(fields))
    assert restored.state.parked_count == 0


def test_standard_queue_parks_nothing() -> None:
    partition = Partition()
    partition.perform(partition.leader.configure("c", QueueConfig(park_groups=True)))
    partition.perform(partition.leader.unpark("u", [], partition.now_ms))
    assert {partition.refused[token].code for token in ("c", "u")} == {ErrorCode.INVALID_REQUEST}
