"""Deduplication in the fold: one message per id and window, the same on every replica (R28, I8)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from storage_nodes.limits import DEDUP_IDS_MAX
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.dedup import NOT_SEEN, DedupWindow
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of, receipts_of
from tests.support.covers import covers

WINDOW_MS = 300_000


def send_id(partition: Partition, dedup_id: bytes = b"id") -> int:
    return partition.send_keyed((b"g", dedup_id))[0]


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def partition(request: pytest.FixtureRequest) -> Partition:
    return Partition(QueueConfig(fifo=request.param, dedup_window_ms=WINDOW_MS))


@pytest.mark.parametrize(
    ("after_ms", "is_duplicate"),
    [(0, True), (150_000, True), (WINDOW_MS - 1, True), (WINDOW_MS, False), (WINDOW_MS + 1, False)],
)
@covers("SendMessage", limit="FIFO, seconds that an id is remembered")
def test_id_sent_again_within_the_window_is_one_message(
    partition: Partition, after_ms: int, is_duplicate: bool
) -> None:
    first = send_id(partition)
    partition.now_ms += after_ms
    second = send_id(partition)
    assert partition.duplicates == ({second: first} if is_duplicate else {})
    partition.acquire("a")
    partition.commit()
    assert offsets_of(partition.delivered["a"]) == ([first] if is_duplicate else [first, second])
    assert partition.leader.stats(partition.now_ms).duplicates == int(is_duplicate)
    partition.check()


def test_window_counts_from_the_original_and_not_from_its_duplicates(partition: Partition) -> None:
    send_id(partition)
    partition.now_ms += WINDOW_MS - 1
    send_id(partition)
    partition.now_ms += 1
    third = send_id(partition)
    assert third not in partition.duplicates


@pytest.mark.parametrize("fails_over", [False, True])
def test_purge_forgets_the_ids(partition: Partition, fails_over: bool) -> None:
    send_id(partition)
    partition.perform(partition.leader.purge("p", partition.now_ms, b"mine"))
    partition.commit()
    if fails_over:
        partition.fail_over()
        partition.commit()
    second = send_id(partition)
    assert second not in partition.duplicates
    third = send_id(partition)
    assert partition.duplicates == {third: second}
    # A purge that is refused, or that repeats the last one, takes nothing from what came behind it.
    for attempt in (b"mine", b"another"):
        partition.perform(partition.leader.purge(attempt.decode(), partition.now_ms, attempt))
        partition.commit()
    assert send_id(partition) in partition.duplicates
    partition.check()


def test_id_twice_in_one_batch_keeps_the_first(partition: Partition) -> None:
    offsets = partition.send_keyed((b"g", b"x"), (b"g", b"y"), (b"g", b"x"), (b"g", b""), (b"g", b""))
    assert partition.duplicates == {offsets[2]: offsets[0]}
    assert partition.counts() == (4, 0, 0)


def test_deleted_message_still_has_duplicates(partition: Partition) -> None:
    first = send_id(partition)
    partition.acquire("a")
    partition.commit()
    partition.delete("d", receipts_of(partition.delivered["a"]))
    partition.commit()
    assert partition.duplicates == {send_id(partition): first}
    assert partition.counts() == (0, 0, 0)


def test_new_leader_knows_the_ids_of_the_old_one(partition: Partition) -> None:
    first = send_id(partition)
    partition.fail_over()
    second = send_id(partition)
    assert partition.duplicates == {second: first}


def test_replica_from_a_checkpoint_drops_the_same(partition: Partition) -> None:
    first = send_id(partition)
    partition.now_ms += WINDOW_MS // 2
    send_id(partition, b"other")
    checkpoint, entries = partition.leader.checkpoint(), len(partition.log)
    partition.now_ms += WINDOW_MS // 2 - 1
    partition.rebuild_follower(checkpoint, entries)
    partition.fail_over()
    assert partition.duplicates.get(send_id(partition)) == first
    partition.check()


def leave_as_made(partition: Partition) -> None:
    pass


def restore_from_checkpoint(partition: Partition) -> None:
    partition.rebuild_follower(partition.leader.checkpoint(), len(partition.log))
    partition.fail_over()


def change_window(partition: Partition) -> None:
    config = msgspec.structs.replace(partition.leader.state.config, dedup_window_ms=7_000)
    partition.perform(partition.leader.configure("change", config))
    partition.commit()


@pytest.mark.parametrize(
    ("window_ms", "happens"), [(7_000, leave_as_made), (7_000, restore_from_checkpoint), (9_000, change_window)]
)
def test_id_is_remembered_for_the_window_of_its_queue(window_ms: int, happens: Callable[[Partition], None]) -> None:
    """None of these is the default."""
    partition = Partition(QueueConfig(dedup_window_ms=window_ms))
    first = send_id(partition)
    happens(partition)
    partition.now_ms += 6_999
    assert partition.duplicates.get(send_id(partition)) == first
    partition.now_ms += 1
    assert send_id(partition) not in partition.duplicates
    partition.check()


def test_restored_checkpoint_takes_the_place_of_what_was_remembered() -> None:
    """An id must not outlive the log that its message stands in: after a snapshot only the snapshot counts."""
    partition = Partition(QueueConfig(fifo=True))
    empty = partition.leader.checkpoint()
    send_id(partition)
    machine = QueueMachine(QueueConfig(fifo=True))
    machine.restore(partition.leader.checkpoint())
    machine.restore(empty)
    assert machine.checkpoint() == empty and len(machine.state.dedup) == 0


def test_clock_that_falls_back_moves_no_window(partition: Partition) -> None:
    """Time is the leader's stamp, and never falls."""
    first = send_id(partition)
    partition.now_ms += WINDOW_MS
    send_id(partition, b"later")
    partition.now_ms -= WINDOW_MS  # another leader, an hour hand behind
    assert send_id(partition) not in partition.duplicates, "by the log's time the window is over"
    assert first not in partition.duplicates


def test_message_without_an_id_is_never_a_duplicate(partition: Partition) -> None:
    partition.send_keyed((b"g", b""))
    partition.send_keyed((b"g", b""))
    assert not partition.duplicates and partition.counts()[0] == 2


def test_delayed_duplicate_is_dropped_and_its_original_waits(partition: Partition) -> None:
    first = partition.send_keyed((b"g", b"x"), delay_ms=2_000)[0]
    assert partition.send_keyed((b"g", b"x"), delay_ms=2_000)[0] in partition.duplicates
    assert partition.counts() == (0, 0, 1)
    partition.pass_ms(2_000)
    partition.acquire("a")
    partition.commit()
    assert offsets_of(partition.delivered["a"]) == [first]
    partition.check()


def test_each_id_has_its_own_window_however_close_others_are(partition: Partition) -> None:
    send_id(partition)
    partition.now_ms += 10
    later = send_id(partition, b"later")
    partition.now_ms += WINDOW_MS - 1
    assert send_id(partition) not in partition.duplicates
    assert partition.duplicates == {send_id(partition, b"later"): later}


def test_unpacked_window_forgets_what_it_held() -> None:
    window, other = DedupWindow(1_000), DedupWindow(1_000)
    for each, name in ((window, b"x"), (other, b"y")):
        each.begin(5, 100)
        each.original(name, 5, 100)
    window.unpack(other.pack())
    assert window.pack() == other.pack() and len(window) == 1


def test_ids_go_when_their_window_is_over() -> None:
    window = DedupWindow(1_000)
    for number in range(100):
        window.begin(number, number * 100)
        assert window.original(b"%d" % number, number, number * 100) == NOT_SEEN
    assert len(window) <= 1_000 // 100 + 2 + 1_000 // 800
    assert window.count_at(9_900 + 10_000) == 0


def test_room_for_ids_counts_what_is_on_its_way_and_what_a_window_later_is_gone() -> None:
    partition = Partition(QueueConfig(dedup_window_ms=WINDOW_MS))
    partition.send_keyed(*[(b"", b"%d" % number) for number in range(50)])
    machine = partition.leader
    assert machine.dedup_room(partition.now_ms, 30) == DEDUP_IDS_MAX - 80
    assert machine.dedup_room(partition.now_ms + WINDOW_MS, 30) == DEDUP_IDS_MAX - 30
