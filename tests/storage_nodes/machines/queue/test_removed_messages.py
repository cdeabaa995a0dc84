"""Messages that somebody chose are removed: from every state, against leases, and the queue goes on behind them."""

from __future__ import annotations

from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of, receipts_of

OK, GONE = ErrorCode.OK, ErrorCode.UNKNOWN_RECORD
FIFO = QueueConfig(fifo=True)


def removed(partition: Partition, offsets: list[int], token: str = "remove", moved: bool = False) -> object:
    partition.remove(token, offsets, moved)
    partition.commit()
    partition.check()
    return partition.answers[token]


def test_remove_takes_waiting_in_flight_and_delayed_and_nothing_else() -> None:
    partition = Partition()
    first, last = partition.send(4), partition.send(1, delay_ms=60_000)
    partition.acquire("lease", 2)
    partition.commit()
    chosen = [first[1], first[3], last[0]]
    assert removed(partition, chosen) == [OK, OK, OK]
    assert partition.counts() == (1, 1, 0)
    no_messages = [*chosen, partition.end - 1, 999]  # gone, a control record, nothing yet
    assert removed(partition, no_messages, "again") == [GONE] * 5
    assert offsets_of(partition.acquire("next")) == [first[2]]
    state = partition.leader.state
    assert (state.deleted, state.dead_lettered) == (3, 0)


def test_remove_is_answered_after_its_commit_and_survives_a_failover() -> None:
    partition = Partition()
    (offset,) = partition.send(1)
    partition.remove("r", [offset])
    assert "r" not in partition.answers
    partition.fail_over()
    assert partition.refused["r"].code is ErrorCode.OUTCOME_UNKNOWN and partition.counts() == (1, 0, 0)
    assert removed(partition, [offset], "r2") == [OK]
    partition.fail_over()
    assert partition.acquire("a") == [] and partition.counts() == (0, 0, 0)


def test_remove_wins_over_a_lease_and_the_receipt_then_has_no_effect() -> None:
    partition = Partition()
    (offset,) = partition.send(1)
    receipts = receipts_of(partition.acquire("lease"))
    assert removed(partition, [offset]) == [OK]
    partition.delete("late", receipts)
    partition.commit()
    assert partition.answers["late"] == [OK] and partition.leader.state.deleted == 1
    partition.pass_ms(31_000)
    assert partition.acquire("after") == []


def test_lease_that_is_staged_when_its_message_is_removed_ends_with_it() -> None:
    partition = Partition()
    offsets = partition.send(3)
    partition.remove("r", [offsets[1]])
    assert offsets_of(partition.acquire("meanwhile")) == list(offsets), "not committed yet: still a message"
    partition.commit()
    assert partition.answers["r"] == [OK] and partition.counts() == (0, 2, 0)
    partition.pass_ms(31_000)
    assert offsets_of(partition.acquire("after")) == [offsets[0], offsets[2]]
    partition.check()


def test_moved_messages_count_as_dead_letters() -> None:
    partition = Partition()
    offsets = partition.send(2)
    assert removed(partition, list(offsets), moved=True) == [OK, OK]
    assert partition.leader.stats(partition.now_ms).dead_lettered == 2 and partition.leader.state.deleted == 0


def test_message_on_its_way_to_the_dead_letter_queue_is_not_removed_meanwhile() -> None:
    partition = Partition(QueueConfig(max_receives=1, dead_letter_partition=9))
    (offset,) = partition.send(1)
    partition.acquire("lease", visibility_ms=1)
    partition.commit()
    partition.pass_ms(10)
    assert partition.moves
    partition.remove("r", [offset])
    assert partition.refused["r"].code is ErrorCode.OVERLOADED
    partition.perform(partition.leader.moved([offset], partition.now_ms))
    partition.commit()
    assert removed(partition, [offset], "after") == [GONE]


def test_message_that_dies_while_it_is_being_removed_does_not_move() -> None:
    partition = Partition(QueueConfig(max_receives=1, dead_letter_partition=9))
    offsets = partition.send(3)
    partition.acquire("lease", visibility_ms=5)
    partition.commit()
    partition.remove("r", [offsets[1]])
    partition.pass_ms(10)
    assert [letter.offset for letter in partition.moves[0].letters] == [offsets[0], offsets[2]]
    partition.commit()
    assert partition.answers["r"] == [OK] and partition.leader.state.deleted == 1
    partition.check()


def test_fifo_order_of_the_group_stays_right_around_a_removed_message() -> None:
    partition = Partition(FIFO)
    offsets = partition.send_keyed(*((b"g", b"") for _ in range(4)))
    other = partition.send_keyed((b"h", b""))
    assert removed(partition, [offsets[1]]) == [OK]
    partition.acquire("two", 2)
    partition.commit()
    assert offsets_of(partition.delivered["two"]) == [offsets[0], offsets[2]]
    assert removed(partition, [offsets[0], other[0]], "leased one and the other group") == [OK, OK]
    partition.acquire("locked")
    partition.commit()
    assert not partition.delivered["locked"], "the other message of the lease still locks the group"
    assert removed(partition, [offsets[2]], "the last of the lease") == [OK]
    partition.acquire("free")
    partition.commit()
    assert offsets_of(partition.delivered["free"]) == [offsets[3]]
    assert partition.leader.stats(partition.now_ms).groups == 1


def test_waiting_consumer_gets_the_message_behind_a_removed_delayed_one() -> None:
    partition = Partition(FIFO)
    first = partition.send_keyed((b"g", b""), delay_ms=60_000)
    second = partition.send_keyed((b"g", b""))
    partition.acquire("waits", wait_ms=10_000)
    partition.commit()
    assert "waits" not in partition.delivered
    assert removed(partition, list(first)) == [OK]
    partition.commit()
    assert offsets_of(partition.delivered["waits"]) == list(second)
    assert partition.counts() == (0, 1, 0)


def test_standard_queue_with_groups_forgets_what_was_removed() -> None:
    partition = Partition()
    offsets = partition.send_keyed((b"g", b""), (b"g", b""), (b"h", b""), (b"", b""))
    leased = offsets_of(partition.acquire("lease", 1))
    partition.commit()
    assert removed(partition, [*leased, offsets[2]]) == [OK, OK]
    assert not set(leased) & partition.leader.state.keys.keys() and partition.counts() == (2, 0, 0)
    assert partition.leader.stats(partition.now_ms).groups == 0, "nothing of any group is in flight"
    rest = offsets_of(partition.acquire("rest"))
    partition.commit()
    assert sorted([*rest, *leased, offsets[2]]) == list(offsets)
    partition.fail_over()
    partition.check()
    assert removed(partition, rest, "the rest") == [OK] * len(rest)
    assert partition.counts() == (0, 0, 0) and not partition.leader.state.keys


def test_message_that_two_remove_at_once_is_counted_once() -> None:
    partition = Partition()
    (offset,) = partition.send(1, delay_ms=60_000)
    partition.remove("one", [offset])
    partition.remove("two", [offset])
    partition.commit()
    assert (partition.answers["one"], partition.answers["two"]) == ([OK], [GONE])
    partition.send(1)
    assert partition.counts() == (1, 0, 0)


def test_removal_leaves_what_waits_beside_it_as_it_stands(partition: Partition) -> None:
    """Each call is folded by itself: none goes through all that waits."""
    for _ in range(5):
        partition.send(3)
        partition.pass_ms(1)
    leader = partition.leader.leader
    assert leader is not None
    window = leader.delivery.window
    before = list(window.ranges)  # type: ignore[attr-defined]
    first, last, sent_ms = before[1]
    partition.remove("middle", [first + 1])
    partition.commit()
    after = list(window.ranges)  # type: ignore[attr-defined]
    assert after[1:3] == [(first, first, sent_ms), (last, last, sent_ms)] and window.count == 14
    assert all(one is other for one, other in zip(after[3:], before[2:], strict=True))
