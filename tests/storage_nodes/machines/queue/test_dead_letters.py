"""Dead letters: what was received too often is moved, and delivered no more while it is (R30)."""

from __future__ import annotations

import pytest

from storage_nodes.limits import (
    DEAD_LETTER_PAUSE_MS_MIN,
    DEAD_LETTERS_PER_MOVE_MAX,
    RETENTION_MS_MIN,
)
from storage_nodes.machines.queue.effects import DeadLetter, DeadLetterInfo
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import DeadSource, MessageState, QueueConfig, encode_message
from storage_nodes.protocol.records import HEADER_DEAD_SOURCE, encode_body
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of

TARGET = 9


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def partition(request: pytest.FixtureRequest) -> Partition:
    return Partition(QueueConfig(fifo=request.param, max_receives=2, dead_letter_partition=TARGET))


def receive(partition: Partition, token: str, count: int = 10) -> list[int]:
    """Receive, and let the lease run out."""
    partition.acquire(token, count, 1_000)
    partition.commit()
    partition.pass_ms(1_000)
    return offsets_of(partition.delivered[token])


def kill_letters(partition: Partition, count: int = 1) -> list[int]:
    offsets = list(partition.send_keyed(*[(b"g", b"")] * count))
    assert receive(partition, "first", 1_000) == receive(partition, "second", 1_000) == offsets
    return offsets


def test_message_received_too_often_is_handed_to_the_mover_with_its_life(partition: Partition) -> None:
    sent_ms = partition.now_ms
    (offset,) = kill_letters(partition)
    (move,) = partition.moves
    assert move == DeadLetter(TARGET, [DeadLetterInfo(offset, 2, sent_ms, sent_ms, sent_ms + 2_000, 2)], *move[2:])
    assert receive(partition, "third") == []


def test_message_that_died_is_not_put_off_by_any_of_its_receipts(partition: Partition) -> None:
    (offset,) = kill_letters(partition)
    partition.change("late", [(offset, 1, 60_000), (offset, 2, 60_000)])
    partition.commit()
    refusal = ErrorCode.RECEIPT_STALE if partition.leader.is_fifo else ErrorCode.NOT_IN_FLIGHT
    assert partition.answers["late"] == [refusal] * 2


def test_dead_letter_is_seen_in_flight_until_somebody_may_receive_it(partition: Partition) -> None:
    """Who looks for messages that wait, to move them, does not copy one that stands in two places then."""
    (offset,) = partition.send_keyed((b"g", b""))

    def seen(after_ms: int = 0) -> MessageState:
        found = partition.leader.look_at(offset, partition.now_ms + after_ms)
        assert found is not None
        return found[0]

    assert seen() is MessageState.WAITING
    receive(partition, "first")
    assert seen() is MessageState.WAITING
    partition.acquire("second", 1, 1_000)
    partition.commit()
    assert seen() is seen(1_000) is MessageState.IN_FLIGHT, "also before the leader has noticed that it died"
    partition.pass_ms(1_000)
    assert seen() is MessageState.IN_FLIGHT and partition.moves
    partition.perform(partition.leader.move_failed(True, partition.now_ms))
    assert seen() is MessageState.WAITING


def test_message_that_was_moved_is_gone_from_the_source(partition: Partition) -> None:
    offsets = kill_letters(partition)
    partition.perform(partition.leader.moved(offsets, partition.now_ms))
    partition.moves.clear()
    partition.commit()
    assert partition.counts() == (0, 0, 0)
    assert partition.leader.stats(partition.now_ms).dead_lettered == 1
    partition.check()


def test_new_leader_moves_again_what_the_old_one_may_have_moved(partition: Partition) -> None:
    (offset,) = kill_letters(partition)
    partition.perform(partition.leader.moved([offset], partition.now_ms))  # staged, never committed
    partition.fail_over()
    assert [letter.offset for letter in partition.moves[0].letters] == [offset]
    assert receive(partition, "third") == []


def test_move_that_failed_is_tried_again_after_a_pause_and_the_message_is_not_received(partition: Partition) -> None:
    (offset,) = kill_letters(partition)
    partition.moves.clear()
    partition.perform(partition.leader.move_failed(False, partition.now_ms))
    assert not partition.moves
    partition.pass_ms(DEAD_LETTER_PAUSE_MS_MIN)
    assert [letter.offset for letter in partition.moves[0].letters] == [offset]
    assert receive(partition, "third") == []


def test_purge_of_what_is_being_moved_starts_no_second_move(partition: Partition) -> None:
    purged = kill_letters(partition)
    partition.purge("purge")
    partition.commit()
    offsets = list(partition.send_keyed((b"g", b"")))
    assert receive(partition, "third") == receive(partition, "fourth") == offsets
    assert len(partition.moves) == 1, "the first one's answer has not come"
    partition.moves.clear()
    partition.perform(partition.leader.moved(purged, partition.now_ms))
    partition.commit()
    assert [letter.offset for letter in partition.moves[0].letters] == offsets
    partition.check()


def test_message_that_cannot_be_moved_at_all_is_received_again(partition: Partition) -> None:
    offsets = kill_letters(partition)
    partition.moves.clear()
    assert receive(partition, "meanwhile") == []
    partition.perform(partition.leader.move_failed(True, partition.now_ms))
    assert receive(partition, "third") == offsets
    partition.pass_ms(60_000)
    assert partition.moves, "and the move is tried again after that"


def test_many_dead_letters_move_in_order_a_share_at_a_time(partition: Partition) -> None:
    offsets = kill_letters(partition, DEAD_LETTERS_PER_MOVE_MAX + 20)
    moved = []
    while partition.moves:
        letters = [letter.offset for letter in partition.moves.pop().letters]
        moved += letters[:70]
        partition.perform(partition.leader.moved(letters[:70], partition.now_ms))
        partition.commit()
    assert moved == offsets
    partition.check()


def test_group_goes_on_when_its_dead_letter_is_moved() -> None:
    partition = Partition(QueueConfig(fifo=True, max_receives=1, dead_letter_partition=TARGET))
    first, second = partition.send_keyed((b"g", b""), (b"g", b""))
    assert receive(partition, "one", 1) == [first]
    assert receive(partition, "two") == [], "the order within the group holds for its dead letters as well"
    partition.moves.clear()
    partition.perform(partition.leader.moved([first], partition.now_ms))
    partition.commit()
    assert receive(partition, "three") == [second]


def allow_more(partition: Partition, max_receives: int = 0) -> None:
    config = QueueConfig(fifo=partition.leader.is_fifo, max_receives=max_receives, dead_letter_partition=TARGET)
    partition.perform(partition.leader.configure("more", config))
    partition.commit()


def test_more_receives_allowed_give_the_message_back(partition: Partition) -> None:
    offsets = kill_letters(partition)
    partition.moves.clear()
    partition.perform(partition.leader.move_failed(False, partition.now_ms))
    assert partition.acquire("meanwhile") is None or partition.delivered["meanwhile"] == []
    allow_more(partition)
    assert receive(partition, "third") == offsets
    partition.check()


@pytest.mark.parametrize("moves", [True, False])
def test_letter_that_moves_while_more_receives_are_allowed_is_given_to_nobody_before_the_outcome(
    partition: Partition, moves: bool
) -> None:
    offsets = kill_letters(partition, DEAD_LETTERS_PER_MOVE_MAX + 1)
    moving = [letter.offset for letter in partition.moves.pop().letters]
    allow_more(partition, 3)
    assert receive(partition, "third", 1_000) == ([] if partition.leader.is_fifo else offsets[-1:]), "one does not move"
    if moves:
        partition.perform(partition.leader.moved(moving[1:], partition.now_ms))
        partition.commit()
    else:
        partition.perform(partition.leader.move_failed(False, partition.now_ms))
    expected = moving[:1] if moves else moving
    received = receive(partition, "fourth", 1_000)
    assert sorted(set(received) - {offsets[-1]}) == expected
    partition.check()


def test_many_dead_letters_that_may_be_received_again_are_ready_in_many_inputs(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = kill_letters(partition, 25)
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.leases.LEASE_STEPS_PER_INPUT_MAX", 10)
    partition.moves.clear()
    partition.perform(partition.leader.move_failed(False, partition.now_ms))
    allow_more(partition)
    assert partition.leader.next_tick_ms() <= partition.now_ms
    before = partition.counts()  # an input of its own, after the fold
    partition.pass_ms(0)
    assert (before, partition.counts()) == ((20, 5, 0), (25, 0, 0))
    assert sorted(partition.leader.state.live) == offsets
    partition.check()


@pytest.mark.parametrize("how", ["failed", "final", "partial"])
def test_change_of_visibility_holds_after_a_move_that_did_not_take_its_message(how: str) -> None:
    partition = Partition(QueueConfig(max_receives=2, dead_letter_partition=TARGET))
    first, second = kill_letters(partition, 2)
    allow_more(partition)
    partition.change("v", [(first, 2, 60_000), (second, 2, 60_000)])
    partition.commit()
    assert partition.answers["v"] == [ErrorCode.OK, ErrorCode.OK]
    partition.moves.clear()
    if how == "partial":
        partition.perform(partition.leader.moved([first], partition.now_ms))
        partition.commit()
    else:
        partition.perform(partition.leader.move_failed(how == "final", partition.now_ms))
    assert receive(partition, "early") == []
    partition.pass_ms(60_000)
    assert sorted(receive(partition, "late")) == ([second] if how == "partial" else [first, second])
    partition.check()


def test_change_that_is_under_way_as_a_move_fails_puts_its_message_off() -> None:
    partition = Partition(QueueConfig(max_receives=2, dead_letter_partition=TARGET))
    (offset,) = kill_letters(partition)
    allow_more(partition)
    partition.change("v", [(offset, 2, 60_000)])
    partition.moves.clear()
    partition.perform(partition.leader.move_failed(False, partition.now_ms))
    partition.commit()
    assert receive(partition, "early") == []
    partition.pass_ms(60_000)
    assert receive(partition, "late") == [offset]


def test_message_that_dies_while_it_is_being_removed_does_not_move() -> None:
    """It was ready as its removal began; a configuration that was under way makes it a dead letter."""
    partition = Partition(QueueConfig())
    (offset, other) = partition.send(2)
    assert receive(partition, "first") == [offset, other]
    partition.tick()
    config = QueueConfig(max_receives=1, dead_letter_partition=TARGET)
    partition.perform(partition.leader.configure("c", config))
    staged = partition.take()
    partition.remove("r", [offset], moved=True)
    partition.append(staged, control=True)
    assert [letter.offset for move in partition.moves for letter in move.letters] == [other]
    partition.commit()
    assert partition.answers["r"] == [ErrorCode.OK]
    partition.check()


def test_purge_takes_dead_letters_too(partition: Partition) -> None:
    offsets = kill_letters(partition)
    partition.purge("p")
    partition.commit()
    partition.moves.clear()
    partition.perform(partition.leader.moved(offsets, partition.now_ms))
    partition.commit()
    assert partition.counts() == (0, 0, 0) and partition.leader.state.dead_lettered == 0
    partition.check()


def test_dead_letter_in_a_standard_queue_is_as_old_as_it_was_in_its_source() -> None:
    partition = Partition(QueueConfig(retention_ms=RETENTION_MS_MIN))
    sent_ms = partition.now_ms - RETENTION_MS_MIN // 2
    source = encode_message(DeadSource(3, 5, sent_ms, sent_ms + 1, 4))
    bodies = [encode_body(b"dead", None, [(HEADER_DEAD_SOURCE, source)]), encode_body(b"new")]
    dead, new = partition.append(bodies, plain=False)
    picks = partition.acquire("a", visibility_ms=0)
    assert picks is not None and {pick.offset: pick.sent_ms for pick in picks} == {dead: sent_ms, new: partition.now_ms}
    partition.commit()
    partition.pass_ms(RETENTION_MS_MIN // 2 + 2_000)
    partition.commit()
    assert not partition.leader.is_live(dead, dead) and partition.leader.is_live(new, new)
    partition.check()
