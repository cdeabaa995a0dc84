"""Much that is due at once, and much that came back: no input takes long, and memory has a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_nodes.limits import RETENTION_MS_DEFAULT
from storage_nodes.machines.queue.delivery import leases, pending_commands
from storage_nodes.machines.queue.leader.leader import RETENTION_CHECK_MS_MIN
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import VISIBILITY_MS, Partition, offsets_of, receipts_of

STEPS = 4
CROWD = 6


@pytest.fixture(autouse=True)
def _little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_STEPS_PER_INPUT_MAX", STEPS)
    monkeypatch.setattr(leases, "AGAIN_READY_MAX", CROWD)


@pytest.fixture(params=[False, True], ids=["plain", "grouped"])
def partition(request: pytest.FixtureRequest) -> Iterator[Partition]:
    made = Partition(QueueConfig())
    if request.param:
        made.send_tagged((b"g", b""))
        made.delete("first", receipts_of(made.acquire("first-taken", 1)))
        made.commit()
        made.send_tagged(*[(b"g%d" % number, b"") for number in range(2)])
        made.delete("others", receipts_of(made.acquire("others-taken", 2)))
        made.commit()
    yield made
    made.check()


def ready_count(partition: Partition) -> int:
    leader = partition.leader.leader
    assert leader is not None
    return leader._leases.ready_count


@pytest.mark.parametrize("delayed", [False, True])
def test_one_input_makes_a_part_ready_and_ticks_do_the_rest(partition: Partition, delayed: bool) -> None:
    """A new leader finds all that ran out since at once. It would be deposed over it, and the next one, too."""
    sent = list(partition.send(3 * STEPS, delay_ms=5_000 if delayed else 0))
    if not delayed:
        assert partition.acquire("lost", len(sent)) is not None
        partition.commit()
    partition.now_ms += VISIBILITY_MS
    partition.fail_over()
    assert ready_count(partition) <= STEPS
    partition.tick()
    assert STEPS < ready_count(partition) <= 2 * STEPS
    partition.pass_ms(0)
    assert ready_count(partition) == len(sent) and partition.counts() == (len(sent), 0, 0)
    assert partition.leader.next_tick_ms() != partition.now_ms, "and then it rests"
    assert sorted(offsets_of(partition.acquire("all", len(sent)))) == sent


def test_timer_of_many_is_cut_wherever_the_room_ends(partition: Partition) -> None:
    sent = list(partition.send(2 * STEPS + 1))
    partition.acquire("a", STEPS - 1)
    partition.acquire("b", STEPS + 2)
    partition.commit()
    partition.now_ms += VISIBILITY_MS
    received: list[int] = []
    for number in range(20):
        received += offsets_of(partition.acquire(number, 3, visibility_ms=2 * VISIBILITY_MS))
        partition.commit()
    assert sorted(received) == sent


def test_short_poll_is_not_told_that_there_is_nothing_while_more_is_due() -> None:
    """All that was looked at is dead: what may be received stands behind it."""
    partition = Partition(QueueConfig(max_receives=2, dead_letter_partition=7))
    dying = list(partition.send(STEPS + 1))
    for number in range(2):
        picks = partition.acquire(("dying", number), len(dying), visibility_ms=1_000)
        assert sorted(offsets_of(picks)) == dying
        partition.commit()
        if not number:
            partition.pass_ms(1_000)
    other = list(partition.send(2))
    assert offsets_of(partition.acquire("other", len(other), visibility_ms=1_500)) == other
    partition.commit()
    partition.now_ms += 10_000
    partition.acquire("poll")
    partition.pass_ms(0)
    assert sorted(offsets_of(partition.delivered["poll"])) == other
    assert {letter.offset for move in partition.moves for letter in move.letters} <= set(dying)
    partition.commit()
    partition.check()


def test_fresh_messages_wait_for_a_crowd_that_came_back(partition: Partition) -> None:
    """A consumer that receives and never deletes would fill the memory of all replicas with the whole queue."""
    partition.send(20 * CROWD)
    most = 0
    for number in range(100):
        partition.acquire(number, 4, visibility_ms=1_000)
        partition.commit()
        partition.pass_ms(1_000)
        most = max(most, len(partition.leader.state.live))
    assert CROWD <= most <= CROWD + 4
    assert partition.leader.state.fresh_count > 0


def test_crowd_that_shrinks_lets_fresh_messages_go_again(partition: Partition) -> None:
    sent = list(partition.send(3 * CROWD))
    for number in range(20):
        partition.acquire(("failing", number), 4, visibility_ms=0)
        partition.commit()
    received: list[int] = []
    for number in range(20):
        picks = partition.acquire(("good", number), 4)
        received += offsets_of(picks)
        partition.delete(("deleted", number), receipts_of(picks))
        partition.commit()
    assert sorted(received) == sent


def test_filter_by_tag_waits_for_a_crowd_and_says_so() -> None:
    partition = Partition(QueueConfig())
    sent = partition.send_tagged(*[(b"", b"red")] * (2 * CROWD))
    partition.acquire("failing", CROWD + 2, visibility_ms=0)
    partition.commit()
    assert partition.acquire("red", 1, tags=(b"red",)) is None
    assert "receive some of them without a filter" in partition.refused["red"].text
    picks = partition.acquire("plain", CROWD + 2)
    partition.delete("done", receipts_of(picks))
    partition.commit()
    assert set(offsets_of(picks)) | set(offsets_of(partition.acquire("again", 1, tags=(b"red",)))) <= set(sent)
    partition.check()


def test_short_polls_that_were_served_are_not_kept() -> None:
    """Of a queue on which always something comes back."""
    partition = Partition(QueueConfig())
    partition.send(1)
    partition.acquire("first", 1, visibility_ms=0)
    for number in range(1_000):
        assert partition.acquire(number, 1, visibility_ms=0) is None, "it waits for the message that comes back"
        partition.append(partition.take(), control=True)
        assert partition.delivered[number]
    leader = partition.leader.leader
    assert leader is not None and len(leader._waiters) == 0
    assert len(leader._waiters._hasty) < 300


def test_receive_of_a_group_looks_at_no_more_messages_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delayed messages of a FIFO queue that are all due stand in their group, and none of them is in flight."""
    monkeypatch.setattr(leases, "LEASE_STEPS_PER_INPUT_MAX", 1_000)
    partition = Partition(QueueConfig(fifo=True))
    sent = list(partition.send_keyed(*[(b"g", b"")] * 500, delay_ms=1_000))
    partition.pass_ms(1_000)
    partition.tick()
    assert ready_count(partition) == len(sent)
    looked: list[int] = []
    is_ready = leases.Leases.is_ready
    monkeypatch.setattr(leases.Leases, "is_ready", lambda self, offset: looked.append(offset) or is_ready(self, offset))
    partition.acquire("few", 3)
    partition.commit()
    assert offsets_of(partition.delivered["few"]) == sent[:3]
    assert len(looked) < 20


def test_who_takes_anything_does_not_wait_behind_a_filter_that_the_crowd_holds_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "LEASE_STEPS_PER_INPUT_MAX", 1_000)
    partition = Partition(QueueConfig())
    sent = partition.send_tagged(*[(b"", b"red")] * (2 * CROWD))
    partition.acquire("taken", len(sent), visibility_ms=1_000)
    partition.commit()
    assert partition.acquire("filter", 1, wait_ms=20_000, tags=(b"red",)) is None
    assert partition.acquire("any", 1, wait_ms=20_000) is None
    partition.pass_ms(1_000)
    partition.tick()
    assert len(partition.delivered["any"]) == 1 and "filter" not in partition.delivered
    picks = partition.acquire("others", CROWD + 1)
    assert len(offsets_of(picks)) == CROWD + 1
    partition.tick()
    assert len(partition.delivered["filter"]) == 1, "it is served once there are few"


@pytest.mark.parametrize("removed", [False, True])
def test_message_that_was_not_made_ready_yet_and_is_changed_and_deleted_counts_as_delayed_no_more(
    removed: bool,
) -> None:
    """Its lease was lost with the leader, and the receipt stayed."""
    partition = Partition(QueueConfig())
    sent = list(partition.send(6 * STEPS, delay_ms=1_000))
    partition.now_ms += 1_000
    for _ in range(6):
        partition.tick()
    assert offsets_of(partition.acquire("lost", len(sent))) == sent
    partition.fail_over()
    if removed:
        partition.remove("gone", sent[-1:])
        under_way = partition.take()
        partition.change("changed", [(sent[-1], 1, 5_000)])
        partition.append(under_way, control=True)
    else:
        partition.change("changed", [(sent[-1], 1, 5_000)])
        partition.delete("gone", [(sent[-1], 1)])
    partition.commit()
    partition.pass_ms(0)
    partition.check()
    assert partition.counts() == (len(sent) - 1, 0, 0)


def test_messages_in_flight_that_outlived_their_retention_expire_a_part_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One command names so many; the rest does not wait for the next check, which is a hundredth of the retention."""
    monkeypatch.setattr(pending_commands, "EXPIRED_PER_COMMAND_MAX", STEPS)
    partition = Partition(QueueConfig())
    sent = list(partition.send(3 * STEPS))
    partition.acquire("a", len(sent), visibility_ms=2 * RETENTION_MS_DEFAULT)
    partition.commit()
    partition.now_ms += RETENTION_MS_DEFAULT
    for left in (2 * STEPS, STEPS, 0):
        partition.tick()
        partition.commit()
        assert partition.counts() == (0, left, 0)
        partition.now_ms += RETENTION_CHECK_MS_MIN
    partition.check()
