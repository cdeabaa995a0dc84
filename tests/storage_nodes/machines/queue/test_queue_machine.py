"""The queue machine, rule by rule (docs/storage.md "Queue machine"; R25, R27, R29; SQS visibility and purge)."""

from __future__ import annotations

import sys

import pytest

from storage_nodes.limits import (
    PURGE_INTERVAL_MS,
    READ_AHEAD_MESSAGES_MAX,
    RETENTION_MS_MIN,
    WAITERS_PER_PARTITION_MAX,
)
from storage_nodes.machines.queue.checkpoint import CheckpointError
from storage_nodes.machines.queue.commands import COMMAND_ITEMS_MAX
from storage_nodes.machines.queue.effects import Answer, Deliver, Fetch, Pick, Propose, Refuse
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DELAY_MS, encode_body
from tests.storage_nodes.machines.queue.partition import (
    NOW_MS,
    VISIBILITY_MS,
    Partition,
    offsets_of,
    receipts_of,
)

OK = ErrorCode.OK


@pytest.fixture
def partition() -> Partition:
    return Partition()


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


def test_messages_to_be_delivered_again_come_before_fresh_ones(partition: Partition) -> None:
    old = partition.send(2)
    partition.acquire("a", visibility_ms=1_000)
    partition.commit()
    new = partition.send(2)
    partition.now_ms += 1_000
    assert offsets_of(partition.acquire("b")) == [*old, *new]


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


def test_delete_with_an_old_receipt_has_no_effect(partition: Partition) -> None:
    partition.send()
    old = receipts_of(partition.acquire("a", visibility_ms=0))
    partition.commit()
    new = receipts_of(partition.acquire("b"))
    partition.commit()
    partition.delete("d", old)
    partition.commit()
    assert partition.answers["d"] == [OK] and partition.counts() == (0, 1, 0)
    partition.delete("e", new)
    partition.commit()
    assert partition.counts() == (0, 0, 0)


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


def test_change_visibility_of_what_is_not_leased_is_refused_item_by_item(partition: Partition) -> None:
    gone, expired, held, fresh = partition.send(4)
    partition.acquire("a", 1)
    partition.acquire("b", 1, visibility_ms=10)
    partition.acquire("c", 1)
    partition.delete("d", [(gone, 1)])
    partition.commit()
    partition.now_ms += 10
    partition.change("v", [(gone, 1, 1), (expired, 1, 1), (held, 1, 1), (held, 2, 1), (fresh, 1, 1), (10**9, 1, 1)])
    partition.commit()
    no = ErrorCode.NOT_IN_FLIGHT
    assert partition.answers["v"] == [no, no, OK, no, no, no]


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
    assert offsets_of(partition.acquire("a", 1)) == [late]
    partition.commit()
    partition.delete("d", [(late, 1)])
    partition.commit()
    assert partition.leader.state.deleted_ahead == {late}
    partition.check()
    partition.holds_fetches = False
    partition.run_fetches()
    rest = offsets_of(partition.acquire("b", 1_000) or []) + offsets_of(partition.acquire("c", 1_000))
    partition.commit()
    rest += offsets_of(partition.acquire("e", 1_000))
    assert len(rest) == READ_AHEAD_MESSAGES_MAX + 5 and late not in rest
    partition.commit()
    assert not partition.leader.state.deleted_ahead
    partition.check()


@pytest.mark.parametrize("content", [b"", b"-5", b"1e3", b"99999999999999999999", b" 7"])
def test_delay_header_that_makes_no_sense_delays_nothing(content: bytes) -> None:
    partition = Partition()
    partition.append([encode_body(b"x", headers=[(HEADER_DELAY_MS, content)])], plain=False)
    assert partition.counts() == (1, 0, 0)


def test_body_that_does_not_parse_is_a_message_without_delay(partition: Partition) -> None:
    partition.append([b"\xff\xff\xff"], plain=False)
    assert partition.counts() == (1, 0, 0)


# --- purge, retention, configuration ------------------------------------------------------------------------------


def test_purge_takes_waiting_in_flight_and_delayed_below_its_position(partition: Partition) -> None:
    partition.send(3)
    partition.acquire("a", 1)
    partition.send(delay_ms=1_000)
    partition.commit()
    partition.purge("p")
    partition.acquire("b", 1)  # handed out after the purge was asked for, before it is committed
    partition.commit()
    assert partition.answers["p"] == (OK, 4)
    after = partition.send(2)
    assert partition.counts() == (2, 0, 0)
    partition.pass_ms(VISIBILITY_MS)
    assert offsets_of(partition.acquire("c")) == list(after)
    partition.check()


def test_purge_within_the_interval_is_refused_by_the_fold(partition: Partition) -> None:
    partition.purge("p")
    partition.purge("q")
    partition.commit()
    assert partition.answers == {"p": (OK, 0), "q": (ErrorCode.PURGE_IN_PROGRESS, 0)}
    partition.now_ms += PURGE_INTERVAL_MS - 1
    partition.fail_over()
    partition.purge("r")
    partition.commit()
    assert partition.answers["r"] == (ErrorCode.PURGE_IN_PROGRESS, 0)
    partition.now_ms += 1
    partition.purge("s")
    partition.commit()
    assert partition.answers["s"] == (OK, 0)


def test_retention_drops_waiting_in_flight_and_delayed_messages() -> None:
    partition = Partition(QueueConfig(retention_ms=RETENTION_MS_MIN))
    partition.send(4)
    partition.acquire("a", 1)
    partition.send(delay_ms=900_000)
    partition.commit()
    partition.pass_ms(RETENTION_MS_MIN - 1)
    partition.commit()
    assert partition.leader.state.expired == 0
    young = partition.send(2)
    partition.pass_ms(1_001)
    partition.commit()
    assert partition.leader.state.expired == 5 and partition.counts() == (2, 0, 0)
    assert offsets_of(partition.acquire("b")) == list(young)
    partition.check()


def test_retention_of_a_backlog_beyond_the_window_expires_all_of_it() -> None:
    partition = Partition(QueueConfig(retention_ms=RETENTION_MS_MIN), fetch_batches_max=2)
    for _ in range(15):
        partition.send(1_000)
    partition.pass_ms(RETENTION_MS_MIN + 1_000)
    partition.commit()
    assert partition.leader.state.expired == 15_000
    partition.pass_ms(2_000)
    assert partition.counts() == (0, 0, 0) and partition.leader.next_tick_ms() == 0
    partition.check()


def test_expired_message_is_not_delivered_even_before_the_retention_check() -> None:
    partition = Partition(QueueConfig(retention_ms=RETENTION_MS_MIN))
    partition.send(3)
    partition.now_ms += RETENTION_MS_MIN
    (young,) = partition.send()
    assert offsets_of(partition.acquire("a")) == [young]
    partition.commit()
    assert partition.leader.state.expired == 3
    partition.check()


def test_queue_that_holds_messages_wakes_sparsely(partition: Partition) -> None:
    partition.send()
    assert partition.leader.next_tick_ms() - NOW_MS >= partition.leader.state.config.retention_ms // 100
    partition.acquire("a", visibility_ms=1_000)
    partition.commit()
    assert partition.leader.next_tick_ms() - NOW_MS > 1_000_000, "nobody waits for this lease"


def test_configure_is_committed_and_replicated(partition: Partition) -> None:
    partition.perform(partition.leader.configure("c", QueueConfig(RETENTION_MS_MIN, 1)))
    partition.commit()
    assert partition.answers["c"] == [OK]
    assert partition.follower.state.config == QueueConfig(RETENTION_MS_MIN, 1)
    partition.send(2)
    assert len(offsets_of(partition.acquire("a"))) == 1


@pytest.mark.parametrize("config", [QueueConfig(RETENTION_MS_MIN - 1), QueueConfig(in_flight_max=0)])
def test_configure_out_of_range_is_refused(partition: Partition, config: QueueConfig) -> None:
    (effect,) = partition.leader.configure("c", config)
    assert isinstance(effect, Refuse) and effect.code == ErrorCode.INVALID_REQUEST


# --- failover -----------------------------------------------------------------------------------------------------


def test_failover_keeps_committed_leases_and_forgets_the_others(partition: Partition) -> None:
    first, second = partition.send(2)
    partition.acquire("a", 1)
    partition.commit()
    partition.acquire("b", 1)
    partition.fail_over()
    assert offsets_of(partition.acquire("c")) == [second]
    partition.commit()
    partition.now_ms += VISIBILITY_MS
    assert offsets_of(partition.acquire("d")) == [first, second]


def test_failover_refuses_everyone_who_waits_exactly_once(partition: Partition) -> None:
    partition.send(2)
    receipts = receipts_of(partition.acquire("a"))
    partition.delete("taken", receipts[:1])
    partition.take()
    partition.delete("staged", receipts[1:])
    partition.change("changed", [(receipts[1][0], 1, 5)])
    partition.purge("purged")
    partition.acquire("waits", wait_ms=20_000)
    partition.fail_over()
    unknown = {token: refusal.code for token, refusal in partition.refused.items()}
    assert unknown == {
        "taken": ErrorCode.OUTCOME_UNKNOWN,
        "staged": ErrorCode.OUTCOME_UNKNOWN,
        "changed": ErrorCode.OUTCOME_UNKNOWN,
        "purged": ErrorCode.OUTCOME_UNKNOWN,
        "waits": ErrorCode.NOT_LEADER,
    }
    partition.send()
    partition.commit()
    assert not partition.answers


def test_machine_that_does_not_lead_refuses_everything() -> None:
    machine = QueueMachine()
    effects = [
        *machine.acquire("a", 1, 1, 0, NOW_MS),
        *machine.delete("d", [(0, 1)]),
        *machine.change_visibility("v", [(0, 1, 1)], NOW_MS),
        *machine.purge("p", NOW_MS),
        *machine.configure("c", QueueConfig()),
    ]
    assert [(type(e), e.code) for e in effects if isinstance(e, Refuse)] == [(Refuse, ErrorCode.NOT_LEADER)] * 5
    assert machine.take_commands(NOW_MS) == [] and machine.tick(NOW_MS) == [] and machine.next_tick_ms() == 0


def test_delete_of_a_message_whose_lease_was_lost_holds(partition: Partition) -> None:
    sent = partition.send(3)
    receipts = receipts_of(partition.acquire("a"))
    partition.fail_over()
    partition.delete("d", receipts[1:2])
    partition.commit()
    assert partition.answers["d"] == [OK]
    partition.check()
    assert offsets_of(partition.acquire("b")) == [sent[0], sent[2]]
    partition.fail_over()
    assert offsets_of(partition.acquire("c")) == [sent[0], sent[2]]


def test_delete_far_beyond_the_window_asks_the_log() -> None:
    partition = Partition(fetch_batches_max=1)
    batches = [partition.send(1_000) for _ in range(6)]
    partition.commit()
    control = partition.end
    partition.change("noise", [(0, 1, 0)])
    partition.commit()
    last = partition.send(10)
    partition.fail_over()
    partition.delete("d", [(batches[5][7], 1), (last[3], 1), (control, 1), (partition.end + 5, 1)])
    partition.commit()
    unknown = ErrorCode.UNKNOWN_RECORD
    assert partition.answers["d"] == [OK, OK, unknown, unknown]
    assert partition.leader.state.deleted_ahead == {batches[5][7], last[3]}
    assert partition.counts()[0] == 6_008
    partition.check()


def test_delete_of_a_control_record_near_the_head_is_unknown(partition: Partition) -> None:
    partition.send()
    control = partition.end
    partition.change("noise", [(0, 1, 0)])
    partition.commit()
    partition.send()
    partition.delete("d", [(control, 1)])
    partition.commit()
    assert partition.answers["d"] == [ErrorCode.UNKNOWN_RECORD]
    assert partition.counts() == (2, 0, 0)
    partition.check()


def test_time_of_a_new_leader_with_a_slow_clock_does_not_fall(partition: Partition) -> None:
    (offset,) = partition.send()
    partition.acquire("a", visibility_ms=5_000)
    partition.commit()
    partition.now_ms -= 60_000
    partition.fail_over()
    partition.change("v", [(offset, 1, 1_000)])
    partition.commit()
    assert partition.leader.state.last_ms == NOW_MS
    assert partition.leader.state.live[offset][0] == NOW_MS + 1_000


# --- reading ahead ------------------------------------------------------------------------------------------------


def test_backlog_beyond_the_window_is_fetched_and_delivered_in_order() -> None:
    partition = Partition(fetch_batches_max=3)
    sent = [offset for _ in range(12) for offset in partition.send(700)]
    got: list[int] = []
    for token in range(100):
        got += offsets_of(partition.acquire(token, 100))
        partition.commit()
    assert got == sent
    partition.check()


def test_short_poll_while_the_log_is_read_waits_for_the_read(partition: Partition) -> None:
    sent = partition.send(3)
    partition.holds_fetches = True
    partition.fail_over()
    assert partition.fetches == [Fetch(sent[0])] and partition.acquire("a") is None
    partition.holds_fetches = False
    partition.run_fetches()
    assert offsets_of(partition.delivered["a"]) == list(sent)


def test_fetch_that_got_nowhere_skips_nothing_and_is_tried_again(partition: Partition) -> None:
    """A read from inside `apply` may not see the newest entry yet."""
    sent = partition.send(2)
    partition.holds_fetches = True
    partition.fail_over()
    (fetch,) = partition.fetches
    partition.fetches.clear()
    partition.acquire("a", wait_ms=20_000)
    partition.perform(partition.leader.fetched(fetch.from_offset, [], fetch.from_offset, partition.now_ms))
    assert not partition.fetches and "a" not in partition.delivered
    partition.holds_fetches = False
    partition.pass_ms(100)
    assert offsets_of(partition.delivered["a"]) == list(sent)


def test_fetch_beyond_what_is_committed_is_not_delivered(partition: Partition) -> None:
    partition.send(2)
    partition.holds_fetches = True
    partition.fail_over()
    (fetch,) = partition.fetches
    partition.fetches.clear()
    found = [(1, 2, NOW_MS), (partition.end, partition.end + 99, NOW_MS)]
    partition.perform(partition.leader.fetched(fetch.from_offset, found, partition.end + 100, partition.now_ms))
    assert offsets_of(partition.acquire("a", 100)) == [1, 2]


# --- bounds and sizes ---------------------------------------------------------------------------------------------


def test_more_deletes_than_one_command_holds_are_committed_one_batch_after_the_other(partition: Partition) -> None:
    for _ in range(12):
        partition.send(1_000)
    receipts = [receipts_of(partition.acquire(n, 1_000)) for n in range(2)]
    partition.commit()
    receipts += [receipts_of(partition.acquire(n, 1_000)) for n in range(2, 12)]
    partition.commit()
    for number, some in enumerate(receipts):
        partition.delete(("d", number), some)
    bodies = partition.take()
    partition.append(bodies, control=True)
    assert partition.leader.state.deleted == COMMAND_ITEMS_MAX
    assert partition.effects[-1] == Propose()
    partition.commit()
    assert partition.leader.state.deleted == 12_000
    partition.check()


def test_drained_queue_remembers_nothing(partition: Partition) -> None:
    for round_number in range(50):
        partition.send(10)
        partition.delete(("d", round_number), receipts_of(partition.acquire(round_number)))
        partition.commit()
    state = partition.leader.state
    assert not state.live and not state.deleted_ahead and state.cursor == state.log_end
    assert len(partition.leader.checkpoint()) < 64
    assert partition.leader._leader is None, "the leader's side goes with the last message"


def test_idle_machine_is_small() -> None:
    machine = QueueMachine()
    machine.lead(NOW_MS)
    parts = [machine, machine.state, machine.state.live, *machine.state.live]
    assert sum(sys.getsizeof(part) for part in parts) < 1_000 and machine._leader is None


def test_checkpoint_of_messages_acquired_together_is_compact(partition: Partition) -> None:
    for number in range(50):
        partition.send(1_000)
        partition.acquire(number, 1_000)
        partition.commit()
    assert len(partition.leader.state.live) == 50_000
    assert len(partition.leader.checkpoint()) < 2_000


@pytest.mark.parametrize("blob", [b"", b"\x91\x02", b"\xc1", b"\x90", b"\x9f" + b"\x01" * 15])
def test_checkpoint_that_is_none_is_refused(blob: bytes) -> None:
    with pytest.raises(CheckpointError):
        QueueMachine().restore(blob)


def test_timers_and_ready_heap_stay_bounded_under_churn(partition: Partition) -> None:
    (kept,) = partition.send()
    partition.acquire("kept", visibility_ms=40_000_000)
    partition.commit()
    for number in range(6_000):
        partition.now_ms += 1
        partition.send()
        partition.delete(("d", number), receipts_of(partition.acquire(number, visibility_ms=40_000_000)))
        partition.commit()
    assert partition.leader._leader is not None
    assert len(partition.leader._leader._leases._timers) < 2_000
    assert list(partition.leader.state.live) == [kept]


def test_is_live_tells_which_offsets_still_hold_messages(partition: Partition) -> None:
    sent = partition.send(10)
    receipts = receipts_of(partition.acquire("a", 6))
    partition.delete("d", receipts[:5])
    partition.commit()
    leader = partition.leader
    assert not leader.is_live(sent[0], sent[4])
    assert leader.is_live(sent[0], sent[5]) and leader.is_live(sent[6], sent[9])
    assert leader.low_watermark() == sent[5]


def test_effects_of_an_acquire_are_what_the_contract_says(partition: Partition) -> None:
    (offset,) = partition.send()
    effects = partition.leader.acquire("a", 1, 1_000, 0, NOW_MS)
    assert effects == [Deliver("a", [Pick(offset, 1, NOW_MS, NOW_MS)]), Propose()]
    partition.append(partition.take(), control=True)
    (effect,) = partition.leader.delete("d", [(offset, 1)])
    assert effect == Propose()
    partition.append(partition.take(), control=True)
    assert partition.effects[-1] == Answer("d", [OK])
