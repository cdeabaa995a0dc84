"""Fair queues: a noisy group does not delay the others, and loses nothing by it."""

from __future__ import annotations

import pytest

from storage_nodes.limits import LOOKAHEAD_RUNS_MAX, NOISY_IN_FLIGHT_MIN, RETENTION_MS_MIN
from storage_nodes.machines.queue.delivery import fair
from storage_nodes.machines.queue.delivery.fair import FairDelivery
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of, receipts_of

FLOOD = (b"flood", b"")


def drain(partition: Partition, count: int = 10) -> list[int]:
    """Receive and delete until nothing comes."""
    drained: list[int] = []
    while picks := partition.acquire(f"drain {len(drained)}", count):
        drained += offsets_of(picks)
        partition.delete(f"deleted {len(drained)}", receipts_of(picks))
        partition.commit()
    return drained


def flood_then_quiet(partition: Partition, flood: int = 100_000, quiet: int = 20) -> tuple[int, list[int]]:
    """The first offset behind the flood, and the offsets of one message of each quiet group."""
    for _ in range(flood // 1_000):
        partition.send_tagged(*[FLOOD] * 1_000)
    quiet_offsets = [partition.send_tagged((b"quiet %d" % number, b""))[0] for number in range(quiet)]
    return quiet_offsets[0], quiet_offsets


def test_quiet_groups_behind_a_flood_come_within_the_next_receives(partition: Partition) -> None:
    _, quiet = flood_then_quiet(partition)
    received = [offset for number in range(6) for offset in offsets_of(partition.acquire(number))]
    assert received[:NOISY_IN_FLIGHT_MIN] == list(range(1, NOISY_IN_FLIGHT_MIN + 1))
    assert received[NOISY_IN_FLIGHT_MIN : NOISY_IN_FLIGHT_MIN + 20] == quiet
    partition.commit()
    stats = partition.leader.stats(partition.now_ms)
    assert (stats.noisy_groups, stats.groups, stats.in_flight) == (1, 21, 60)
    assert stats.noisy_waiting == 100_000 - 40


def test_quiet_message_sent_during_a_flood_is_next(partition: Partition) -> None:
    partition.send_tagged(*[FLOOD] * 1_000)
    partition.acquire("flood", 100)
    quiet = partition.send_tagged((b"quiet", b""))
    assert offsets_of(partition.acquire("next", 1)) == [quiet[0]]


def test_noisy_group_is_served_when_nobody_else_waits(partition: Partition) -> None:
    flood = partition.send_tagged(*[FLOOD] * 1_000)
    assert offsets_of(partition.acquire("all", 1_000)) == list(flood)


def test_delayed_messages_of_a_group_are_not_in_flight(partition: Partition) -> None:
    """Also where they are the first ones that have one."""
    partition.send_tagged(*[FLOOD] * NOISY_IN_FLIGHT_MIN, delay_ms=60_000)
    partition.send()
    flood = partition.send_tagged(FLOOD)
    assert partition.leader.stats(partition.now_ms).noisy_groups == 0
    partition.pass_ms(60_000)
    assert partition.leader.stats(partition.now_ms).noisy_groups == 0
    assert set(flood) <= set(offsets_of(partition.acquire("all", 1_000)))


def test_group_that_is_noisy_no_more_goes_in_order_again(partition: Partition) -> None:
    flood = partition.send_tagged(*[FLOOD] * 100)
    quiet = partition.send_tagged(*[(b"quiet %d" % number, b"") for number in range(10)])
    first = partition.acquire("first", 31)
    assert offsets_of(first) == [*flood[:30], quiet[0]]
    partition.commit()
    partition.delete("d", receipts_of(first)[:1])
    partition.commit()
    assert offsets_of(partition.acquire("second", 2)) == [flood[30], quiet[1]], "29 in flight: one more, then noisy"


def test_messages_of_a_noisy_group_that_come_again_let_others_go_first(partition: Partition) -> None:
    flood = partition.send_tagged(*[FLOOD] * 80)
    quiet = partition.send_tagged((b"quiet", b""))
    first = partition.acquire("first", 30)
    partition.commit()
    partition.change("back", [(*receipt, 0) for receipt in receipts_of(first)[:10]])
    partition.commit()
    assert offsets_of(partition.acquire("second", 11)) == [*flood[30:40], quiet[0]]
    assert offsets_of(partition.acquire("third", 2)) == [*flood[:2]], "they stand where 30 stood"


def test_messages_put_off_by_receipts_of_leases_that_ran_out_are_in_flight_for_their_group(
    partition: Partition,
) -> None:
    flood = partition.send_tagged(*[FLOOD] * 80)
    quiet = partition.send_tagged((b"quiet", b""))
    first = partition.acquire("first", 30, visibility_ms=1_000)
    partition.commit()
    partition.pass_ms(1_001)
    partition.change("later", [(*receipt, 60_000) for receipt in receipts_of(first)])
    partition.commit()
    assert offsets_of(partition.acquire("second", 2)) == [quiet[0], flood[30]]


def test_messages_that_come_back_and_waiting_ones_are_served_in_turn(partition: Partition) -> None:
    sent = partition.send_tagged(*[(b"%d" % number, b"") for number in range(30)])
    seen: list[int] = []
    for number in range(12):
        seen += offsets_of(partition.acquire(number, visibility_ms=0))
        partition.commit()
    assert sorted(set(seen)) == list(sent)
    assert min(seen.count(offset) for offset in sent) >= 3


def test_message_that_came_back_again_and_again_does_not_wait_for_ever(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it goes behind the other one, and none of the two behind messages of a day."""
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.backlog._GARBAGE_MAX", 10)
    first, second = partition.send_tagged((b"a", b"x"), (b"b", b"y"))
    for number in range(200):
        assert offsets_of(partition.acquire(number, 1, visibility_ms=0)) == [(first, second)[number % 2]]
        partition.commit()
    partition.send_tagged(*[(b"c", b"z")] * 100)
    later = [offsets_of(partition.acquire(f"later {number}", 1)) for number in range(40)]
    assert [first] in later and [second] in later


def test_messages_without_group_are_never_noisy(partition: Partition) -> None:
    plain = partition.send(100)
    quiet = partition.send_tagged((b"quiet", b""))
    assert offsets_of(partition.acquire("all", 101)) == [*plain, *quiet]
    assert partition.leader.stats(partition.now_ms).noisy_groups == 0


def test_flood_behind_a_leader_change_is_passed_over_from_the_first_receive(partition: Partition) -> None:
    _, quiet = flood_then_quiet(partition, 20_000)
    partition.acquire("flood", NOISY_IN_FLIGHT_MIN)
    partition.commit()
    partition.fail_over()
    assert offsets_of(partition.acquire("after", 20)) == quiet
    partition.commit()
    partition.check()


def test_long_flood_is_read_through_before_anybody_receives() -> None:
    partition = Partition(fetch_batches_max=5)
    for _ in range(100):
        partition.send_tagged(*[FLOOD] * 1_000)
    quiet = partition.send_tagged((b"quiet", b""))
    partition.acquire("flood", NOISY_IN_FLIGHT_MIN)
    partition.commit()
    partition.fail_over()
    assert offsets_of(partition.acquire("first", 1)) == list(quiet)


def test_restored_replica_knows_the_groups_in_flight(partition: Partition) -> None:
    flood_then_quiet(partition, 2_000)
    partition.acquire("flood", 40)
    partition.commit()
    checkpoint, entries = partition.leader.checkpoint(), len(partition.log)
    partition.rebuild_follower(checkpoint, entries)
    partition.check()
    partition.fail_over()
    assert partition.leader.stats(partition.now_ms).noisy_groups == 1


def test_everything_comes_once_with_a_cursor_held_back(partition: Partition) -> None:
    start = partition.end
    for number in range(300):
        partition.send_tagged(FLOOD, (b"q%d" % number, b""), FLOOD)
        partition.delete(f"d{number}", receipts_of(partition.acquire(number, 1)))
        partition.commit()
    drained = drain(partition)
    partition.pass_ms(31_000)
    assert len(drained) == len(set(drained)) == 600 and min(drained) > start
    state = partition.leader.state
    assert (state.fresh_count, len(state.live), len(state.removed_above_cursor)) == (0, 0, 0)
    assert state.cursor == state.log_end and state.deleted == 900
    partition.check()


def test_stretches_taken_out_grow_together_over_control_records(partition: Partition) -> None:
    partition.send_tagged(*[FLOOD] * 100)
    partition.acquire("flood", 31, visibility_ms=10_000_000)
    for number in range(200):
        partition.send_tagged((b"quiet", b""))
        partition.delete(f"d{number}", receipts_of(partition.acquire(number, 1)))
        partition.commit()
    assert partition.leader.state.cursor <= 32, "the flood waits"
    assert len(partition.leader.state.removed_above_cursor) <= 2
    partition.check()


def test_too_many_stretches_taken_out_fall_back_to_the_order_of_the_log(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair, "TAKEN_AHEAD_RANGES_MAX", 3)
    flood = partition.send_tagged(*[FLOOD] * 30)
    mixed = partition.send_tagged(*[key for n in range(10) for key in (FLOOD, (b"q%d" % n, b""))])
    partition.acquire("flood", len(flood), visibility_ms=1_000_000)
    for number in range(3):
        partition.delete(f"d{number}", receipts_of(partition.acquire(number, 1)))
        partition.commit()
    assert len(partition.leader.state.removed_above_cursor) == 3
    assert offsets_of(partition.acquire("in order", 4)) == [mixed[0], mixed[2], mixed[4], mixed[6]]
    partition.commit()
    assert not partition.leader.state.removed_above_cursor
    assert offsets_of(partition.acquire("fair", 2)) == [mixed[7], mixed[9]]


def test_flood_in_front_is_a_bounded_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition(fetch_batches_max=1)
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.backlog.LOOKAHEAD_RUNS_MAX", 50)
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.backlog.SIGHT_RUNS_NEAR", 10)
    for number in range(40):
        partition.send_tagged(*[FLOOD, (b"", b"")] * 3)
        partition.now_ms += number % 2
    partition.acquire("flood", 31, visibility_ms=1_000_000)
    partition.commit()
    delivery = partition.leader.leader.delivery
    assert isinstance(delivery, FairDelivery)
    assert delivery.window._runs < 50 + 6
    assert len(drain(partition)) == 240 - 31
    partition.check()


def test_batches_that_are_used_up_do_not_blind_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.backlog.LOOKAHEAD_RUNS_MAX", 20)
    partition = Partition()
    keeps_the_desk = partition.acquire("first", visibility_ms=1_000_000, wait_ms=1_000)
    assert keeps_the_desk is None
    for number in range(30):
        partition.send_tagged((b"g%d" % number, b""))
        partition.now_ms += 1
        picks = partition.acquire(number, 1) or partition.delivered["first"]
        partition.delete(f"d{number}", receipts_of(picks) if number else [])
    partition.commit()
    last = partition.send_tagged((b"last", b""))
    assert offsets_of(partition.acquire("last", 1)) == list(last)


def test_skipped_messages_expire_behind_those_that_were_received() -> None:
    partition = Partition(QueueConfig(retention_ms=RETENTION_MS_MIN))
    flood = partition.send_tagged(*[FLOOD] * 100)
    partition.acquire("flood", 31, visibility_ms=1_000_000)
    partition.now_ms += RETENTION_MS_MIN // 2
    quiet = partition.send_tagged((b"quiet", b""), FLOOD)
    assert offsets_of(partition.acquire("quiet", 1, visibility_ms=1_000_000)) == [quiet[0]]
    partition.commit()
    partition.pass_ms(RETENTION_MS_MIN // 2 + 2_000)
    partition.commit()
    state = partition.leader.state
    assert state.expired == len(flood), "those that waited and those in flight"
    assert (state.fresh_count, len(state.live)) == (1, 1)
    assert offsets_of(partition.acquire("last", 10)) == [quiet[1]]
    partition.check()


def test_purge_forgets_who_was_noisy(partition: Partition) -> None:
    partition.send_tagged(*[FLOOD] * 100)
    partition.acquire("flood", 40)
    partition.purge("p")
    partition.commit()
    assert partition.leader.stats(partition.now_ms).noisy_groups == 0
    again = partition.send_tagged(*[FLOOD] * 3)
    assert offsets_of(partition.acquire("after")) == list(again)
    partition.commit()
    partition.check()


def test_purge_forgets_who_was_noisy_while_a_consumer_waits(partition: Partition) -> None:
    """Who waits keeps the leader, which has nothing else left."""
    partition.send_tagged(*[FLOOD] * 40)
    partition.acquire("flood", 40)
    partition.commit()
    assert partition.leader.stats(partition.now_ms).noisy_groups == 1
    partition.acquire("waits", wait_ms=20_000)
    partition.purge("p")
    partition.commit()
    assert partition.leader.leader is not None and partition.leader.stats(partition.now_ms).noisy_groups == 0
    sent = partition.send_tagged(*[FLOOD] * 3)
    assert offsets_of(partition.delivered["waits"]) == list(sent)
    partition.commit()
    partition.check()


def test_dead_letter_of_a_group_leaves_no_trace() -> None:
    partition = Partition(QueueConfig(max_receives=1, dead_letter_partition=9))
    partition.send_tagged(*[FLOOD] * 40)
    quiet = partition.send_tagged((b"quiet", b""))
    partition.acquire("flood", 35, visibility_ms=1_000)
    partition.commit()
    partition.pass_ms(2_000)
    (move,) = partition.moves
    partition.moves.clear()
    partition.perform(partition.leader.moved([letter.offset for letter in move.letters], partition.now_ms))
    partition.commit()
    assert quiet[0] in [letter.offset for letter in move.letters]
    stats = partition.leader.stats(partition.now_ms)
    assert (stats.groups, stats.noisy_groups, stats.in_flight) == (0, 0, 0)
    assert not partition.leader.state.keys
    partition.check()


def test_delete_of_a_lease_that_is_not_committed_counts_at_once(partition: Partition) -> None:
    partition.send_tagged(*[FLOOD] * 50)
    quiet = partition.send_tagged((b"quiet", b""))
    partition.acquire("flood", 30)
    picks = partition.acquire("quiet", 1)
    assert offsets_of(picks) == [quiet[0]]
    partition.holds_fetches = True  # nothing has to be read for it
    partition.delete("d", receipts_of(picks))
    partition.commit()
    assert partition.answers["d"] == [0]
    assert partition.leader.state.deleted == 1
    partition.check()


def test_sight_bound_is_above_what_plain_queues_read_ahead() -> None:
    assert LOOKAHEAD_RUNS_MAX >= 100_000
