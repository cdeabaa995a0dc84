"""A dead letter stands in its dead-letter queue once, however late its second copy comes (R30)."""

from __future__ import annotations

import pytest

from storage_nodes.limits import (
    DEAD_LETTERS_PER_MOVE_MAX,
    LETTERS_TAKEN_MAX,
    LETTERS_TAKEN_PER_SOURCE_MAX,
)
from storage_nodes.machines.queue.state.dedup import NOT_SEEN
from storage_nodes.machines.queue.state.taken_letters import TakenLetters
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.messages import NOT_TAKEN, DeadSource, DeathReason, QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition

DAY_MS = 86_400_000
SOURCE = 3


class Pair:
    """A queue whose messages die of their first receive, and the queue that gets them, with the shortest window."""

    def __init__(self, fifo: bool) -> None:
        self.source = Partition(QueueConfig(fifo=fifo, max_receives=1, dead_letter_partition=7))
        self.target = Partition(QueueConfig(fifo=fifo, dedup_window_ms=1_000))

    def kill(self, count: int = 1) -> list[int]:
        source = self.source
        offsets = list(source.send_keyed(*[(b"g%d" % (source.end + number), b"") for number in range(count)]))
        source.acquire(f"killed {source.end}", count, 1_000)
        source.commit()
        source.pass_ms(1_001)
        source.tick()
        return offsets

    def copies(self) -> list[bytes]:
        """Of the letters of the move under way, as its driver makes them."""
        move = self.source.moves[-1]
        return [
            copy_of_dead(
                DeadSource(
                    SOURCE, letter.offset, letter.sent_ms, letter.first_received_ms, letter.receives,
                    DeathReason.MAX_RECEIVES, letter.died_ms, letter.receives_max, "", -1, *move[2:],
                ),
                self.source.body(letter.offset),
            )
            for letter in move.letters
        ]  # fmt: skip

    def take(self, copies: list[bytes]) -> None:
        self.target.now_ms = max(self.target.now_ms, self.source.now_ms)
        self.target.append(copies, plain=False)
        self.target.check()

    def settle(self) -> None:
        """The copies are committed; the letters go."""
        offsets = [letter.offset for letter in self.source.moves.pop().letters]
        self.source.perform(self.source.leader.moved(offsets, self.source.now_ms))
        self.source.commit()

    def count(self) -> int:
        state = self.target.leader.state
        return state.fresh_count + len(state.live)


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


@pytest.mark.parametrize("away_ms", [1, 1_500, 40 * DAY_MS])
def test_copy_sent_again_by_the_next_leader_is_dropped_however_late_it_comes(pair: Pair, away_ms: int) -> None:
    pair.kill(3)
    pair.take(pair.copies())
    pair.source.now_ms = pair.target.now_ms = pair.source.now_ms + away_ms
    pair.source.fail_over()
    pair.source.tick()
    pair.take(pair.copies())
    assert pair.count() == 3
    assert list(pair.target.duplicates.values()) == [1, 2, 3]


def test_copies_of_many_tries_without_an_answer_are_one_message(pair: Pair) -> None:
    pair.kill()
    for _ in range(10):
        pair.take(pair.copies())
        pair.source.moves.clear()
        pair.source.perform(pair.source.leader.move_failed(False, pair.source.now_ms))
        pair.kill()  # another letter waits for the first one's end
        pair.source.pass_ms(20_000)
    assert pair.count() == 1
    pair.settle()
    pair.take(pair.copies())
    assert pair.count() == 11


def test_late_copy_of_a_former_leader_is_dropped_and_the_next_ones_copies_are_taken(pair: Pair) -> None:
    pair.kill(2)
    late = pair.copies()
    pair.source.fail_over()
    pair.source.tick()
    pair.take(pair.copies()[:1])
    pair.take(late)
    assert pair.count() == 1
    pair.take(pair.copies())
    assert pair.count() == 2


def test_copies_that_come_after_their_letters_are_gone_are_dropped(pair: Pair) -> None:
    pair.kill()
    late = pair.copies()
    pair.take(pair.copies())
    pair.settle()
    pair.target.now_ms += DAY_MS
    pair.take(late)
    pair.kill()
    pair.take(pair.copies())
    pair.target.now_ms += DAY_MS
    pair.take(late)
    assert pair.count() == 2


def test_what_the_source_is_done_with_is_forgotten(pair: Pair) -> None:
    for _ in range(30):
        pair.kill(5)
        pair.take(pair.copies())
        pair.settle()
    taken = pair.target.leader.state.letters_taken
    assert taken is not None and len(taken) == 5
    assert pair.count() == 150


def test_letter_that_may_be_received_again_is_still_known_when_others_have_moved_since(pair: Pair) -> None:
    config = pair.source.leader.config
    (first,) = pair.kill()
    pair.take(pair.copies())
    pair.source.moves.clear()
    pair.source.perform(pair.source.leader.move_failed(False, pair.source.now_ms))
    pair.source.perform(pair.source.leader.configure("more", QueueConfig(fifo=config.fifo)))
    pair.source.commit()
    pair.source.acquire("again", 1, DAY_MS // 2)
    pair.source.perform(pair.source.leader.configure("less", config))
    pair.source.commit()
    for _ in range(3):
        pair.kill()
        pair.take(pair.copies())
        pair.settle()
    assert pair.count() == 4
    pair.source.pass_ms(DAY_MS)
    assert [letter.offset for letter in pair.source.moves[-1].letters] == [first]
    pair.take(pair.copies())
    assert pair.count() == 4


def test_closed_partition_says_which_letters_it_took() -> None:
    pair = Pair(fifo=True)
    pair.kill()
    pair.take(pair.copies())
    pair.target.now_ms += DAY_MS
    pair.target.perform(pair.target.leader.configure("close", QueueConfig(fifo=True, closed=True)))
    pair.target.commit()
    pair.take(pair.copies())
    pair.settle()
    pair.kill()
    pair.take(pair.copies())
    assert list(pair.target.duplicates.values()) == [1, NOT_TAKEN]
    assert pair.count() == 1


def test_letter_moved_by_hand_and_by_its_leader_is_one_message(pair: Pair) -> None:
    (offset,) = pair.kill()
    by_hand = copy_of_dead(DeadSource(SOURCE, offset, 1, 1, 1, DeathReason.MOVED), pair.source.body(offset))
    pair.take([by_hand])
    for copies in (pair.copies(), [by_hand]):
        pair.source.now_ms += DAY_MS
        pair.take(copies)
    assert pair.count() == 1


def test_memory_of_letters_has_bounds_and_keeps_the_latest() -> None:
    taken = TakenLetters()
    for place in range(LETTERS_TAKEN_PER_SOURCE_MAX + 50):
        assert taken.take(DeadSource(1, place, 0, 0, 1, place=place, term=place, move=place + 1), place) == NOT_SEEN
    assert len(taken) == LETTERS_TAKEN_PER_SOURCE_MAX
    assert taken.find(DeadSource(1, 0, 0, 0, 1, place=49)) == NOT_SEEN
    assert taken.find(DeadSource(1, 0, 0, 0, 1, place=50)) == 50
    sources = LETTERS_TAKEN_MAX // DEAD_LETTERS_PER_MOVE_MAX + 1
    for source in range(2, 2 + sources):
        for place in range(DEAD_LETTERS_PER_MOVE_MAX):
            taken.take(DeadSource(source, place, 0, 0, 1, place=place, term=1, move=2, kept=2), place)
    assert LETTERS_TAKEN_MAX - LETTERS_TAKEN_PER_SOURCE_MAX <= len(taken) <= LETTERS_TAKEN_MAX
    assert taken.find(DeadSource(1, 0, 0, 0, 1, place=50)) == NOT_SEEN
    assert TakenLetters.unpack(taken.pack()).pack() == taken.pack()
    assert len(TakenLetters.unpack(taken.pack())) == len(taken)


def test_letters_are_counted_as_a_checkpoint_counts_them() -> None:
    """A place that is forgotten with its move and named again by the same letter: the bound must cut the same letters
    on a replica that began from a checkpoint."""
    taken = TakenLetters()
    for move, kept in ((5, 0), (9, 9)):
        taken.take(DeadSource(SOURCE, 1, 0, 0, 1, place=1, move=move, kept=kept), 100 + move)
    assert len(taken) == len(TakenLetters.unpack(taken.pack())) == 1
