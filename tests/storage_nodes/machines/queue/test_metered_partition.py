"""Metering in the fold: what entries bill, windows, export by the leader, crash points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_nodes.limits import (
    USAGE_EXPORT_PAUSE_MS,
    USAGE_NOTE_AFTER_MS,
    USAGE_NOTE_SPREAD_MS,
    USAGE_WINDOWS_HELD_MAX,
)
from storage_nodes.log.record_batch import records_to_fold
from storage_nodes.machines.queue.commands import NOT_ISSUED, UsageExportedCommand, decode_command
from storage_nodes.machines.queue.effects import ExportUsage, MeteredHour, Retired
from storage_nodes.machines.queue.leader.usage_export import UsageExport
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.metering import HOUR_MS
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.usage import Origin
from tests.storage_nodes.machines.queue.metered import (
    HOUR_END_MS,
    close_quiet_hour,
    confirm,
    message,
    metered_partition,
    open_window,
    rows,
    send,
    tick,
)
from tests.storage_nodes.machines.queue.partition import NOW_MS, Partition


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def partition(request: pytest.FixtureRequest) -> Iterator[Partition]:
    yield from metered_partition(request.param)


def test_messages_are_billed_by_origin_size_and_unit(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), message(65_537, group=b"g"), plain=False)
    send(partition, message(5, Origin.CRON, group=b"g"), message(7, Origin.DESK, group=b"g"), plain=False)
    billed = rows(open_window(partition))
    assert billed[Origin.CLIENT][0] == 2 and billed[Origin.CLIENT][6] == 65_637 and billed[Origin.CLIENT][8] == 3
    assert billed[Origin.CRON][6] == 5 and billed[Origin.DESK][6] == 7


def test_duplicate_is_not_billed_and_holds_nothing(partition: Partition) -> None:
    send(partition, message(100, group=b"g", dedup=b"one"), plain=False)
    send(partition, message(900, group=b"g", dedup=b"one"), message(7, group=b"g", dedup=b"two"), plain=False)
    billed = rows(open_window(partition))[Origin.CLIENT]
    assert (billed[0], billed[6]) == (2, 107)
    assert open_window(partition).stored_bytes == 107


def test_scheduled_message_is_sent_once_and_its_release_is_nothing(partition: Partition) -> None:
    due = b"%d" % (NOW_MS + 1_000)
    send(partition, message(100, group=b"g", due=due), plain=False)
    before = rows(open_window(partition))
    assert before[Origin.CLIENT][0] == 1 and before[Origin.CLIENT][5] == 1
    tick(partition, NOW_MS + 2_000)
    assert not partition.leader.state.scheduled
    assert rows(open_window(partition)) == before


def test_scheduled_messages_of_several_origins_are_counted_each_under_its_own(partition: Partition) -> None:
    due = b"%d" % (NOW_MS + 1_000)
    cron, desk = message(5, Origin.CRON, group=b"g", due=due), message(7, Origin.DESK, group=b"g")
    send(partition, cron, desk, plain=False)
    billed = rows(open_window(partition))
    assert (billed[Origin.CRON][5], billed[Origin.DESK][5]) == (1, 0)


def test_queue_of_nobody_is_not_metered() -> None:
    partition = Partition()
    send(partition, message())
    assert partition.leader.state.metering is None


def test_quiet_queue_closes_its_hour_exports_it_and_is_silent_then(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    export = close_quiet_hour(partition)
    (window,) = export.windows
    assert window.until_ms == HOUR_END_MS and window.stored_byte_ms == 100 * (HOUR_END_MS - NOW_MS)
    assert tick(partition, partition.now_ms + 1) == [], "one export at a time"
    confirm(partition, window)
    meter = partition.leader.state.metering
    assert meter is not None and not meter.closed
    entries = len(partition.log)
    for hour in range(1, 5):
        tick(partition, HOUR_END_MS + hour * HOUR_MS)
        partition.commit()
    assert len(partition.log) == entries, "a queue without traffic writes nothing"


def test_meter_of_an_empty_queue_is_dropped_once_everything_is_exported(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    partition.perform(partition.leader.purge("p", partition.now_ms))
    partition.commit()
    (window,) = close_quiet_hour(partition).windows
    confirm(partition, window)
    assert partition.leader.state.metering is None and partition.follower.state.metering is None


def test_hour_is_closed_by_one_command_while_that_is_on_its_way(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    due_ms = partition.leader.next_tick_ms()
    tick(partition, due_ms)
    assert len(partition.take()) == 1
    tick(partition, due_ms + 1)
    assert partition.take() == []


def test_export_that_failed_is_tried_again_with_the_same_windows(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    export = close_quiet_hour(partition)
    partition.leader.usage.not_exported(partition.now_ms)
    assert tick(partition, partition.now_ms + 1) == []
    assert tick(partition, partition.leader.next_tick_ms()) == [export]


def test_leader_that_dies_before_the_confirmation_leaves_the_same_windows_to_the_next(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    export = close_quiet_hour(partition)
    partition.perform(partition.leader.usage.exported(*export.windows[-1][:2], partition.now_ms))
    partition.fail_over()  # USAGE_EXPORTED is lost
    assert tick(partition, partition.now_ms + 1) == [export]
    confirm(partition, export.windows[-1])
    partition.fail_over()
    assert tick(partition, partition.now_ms + 1) == [], "it is noted"


def test_leader_that_led_before_does_not_wait_for_an_export_of_that_time(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    export = close_quiet_hour(partition)
    partition.fail_over()
    partition.fail_over()
    assert tick(partition, partition.now_ms + 1) == [export]


def test_usage_is_closed_early_on_demand(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    assert partition.leader.usage.is_told
    partition.now_ms += 5
    partition.perform(partition.leader.usage.close(partition.now_ms))
    assert not partition.leader.usage.is_told
    partition.commit()
    (export,) = tick(partition, partition.now_ms + 1)
    (window,) = export.windows
    assert window.until_ms == NOW_MS + 5 and window.stored_byte_ms == 500
    assert not partition.leader.usage.is_told
    entries = len(partition.log)
    partition.perform(partition.leader.usage.exported(*window[:2], partition.now_ms))
    assert partition.leader.usage.is_told and partition.leader.state.metering.closed
    assert tick(partition, partition.now_ms + USAGE_NOTE_AFTER_MS - 1) == []
    partition.commit()
    assert len(partition.log) == entries, "whoever asked does not wait for the note of thousands of partitions"
    assert tick(partition, partition.leader.next_tick_ms()) == []
    partition.commit()
    assert partition.leader.usage.is_told and not partition.leader.state.metering.closed
    last = decode_command(records_to_fold(partition.log[-1][1])[-1][1])
    assert isinstance(last, UsageExportedCommand)


def test_window_that_is_said_again_before_its_note_is_exported_again_and_noted_once(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    (window,) = close_quiet_hour(partition).windows
    partition.perform(partition.leader.usage.exported(*window[:2], partition.now_ms))
    exported = []
    for _ in range(2):
        send(partition, message(100, group=b"g"), plain=False)
        partition.perform(partition.leader.usage.close(partition.now_ms))
        partition.commit()
        (export,) = tick(partition, partition.now_ms + 1)
        assert not partition.leader.usage.is_told
        partition.perform(partition.leader.usage.exported(*export.windows[-1][:2], partition.now_ms))
        exported.append(export.windows)
    (first,), (second,) = exported
    assert (first.hour_ms, rows(first)[Origin.CLIENT][0], rows(second)[Origin.CLIENT][0]) == (HOUR_END_MS, 1, 2)
    entries = len(partition.log)
    confirm(partition, second)
    assert len(partition.log) == entries + 1 and not partition.leader.state.metering.closed
    assert partition.leader.export.next_ms(partition.leader.state.metering) == 0


def test_notes_of_windows_that_were_exported_together_lie_apart(partition: Partition) -> None:
    """Thousands of partitions are closed within seconds: their entries do not come so, too."""
    send(partition, message(100, group=b"g"), plain=False)
    (window,) = close_quiet_hour(partition).windows
    waits_ms = []
    for now_ms in range(partition.now_ms, partition.now_ms + 1_000):
        export = UsageExport()
        export.exported(window[:2], now_ms)
        waits_ms.append(export.next_ms(partition.leader.state.metering) - now_ms)
    assert min(waits_ms) >= USAGE_NOTE_AFTER_MS and max(waits_ms) < USAGE_NOTE_AFTER_MS + USAGE_NOTE_SPREAD_MS
    tenth_ms = USAGE_NOTE_SPREAD_MS // 10
    assert len({(wait_ms - USAGE_NOTE_AFTER_MS) // tenth_ms for wait_ms in waits_ms[:100]}) == 10


def test_note_that_is_lost_is_made_again_after_a_pause(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    (window,) = close_quiet_hour(partition).windows
    partition.perform(partition.leader.usage.exported(*window[:2], partition.now_ms))
    due_ms = partition.leader.next_tick_ms()
    assert partition.leader.export.step(partition.leader.state.metering, due_ms) == UsageExportedCommand(
        *NOT_ISSUED, *window[:2]
    )
    assert partition.leader.next_tick_ms() == due_ms + USAGE_EXPORT_PAUSE_MS
    assert tick(partition, due_ms + USAGE_EXPORT_PAUSE_MS) == []
    partition.commit()
    assert not partition.leader.state.metering.closed


def test_note_of_an_earlier_window_does_not_stand_for_a_later_one(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    (window,) = close_quiet_hour(partition).windows
    partition.perform(partition.leader.usage.exported(*window[:2], partition.now_ms))
    assert tick(partition, partition.leader.next_tick_ms()) == []
    on_its_way = partition.take()
    send(partition, message(100, group=b"g"), plain=False)
    partition.now_ms += HOUR_MS
    send(partition, message(100, group=b"g"), plain=False)
    (export,) = tick(partition, partition.now_ms)
    (later,) = export.windows
    partition.perform(partition.leader.usage.exported(*later[:2], partition.now_ms))
    partition.append(on_its_way, control=True)
    assert partition.leader.usage.is_told and partition.leader.state.metering.closed == [later]
    confirm(partition, later)
    assert not partition.leader.state.metering.closed


def export_all(partition: Partition) -> list[MeteredHour]:
    """The usage stream takes whatever it is given; the notes of that follow as they are due."""
    windows: list[MeteredHour] = []
    exports = tick(partition, partition.now_ms + 1)
    while exports:
        windows += exports[0].windows
        effects = partition.leader.usage.exported(*windows[-1][:2], partition.now_ms)
        exports = [effect for effect in effects if isinstance(effect, ExportUsage)]
        partition.perform([effect for effect in effects if not isinstance(effect, ExportUsage)])
    return windows


def pass_hours_without_the_stream(partition: Partition, hours: int) -> None:
    for _ in range(hours):
        partition.now_ms += HOUR_MS
        send(partition, message(100, group=b"g"), plain=False)
        for _export in tick(partition, partition.now_ms):
            partition.leader.usage.not_exported(partition.now_ms)
        partition.commit()


def test_close_on_demand_after_a_long_outage_of_the_stream_waits_for_the_open_window(partition: Partition) -> None:
    """As many windows are held as may be: the note makes room for the one that is asked for."""
    send(partition, message(100, group=b"g"), plain=False)
    pass_hours_without_the_stream(partition, USAGE_WINDOWS_HELD_MAX)
    partition.now_ms += USAGE_EXPORT_PAUSE_MS
    exported = export_all(partition)
    meter = partition.leader.state.metering
    assert len(exported) == USAGE_WINDOWS_HELD_MAX and meter is not None and meter.is_changed
    partition.perform(partition.leader.usage.close(partition.now_ms))
    assert not partition.leader.usage.is_told
    partition.commit()
    assert not partition.leader.usage.is_told
    (open_one,) = export_all(partition)
    assert open_one.hour_ms == meter.hour_ms and partition.leader.usage.is_told


def test_windows_that_were_exported_are_noted_though_the_stream_is_away_again(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    pass_hours_without_the_stream(partition, 5)
    partition.now_ms += USAGE_EXPORT_PAUSE_MS
    assert len(export_all(partition)) == 5
    pass_hours_without_the_stream(partition, 1)
    assert tick(partition, partition.now_ms + 1) == [], "the stream is asked again after a pause only"
    partition.commit()
    meter = partition.leader.state.metering
    assert meter is not None and len(meter.closed) == 1, "only what the stream does not have"


def test_exports_that_follow_each_other_do_not_put_off_the_note(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    export_on_demand(partition)
    due_ms = partition.leader.export.next_ms(partition.leader.state.metering)
    partition.now_ms += 1_000
    send(partition, message(100, group=b"g"), plain=False)
    export_on_demand(partition)
    assert partition.leader.export.next_ms(partition.leader.state.metering) == due_ms


def export_on_demand(partition: Partition) -> None:
    partition.perform(partition.leader.usage.close(partition.now_ms))
    partition.commit()
    assert export_all(partition)


def test_close_on_demand_beside_an_export_follows_it(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    (window,) = close_quiet_hour(partition).windows
    send(partition, message(100, group=b"g"), plain=False)
    partition.perform(partition.leader.usage.close(partition.now_ms))
    partition.perform(partition.leader.usage.exported(*window[:2], partition.now_ms))
    assert not partition.leader.usage.is_told
    tick(partition, partition.now_ms + 1)
    partition.commit()
    ((early,),) = (export.windows for export in tick(partition, partition.now_ms + 1))
    assert early.hour_ms == HOUR_END_MS and rows(early)[Origin.CLIENT][0] == 1


def test_close_on_demand_of_a_window_without_news_is_not_left_to_the_next_message(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    (window,) = close_quiet_hour(partition).windows
    confirm(partition, window)
    partition.perform(partition.leader.usage.close(partition.now_ms))
    send(partition, message(100, group=b"g"), plain=False)
    assert partition.leader.usage.is_told
    assert tick(partition, partition.now_ms + 1) == []
    assert partition.take() == []


def retire(partition: Partition) -> None:
    partition.perform(partition.leader.usage.retire(partition.now_ms))
    partition.commit()


def confirm_last_window(partition: Partition) -> ExportUsage:
    """The leader closes and exports what is left; the export is confirmed."""
    partition.now_ms += 1
    assert tick(partition, partition.now_ms) == [], "closed first"
    partition.commit()
    (export,) = tick(partition, partition.now_ms + 1)
    assert not partition.leader.usage.may_be_deleted
    partition.perform(partition.leader.usage.exported(*export.windows[-1][:2], partition.now_ms))
    assert not partition.leader.usage.may_be_deleted, "USAGE_EXPORTED is not committed yet"
    partition.commit()
    return export


def test_retired_partition_may_go_once_its_last_window_is_confirmed(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    partition.now_ms += 5
    retire(partition)
    assert not partition.leader.usage.may_be_deleted
    export = confirm_last_window(partition)
    assert export.is_final and rows(export.windows[-1])[Origin.CLIENT][0] == 1
    assert partition.leader.usage.may_be_deleted


def test_cancel_whose_sizes_were_read_while_the_partition_was_retired_is_refused(partition: Partition) -> None:
    send(partition, message(100, group=b"g", due=b"+1000000000"), plain=False)
    retire(partition)
    confirm_last_window(partition)
    partition.reschedule("late", [(partition.leader.scheduled_page((0, 0), 1, 2**62)[0][1], 0)])
    assert "late" in partition.refused and partition.leader.usage.may_be_deleted


def test_retired_partition_says_once_more_what_it_stores(partition: Partition) -> None:
    """Nothing happened since the last record, but what it stores would be billed until its next one."""
    send(partition, message(100, group=b"g"), plain=False)
    (window,) = close_quiet_hour(partition).windows
    confirm(partition, window)
    partition.now_ms += 50
    retire(partition)
    (last,) = confirm_last_window(partition).windows
    assert last.until_ms == partition.now_ms - 1 and last.stored_byte_ms == 100 * (last.until_ms - last.hour_ms)


def test_retired_partition_without_usage_has_nothing_to_say(partition: Partition) -> None:
    assert not partition.leader.usage.may_be_deleted
    retire(partition)
    assert partition.leader.usage.may_be_deleted and partition.leader.next_tick_ms() == 0
    partition.fail_over()
    assert partition.leader.usage.may_be_deleted, "the next leader knows"


def test_retired_partition_may_not_go_before_each_lease_was_told(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    retire(partition)
    confirm_last_window(partition)
    meter = partition.leader.state.metering
    assert meter is not None and partition.leader.usage.may_be_deleted
    meter.leased += 1  # an answer that is still being read
    assert not partition.leader.usage.may_be_deleted
    meter.leased -= 1


def test_partition_of_nobody_may_go_at_once() -> None:
    partition = Partition()
    send(partition, message())
    entries = len(partition.log)
    retire(partition)
    assert partition.leader.usage.may_be_deleted and len(partition.log) == entries


@pytest.mark.parametrize("dies_at", ["retired", "closed", "exported"])
def test_next_leader_goes_on_with_the_last_window(partition: Partition, dies_at: str) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    partition.now_ms += 5
    retire(partition)
    if dies_at != "retired":
        tick(partition, partition.now_ms + 1)
        partition.commit()
    if dies_at == "exported":
        (export,) = tick(partition, partition.now_ms + 1)
        partition.perform(partition.leader.usage.exported(*export.windows[-1][:2], partition.now_ms))
    partition.fail_over()
    retire(partition)
    if dies_at == "retired":
        assert confirm_last_window(partition).is_final
    else:
        (export,) = tick(partition, partition.now_ms + 1)
        assert export.is_final
        partition.perform(partition.leader.usage.exported(*export.windows[-1][:2], partition.now_ms))
        partition.commit()
    assert partition.leader.usage.may_be_deleted


def test_what_was_on_its_way_when_the_partition_was_retired_is_in_a_later_last_window(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    retire(partition)
    confirm_last_window(partition)
    send(partition, message(100, group=b"g"), plain=False)
    assert not partition.leader.usage.may_be_deleted
    export = confirm_last_window(partition)
    assert export.is_final and rows(export.windows[-1])[Origin.CLIENT][0] == 2
    assert partition.leader.usage.may_be_deleted


def test_command_on_its_way_is_waited_for(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    retire(partition)
    confirm_last_window(partition)
    partition.delete("late", [(0, 1)])
    assert not partition.leader.usage.may_be_deleted


def test_who_waits_at_a_retired_partition_is_refused(partition: Partition) -> None:
    partition.acquire("poll", 1, wait_ms=20_000)
    retire(partition)
    assert partition.refused["poll"].code == ErrorCode.UNKNOWN_PARTITION
    send(partition, message(100, group=b"g"), plain=False)
    assert "poll" not in partition.delivered


def test_dead_letters_of_a_retired_partition_stay() -> None:
    config = QueueConfig(account_id="1" * 12, max_receives=1, dead_letter_partition=9)
    partition = Partition(config)
    send(partition, message(100))
    partition.acquire("a", 1)
    partition.commit()
    retire(partition)
    partition.now_ms += 60_000
    partition.perform(partition.leader.tick(partition.now_ms))
    assert not partition.moves


def test_retired_is_said_to_the_driver_by_whoever_leads(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    retire(partition)
    assert sum(isinstance(effect, Retired) for effect in partition.effects) == 1
    partition.fail_over()
    assert sum(isinstance(effect, Retired) for effect in partition.effects) == 2


def test_checkpoint_of_a_retired_partition_says_so(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    retire(partition)
    confirm_last_window(partition)
    again = QueueMachine()
    again.restore(partition.follower.checkpoint())
    assert again.state.is_retired and again.usage.may_be_deleted
    assert any(isinstance(effect, Retired) for effect in again.lead(partition.now_ms))


def test_window_of_a_partition_that_stays_is_not_final(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    assert not close_quiet_hour(partition).is_final


def test_window_that_waited_when_the_partition_was_retired_is_not_the_last_one(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    earlier = close_quiet_hour(partition)
    partition.leader.usage.not_exported(partition.now_ms)
    partition.now_ms += 10
    retire(partition)
    (again,) = tick(partition, partition.now_ms + 1)
    assert (again.windows, again.is_final) == (earlier.windows, False), "what it stores since has to be said"
    partition.perform(partition.leader.usage.exported(*again.windows[-1][:2], partition.now_ms))
    partition.commit()
    assert confirm_last_window(partition).is_final
