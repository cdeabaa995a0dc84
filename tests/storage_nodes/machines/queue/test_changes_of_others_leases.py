"""A repeated attempt, or a hand-back of a lease that was lost with its leader, ends no lease of another consumer."""

from __future__ import annotations

import pytest

from storage_nodes.machines.queue.commands import if_held, uncounted
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import VISIBILITY_MS, Partition, receipts_of


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def partition(request: pytest.FixtureRequest) -> Partition:
    partition = Partition(QueueConfig(fifo=request.param))
    partition.send_keyed((b"g", b""))
    return partition


def lease(partition: Partition, token: str, visibility_ms: int = VISIBILITY_MS) -> tuple[int, int]:
    partition.acquire(token, 1, visibility_ms)
    partition.commit()
    (receipt,) = receipts_of(partition.delivered[token])
    return receipt


def test_repeated_change_does_not_end_the_lease_that_another_consumer_got_since(partition: Partition) -> None:
    offset, delivery = lease(partition, "first")
    partition.change("attempt", [(offset, delivery, 0)])
    partition.commit()  # ... and its answer is lost
    partition.fail_over()
    lease(partition, "other")
    refusal = ErrorCode.RECEIPT_STALE if partition.leader.is_fifo else ErrorCode.NOT_IN_FLIGHT
    for token, visibility_ms in (("again", 0), ("shorter", 1_000)):
        partition.change(token, [(offset, delivery, if_held(visibility_ms))])
        partition.commit()
        assert partition.answers[token] == [refusal]
    partition.pass_ms(1_500)
    assert not partition.acquire("third")
    partition.commit()
    partition.check()


@pytest.mark.parametrize("visibility_ms", [0, 50_000])
def test_repeated_change_is_carried_out_where_its_first_attempt_was_not(
    partition: Partition, visibility_ms: int
) -> None:
    offset, delivery = lease(partition, "first")
    partition.fail_over()
    partition.change("again", [(offset, delivery, if_held(visibility_ms))])
    partition.commit()
    assert partition.answers["again"] == [ErrorCode.OK]
    entry = partition.leader.state.live[offset]
    assert entry[:2] == (partition.now_ms + visibility_ms, delivery)
    partition.check()


def test_receipt_of_a_lease_that_is_over_still_changes_a_message_at_the_users_call() -> None:
    partition = Partition()
    partition.send(1)
    offset, delivery = lease(partition, "first", 1_000)
    partition.pass_ms(1_001)
    partition.change("user", [(offset, delivery, 5_000)])
    partition.change("repeat", [(offset, delivery, if_held(6_000))])
    partition.commit()
    assert partition.answers["user"] == [ErrorCode.OK]
    assert partition.leader.state.live[offset][0] == partition.now_ms + 6_000, "the first made it a lease"


def test_hand_back_of_a_lease_that_was_lost_with_its_leader_ends_no_lease_of_the_next() -> None:
    partition = Partition()
    partition.send(1)
    partition.acquire("lost", 1)
    ((offset, delivery),) = receipts_of(partition.delivered["lost"])
    partition.now_ms += 5
    partition.fail_over()
    assert lease(partition, "other") == (offset, delivery)
    changes = partition.leader.of_earlier_leaders([(offset, delivery, uncounted(0))])
    partition.change("late", changes)
    partition.commit()
    assert partition.answers["late"] == [ErrorCode.NOT_IN_FLIGHT]
    assert partition.acquire("third") == []


def test_hand_back_of_a_lease_that_outlived_its_leader_takes_effect(partition: Partition) -> None:
    offset, delivery = lease(partition, "late")
    partition.now_ms += 5
    partition.fail_over()
    partition.change("back", partition.leader.of_earlier_leaders([(offset, delivery, uncounted(0))]))
    partition.commit()
    assert partition.answers["back"] == [ErrorCode.OK]
    assert [offset for offset, _ in [lease(partition, "other")]] == [offset]


def test_hand_back_of_a_later_delivery_is_left_to_its_lease() -> None:
    partition = Partition()
    partition.send(1)
    lease(partition, "first", 1_000)
    partition.pass_ms(1_001)
    offset, delivery = lease(partition, "late")
    partition.now_ms += 5
    partition.fail_over()
    assert partition.leader.of_earlier_leaders([(offset, delivery, uncounted(0))]) == [(offset, 0, uncounted(0))]


def test_hand_back_of_a_receive_that_was_repeated_since_ends_no_lease_of_the_repetition() -> None:
    """FIFO: the repetition has the same deliveries, and somebody is at work on them."""
    partition = Partition(QueueConfig(fifo=True))
    partition.send_keyed((b"g", b""))
    first, again = (receive_as(partition, token) for token in ("first", "again"))
    assert receipts_of(partition.delivered["first"]) == receipts_of(partition.delivered["again"])
    assert first != again, "also within one millisecond"
    ((offset, delivery),) = receipts_of(partition.delivered["again"])
    hand_back(partition, "late", (offset, delivery), first)
    assert partition.answers["late"] == [ErrorCode.RECEIPT_STALE]
    assert not partition.acquire("other", 1)
    partition.commit()
    assert "other" not in partition.delivered or not partition.delivered["other"]
    partition.perform(partition.leader.release([(offset, delivery)], partition.now_ms, first))
    partition.commit()
    assert partition.leader.state.live[offset][:2] == (again, delivery)
    hand_back(partition, "itself", (offset, delivery), again)
    assert partition.answers["itself"] == [ErrorCode.OK]
    partition.check()


@pytest.mark.parametrize("is_repetition", [True, False])
def test_hand_back_yields_to_what_is_under_way(is_repetition: bool) -> None:
    partition = Partition(QueueConfig(fifo=True))
    partition.send_keyed((b"g", b""))
    first = receive_as(partition, "first")
    (receipt,) = receipts_of(partition.delivered["first"])
    if is_repetition:
        partition.acquire("again", 1, attempt=b"attempt")
    else:
        partition.change("consumer", [(*receipt, 50_000)])
    asked = [(*receipt, uncounted(0))]
    assert partition.leader.is_under_way(asked), "its caller is told to ask again"
    hand_back(partition, "late", receipt, first)
    assert partition.answers["late"] == [ErrorCode.RECEIPT_STALE]
    assert not partition.leader.is_under_way(asked)
    partition.check()


def test_hand_back_that_waited_for_a_change_that_was_refused_takes_effect() -> None:
    partition = Partition(QueueConfig(fifo=True))
    partition.send_keyed((b"g", b""))
    offset, delivery = lease(partition, "first", 1_000)
    partition.pass_ms(1_001)
    until_ms = receive_as(partition, "second")
    partition.change("stale", [(offset, delivery, 50_000)])
    back = [(offset, delivery + 1, uncounted(0))]
    assert partition.leader.is_under_way(back)
    partition.commit()
    assert partition.answers["stale"] == [ErrorCode.RECEIPT_STALE] and not partition.leader.is_under_way(back)
    hand_back(partition, "late", (offset, delivery + 1), until_ms)
    assert partition.answers["late"] == [ErrorCode.OK]


def receive_as(partition: Partition, token: str) -> int:
    """When the lease ends, by its answer."""
    partition.acquire(token, 1, attempt=b"attempt")
    partition.commit()
    return partition.deadlines_ms[token]


def hand_back(partition: Partition, token: str, receipt: tuple[int, int], deadline_ms: int) -> None:
    partition.change(token, partition.leader.of_leases_until([(*receipt, uncounted(0))], deadline_ms))
    partition.commit()
