"""The read-ahead of a FIFO queue: what stands beyond it is found in its turn."""

from __future__ import annotations

import pytest

from tests.storage_nodes.machines.queue.fifo_partition import partition as partition
from tests.storage_nodes.machines.queue.fifo_partition import send, take
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of


def test_group_beyond_the_read_ahead_is_found_when_it_is_asked_for(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("delivery.groups", "delivery.by_group"):
        monkeypatch.setattr(f"storage_nodes.machines.queue.{module}.FIFO_READ_AHEAD_MESSAGES_MAX", 20)
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.by_group.READ_AHEAD_MESSAGES_MAX", 4)
    send(partition, "a" * 15)
    send(partition, "b" * 3)
    (far,) = send(partition, "c" * 30)[-1:]
    take(partition, "one", 1)
    assert len(take(partition, "two", 10)) == 3, "the b's"
    window = partition.leader.leader.delivery.window  # type: ignore[union-attr]
    assert window.count <= 20 + 30 and window.end <= far + 20, "what does not fit is not read"
    assert partition.leader.state.fresh_count == 44


def read_little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("delivery.groups", "delivery.by_group"):
        monkeypatch.setattr(f"storage_nodes.machines.queue.{module}.FIFO_READ_AHEAD_MESSAGES_MAX", 4)
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.by_group.READ_AHEAD_MESSAGES_MAX", 2)


def test_delayed_message_beyond_the_read_ahead_waits_for_what_stands_in_front_of_it(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_little_ahead(monkeypatch)
    send(partition, "aaaa")
    (b1,) = send(partition, "b")
    (b2,) = send(partition, "b", delay_ms=1_000)
    take(partition, "one", 1)
    partition.holds_fetches = True
    partition.pass_ms(1_000)
    partition.acquire("two")
    partition.commit()
    assert not partition.delivered.get("two"), "b1 has not been read yet"
    partition.holds_fetches = False
    partition.run_fetches()
    partition.commit()
    assert offsets_of(partition.delivered["two"]) == [b1]
    partition.delete("d", [(b1, 1)])
    partition.commit()
    assert offsets_of(take(partition, "three")) == [b2]


def test_delayed_message_beyond_the_read_ahead_is_found_when_that_gets_there(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_little_ahead(monkeypatch)
    send(partition, "aaaa")
    c1, c2 = send(partition, "cc")
    (b1,) = send(partition, "b", delay_ms=1_000)
    take(partition, "one", 1)
    partition.pass_ms(1_000)
    found = offsets_of(take(partition, "two")) + offsets_of(take(partition, "three"))
    assert sorted(found) == [c1, c2, b1]


@pytest.fixture
def room_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("delivery.groups", "delivery.by_group"):
        monkeypatch.setattr(f"storage_nodes.machines.queue.{module}.FIFO_READ_AHEAD_MESSAGES_MAX", 2)


def test_messages_that_wait_for_nothing_but_their_time_come_though_the_window_had_no_room_for_them(
    partition: Partition, room_for_two: None
) -> None:
    """The fold's cursor passes them as they come: nothing is read from the log, or they would be read as fresh."""
    (first,) = send(partition, "z")
    take(partition, "leader")
    delayed = send(partition, "abc", delay_ms=1_000)
    assert partition.leader.state.fresh_count == 0
    partition.pass_ms(1_000)
    assert offsets_of(take(partition, "due")) == delayed
    partition.delete("d", [(first, 1)])
    partition.commit()
    partition.check()


def test_delayed_message_beyond_the_window_that_the_cursor_passed_is_not_read_as_fresh_too(
    partition: Partition, room_for_two: None
) -> None:
    """It would stand twice in its group, and neither be handed out nor let what is behind it pass."""
    partition.holds_fetches = True
    send(partition, "xy")
    delayed = send(partition, "a", delay_ms=1_000)
    b, behind = send(partition, "ba")
    take(partition, "front", 2)
    partition.holds_fetches = False
    partition.run_fetches()
    assert offsets_of(take(partition, "early")) == [b]
    partition.pass_ms(1_000)
    assert offsets_of(take(partition, "due")) == [*delayed, behind]
    partition.check()


def test_message_due_beyond_the_window_comes_when_what_is_in_front_of_it_is_gone_before_it_was_read(
    partition: Partition, room_for_two: None
) -> None:
    front = send(partition, "xy")
    partition.holds_fetches = True
    delayed = send(partition, "a", delay_ms=1_000)
    partition.acquire("front")
    partition.pass_ms(1_000)
    assert partition.acquire("waits", wait_ms=10_000) is None
    partition.commit()
    assert offsets_of(partition.delivered["front"]) == front
    partition.commit()
    partition.holds_fetches = False
    partition.run_fetches()
    partition.commit()
    assert offsets_of(partition.delivered["waits"]) == delayed


def test_message_due_beyond_the_window_comes_when_what_is_in_front_of_it_was_removed(
    partition: Partition, room_for_two: None
) -> None:
    """Nothing is fresh any more, so nobody reads the log to find out that nothing stands in front of it."""
    front = send(partition, "xy")
    delayed = send(partition, "a", delay_ms=1_000)
    partition.remove("leader", list(front))
    partition.commit()
    assert not partition.fetches
    partition.pass_ms(1_000)
    assert offsets_of(take(partition, "due")) == delayed
    partition.check()
