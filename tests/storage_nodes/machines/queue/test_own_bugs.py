"""What the machine asserts of itself: each planted bug is found where the machine looks for it, at the latest.

The fold's counts are looked at for each checkpoint, and by who begins to lead; what a leader derived from the fold, as
often as it looks for expired messages. What raises there stops this replica alone (docs/storage/stopped_replicas.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storage_nodes.machines.queue.delivery.backlog import Backlog
from storage_nodes.machines.queue.delivery.by_group import ByGroupDelivery
from storage_nodes.machines.queue.delivery.groups import GroupWindow
from storage_nodes.machines.queue.delivery.leases import Leases
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition, receipts_of

MINUTE_MS = 60_000
# Looks for expired messages after 72 s.
STANDARD = QueueConfig(retention_ms=120 * MINUTE_MS)
FIFO = QueueConfig(retention_ms=120 * MINUTE_MS, fifo=True)
LOOK_MS = 2 * MINUTE_MS
Plant = pytest.MonkeyPatch


def partition_in_use(config: QueueConfig = STANDARD) -> Partition:
    """Ten messages wait, are in flight, came back or are delayed, one was deleted."""
    partition = Partition(config)
    partition.send_keyed(*[(b"g%d" % (number % 3), b"") for number in range(8)])
    partition.send_keyed((b"g0", b""), (b"g3", b""), delay_ms=10 * MINUTE_MS)
    partition.acquire("in flight", 4, 10 * MINUTE_MS)
    partition.commit()
    receipts = receipts_of(partition.delivered["in flight"])
    partition.delete("d", receipts[:1])
    partition.change("c", [(*receipts[1], 0)])
    partition.commit()
    return partition


def after(real: Callable[..., Any], damage: Callable[[Any], None]) -> Callable[..., Any]:
    def damaged(self: Any, *arguments: Any) -> Any:
        result = real(self, *arguments)
        damage(self)
        return result

    return damaged


def add(field: str, count: int) -> Callable[[Any], None]:
    return lambda found: setattr(found, field, getattr(found, field) + count)


# --- the fold ---------------------------------------------------------------------------------------------------

FOLDS = {
    "a delete is not counted": (QueueState, "fold_deleted", add("deleted", -1), r"10 sent, 9 here, 0 gone"),
    "a send is counted twice": (QueueState, "fold_messages", add("sent", 1), r"\d+ sent, 9 here, 1 gone"),
    "a waiting message is lost": (QueueState, "fold_acquired", add("fresh_count", -1), r"10 sent, 8 here, 1 gone"),
    "receives fall": (QueueState, "fold_acquired", add("received", -5), r"a count below 0"),
    "the cursor runs ahead": (QueueState, "fold_visibility", add("cursor", 99), r"the cursor is at \d+"),
}


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("finds", ["checkpoint", "lead"])
def test_bug_in_the_fold_is_found_for_a_checkpoint_and_by_the_next_leader(
    monkeypatch: Plant, name: str, finds: str
) -> None:
    owner, method, damage, message = FOLDS[name]
    monkeypatch.setattr(owner, method, after(getattr(owner, method), damage))
    partition = partition_in_use()
    with pytest.raises(AssertionError, match=message):
        if finds == "checkpoint":
            partition.leader.checkpoint_pieces()
        else:
            partition.fail_over()


def test_message_that_is_gone_and_still_holds_its_group_is_found_for_a_checkpoint(monkeypatch: Plant) -> None:
    monkeypatch.setattr(FifoState, "_remove", QueueState._remove)
    partition = partition_in_use(FIFO)
    partition.remove("r", [next(iter(partition.leader.state.live))])
    partition.commit()
    with pytest.raises(AssertionError, match="group of 5 messages is known, 4 are in flight"):
        partition.leader.checkpoint_pieces()


# --- what a leader derived --------------------------------------------------------------------------------------


def left_out(*arguments: object) -> None:
    """In the place of a step that is forgotten."""


def lock_all(delivery: ByGroupDelivery) -> None:
    for group in delivery.window.groups.values():
        group.leases_under_way = 1


DERIVED = {
    "a delayed message is not counted": (
        STANDARD, Leases, "delayed_arrived", add("delayed", -1), "1 of 2 count as delayed",
    ),
    "a message that is gone stays available": (STANDARD, Leases, "forget", None, "a message that is gone is available"),
    "a message that is taken is counted": (
        STANDARD, Backlog, "take_fresh", add("count", 1), "4 messages stand on tag queues, 8 are counted",
    ),
    "a noisy message is counted": (
        STANDARD, Backlog, "take_fresh", add("noisy_count", 1), "messages are of noisy groups",
    ),
    "a group is locked by what left": (FIFO, GroupWindow, "left_live", None, "6 messages hold back what follows"),
    "a group is not locked by what was leased": (
        FIFO, GroupWindow, "run_came_live", None, "messages hold back what follows them, of 3",
    ),
    "a group stays locked by a lease that was folded": (
        FIFO, ByGroupDelivery, "fold_leased", lock_all, "4 groups wait for the commit of a lease, 0 are leased",
    ),
    "a message of a group is counted twice": (
        FIFO, GroupWindow, "arrived", add("count", 1), "6 messages are in view, 4 wait",
    ),
    "a message of a group is not counted": (
        FIFO, GroupWindow, "arrived", add("count", -1), "4 messages wait in their groups, 2 are counted",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVED)
def test_bug_in_what_a_leader_derives_is_found_as_it_looks_for_expired_messages(monkeypatch: Plant, name: str) -> None:
    config, owner, method, damage, message = DERIVED[name]
    monkeypatch.setattr(owner, method, after(getattr(owner, method), damage) if damage is not None else left_out)
    partition = partition_in_use(config)
    partition.delete("late", receipts_of(partition.delivered["in flight"]))
    partition.commit()
    with pytest.raises(AssertionError, match=message):
        partition.pass_ms(LOOK_MS)
