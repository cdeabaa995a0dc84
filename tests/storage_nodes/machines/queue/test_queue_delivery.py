"""What consumers see of a queue: delivery, waiting, visibility, deletes, delays (SQS semantics; R25, R29)."""

from __future__ import annotations

import pytest

from storage_nodes.limits import (
    IN_FLIGHT_MESSAGES_MAX,
    READ_AHEAD_MESSAGES_MAX,
    WAITERS_PER_PARTITION_MAX,
)
from storage_nodes.machines.driver_contract import Refuse
from storage_nodes.machines.queue.commands import NACKED, uncounted
from storage_nodes.machines.queue.effects import Pick
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DELAY_MS, encode_body
from tests.storage_nodes.machines.queue.partition import (
    NOW_MS,
    Partition,
    offsets_of,
    receipts_of,
)
from tests.support.covers import covers

OK = ErrorCode.OK


# --- delivery -----------------------------------------------------------------------------------------------------


def test_acquire_fresh_messages_delivers_in_offset_order_before_commit(partition: Partition) -> None:
    sent = partition.send(3)
    picks = partition.acquire("a", 2)
    assert picks == [Pick(sent[0], 1, NOW_MS, NOW_MS), Pick(sent[1], 1, NOW_MS, NOW_MS)]
    assert partition.leader.state.live == {}, "the fold has not seen the lease yet"
    assert partition.counts() == (1, 2, 0)
    partition.commit()
    assert partition.counts() == (1, 2, 0)
    partition.check()


def test_acquire_twice_before_commit_never_delivers_the_same_message(partition: Partition) -> None:
    partition.send(4)
    first, second = offsets_of(partition.acquire("a", 3)), offsets_of(partition.acquire("b", 3))
    assert not set(first) & set(second) and len(first + second) == 4


def test_acquires_of_one_group_commit_share_one_command(partition: Partition) -> None:
    partition.send(30)
    for token in "abc":
        partition.acquire(token)
    assert len(partition.take()) == 1


def test_acquire_empty_queue_short_poll_answers_nothing(partition: Partition) -> None:
    assert partition.acquire("a") == []
    assert partition.leader.next_tick_ms() == 0


def test_lease_that_runs_out_delivers_again_with_the_next_number(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=5_000)
    partition.commit()
    partition.now_ms += 4_999
    assert partition.acquire("early") == []
    partition.now_ms += 1
    assert partition.acquire("late") == [Pick(offset, 2, NOW_MS, NOW_MS)]
    partition.commit()
    partition.check()


def test_messages_that_come_back_and_fresh_ones_share_a_receive(partition: Partition) -> None:
    old = partition.send(4)
    partition.acquire("a", visibility_ms=1_000)
    partition.commit()
    new = partition.send(6)
    partition.now_ms += 1_000
    assert offsets_of(partition.acquire("b", 4)) == [*new[:2], *old[:2]]
    partition.commit()
    assert offsets_of(partition.acquire("c")) == [*new[2:], *old[2:]], "each kind fills up what the other leaves"


def test_receives_of_one_message_give_a_fresh_one_and_one_that_came_back_in_turn(partition: Partition) -> None:
    old = partition.send(2)
    partition.acquire("a", visibility_ms=0)
    partition.commit()
    new = partition.send(2)
    taken = [offsets_of(partition.acquire(number, 1)) for number in range(4)]
    assert taken == [[new[0]], [old[0]], [new[1]], [old[1]]]


def test_consumer_that_gives_everything_back_sees_every_message(partition: Partition) -> None:
    sent = list(partition.send(30))
    seen: list[int] = []
    for number in range(12):
        seen += offsets_of(partition.acquire(number, visibility_ms=0))
        partition.commit()
    assert sorted(set(seen)) == sent
    assert min(seen.count(offset) for offset in sent) >= 3, "those that come back have their turn each"


@pytest.mark.parametrize("keyed", [False, True])
def test_message_received_without_visibility_is_given_to_the_very_next_short_poll(
    partition: Partition, keyed: bool
) -> None:
    (offset,) = partition.send_tagged((b"g", b"t")) if keyed else partition.send()
    partition.acquire("a", visibility_ms=0)
    assert partition.acquire("b") is None, "the commit of the first receive is on its way"
    partition.commit()
    assert partition.delivered["b"] == [Pick(offset, 2, NOW_MS, NOW_MS)]
    assert partition.acquire("c") == []


def test_short_poll_that_waited_for_a_commit_is_answered_though_nothing_came_of_it() -> None:
    partition = Partition(QueueConfig(max_receives=1, dead_letter_partition=7))
    partition.send()
    partition.acquire("a", visibility_ms=0)
    partition.acquire("b")
    partition.commit()
    assert partition.delivered["b"] == [] and len(partition.moves) == 1


def test_lease_with_different_visibilities_in_one_command_runs_out_separately(partition: Partition) -> None:
    first, second = partition.send(2)
    partition.acquire("a", 1, visibility_ms=9_000)
    partition.acquire("b", 1, visibility_ms=1_000)
    partition.commit()
    partition.now_ms += 1_000
    assert offsets_of(partition.acquire("c")) == [second]
    partition.commit()
    partition.now_ms += 8_000
    assert offsets_of(partition.acquire("d")) == [first]


def test_in_flight_limit_refuses_short_poll_and_parks_long_poll() -> None:
    partition = Partition(QueueConfig(in_flight_max=3))
    partition.send(5)
    picks = partition.acquire("a", 10)
    assert len(offsets_of(picks)) == 3
    assert partition.acquire("short") is None and partition.refused["short"].code == ErrorCode.OVER_LIMIT
    assert partition.acquire("long", wait_ms=20_000) is None and "long" not in partition.refused
    partition.commit()
    partition.delete("d", receipts_of(picks)[:1])
    assert "long" not in partition.delivered, "the delete is not committed"
    partition.commit()
    assert len(partition.delivered["long"]) == 1


@covers("ReceiveMessage", limit="messages in flight")
def test_in_flight_limit_is_that_of_sqs(partition: Partition) -> None:
    assert IN_FLIGHT_MESSAGES_MAX == 120_000
    for turn in range(IN_FLIGHT_MESSAGES_MAX // 1_000):
        partition.send(1_000)
        wanted = 1_000 - (turn == 0)
        assert len(offsets_of(partition.acquire(turn, wanted))) == wanted
        partition.commit()
    partition.send(2)
    assert partition.counts() == (3, IN_FLIGHT_MESSAGES_MAX - 1, 0)
    last = partition.acquire("at")
    assert len(offsets_of(last)) == 1
    assert partition.acquire("above") is None and partition.refused["above"].code == ErrorCode.OVER_LIMIT
    partition.commit()
    partition.delete("d", receipts_of(last))
    partition.commit()
    assert len(offsets_of(partition.acquire("again"))) == 1


# --- waiting ------------------------------------------------------------------------------------------------------


def test_waiters_are_served_first_come_first_served(partition: Partition) -> None:
    for token in "abc":
        partition.acquire(token, 2, wait_ms=20_000)
    sent = partition.send(5)
    assert [offsets_of(partition.delivered[t]) for t in "abc"] == [[*sent[:2]], [*sent[2:4]], [sent[4]]]


def test_waiter_at_its_deadline_is_answered_with_nothing(partition: Partition) -> None:
    partition.acquire("a", wait_ms=20_000)
    assert partition.leader.next_tick_ms() == NOW_MS + 20_000
    partition.now_ms += 19_999
    partition.tick()
    assert "a" not in partition.delivered
    partition.now_ms += 1
    partition.tick()
    assert partition.delivered["a"] == [] and partition.leader.next_tick_ms() == 0


def test_waiter_is_served_when_a_lease_runs_out(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=3_000)
    partition.commit()
    partition.acquire("b", wait_ms=20_000)
    partition.pass_ms(2_999)
    assert "b" not in partition.delivered
    partition.pass_ms(1)
    assert offsets_of(partition.delivered["b"]) == [offset]


def test_cancelled_waiter_is_refused_and_takes_nothing(partition: Partition) -> None:
    partition.acquire("a", wait_ms=20_000)
    assert partition.leader.cancel("a") == [Refuse("a", ErrorCode.CANCELLED, "given up by the caller")]
    assert partition.leader.cancel("a") == []
    partition.send()
    assert "a" not in partition.delivered and partition.counts()[0] == 1


def test_waiters_beyond_the_limit_are_refused(partition: Partition) -> None:
    for number in range(WAITERS_PER_PARTITION_MAX):
        partition.acquire(number, wait_ms=20_000)
    partition.acquire("one more", wait_ms=20_000)
    assert partition.refused["one more"].code == ErrorCode.OVERLOADED
    partition.leader.cancel(17)
    partition.acquire("fits", wait_ms=20_000)
    assert "fits" not in partition.refused


# --- delete and visibility ----------------------------------------------------------------------------------------


def test_delete_is_answered_only_after_its_commit(partition: Partition) -> None:
    partition.send(2)
    receipts = receipts_of(partition.acquire("a"))
    partition.commit()
    partition.delete("d", receipts)
    assert "d" not in partition.answers
    partition.commit()
    assert partition.answers["d"] == [OK, OK]
    assert partition.counts() == (0, 0, 0) and partition.leader.state.deleted == 2
    partition.check()


def test_delete_staged_together_with_its_acquire_holds(partition: Partition) -> None:
    partition.send()
    partition.delete("d", receipts_of(partition.acquire("a", visibility_ms=1_000)))
    partition.commit()
    partition.now_ms += 2_000
    assert partition.acquire("b") == []


def test_delete_with_the_receipt_of_an_older_delivery_deletes(partition: Partition) -> None:
    partition.send()
    old = receipts_of(partition.acquire("a", visibility_ms=0))
    partition.commit()
    new = receipts_of(partition.acquire("b"))
    partition.commit()
    partition.delete("d", old)
    partition.commit()
    assert partition.answers["d"] == [OK] and partition.counts() == (0, 0, 0)
    partition.delete("e", new)
    partition.commit()
    assert partition.answers["e"] == [OK] and partition.leader.state.deleted == 1


def test_delete_after_the_lease_ran_out_still_deletes(partition: Partition) -> None:
    partition.send()
    receipts = receipts_of(partition.acquire("a", visibility_ms=1_000))
    partition.commit()
    partition.now_ms += 5_000
    assert partition.counts() == (1, 0, 0)
    partition.delete("d", receipts)
    partition.commit()
    assert partition.acquire("b") == [] and partition.counts() == (0, 0, 0)


def test_delete_twice_answers_ok(partition: Partition) -> None:
    partition.send()
    receipts = receipts_of(partition.acquire("a"))
    partition.delete("d", receipts * 2)
    partition.delete("e", receipts)
    partition.commit()
    assert partition.answers["d"] == [OK, OK] and partition.answers["e"] == [OK]
    assert partition.leader.state.deleted == 1


def test_delete_of_a_delayed_message_with_a_made_up_receipt_has_no_effect(partition: Partition) -> None:
    (offset,) = partition.send(delay_ms=5_000)
    partition.delete("d", [(offset, 0)])
    partition.commit()
    assert partition.counts() == (0, 0, 1)


def test_change_visibility_extends_from_the_time_of_the_command(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=5_000)
    partition.commit()
    partition.now_ms += 4_000
    partition.change("v", [(offset, 1, 10_000)])
    partition.commit()
    assert partition.answers["v"] == [OK]
    partition.now_ms += 9_999
    assert partition.acquire("b") == []
    partition.now_ms += 1
    assert offsets_of(partition.acquire("c")) == [offset]


def test_change_visibility_to_zero_serves_a_waiter_at_commit(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a")
    partition.commit()
    partition.acquire("b", wait_ms=20_000)
    partition.change("v", [(offset, 1, 0)])
    partition.commit()
    assert partition.delivered["b"] == [Pick(offset, 2, NOW_MS, NOW_MS)]


def test_change_visibility_of_what_nobody_received_or_is_gone_is_refused_item_by_item(partition: Partition) -> None:
    gone, expired, held, fresh = partition.send(4)
    partition.acquire("a", 1)
    partition.acquire("b", 1, visibility_ms=10)
    partition.acquire("c", 1)
    partition.delete("d", [(gone, 1)])
    partition.commit()
    partition.now_ms += 10
    partition.change("v", [(gone, 1, 1), (expired, 1, 1), (held, 1, 1), (fresh, 1, 1), (10**9, 1, 1)])
    partition.commit()
    no = ErrorCode.NOT_IN_FLIGHT
    assert partition.answers["v"] == [ErrorCode.UNKNOWN_RECORD, OK, OK, no, no]


def test_change_by_the_receipt_of_a_lease_that_ran_out_hides_the_message_again(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=10)
    partition.commit()
    partition.now_ms += 10
    assert partition.counts() == (1, 0, 0)
    partition.change("v", [(offset, 1, 5_000)])
    assert partition.acquire("b") == [], "the change is on its way"
    partition.commit()
    assert partition.answers["v"] == [OK] and partition.counts() == (0, 1, 0)
    partition.now_ms += 4_999
    assert partition.acquire("c") == []
    partition.now_ms += 1
    assert partition.acquire("d") == [Pick(offset, 2, NOW_MS, NOW_MS)]
    partition.check()


def test_change_by_the_receipt_of_an_older_delivery_moves_the_lease_that_holds(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=0)
    partition.commit()
    partition.acquire("b", visibility_ms=30_000)
    partition.commit()
    partition.change("v", [(offset, 1, 1_000)])
    partition.commit()
    partition.now_ms += 1_000
    assert partition.acquire("c") == [Pick(offset, 3, NOW_MS, NOW_MS)]


@pytest.mark.parametrize("back", [NACKED, uncounted(0)])
def test_old_receipt_gives_no_right_to_give_back_what_another_holds(partition: Partition, back: int) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=0)
    partition.commit()
    partition.acquire("b", visibility_ms=30_000)
    partition.commit()
    partition.change("v", [(offset, 1, back)])
    partition.commit()
    assert partition.answers["v"] == [ErrorCode.NOT_IN_FLIGHT] and partition.counts() == (0, 1, 0)


def test_change_of_a_delayed_message_whose_lease_was_lost_is_refused(partition: Partition) -> None:
    (offset,) = partition.send(delay_ms=1_000)
    partition.now_ms += 1_000
    partition.acquire("lost")
    partition.fail_over()
    partition.change("v", [(offset, 1, 5_000)])
    partition.commit()
    assert partition.answers["v"] == [ErrorCode.NOT_IN_FLIGHT] and partition.counts() == (1, 0, 0)
    partition.check()


def test_lease_that_runs_out_while_its_change_is_on_the_way_is_not_delivered(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=1_000)
    partition.commit()
    partition.now_ms += 999
    partition.change("v", [(offset, 1, 60_000)])
    bodies = partition.take()
    partition.now_ms += 10
    assert partition.acquire("early") == []
    partition.append(bodies, control=True)
    assert partition.answers["v"] == [OK]
    assert partition.acquire("still") == []
    partition.now_ms += 60_000
    assert offsets_of(partition.acquire("late")) == [offset]


def test_released_picks_come_back_at_once(partition: Partition) -> None:
    sent = partition.send(3)
    picks = partition.acquire("a")
    partition.perform(partition.leader.release(receipts_of(picks)[1:], partition.now_ms))
    partition.commit()
    assert offsets_of(partition.acquire("b")) == list(sent[1:])
    assert set(partition.answers) == set()


# --- delay --------------------------------------------------------------------------------------------------------


def test_delayed_message_is_counted_and_delivered_when_due(partition: Partition) -> None:
    (offset,) = partition.send(delay_ms=5_000)
    (fresh,) = partition.send()
    assert partition.counts() == (1, 0, 1)
    partition.acquire("w", wait_ms=20_000)
    assert offsets_of(partition.delivered["w"]) == [fresh]
    partition.acquire("x", wait_ms=20_000)
    partition.pass_ms(4_999)
    assert "x" not in partition.delivered
    partition.pass_ms(1)
    assert partition.delivered["x"] == [Pick(offset, 1, NOW_MS + 5_000, NOW_MS)]
    partition.commit()
    assert partition.counts() == (0, 2, 0)
    partition.check()


def test_delayed_message_that_overtakes_the_cursor_is_not_delivered_after_its_delete() -> None:
    partition = Partition(fetch_batches_max=1)
    partition.send(READ_AHEAD_MESSAGES_MAX)
    partition.holds_fetches = True
    (late,) = partition.send(delay_ms=1_000)
    partition.send(5)
    partition.now_ms += 1_000
    assert offsets_of(partition.acquire("a", 2))[1:] == [late]
    partition.commit()
    partition.delete("d", [(late, 1)])
    partition.commit()
    assert partition.leader.state.removed_above_cursor == {late}
    partition.check()
    partition.holds_fetches = False
    partition.run_fetches()
    rest = offsets_of(partition.acquire("b", 1_000) or []) + offsets_of(partition.acquire("c", 1_000))
    partition.commit()
    rest += offsets_of(partition.acquire("e", 1_000))
    assert len(rest) == READ_AHEAD_MESSAGES_MAX + 5 - 1 and late not in rest
    partition.commit()
    assert not partition.leader.state.removed_above_cursor
    partition.check()


@pytest.mark.parametrize("content", [b"", b"-5", b"1e3", b"99999999999999999999", b" 7"])
def test_delay_header_that_makes_no_sense_delays_nothing(content: bytes) -> None:
    partition = Partition()
    partition.append([encode_body(b"x", headers=[(HEADER_DELAY_MS, content)])], plain=False)
    assert partition.counts() == (1, 0, 0)


def test_body_that_does_not_parse_is_a_message_without_delay(partition: Partition) -> None:
    partition.append([b"\xff\xff\xff"], plain=False)
    assert partition.counts() == (1, 0, 0)
