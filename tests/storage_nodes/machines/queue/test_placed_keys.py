"""A message that waits in view is found by its offset, among however many tag queues (delivery/placed_keys.py)."""

from __future__ import annotations

import random

import pytest

from storage_nodes.machines.queue.delivery import backlog
from storage_nodes.machines.queue.delivery.backlog import Backlog
from storage_nodes.machines.queue.delivery.tag_queues import TagQueue
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of, receipts_of


def backlog_of(partition: Partition) -> Backlog:
    window = partition.leader.leader_state().delivery.window
    assert isinstance(window, Backlog)
    return window


def looked_up(view: Backlog, offset: int) -> TagQueue | None:
    return next((each for each in view._tag_queues.values() if each.holds(offset)), None)


@pytest.mark.parametrize("seed", range(12))
def test_each_offset_is_found_where_a_look_at_all_tag_queues_finds_it(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(backlog, "_GARBAGE_MAX", 4)
    chance = random.Random(seed)
    partition = Partition(QueueConfig())
    tags, groups = [b"", b"red", b"blue", b"green"], [b"", b"flood", b"quiet"]
    had: list[tuple[int, int]] = []
    waited = found = 0
    for step in range(120):
        sent = [(chance.choice(groups), chance.choice(tags)) for _ in range(chance.randrange(1, 40))]
        action = chance.randrange(5)
        if action < 2:
            partition.send_tagged(*(sent if chance.random() < 0.7 else [(b"flood", b"red")] * 200))
        elif action == 2:
            wanted = tuple(chance.sample(tags[1:], chance.randrange(3)))
            had += receipts_of(partition.acquire(f"a{step}", chance.randrange(1, 60), tags=wanted))
        elif action == 3 and had:
            partition.delete(f"d{step}", [had.pop(chance.randrange(len(had))) for _ in range(min(5, len(had)))])
        else:
            partition.remove(f"r{step}", [chance.randrange(1, partition.end + 1) for _ in range(4)])
        if chance.random() < 0.7:
            partition.commit()
        window = partition.leader.leader_state().delivery.window
        if isinstance(window, Backlog):
            for offset in range(partition.end + 2):
                expected = looked_up(window, offset)
                assert window._holder_of(offset) is expected
                found += expected is not None
            waited += 1
    assert waited > 50 and found > 1_000


def test_deletes_of_lost_leases_look_at_two_tag_queues_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come by the thousand after a failover, and a tenant may have ten thousand tags."""
    partition = Partition(QueueConfig())
    sent = [offset for _ in range(3) for offset in partition.send_tagged(*[(b"", b"%d" % tag) for tag in range(500)])]
    partition.acquire("nobody has it", 1, tags=(b"none",))
    assert len(backlog_of(partition)._tag_queues) == 500
    looks = []
    real = TagQueue.holds
    monkeypatch.setattr(TagQueue, "holds", lambda self, offset: looks.append(offset) or real(self, offset))
    partition.delete("d", [(offset, 1) for offset in sent[:300]])
    partition.commit()
    assert 600 <= len(looks) <= 4 * 300
    monkeypatch.undo()
    assert offsets_of(partition.acquire("next", 1)) == [sent[300]]
