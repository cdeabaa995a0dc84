"""Queues over time: purge, retention, failover, reading ahead, bounds (docs/storage/queue_machine.md; R25, R27)."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable

import pytest

from storage_nodes.limits import (
    PURGE_INTERVAL_MS,
    RETENTION_MS_MIN,
)
from storage_nodes.machines.driver_contract import CheckpointError, Propose, Refuse
from storage_nodes.machines.queue.commands import COMMAND_ITEMS_MAX
from storage_nodes.machines.queue.effects import CommandAnswer, Deliver, Fetch, Pick
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import (
    NOW_MS,
    VISIBILITY_MS,
    Partition,
    offsets_of,
    receipts_of,
)
from tests.support.covers import covers

OK = ErrorCode.OK


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


@covers("PurgeQueue", limit="seconds between two")
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
    partition.now_ms += PURGE_INTERVAL_MS + 1
    partition.purge("t")
    partition.commit()
    assert partition.answers["t"] == (OK, 0)


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
    assert partition.answers["c"] == (OK, 0)
    assert partition.follower.state.config == QueueConfig(RETENTION_MS_MIN, 1)
    partition.send(2)
    assert len(offsets_of(partition.acquire("a"))) == 1


def test_what_left_without_a_delete_is_counted_alike_by_every_replica() -> None:
    partition = Partition(QueueConfig(retention_ms=RETENTION_MS_MIN))
    partition.send(3)
    partition.pass_ms(2 * RETENTION_MS_MIN)
    partition.send(2)
    partition.purge("p")
    partition.commit()
    for stats in (partition.leader.stats, partition.follower.stats):
        assert (stats(partition.now_ms).expired, stats(partition.now_ms).purged) == (3, 2)


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
    assert partition.leader.state.removed_above_cursor == {batches[5][7], last[3]}
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
    assert not state.live and not state.removed_above_cursor and state.cursor == state.log_end
    assert len(partition.leader.checkpoint()) < 80
    assert partition.leader.leader is None, "the leader's side goes with the last message"


def bytes_each(make: Callable[[], QueueMachine], count: int = 100) -> float:
    """What a machine takes, beside what they share."""
    make()
    tracemalloc.start()
    try:
        machines = [make() for _ in range(count)]
        return tracemalloc.get_traced_memory()[0] / len(machines)
    finally:
        tracemalloc.stop()


def test_leader_lets_go_of_a_client_once_it_is_answered(partition: Partition) -> None:
    class Client:
        """As the token of a request names its connection."""

    partition.send(2)
    client = Client()
    known = weakref.ref(client)
    partition.delete(client, receipts_of(partition.acquire("a", 1)))
    partition.commit()
    assert partition.answers.pop(client) == [OK] and partition.leader.leader is not None
    partition.effects.clear()
    del client
    assert known() is None


def test_idle_machine_is_small_when_new_and_when_restored(partition: Partition) -> None:
    """20,000 queues a node."""
    partition.send(300)
    partition.delete("d", receipts_of(partition.acquire("a", 300)))
    partition.commit()
    blob = partition.leader.checkpoint()

    def new() -> QueueMachine:
        machine = QueueMachine()
        machine.lead(NOW_MS)
        assert machine.leader is None
        return machine

    def restored() -> QueueMachine:
        machine = QueueMachine()
        machine.restore(blob)
        return machine

    assert bytes_each(new) < 320 and bytes_each(restored) < 530


def test_machine_at_rest_lets_go_of_what_is_empty_and_of_nothing_else(partition: Partition) -> None:
    """A follower has no desk whose end says that all is done."""
    offsets = partition.send_tagged(*[(b"g", b"red")] * 4)
    partition.remove("r", [offsets[3]])
    partition.commit()
    picks = partition.acquire("a", 3)
    partition.commit()
    follower = partition.follower
    follower.rest()
    assert len(follower.state.live) == 3, "what is leased is not forgotten"
    partition.delete("d", receipts_of(picks))
    partition.commit()
    before = follower.checkpoint()
    follower.rest()
    new = QueueMachine().state
    for part in ("live", "keys", "removed_above_cursor", "scheduled"):
        assert getattr(follower.state, part) is getattr(new, part), part
    assert follower.checkpoint() == before
    partition.send(1)
    partition.acquire("b", 1)
    partition.commit()
    assert len(follower.state.live) == 1 and not QueueMachine().state.live
    partition.check()


def test_what_idle_machines_share_takes_nothing_in() -> None:
    state = QueueMachine().state
    for put in (
        lambda: state.live.update({1: (1, 1, 1, 1)}),
        lambda: state.keys.__setitem__(1, (b"g", b"")),
        lambda: state.removed_above_cursor.add(1, 2),
        lambda: state.scheduled.add(1, 2),
        lambda: state.dedup.begin(1, 2),
    ):
        with pytest.raises(AssertionError):
            put()


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
    assert partition.leader.leader is not None
    assert len(partition.leader.leader._leases._timers) < 2_000
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
    assert partition.effects[-1] == CommandAnswer("d", [OK])


def test_made_up_receipt_of_a_control_record_at_the_cursor_takes_no_message_away() -> None:
    """The leader has read past the control record, and no command said so yet."""
    partition = Partition(fetch_batches_max=1)
    (first,) = partition.send()
    partition.change("a control record", [(first, 1, 0)])
    partition.commit()
    (control,), (second,) = range(first + 1, first + 2), partition.send()
    partition.fail_over()
    taken = partition.acquire("first", 1)
    assert taken is not None
    leader = partition.leader.leader
    assert leader is not None
    window = leader.delivery.window
    window.ranges.clear()  # type: ignore[attr-defined]
    window.count, window.end = 0, control
    partition.holds_fetches = True
    partition.commit()
    window.end = second
    partition.delete("made up", [(control, 1)])
    partition.commit()
    partition.check()
    assert partition.leader.state.fresh_count == 1 and partition.leader.look_at(second, partition.now_ms) is not None
