"""Metering of deliveries, and of messages that leave: by what the leader says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_nodes.limits import HANDED_OVER_MS
from storage_nodes.machines.queue.effects import ExportUsage, Pick
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.metering import Metering
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.usage import Origin
from tests.storage_nodes.machines.queue.metered import (
    confirm,
    delete,
    delivered,
    message,
    metered_partition,
    open_window,
    receive,
    rows,
    send,
    tell,
    tick,
)
from tests.storage_nodes.machines.queue.partition import NOW_MS, Partition


def lose_answer(partition: Partition, *picks: Pick) -> None:
    """These were told as handed over, and their answer was lost before it left."""
    partition.perform(partition.leader.release([pick[:2] for pick in picks], partition.now_ms, was_told=True))
    partition.commit()


def export_open(partition: Partition) -> ExportUsage:
    """The open window is closed on demand, and its export confirmed."""
    partition.perform(partition.leader.usage.close(partition.now_ms))
    partition.commit()
    (export,) = tick(partition, partition.now_ms + 1)
    partition.perform(partition.leader.usage.exported(*export.windows[-1][:2], partition.now_ms))
    return export


def acquire_at_once(partition: Partition, count: int, token: str) -> list[Pick]:
    """Answered before any of it is committed."""
    picks: list[Pick] = []
    while len(picks) < count:
        asked = f"{token} {len(picks)}"
        partition.acquire(asked, 10)
        picks += partition.delivered[asked]
    return picks


def open_meter(partition: Partition) -> Metering:
    meter = partition.leader.state.metering
    assert meter is not None
    return meter


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def partition(request: pytest.FixtureRequest) -> Iterator[Partition]:
    yield from metered_partition(request.param)


def test_delivery_and_delete_are_counted_and_an_empty_queue_holds_nothing(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    picks = partition.acquire("a", 1)
    partition.commit()
    picks = picks or partition.delivered["a"]
    partition.delete("d", [(picks[0].offset, picks[0].delivery)])
    partition.commit()
    tell(partition)
    billed = rows(open_window(partition))[Origin.CLIENT]
    assert billed[:3] == (1, 1, 1) and billed[7] == 100 and billed[9] == 1
    assert open_window(partition).stored_bytes == 0


def test_delivery_is_billed_by_its_own_size_whatever_waits_beside_it(partition: Partition) -> None:
    due = b"%d" % (NOW_MS + 86_400_000)
    send(partition, message(1_000_000, group=b"g"), plain=False)
    for _ in range(20):
        send(partition, message(1, group=b"h", due=due), plain=False)
    (pick,) = receive(partition, "a")
    tell(partition)
    assert delivered(partition) == (1, 1_000_000, 16)
    delete(partition, pick)
    assert open_window(partition).stored_bytes == 20


def test_what_an_answer_had_no_room_for_is_not_billed_until_it_is_handed_over(partition: Partition) -> None:
    send(partition, *[message(100 + number, group=b"g") for number in range(4)], plain=False)
    partition.keeps_back = 3
    receive(partition, "a")
    tell(partition)
    assert delivered(partition) == (1, 100, 1)
    receive(partition, "b")
    tell(partition)
    if partition.leader.is_fifo:
        assert delivered(partition) == (1, 100, 1), "the group is held by the first"
    else:
        assert delivered(partition) == (4, 406, 4)


def test_answer_that_was_lost_before_it_left_counts_with_the_next(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), message(900, group=b"h"), plain=False)
    picks = receive(partition, "a", 1)
    tell(partition)
    assert delivered(partition) == (1, 100, 1)
    lose_answer(partition, *picks)
    receive(partition, "b", 2)
    tell(partition)
    assert delivered(partition) == (2, 1_000, 2)


def test_what_is_told_goes_with_the_next_commands_and_is_waited_for_by_nobody(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    receive(partition, "a")
    entries = len(partition.log)
    partition.pass_ms(HANDED_OVER_MS // 2)
    partition.commit()
    assert len(partition.log) == entries
    tell(partition)
    assert len(partition.log) == entries + partition.leader.is_fifo, "a standard queue told it with the lease"


def test_what_is_told_beside_a_delete_is_a_part_of_it(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), message(70_000, group=b"h"), plain=False)
    first, second = receive(partition, "a", 2)
    told = delivered(partition)
    entries = len(partition.log)
    delete(partition, first, second)
    assert delivered(partition) == (2, 70_100, 3) and open_window(partition).stored_bytes == 0
    assert told == ((0, 0, 0) if partition.leader.is_fifo else (2, 70_100, 3))
    tell(partition)
    assert len(partition.log) == entries + 1, "nothing is left to be told"
    assert delivered(partition) == (2, 70_100, 3)


def test_delete_of_a_message_whose_size_is_unknown_still_tells(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), message(900, group=b"h"), plain=False)
    first, _second = receive(partition, "a", 2)
    partition.leader.leader_state().handed_over.clear()
    delete(partition, first)
    tell(partition)
    assert delivered(partition) == (2, 1_000, 2)


def test_size_of_a_message_that_a_late_receipt_does_not_delete_stays_known() -> None:
    (partition,) = metered_partition(True)
    send(partition, message(100, group=b"g"), message(900, group=b"h"), plain=False)
    first, second = receive(partition, "a", 2)
    partition.pass_ms(60_000)
    delete(partition, first, second)
    assert open_window(partition).stored_bytes == 1_000
    assert all(partition.leader.usage.knows_size(pick.offset) for pick in (first, second))


def test_delivery_that_nobody_saw_is_taken_back_when_the_next_one_is_told_before_it(partition: Partition) -> None:
    send(partition, message(10, group=b"g"), message(1_000_000, group=b"h"), plain=False)
    (small,) = receive(partition, "a", 1)
    tell(partition)
    receive(partition, "b", 1)
    tell(partition)
    lose_answer(partition, small)
    assert delivered(partition) == (1, 1_000_000, 16)
    receive(partition, "c", 1)
    tell(partition)
    assert delivered(partition) == (2, 1_000_010, 17)


def test_take_back_outlives_its_leader_and_the_rest_of_an_idle_queue(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    picks = receive(partition, "a", 1)
    tell(partition)
    lose_answer(partition, *picks)
    partition.fail_over()
    assert delivered(partition) == (0, 0, 0)
    receive(partition, "b", 1)
    tell(partition)
    assert delivered(partition) == (1, 100, 1)


def test_take_back_under_a_leader_that_does_not_know_the_size_takes_the_mean(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), message(300, group=b"h"), plain=False)
    first, _second = receive(partition, "a", 2)
    tell(partition)
    partition.fail_over()
    lose_answer(partition, first)
    assert delivered(partition) == (1, 200, 1)


def test_take_back_after_its_window_was_named_is_set_off_against_the_next_delivery(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), message(70_000, group=b"h"), plain=False)
    first, _second = receive(partition, "a", 2)
    tell(partition)
    export_open(partition)
    lose_answer(partition, first)
    assert delivered(partition) == (2, 70_100, 3), "no figure of an hour that was named becomes smaller"
    restored = QueueMachine(partition.leader.config)
    restored.restore(partition.leader.checkpoint())
    assert restored.state.metering is not None and restored.state.metering.owed == (1, 100, 1)
    receive(partition, "b", 1)
    tell(partition)
    assert delivered(partition) == (2, 70_100, 3)
    assert open_meter(partition).owed == (0, 0, 0)


def test_repeated_receive_whose_first_answer_is_lost_is_billed() -> None:
    (partition,) = metered_partition(True)
    send(partition, message(100, group=b"g"), plain=False)
    partition.acquire("a", 1, attempt=b"x")
    partition.commit()
    tell(partition)
    (first,), until_ms = partition.delivered["a"], partition.deadlines_ms["a"]
    partition.now_ms += 10
    partition.acquire("b", 1, attempt=b"x")
    partition.commit()
    partition.perform(partition.leader.release([first[:2]], partition.now_ms, until_ms, was_told=True))
    partition.commit()
    delete(partition, *partition.delivered["b"])
    tell(partition)
    assert delivered(partition) == (1, 100, 1)


def test_delete_that_names_a_message_twice_takes_its_own_size(partition: Partition) -> None:
    send(partition, message(262_144, group=b"g"), message(10, group=b"h"), plain=False)
    big, _small = receive(partition, "a", 2)
    tell(partition)
    partition.delete("d", [big[:2], big[:2]])
    partition.delete("e", [big[:2]])
    partition.commit()
    assert open_window(partition).stored_bytes == 10


def test_late_receipt_beside_the_valid_one_takes_its_own_size() -> None:
    (partition,) = metered_partition(True)
    send(partition, message(262_144, group=b"g"), message(10, group=b"h"), plain=False)
    partition.acquire("a", 1, visibility_ms=2_000)
    partition.commit()
    (late,) = partition.delivered["a"]
    partition.pass_ms(5_000)
    valid = next(pick for pick in receive(partition, "b", 2) if pick.offset == late.offset)
    partition.delete("late", [late[:2]])
    partition.delete("valid", [valid[:2]])
    partition.commit()
    assert open_window(partition).stored_bytes == 10


def test_delete_beside_a_removal_takes_its_own_size(partition: Partition) -> None:
    send(partition, message(262_144, group=b"g"), message(10, group=b"h"), plain=False)
    big, _small = receive(partition, "a", 2)
    tell(partition)
    partition.remove("browser", [big.offset])
    partition.delete("d", [big[:2]])
    partition.commit()
    assert open_window(partition).stored_bytes == 10


def test_cancel_that_names_a_message_twice_takes_its_own_size(partition: Partition) -> None:
    later = b"%d" % (NOW_MS + 86_400_000)
    send(partition, message(262_144, group=b"g", due=later), message(10, group=b"h", due=later), plain=False)
    first = partition.end - 2
    partition.leader.usage.note_sizes({first: 262_144})
    partition.reschedule("c", [(first, 0), (first, 0)])
    partition.commit()
    assert open_window(partition).stored_bytes == 10


def test_sizes_of_leases_that_are_not_folded_yet_stay_known() -> None:
    partition = Partition(QueueConfig(account_id="1" * 12))
    send(partition, *[message(10) for _ in range(10)])
    for _ in range(5):
        send(partition, *[message(1_000) for _ in range(500)])
    (first, *_) = acquire_at_once(partition, 10, "a")
    partition.commit()
    partition.leader.usage.note_sizes(dict.fromkeys(range(1_000_000, 1_010_000), 7))  # of what left by itself
    partition.delete("d", [first[:2]])
    delayed = partition.take()
    picks = acquire_at_once(partition, 2_400, "b")
    later = partition.take()
    partition.append(delayed, control=True)
    partition.append(later, control=True)
    assert all(partition.leader.usage.knows_size(pick.offset) for pick in picks)


def test_window_closed_on_demand_waits_for_what_was_told_and_is_not_folded() -> None:
    partition = Partition(QueueConfig(account_id="1" * 12))
    send(partition, message(100))
    export_open(partition)
    partition.now_ms += 5_000
    partition.acquire("a", 1)
    on_its_way = partition.take()
    partition.perform(partition.leader.usage.close(partition.now_ms))
    assert not partition.leader.usage.is_told
    partition.append(on_its_way, control=True)
    assert tick(partition, partition.now_ms + 1) == []
    partition.commit()
    (export,) = tick(partition, partition.now_ms + 1)
    last = export.windows[-1]
    assert rows(last)[Origin.CLIENT][1] == 1
    confirm(partition, last)
    partition.perform(partition.leader.usage.close(partition.now_ms))
    assert partition.leader.usage.is_told, "nothing is on its way any more"


def test_sizes_that_no_command_took_along_are_forgotten(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), message(900, group=b"h"), plain=False)
    pick, _ = receive(partition, "a")
    partition.leader.usage.note_sizes(dict.fromkeys(range(1_000, 4_000), 7))
    delete(partition, pick)
    assert not partition.leader.usage.knows_size(1_000) and partition.leader.usage.knows_size(3_999)


def test_leases_of_a_leader_that_was_lost_before_it_told_are_billed() -> None:
    partition = Partition(QueueConfig(account_id="1" * 12, fifo=True))
    send(partition, message(100, group=b"g"), plain=False)
    receive(partition, "a")
    assert delivered(partition) == (0, 0, 0)
    partition.fail_over()
    assert delivered(partition) == (1, 100, 1)


def test_window_that_is_closed_on_demand_has_what_was_handed_over_before(partition: Partition) -> None:
    send(partition, message(100, group=b"g"), plain=False)
    receive(partition, "a")
    partition.perform(partition.leader.usage.close(partition.now_ms))
    partition.commit()
    (export,) = tick(partition, partition.now_ms + 1)
    assert rows(export.windows[-1])[Origin.CLIENT][1] == 1


def test_each_way_out_of_a_queue_takes_the_size_of_its_message(partition: Partition) -> None:
    sizes = (1_000, 30, 200, 5)
    send(partition, *[message(size, group=b"%d" % size) for size in sizes], plain=False)
    send(partition, message(7_000, group=b"s", due=b"%d" % (NOW_MS + 86_400_000)), plain=False)
    first, second = receive(partition, "a", 2)
    delete(partition, first)
    assert open_window(partition).stored_bytes == 7_235
    partition.leader.usage.note_sizes({second.offset + 1: 200, second.offset + 3: 7_000})
    groups = {second.offset + 1: b"200"}
    partition.perform(partition.leader.remove("r", [second.offset + 1], groups, False))
    partition.commit()
    assert open_window(partition).stored_bytes == 7_035
    partition.perform(partition.leader.reschedule("c", [(second.offset + 3, 0)], partition.now_ms))
    partition.commit()
    assert open_window(partition).stored_bytes == 35


def test_message_that_outlived_its_retention_takes_its_own_size(partition: Partition) -> None:
    send(partition, message(1_000, group=b"g"), plain=False)
    receive(partition, "a")
    partition.now_ms += partition.leader.config.retention_ms - 10
    send(partition, message(1, group=b"h"), message(2, group=b"h"), plain=False)
    tick(partition, partition.now_ms + 3_600_000)
    partition.commit()
    assert open_window(partition).stored_bytes == 3


def test_dead_letter_takes_its_own_size(partition: Partition) -> None:
    fifo = partition.leader.is_fifo
    config = QueueConfig(account_id="1" * 12, fifo=fifo, max_receives=1, dead_letter_partition=9)
    partition.perform(partition.leader.configure("c", config))
    partition.commit()
    send(partition, message(1_000, group=b"g"), message(1, group=b"h"), message(2, group=b"i"), plain=False)
    receive(partition, "a", 1)
    partition.now_ms += 60_000
    partition.perform(partition.leader.tick(partition.now_ms))
    moved = [letter.offset for letter in partition.moves.pop().letters]
    partition.perform(partition.leader.moved(moved, partition.now_ms))
    partition.commit()
    assert open_window(partition).stored_bytes == 3


def test_receive_that_is_asked_again_is_one_delivery() -> None:
    """Its answer was lost with the leader: the repeat gets the same messages under the same receipts."""
    partition = Partition(QueueConfig(account_id="1" * 12, fifo=True))
    send(partition, message(100, group=b"g"), plain=False)
    for leader in range(2):
        partition.acquire(leader, 1, attempt=b"receive")
        partition.commit()
        (pick,) = partition.delivered[leader]
        assert pick.delivery == 1
        partition.fail_over()
    billed = rows(open_window(partition))[Origin.CLIENT]
    assert billed[1] == 1 and billed[7] == 100 and billed[9] == 1
