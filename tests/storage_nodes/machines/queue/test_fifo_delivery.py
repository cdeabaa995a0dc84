"""FIFO delivery: groups, locks, order, receipts, attempts (R25, R26, I9)."""

from __future__ import annotations

import pytest

from storage_nodes.limits import ATTEMPT_MS_MAX, PURGE_INTERVAL_MS, RETENTION_MS_MIN
from storage_nodes.machines.queue.effects import Pick
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import CLIENT_ATTEMPT_PREFIX, QueueConfig
from tests.storage_nodes.machines.queue.fifo_partition import partition as partition
from tests.storage_nodes.machines.queue.fifo_partition import send, take
from tests.storage_nodes.machines.queue.partition import VISIBILITY_MS, Partition, offsets_of, receipts_of
from tests.support.covers import covers


def test_lease_is_committed_before_anything_is_delivered(partition: Partition) -> None:
    send(partition, "a")
    assert partition.acquire("early") is None and "early" not in partition.delivered
    partition.commit()
    assert len(partition.delivered["early"]) == 1


def test_leader_lost_before_the_lease_is_committed_delivered_nothing(partition: Partition) -> None:
    (offset,) = send(partition, "a")
    partition.acquire("lost")
    partition.fail_over()
    assert partition.refused["lost"].code is ErrorCode.OUTCOME_UNKNOWN
    assert take(partition, "next") == [Pick(offset, 1, partition.now_ms, partition.now_ms)]


def test_group_in_flight_is_locked_for_others_and_other_groups_are_not(partition: Partition) -> None:
    a1, b1, a2, b2 = send(partition, "abab")
    assert offsets_of(take(partition, "one", 1)) == [a1]
    assert offsets_of(take(partition, "two")) == [b1, b2]
    assert take(partition, "three") == []
    partition.delete("d", [(a1, 1)])
    partition.commit()
    assert offsets_of(take(partition, "four")) == [a2]


def test_receipt_of_a_lease_that_ran_out_keeps_nothing_from_others_before_its_commit(partition: Partition) -> None:
    (offset,) = send(partition, "a")
    take(partition, "one")
    partition.pass_ms(VISIBILITY_MS)
    partition.change("late", [(offset, 1, VISIBILITY_MS)])
    assert offsets_of(take(partition, "two")) == [offset]
    assert partition.answers["late"] == [ErrorCode.RECEIPT_STALE]


def test_lock_holds_across_a_failover_until_it_runs_out(partition: Partition) -> None:
    a1, a2 = send(partition, "aa")
    take(partition, "one", 1)
    partition.fail_over()
    assert take(partition, "two") == []
    partition.pass_ms(VISIBILITY_MS)
    assert [(pick.offset, pick.delivery) for pick in take(partition, "three")] == [(a1, 2), (a2, 1)]


def test_one_acquire_takes_as_many_of_a_group_as_it_may(partition: Partition) -> None:
    offsets = send(partition, "abcaabca")
    assert offsets_of(take(partition, "one", 3)) == [offsets[0], offsets[3], offsets[4]]
    assert offsets_of(take(partition, "two", 3)) == [offsets[1], offsets[5], offsets[2]]


def test_message_in_flight_holds_back_what_follows_it_in_its_group(partition: Partition) -> None:
    a1, a2, a3, a4 = send(partition, "aaaa")
    take(partition, "one", 3)
    partition.delete("d", [(a1, 1), (a3, 1)])
    partition.commit()
    assert take(partition, "two") == []
    partition.change("c", [(a2, 1, 0)])
    partition.commit()
    assert [(pick.offset, pick.delivery) for pick in take(partition, "three")] == [(a2, 2), (a4, 1)]


def test_message_that_is_visible_again_does_not_wait_for_later_ones_of_its_lease(partition: Partition) -> None:
    a1, a2, _ = send(partition, "aaa")
    take(partition, "one", 2)
    partition.change("c", [(a1, 1, 0)])
    partition.commit()
    assert take(partition, "two") == [Pick(a1, 2, partition.now_ms, partition.now_ms)], "a2 is in flight, as before"
    partition.delete("d", [(a2, 1)])
    partition.commit()
    assert partition.answers["d"] == [ErrorCode.OK]
    assert take(partition, "three") == [], "a1 is in flight"


def test_extended_message_of_a_lease_stays_while_the_one_before_it_comes_back(partition: Partition) -> None:
    a1, a2, _ = send(partition, "aaa")
    take(partition, "one", 2)
    partition.change("c", [(a2, 1, 2 * VISIBILITY_MS)])
    partition.commit()
    partition.pass_ms(VISIBILITY_MS)
    assert offsets_of(take(partition, "two")) == [a1]
    assert take(partition, "three") == []


def test_later_message_of_a_lease_that_comes_back_waits_for_the_one_before_it(partition: Partition) -> None:
    a1, a2, a3 = send(partition, "aaa")
    take(partition, "one", 2)
    partition.change("c", [(a2, 1, 0)])
    partition.commit()
    assert take(partition, "two") == []
    partition.delete("d", [(a1, 1)])
    partition.commit()
    assert offsets_of(take(partition, "three")) == [a2, a3]


def test_leader_after_a_failover_knows_each_message_that_is_in_flight(partition: Partition) -> None:
    a1, a2, _ = send(partition, "aaa")
    take(partition, "one", 2)
    partition.change("c", [(a1, 1, 0)])
    partition.commit()
    partition.fail_over()
    assert offsets_of(take(partition, "two")) == [a1]
    partition.fail_over()
    partition.delete("d", [(a2, 1), (a1, 2)])
    partition.commit()
    assert partition.answers["d"] == [ErrorCode.OK, ErrorCode.OK]


def test_groups_that_come_back_go_behind_those_that_were_not_served_yet(partition: Partition) -> None:
    a1, a2, b1, b2, c1, c2 = send(partition, "aabbcc")
    assert offsets_of(take(partition, "one", 4, visibility_ms=0)) == [a1, a2, b1, b2]
    assert offsets_of(take(partition, "two")) == [c1, c2, a1, a2, b1, b2]


def test_consumer_that_gives_everything_back_sees_every_group(partition: Partition) -> None:
    sent = send(partition, "abcdefghijklmnopqrstuvwxyz")
    seen = [offsets_of(take(partition, f"t{turn}", 3, visibility_ms=0)) for turn in range(18)]
    assert sorted(offset for turn in seen[:8] for offset in turn) == sent[:24]
    assert sorted({offset for turn in seen[8:] for offset in turn}) == sent, "and once more, in turn"


def test_message_that_came_back_goes_before_what_was_sent_after_it_did(partition: Partition) -> None:
    (a1,) = send(partition, "a")
    take(partition, "one", visibility_ms=0)
    b1, c1 = send(partition, "bc")
    assert offsets_of(take(partition, "two")) == [a1, b1, c1]


def test_second_lease_on_a_group_is_not_staged_while_the_first_is_on_its_way(partition: Partition) -> None:
    (a1,) = send(partition, "a")
    partition.acquire("one", 1)
    (a2,) = send(partition, "a")
    partition.acquire("two", 1)
    partition.commit()
    assert offsets_of(partition.delivered["one"]) == [a1] and partition.delivered["two"] == []
    partition.delete("d", [(a1, 1)])
    partition.commit()
    assert offsets_of(take(partition, "three")) == [a2]


def test_delayed_message_keeps_its_place_between_others_that_are_not(partition: Partition) -> None:
    """The delay of the queue was changed meanwhile."""
    (a1,) = send(partition, "a")
    (a2,) = send(partition, "a", delay_ms=1_000)
    (a3,) = send(partition, "a")
    partition.pass_ms(1_000)
    order = []
    for number in range(3):
        picks = take(partition, f"t{number}")
        order += offsets_of(picks)
        partition.delete(f"d{number}", receipts_of(picks))
        partition.commit()
    assert order == [a1, a2, a3]


def test_delayed_message_holds_back_what_follows_it_in_its_group(partition: Partition) -> None:
    (a1,) = send(partition, "a")
    (a2,) = send(partition, "a", delay_ms=5_000)
    a3, b1 = send(partition, "ab")
    assert offsets_of(take(partition, "one")) == [a1, b1]
    partition.delete("d", [(a1, 1)])
    partition.commit()
    assert take(partition, "two") == []
    partition.pass_ms(5_000)
    assert offsets_of(take(partition, "three")) == [a2, a3]


def test_receipt_of_a_lease_that_ran_out_deletes_nothing(partition: Partition) -> None:
    (a1,) = send(partition, "a")
    take(partition, "one")
    partition.pass_ms(VISIBILITY_MS)
    partition.delete("late", [(a1, 1)])
    partition.change("later", [(a1, 1, 1_000)])
    partition.commit()
    assert partition.answers["late"] == partition.answers["later"] == [ErrorCode.RECEIPT_STALE]
    assert take(partition, "two")[0].delivery == 2
    partition.delete("old", [(a1, 1)])
    partition.delete("new", [(a1, 2)])
    partition.commit()
    assert partition.answers["old"] == [ErrorCode.RECEIPT_STALE]
    assert partition.answers["new"] == [ErrorCode.OK]
    partition.delete("again", [(a1, 2)])
    partition.commit()
    assert partition.answers["again"] == [ErrorCode.OK], "gone is gone"


def test_receipt_of_a_message_that_waits_is_made_up(partition: Partition) -> None:
    (a1,) = send(partition, "a")
    partition.delete("d", [(a1, 1)])
    partition.commit()
    assert partition.answers["d"] == [ErrorCode.UNKNOWN_RECORD]


def test_waiting_receives_are_served_as_groups_become_free(partition: Partition) -> None:
    a1, a2 = send(partition, "aa")
    take(partition, "one", 1)
    partition.acquire("waits", wait_ms=20_000)
    partition.commit()
    assert "waits" not in partition.delivered
    partition.delete("d", [(a1, 1)])
    partition.commit()
    assert offsets_of(partition.delivered["waits"]) == [a2]


def test_limit_of_messages_in_flight_answers_with_nothing() -> None:
    partition = Partition(QueueConfig(fifo=True, in_flight_max=2))
    offsets = send(partition, "abc")
    assert offsets_of(take(partition, "one")) == offsets[:2]
    assert take(partition, "two") == [], "no error, as on SQS"
    partition.delete("d", [(offsets[0], 1)])
    partition.commit()
    assert offsets_of(take(partition, "three")) == [offsets[2]]


def test_same_attempt_gets_the_same_messages_with_their_visibility_anew(partition: Partition) -> None:
    send(partition, "aab")
    partition.acquire("one", attempt=b"try")
    partition.commit()
    first = partition.delivered["one"]
    partition.pass_ms(VISIBILITY_MS - 1)
    partition.fail_over()
    partition.acquire("two", attempt=b"try")
    partition.commit()
    assert partition.delivered["two"] == first and len(first) == 3
    partition.pass_ms(VISIBILITY_MS - 1)
    assert take(partition, "three") == []
    partition.check()


def test_attempt_whose_messages_changed_is_a_receive_like_any_other(partition: Partition) -> None:
    offsets = send(partition, "abc")
    partition.acquire("one", 2, attempt=b"try")
    partition.commit()
    partition.delete("d", [(offsets[0], 1)])
    partition.commit()
    partition.acquire("two", attempt=b"try")
    partition.commit()
    assert offsets_of(partition.delivered["two"]) == [offsets[2]]


def test_attempt_of_which_a_visibility_change_is_on_its_way_is_not_renewed(partition: Partition) -> None:
    (a1,) = send(partition, "a")
    partition.acquire("one", attempt=b"try")
    partition.commit()
    partition.change("c", [(a1, 1, 0)])
    partition.acquire("two", attempt=b"try")
    partition.commit()
    assert partition.delivered["two"] == [] and partition.answers["c"] == [ErrorCode.OK]
    assert [pick.delivery for pick in take(partition, "three")] == [2]


@pytest.mark.parametrize(("after_ms", "is_known"), [(-1, True), (0, False), (1, False)])
@covers("ReceiveMessage", limit="FIFO, seconds that an attempt is remembered")
def test_attempt_is_forgotten_after_five_minutes(partition: Partition, after_ms: int, is_known: bool) -> None:
    send(partition, "a")
    partition.acquire("one", visibility_ms=2 * ATTEMPT_MS_MAX, attempt=b"try")
    partition.commit()
    partition.pass_ms(ATTEMPT_MS_MAX + after_ms)
    partition.acquire("two", attempt=b"try")
    partition.commit()
    assert partition.delivered["two"] == (partition.delivered["one"] if is_known else [])
    send(partition, "b")
    partition.acquire("three", attempt=b"next")
    partition.commit()
    remembered = [b"try"] * is_known + [b"next"]
    assert list(partition.leader.state.attempts) == remembered  # type: ignore[attr-defined]


def test_attempts_beyond_the_limit_are_forgotten_oldest_first(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage_nodes.machines.queue.state.fifo_state.ATTEMPTS_MAX", 2)
    send(partition, "abc")
    for name in ("x", "y", "z"):
        partition.acquire(name, 1, attempt=name.encode())
        partition.commit()
    assert list(partition.leader.state.attempts) == [b"y", b"z"]  # type: ignore[attr-defined]


# --- how much is remembered of attempts -----------------------------------------------------------------------

CLIENTS_OWN = CLIENT_ATTEMPT_PREFIX + b"1"


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """From two messages on receives that the client named are not remembered, from four on callers' are refused."""
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.by_group.REMEMBERED_UNASKED_MESSAGES_MAX", 2)
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.by_group.REMEMBERED_MESSAGES_MAX", 4)


def remembered(partition: Partition) -> list[bytes]:
    return list(partition.leader.state.attempts)  # type: ignore[attr-defined]


def receive_as(partition: Partition, name: str, attempt: bytes, messages_max: int = 1) -> list[Pick]:
    partition.acquire(name, messages_max, attempt=attempt)
    partition.commit()
    return partition.delivered[name]


@pytest.mark.usefixtures("bounds")
def test_receive_that_the_client_named_is_served_without_memory_of_it_beyond_the_first_bound(
    partition: Partition,
) -> None:
    send(partition, "abcdef")
    receive_as(partition, "one", b"try", 2)
    assert len(receive_as(partition, "two", CLIENTS_OWN)) == 1
    assert remembered(partition) == [b"try"]
    assert len(receive_as(partition, "three", b"next", 2)) == 2, "its caller named it"
    assert remembered(partition) == [b"try", b"next"]
    partition.check()


@pytest.mark.usefixtures("bounds")
def test_receive_that_its_caller_named_is_refused_beyond_the_second_bound_until_others_are_over(
    partition: Partition,
) -> None:
    send(partition, "abcdef")
    first = receive_as(partition, "one", b"try", 4)
    partition.acquire("two", attempt=b"next")
    assert partition.refused["two"].code is ErrorCode.OVER_LIMIT
    assert receive_as(partition, "three", b"try", 4) == first, "what is remembered can still be repeated"
    assert len(receive_as(partition, "four", b"", 1)) == len(receive_as(partition, "client", CLIENTS_OWN)) == 1
    assert partition.acquire("asked", 0, attempt=b"next") == []
    partition.pass_ms(ATTEMPT_MS_MAX)
    assert receive_as(partition, "five", b"next") != []
    assert remembered(partition) == [b"next"]
    partition.check()


@pytest.mark.usefixtures("bounds")
def test_long_poll_that_its_caller_named_is_refused_once_the_bound_is_reached(partition: Partition) -> None:
    partition.acquire("first", 4, wait_ms=20_000, attempt=b"try")
    partition.acquire("waits", 1, wait_ms=20_000, attempt=b"late")
    partition.acquire("unnamed", 1, wait_ms=20_000)
    send(partition, "abcd")
    partition.commit()
    assert len(partition.delivered["first"]) == 4
    send(partition, "e")
    partition.commit()
    assert partition.refused["waits"].code is ErrorCode.OVER_LIMIT
    assert len(partition.delivered["unnamed"]) == 1


@pytest.mark.usefixtures("bounds")
def test_named_receive_of_an_empty_queue_is_told_so_at_the_bound_too(partition: Partition) -> None:
    send(partition, "abcd")
    receive_as(partition, "one", b"try", 4)
    assert partition.acquire("two", attempt=b"next") == []
    partition.acquire("waits", 1, wait_ms=20_000, attempt=b"late")
    partition.pass_ms(1_000)
    assert "waits" not in partition.refused and "waits" not in partition.delivered
    send(partition, "e")
    assert partition.refused["waits"].code is ErrorCode.OVER_LIMIT


def test_many_remembered_receives_are_packed_by_who_writes(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(partition, "abcd")
    receive_as(partition, "one", b"try", 2)
    monkeypatch.setattr("storage_nodes.machines.queue.state.held_messages.CHECKPOINT_PIECES_MESSAGES", 4)
    assert isinstance(partition.leader.checkpoint_pieces(), bytes)
    receive_as(partition, "two", b"next", 1)
    pieces = partition.leader.checkpoint_pieces()
    before = partition.leader.checkpoint()
    receive_as(partition, "three", b"last", 1)
    assert isinstance(pieces, list) and b"".join(map(bytes, pieces)) == before


def test_attempts_are_counted_by_their_messages_through_a_checkpoint_and_a_purge(partition: Partition) -> None:
    send(partition, "abcd")
    receive_as(partition, "one", b"try", 2)
    receive_as(partition, "two", b"next", 2)
    count = partition.leader.state.remembered_count  # type: ignore[attr-defined]
    assert (count(partition.now_ms, 0), count(partition.now_ms + ATTEMPT_MS_MAX, 4)) == (4, 0)
    partition.fail_over()
    count = partition.leader.state.remembered_count  # type: ignore[attr-defined]
    assert count(partition.now_ms, 0) == 4
    partition.purge("p")
    partition.commit()
    count = partition.leader.state.remembered_count  # type: ignore[attr-defined]
    assert count(partition.now_ms, 0) == 0 and remembered(partition) == []
    partition.check()


def test_attempt_that_is_on_its_way_is_told_to_come_again(partition: Partition) -> None:
    send(partition, "ab")
    partition.acquire("one", 1, attempt=b"try")
    partition.acquire("two", 1, attempt=b"try")
    assert partition.refused["two"].code is ErrorCode.OVERLOADED


def test_purge_takes_waiting_and_locked_messages(partition: Partition) -> None:
    send(partition, "aab")
    take(partition, "one", 1)
    partition.purge("p")
    partition.commit()
    assert partition.answers["p"] == (ErrorCode.OK, 3)
    offsets = send(partition, "ab")
    assert offsets_of(take(partition, "two")) == offsets
    partition.now_ms += PURGE_INTERVAL_MS
    partition.check()


def test_messages_of_locked_groups_expire_too() -> None:
    partition = Partition(QueueConfig(RETENTION_MS_MIN, fifo=True))
    send(partition, "aaab")
    take(partition, "one", 1, visibility_ms=10 * RETENTION_MS_MIN)
    partition.pass_ms(2 * RETENTION_MS_MIN)
    partition.commit()
    assert partition.counts() == (0, 0, 0) and partition.leader.state.expired == 4
    (offset,) = send(partition, "a")
    assert offsets_of(take(partition, "two")) == [offset]
    partition.check()


def test_what_was_taken_behind_a_locked_group_is_one_range_however_much_it_is(partition: Partition) -> None:
    """A group that is locked for long must not make the queue remember every message that passes it."""
    (blocked, *_) = send(partition, "a" * 2)
    take(partition, "locked", 1, visibility_ms=43_200_000)
    for number in range(300):
        send(partition, "bc")
        picks = take(partition, f"t{number}")
        partition.delete(f"d{number}", receipts_of(picks))
        partition.commit()
    state = partition.leader.state
    assert state.cursor == blocked + 1 and len(state.removed_above_cursor) == 1
    assert len(partition.leader.checkpoint()) < 400
    partition.check()


def test_whether_a_queue_is_fifo_cannot_be_changed(partition: Partition) -> None:
    partition.perform(partition.leader.configure("c", QueueConfig(fifo=False)))
    assert partition.refused["c"].code is ErrorCode.INVALID_REQUEST


def test_statistics_count_groups_and_locks(partition: Partition) -> None:
    send(partition, "aabbc")
    take(partition, "one", 3)
    partition.pass_ms(5)
    stats = partition.leader.stats(partition.now_ms)
    assert (stats.waiting, stats.in_flight, stats.groups, stats.locked_groups) == (2, 3, 3, 2)
    assert stats.oldest_sent_ms == partition.now_ms - 5


def test_deletes_of_several_groups_in_one_call_free_each_of_them(partition: Partition) -> None:
    a1, b1, c1, a2, b2, c2 = send(partition, "abcabc")
    first = [*take(partition, "a", 1), *take(partition, "b", 1), *take(partition, "c", 1)]
    assert offsets_of(first) == [a1, b1, c1]
    partition.delete("d", receipts_of(first))
    partition.commit()
    assert offsets_of(take(partition, "rest")) == [a2, b2, c2]


def test_lease_that_is_folded_behind_a_purge_delivers_nothing_and_its_group_goes_on(partition: Partition) -> None:
    """It was staged before the leader saw the purge folded; what it names is below the cursor by then."""
    send(partition, "aab")
    partition.purge("purge")
    purge = partition.take()
    partition.acquire("late")
    partition.append(purge, control=True)
    after = send(partition, "z")  # the queue is not idle, so the leader's view of it stays
    partition.commit()
    assert partition.delivered["late"] == []
    after += send(partition, "a")
    assert offsets_of(take(partition, "next")) == after
    assert partition.leader.state.received == 2
    partition.check()


def test_messages_leased_together_run_out_together_wherever_they_stand(partition: Partition) -> None:
    """Two groups whose messages stand among each other: the first of the lease is not its lowest, nor the last its
    highest."""
    offsets = send(partition, "abba")
    assert len(take(partition, "one")) == 4
    partition.acquire("waits", wait_ms=2 * VISIBILITY_MS)
    partition.pass_ms(VISIBILITY_MS)
    partition.commit()
    assert sorted(offsets_of(partition.delivered["waits"])) == offsets
