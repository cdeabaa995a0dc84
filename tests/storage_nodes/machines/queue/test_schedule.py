"""Scheduled messages: when they become messages of the queue, that they do so once, and what can be done before."""

from __future__ import annotations

import random

import msgspec
import pytest

from storage_nodes.limits import RELEASE_PAUSE_MS, RETENTION_MS_MIN, SCHEDULE_MS_MAX
from storage_nodes.machines.driver_contract import CheckpointError
from storage_nodes.machines.queue.effects import Release
from storage_nodes.machines.queue.leader import releases
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.schedule import Schedule
from storage_nodes.machines.queue.state.sorted_pairs import CHUNK_PAIRS_MAX
from storage_nodes.node.replicas.scheduled import released_copy
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import MessageState, QueueConfig
from storage_nodes.protocol.records import HEADER_DUE, HEADER_GROUP, decode_body, encode_body, origin_offset
from tests.storage_nodes.machines.queue.partition import NOW_MS, Partition

DAY_MS = 86_400_000


def _origins(partition: Partition, token: object) -> list[int]:
    """Where the delivered messages were sent to."""
    return [
        origin_offset(decode_body(partition.body(pick.offset)).headers, pick.offset)
        for pick in partition.delivered[token]
    ]


def test_scheduled_message_is_delivered_when_due_and_not_before() -> None:
    partition = Partition()
    [offset] = partition.schedule(b"%d" % (NOW_MS + 30 * DAY_MS))
    assert partition.counts() == (0, 0, 1)
    assert partition.leader.look_at(offset, NOW_MS) == (MessageState.DELAYED, 0, NOW_MS + 30 * DAY_MS, 0)
    partition.pass_ms(30 * DAY_MS - 1)
    assert partition.acquire("early") == []
    partition.pass_ms(1)
    assert partition.counts() == (1, 0, 0)
    [pick] = partition.acquire("due") or []
    assert _origins(partition, "due") == [offset]
    assert pick.sent_ms == NOW_MS + 30 * DAY_MS, "it is as old as it is due"
    partition.commit()
    partition.delete("done", [(pick.offset, 1)])
    partition.commit()
    assert partition.counts() == (0, 0, 0) and partition.leader.state.sent == 1
    partition.check()


def test_due_time_may_count_from_the_append_and_one_that_passed_waits_for_nothing() -> None:
    partition = Partition()
    partition.schedule(b"+5000")
    partition.schedule(b"%d" % (NOW_MS - 1))
    partition.schedule(b"+0")
    assert partition.counts() == (2, 0, 1)
    partition.pass_ms(5_000)
    assert partition.counts() == (3, 0, 0)
    partition.check()


def test_due_time_beyond_a_year_is_cut_to_it() -> None:
    partition = Partition()
    [offset] = partition.schedule(b"+%d" % (2 * SCHEDULE_MS_MAX))
    assert partition.leader.state.scheduled.due_ms(offset) == NOW_MS + SCHEDULE_MS_MAX


def test_scheduled_message_outlives_any_retention() -> None:
    partition = Partition(QueueConfig(retention_ms=RETENTION_MS_MIN))
    partition.schedule(b"+%d" % (10 * RETENTION_MS_MIN))
    partition.pass_ms(10 * RETENTION_MS_MIN)
    partition.commit()
    assert partition.counts() == (1, 0, 0)
    partition.pass_ms(2 * RETENTION_MS_MIN)  # from then on it is kept as long as any other
    partition.commit()
    assert partition.counts() == (0, 0, 0) and partition.leader.state.expired == 1
    partition.check()


def test_waiter_is_served_when_a_message_becomes_due() -> None:
    partition = Partition()
    partition.schedule(b"+1000")
    assert partition.acquire("waits", wait_ms=5_000) is None
    partition.pass_ms(1_000)
    assert len(partition.delivered["waits"]) == 1


def test_messages_follow_each_other_in_the_order_of_their_due_times() -> None:
    partition = Partition()
    later = [partition.schedule(b"+%d" % ms)[0] for ms in (9_000, 3_000, 6_000, 3_000)]
    partition.holds_releases = True
    partition.pass_ms(10_000)
    partition.holds_releases = False
    partition.run_releases()
    partition.acquire("all")
    assert _origins(partition, "all") == [later[1], later[3], later[2], later[0]]


def test_many_that_are_due_at_once_come_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once_max = 100
    monkeypatch.setattr(releases, "RELEASES_AT_ONCE_MAX", at_once_max)
    partition = Partition()
    count = 2 * at_once_max + 7
    partition.schedule(b"+1000", count)
    partition.pass_ms(1_000)
    sizes = [len(effect.messages) for effect in partition.effects if isinstance(effect, Release)]
    assert sizes == [at_once_max, at_once_max, 7]
    assert partition.counts() == (count, 0, 0)
    partition.check()


def test_cancelled_message_is_never_delivered_and_others_are() -> None:
    partition = Partition()
    first, second = partition.schedule(b"+1000", 2)
    partition.reschedule("cancel", [(first, 0), (first, 0), (99, 0)])
    assert "cancel" not in partition.answers, "answered before its commit"
    partition.commit()
    assert partition.answers["cancel"] == [ErrorCode.OK, ErrorCode.NOT_SCHEDULED, ErrorCode.NOT_SCHEDULED]
    partition.pass_ms(1_000)
    partition.acquire("due")
    assert _origins(partition, "due") == [second]
    assert not partition.leader.is_live(first, first)
    partition.check()


def test_cancel_of_what_is_due_already_changes_nothing() -> None:
    partition = Partition()
    [offset] = partition.schedule(b"+1000")
    partition.pass_ms(1_000)
    partition.reschedule("late", [(offset, 0)])
    partition.commit()
    assert partition.answers["late"] == [ErrorCode.NOT_SCHEDULED]
    assert partition.counts() == (1, 0, 0)


def test_cancel_before_the_release_in_the_log_makes_nothing_of_the_release() -> None:
    partition = Partition()
    [offset] = partition.schedule(b"+1000")
    partition.holds_releases = True
    partition.pass_ms(1_000)
    partition.reschedule("cancel", [(offset, 0)])
    due = partition.releases[0].messages
    bodies = partition.take()
    partition.append(bodies, control=True)
    partition.append([released_copy(partition.body(at), at, due_ms) for due_ms, at in due], plain=False)
    assert partition.answers["cancel"] == [ErrorCode.OK]
    assert partition.acquire("nothing") == []
    assert partition.counts() == (0, 0, 0)
    partition.check()


def test_rescheduled_message_comes_at_its_new_time_even_if_it_was_being_released() -> None:
    partition = Partition()
    [offset] = partition.schedule(b"+1000")
    partition.holds_releases = True
    partition.pass_ms(1_000)
    partition.reschedule("later", [(offset, partition.now_ms + 5_000)])
    partition.append(partition.take(), control=True)
    partition.holds_releases = False
    partition.run_releases()  # read and appended before it heard of the change
    assert partition.answers["later"] == [ErrorCode.OK] and partition.counts() == (0, 0, 1)
    partition.pass_ms(4_999)
    assert partition.acquire("early") == []
    partition.pass_ms(1)
    assert partition.counts() == (1, 0, 0)
    partition.check()


def test_reschedule_to_an_earlier_time_takes_effect_at_once() -> None:
    partition = Partition()
    [offset] = partition.schedule(b"+%d" % DAY_MS)
    partition.reschedule("now", [(offset, 1)])
    partition.commit()
    assert partition.counts() == (1, 0, 0)


def test_reschedule_beyond_a_year_is_refused() -> None:
    partition = Partition()
    [offset] = partition.schedule(b"+1000")
    partition.reschedule("far", [(offset, NOW_MS + SCHEDULE_MS_MAX + 1)])
    assert partition.refused["far"].code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("appended", [False, True])
def test_release_happens_once_across_a_failover(appended: bool) -> None:
    """The old leader's release is in the log or lost; the new leader's is dropped or counts."""
    partition = Partition()
    partition.schedule(b"+1000", 3)
    partition.holds_releases = True
    partition.pass_ms(1_000)
    due = partition.releases[0].messages
    copies = [released_copy(partition.body(offset), offset, due_ms) for due_ms, offset in due]
    if appended:
        partition.append(copies, plain=False)
    partition.fail_over()
    if not appended:
        partition.holds_releases = False
        partition.run_releases()
    partition.append(copies, plain=False)  # once more, as if two leaders had done so
    assert partition.counts() == (3, 0, 0) and partition.leader.state.sent == 3
    assert len(partition.acquire("all") or []) == 3
    partition.check()


def test_release_that_could_not_be_read_is_tried_again() -> None:
    partition = Partition()
    partition.holds_releases = True
    partition.schedule(b"+1000")
    partition.pass_ms(1_000)
    partition.releases.clear()
    partition.perform(partition.leader.release_begun([], partition.now_ms))
    assert not partition.releases
    partition.pass_ms(RELEASE_PAUSE_MS)
    assert len(partition.releases) == 1


def test_release_that_could_not_be_read_and_was_cancelled_asks_for_no_tick() -> None:
    """Simulation seed 5000133: a tick that did nothing was asked for without end."""
    partition = Partition()
    partition.send()  # something waits all the time: the leader stays
    partition.holds_releases = True
    (offset,) = partition.schedule(b"+1000")
    partition.pass_ms(1_000)
    partition.releases.clear()
    partition.perform(partition.leader.release_begun([], partition.now_ms))
    partition.reschedule("cancel", [(offset, 0)])
    partition.commit()
    partition.pass_ms(2 * RELEASE_PAUSE_MS)
    assert partition.leader.next_tick_ms() > partition.now_ms


def test_purge_takes_scheduled_messages_too() -> None:
    partition = Partition()
    offsets = partition.schedule(b"+1000", 4)
    partition.send(2)
    partition.purge("purge")
    partition.commit()
    assert partition.answers["purge"] == (ErrorCode.OK, 6)
    assert not partition.leader.is_live(offsets[0], offsets[-1])
    partition.pass_ms(1_000)
    assert partition.counts() == (0, 0, 0)
    partition.check()


def test_purge_of_a_slice_that_is_being_read_starts_no_second_one() -> None:
    partition = Partition()
    partition.holds_releases = True
    partition.schedule(b"+1", 1)
    partition.pass_ms(1)
    partition.purge("purge")
    partition.commit()
    partition.schedule(b"+1", 1)
    partition.pass_ms(1)
    assert len(partition.releases) == 1, "the first one's answer has not come"
    partition.leader.release_begun([], partition.now_ms)  # all of it is gone
    partition.releases.clear()
    partition.pass_ms(RELEASE_PAUSE_MS)
    due = partition.leader.scheduled_page((0, -1), 10, 1 << 62)
    assert [release.messages for release in partition.releases] == [due]


@pytest.mark.parametrize("fifo", [False, True])
def test_scheduled_message_may_be_removed_by_its_offset(fifo: bool) -> None:
    partition = Partition(QueueConfig(fifo=fifo))
    first, second = partition.schedule(b"+1000", 2, group=b"g")
    partition.perform(partition.leader.remove("gone", [first], {first: b"g"}, False))
    partition.commit()
    assert partition.answers["gone"] == [ErrorCode.OK]
    partition.pass_ms(1_000)
    partition.acquire("due")
    partition.commit()
    assert _origins(partition, "due") == [second]
    partition.check()


def test_far_message_keeps_only_its_own_entry_alive() -> None:
    partition = Partition()
    before = partition.send(5)
    [far] = partition.schedule(b"+%d" % DAY_MS)
    after = partition.send(5)
    picks = partition.acquire("all", 20) or []
    partition.commit()
    partition.delete("done", [pick[:2] for pick in picks])
    partition.commit()
    leader = partition.leader
    assert leader.is_live(far, far) and leader.low_watermark() == far
    assert not leader.is_live(before[0], before[-1]) and not leader.is_live(after[0], after[-1])
    assert leader.state.cursor == partition.end and not leader.state.removed_above_cursor


def test_duplicate_of_a_scheduled_message_is_dropped_and_its_release_is_no_duplicate() -> None:
    partition = Partition()
    [original] = partition.schedule(b"+1000", dedup_id=b"one")
    [again] = partition.schedule(b"+1000", dedup_id=b"one")
    assert partition.duplicates == {again: original}
    partition.pass_ms(1_000)
    assert partition.counts() == (1, 0, 0)
    partition.check()


def test_checkpoint_holds_the_schedule_and_equal_states_are_equal() -> None:
    partition = Partition()
    chance = random.Random(5)
    for _ in range(20):
        partition.schedule(b"+%d" % chance.randrange(1, DAY_MS), chance.randrange(1, 30))
        partition.send(1)
    checkpoint, entries = partition.follower.checkpoint(), len(partition.log)
    partition.pass_ms(DAY_MS // 2)
    partition.rebuild_follower(checkpoint, entries)
    partition.check()
    partition.fail_over()
    partition.pass_ms(DAY_MS // 2)
    assert partition.counts()[2] == 0 and partition.counts()[0] == partition.leader.state.sent
    partition.check()


def test_checkpoint_whose_orders_differ_is_refused() -> None:
    fields = msgspec.msgpack.decode(QueueMachine().checkpoint())
    one = (5).to_bytes(8, "little")
    for orders in ([one, one, b"", b""], [one, one], [one, one[:3], one, one], [one, one, one + one, one + one]):
        with pytest.raises(CheckpointError):
            QueueMachine().restore(msgspec.msgpack.encode([*fields[:7], orders]))
    QueueMachine().restore(msgspec.msgpack.encode([*fields[:7], [one] * 4]))
    QueueMachine().restore(msgspec.msgpack.encode(fields[:7]))  # as written before there were any


def test_pages_show_what_is_scheduled_in_the_order_of_due_times() -> None:
    partition = Partition()
    late, early, middle = (partition.schedule(b"+%d" % ms)[0] for ms in (9_000, 1_000, 5_000))
    leader = partition.leader
    first = leader.scheduled_page((-1, -1), 2, 2**63 - 1)
    assert [offset for _, offset in first] == [early, middle]
    assert leader.scheduled_page(first[-1], 2, 2**63 - 1) == [(NOW_MS + 9_000, late)]
    assert leader.scheduled_page((-1, -1), 9, NOW_MS + 4_999) == [(NOW_MS + 1_000, early)]


# --- FIFO queues ---------------------------------------------------------------------------------------------------


def _fifo() -> Partition:
    return Partition(QueueConfig(fifo=True))


def test_scheduled_message_of_a_group_joins_it_at_its_end_when_due_and_holds_nothing_back() -> None:
    partition = _fifo()
    [scheduled] = partition.schedule(b"+1000", group=b"g")
    [first] = partition.send_keyed((b"g", b""))
    partition.acquire("first")
    partition.commit()
    assert _origins(partition, "first") == [first], "what follows a scheduled message does not wait for it"
    [second] = partition.send_keyed((b"g", b""))
    partition.pass_ms(1_000)
    [third] = partition.send_keyed((b"g", b""))
    partition.acquire("locked")
    partition.commit()
    assert partition.delivered["locked"] == [], "its group is locked like any other (R26)"
    partition.delete("done", [(first, 1)])
    partition.acquire("rest", wait_ms=1_000)
    partition.commit()
    assert _origins(partition, "rest") == [second, scheduled, third]
    partition.check()


def test_released_message_of_a_fifo_queue_is_found_again_by_the_next_leader() -> None:
    partition = _fifo()
    partition.schedule(b"+1000", 3, group=b"g")
    partition.pass_ms(1_000)
    partition.fail_over()
    partition.acquire("all")
    partition.commit()
    assert len(partition.delivered["all"]) == 3
    partition.check()


def test_cursor_of_a_fifo_queue_passes_scheduled_messages() -> None:
    partition = _fifo()
    partition.schedule(b"+%d" % DAY_MS, group=b"g")
    [sent] = partition.send_keyed((b"h", b""))
    partition.acquire("one")
    partition.commit()
    partition.delete("done", [(sent, 1)])
    partition.commit()
    assert partition.leader.state.cursor == partition.end and not partition.leader.state.removed_above_cursor
    partition.check()


def test_copy_of_a_scheduled_message_keeps_all_but_what_made_it_wait() -> None:
    body = encode_body(b"value", b"key", [(HEADER_GROUP, b"g"), (HEADER_DUE, b"5"), (b"u", b"id"), (b"t", b"tag")])
    record = decode_body(released_copy(body, 17, 5))
    assert (record.key, record.value) == (b"key", b"value")
    assert record.headers == [(HEADER_GROUP, b"g"), (b"t", b"tag"), (b"r", b"17/5")]
    assert origin_offset(record.headers, 99) == 17


# --- the two orders --------------------------------------------------------------------------------------------------


def test_orders_agree_with_a_plain_dictionary_whatever_happens() -> None:
    chance = random.Random(11)
    schedule, model, end = Schedule(), dict[int, int](), 0
    for step in range(30_000):
        roll = chance.random()
        if roll < 0.55 or not model:
            end += chance.randrange(1, 4)
            model[end] = chance.randrange(1, 500) if step % 2 else 1_000 + end
            schedule.add(end, model[end])
        elif roll < 0.75:
            offset = chance.choice(list(model)) if step % 50 == 0 else next(iter(model))
            assert schedule.remove(offset)
            del model[offset]
        elif roll < 0.95:
            offset = chance.randrange(end + 2)
            assert schedule.due_ms(offset) == model.get(offset)
            assert schedule.any_between(offset, offset + 3) == any(offset + n in model for n in range(4))
        else:
            assert not schedule.remove(end + 1)
            assert schedule.first_offset() == min(model) and schedule.first_due_ms() == min(model.values())
    assert len(model) > 3 * CHUNK_PAIRS_MAX, "several chunks"
    assert list(schedule) == sorted(model.items())
    by_due = sorted((due_ms, offset) for offset, due_ms in model.items())
    again = Schedule.unpack(schedule.pack())
    assert again.pack() == schedule.pack()
    for one in (schedule, again):
        after, seen = (-1, -1), []
        while page := one.page(after, 1_000, 2**62):
            seen += page
            after = page[-1]
        assert seen == by_due
        assert one.due_by(400, 10**6) == [pair for pair in by_due if pair[0] <= 400]
    for offset in chance.sample(sorted(model), len(model)):
        assert again.remove(offset)
    assert len(again) == 0 and again.pack() == [] and again.first_due_ms() == 0 and again.first_offset() is None
