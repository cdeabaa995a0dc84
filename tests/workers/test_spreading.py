"""Queues get other partitions: standard ones more, FIFO ones another set, in rounds that may end anywhere."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.utils import timezone

from api import limits
from api.audit.actions import OPERATOR
from api.queues import actions, moving
from api.queues.attributes import QueueProblem, check_change, check_new
from api.queues.layout import LayoutRow, rows_of
from api.queues.models import Queue
from frontend.metadata.records import PartitionRecord
from tests.support.control_plane import Caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle import steps
from workers.lifecycle.reconciling import reconcile_queue

FAST = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
SLOW = {"FifoThroughputLimit": "perQueue", "DeduplicationScope": "queue"}


class Killed(BaseException):
    """The worker dies here: nothing after it runs."""


class Line:
    """A queue and the storage that its partitions are in."""

    def __init__(self, caller: Caller, name: str, **attributes: str) -> None:
        self.caller, self.name, self.storage = caller, name, ScriptedStorage()
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        checked = check_new(attributes, name)
        self.pk = actions.create_queue(OPERATOR, caller.account_id, name, checked, {}).queue.pk
        assert reconcile_queue(self.pk, self.storage) is None

    @property
    def queue(self) -> Queue:
        return Queue.objects.get(pk=self.pk)

    def change(self, **attributes: str) -> None:
        checked = check_change({name.replace("_", "."): value for name, value in attributes.items()}, self.name)
        actions.set_queue_attributes(OPERATOR, self.caller.account_id, self.name, checked)

    def reconcile_queue(self) -> int | None:
        """Now, whatever the row waits for."""
        Queue.objects.filter(pk=self.pk).update(next_attempt_at=timezone.now() - timedelta(milliseconds=1))
        return reconcile_queue(self.pk, self.storage)

    def record(self) -> list[PartitionRecord]:
        record = moving.record_of(self.queue)
        assert record is not None
        return record.layout

    def delete(self) -> None:
        actions.delete_queue(OPERATOR, self.caller.account_id, self.name)


def die(call: str) -> NoReturn:
    raise Killed


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Moves the clock of the rounds on."""
    now = [time.time_ns() // 1_000_000]
    monkeypatch.setattr("api.clock.ticking_ms", lambda: lambda: now[0])

    def move(by_ms: int) -> None:
        now[0] += by_ms

    return move


# --- standard ---


def test_queue_is_made_with_its_partitions_and_levels(caller: Caller) -> None:
    line = Line(caller, "orders", **{"Penstock.Partitions": "2", "Penstock.PriorityLevels": "3"})
    assert [one.level for one in line.record()] == [0, 0, 1, 1, 2, 2]
    assert line.queue.partitions == [1, 2, 3, 4, 5, 6]
    line.delete()
    line.reconcile_queue()
    assert line.storage.partitions == {} and line.queue.state == "deleted"


def test_standard_queue_grows_and_keeps_what_it_has(caller: Caller) -> None:
    line = Line(caller, "orders")
    assert line.record() == []
    line.change(Penstock_Partitions="3")
    line.reconcile_queue()
    assert line.queue.partitions == [1, 2, 3]
    line.change(Penstock_PriorityLevels="2")
    line.reconcile_queue()
    assert [(one.partition, one.level) for one in line.record()] == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)]
    assert line.queue.observed_generation == line.queue.generation


@pytest.mark.parametrize("dies_at", ["create", "configure"])
def test_worker_killed_while_a_queue_grows_is_made_good(caller: Caller, dies_at: str) -> None:
    line = Line(caller, "orders")
    line.change(Penstock_Partitions="4")
    line.storage.before = lambda call: die(call) if call == dies_at else None
    with pytest.raises(Killed):
        line.reconcile_queue()
    assert line.queue.partitions == [1], "nobody sends to what may not be there"
    line.storage.before = lambda call: None
    line.reconcile_queue()
    assert line.queue.partitions == [1, 2, 3, 4] and len(line.storage.partitions) == 4


def test_queue_deleted_while_it_grows_leaves_nothing_behind(caller: Caller) -> None:
    line = Line(caller, "orders")
    line.change(Penstock_Partitions="4")
    line.storage.before = lambda call: die(call) if call == "configure" else None
    with pytest.raises(Killed):
        line.reconcile_queue()
    line.storage.before = lambda call: None
    line.delete()
    line.reconcile_queue()
    assert (line.queue.state, line.storage.partitions) == ("deleted", {})


@pytest.mark.parametrize("name", ["Penstock.Partitions", "Penstock.PriorityLevels"])
def test_standard_queue_is_not_lowered(caller: Caller, name: str) -> None:
    Line(caller, "orders", **{name: "3"})
    with pytest.raises(QueueProblem, match="It is 3 and cannot be lowered"):
        actions.set_queue_attributes(OPERATOR, caller.account_id, "orders", {name: "2"})


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("orders", {"Penstock.Partitions": "17"}),
        ("orders", {"Penstock.Partitions": "0"}),
        ("orders", {"Penstock.PriorityLevels": "11"}),
        ("orders", {"Penstock.Partitions": "7", "Penstock.PriorityLevels": "10"}),
        ("line.fifo", {"FifoQueue": "true", "Penstock.PriorityLevels": "2"}),
    ],
)
def test_attributes_out_of_range_are_refused(caller: Caller, name: str, attributes: dict[str, str]) -> None:
    with pytest.raises(QueueProblem):
        check_new(attributes, name)


def test_fifo_queue_has_several_partitions_for_throughput_only(caller: Caller) -> None:
    with pytest.raises(QueueProblem, match="only with FifoThroughputLimit perMessageGroupId"):
        Line(caller, "line.fifo", **{"Penstock.Partitions": "2"})


def test_dead_letters_go_around_the_partitions_of_their_level(caller: Caller) -> None:
    dead = Line(caller, "dead", **{"Penstock.Partitions": "2", "Penstock.PriorityLevels": "2"})
    arn = f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:{caller.account_id}:dead","maxReceiveCount":3}}'
    line = Line(caller, "orders", **{"Penstock.Partitions": "2", "Penstock.PriorityLevels": "3", "RedrivePolicy": arn})
    line.change(MessageRetentionPeriod="600")
    line.reconcile_queue()
    targets = [line.storage.configs[partition].dead_letter_partition for partition in line.queue.partitions]
    assert [one in dead.queue.partitions[:2] for one in targets] == [True, True, False, False, False, False]
    assert set(targets) == set(dead.queue.partitions)


# --- FIFO ---


def test_fifo_queue_made_for_throughput_has_the_default_of_partitions(caller: Caller) -> None:
    line = Line(caller, "line.fifo", **FAST)
    assert len(line.record()) == limits.FIFO_PARTITIONS_DEFAULT
    assert all(one == PartitionRecord(one.partition, per_group=True) for one in line.record())


def test_fifo_queue_changes_over_in_rounds(caller: Caller, later: Any) -> None:
    line = Line(caller, "line.fifo")
    line.change(**FAST)
    assert [one.per_group for one in line.record()] == [False], "the scope waits for its partitions"
    line.storage.held[1] = 5
    assert line.reconcile_queue() == limits.DRAIN_CHECK_MS
    first, *fresh = line.record()
    assert (first.closed, first.drained, first.generation) == (True, False, 0)
    assert {(one.closed, one.generation, one.per_group) for one in fresh} == {(False, 1, True)}
    assert [line.storage.configs[one].closed for one in line.queue.partitions] == [True, False, False, False, False]
    version, generation = line.queue.version, line.queue.generation
    assert line.reconcile_queue() == limits.DRAIN_CHECK_MS
    assert line.queue.version == version, "nothing that a front end would have to hear"
    assert line.queue.observed_generation >= generation, "who waits for a configuration does not wait for the rounds"
    later(600_000)
    assert line.reconcile_queue() == limits.DRAIN_CHECK_MS, "however long it takes"
    line.storage.held[1] = 0
    later(-600_000)
    waits_ms = line.reconcile_queue()
    assert waits_ms is not None and 300_000 < waits_ms <= 315_000
    assert line.record()[0].drained
    later(waits_ms - 1)
    assert line.reconcile_queue() == 1
    later(1)
    assert line.reconcile_queue() is None
    assert [one.generation for one in line.record()] == [1, 1, 1, 1]
    assert 1 not in line.storage.partitions.values() and len(line.storage.partitions) == 4
    assert line.queue.observed_generation == line.queue.generation
    owner = moving.owner_of_partition(caller.account_id, 1)
    assert owner is not None and owner.name == "line.fifo", "its dead letters find home"


def test_replaced_partition_stays_until_its_last_usage_is_confirmed(
    caller: Caller, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LAST_USAGE_WAIT_MS", 30)
    line = Line(caller, "line.fifo")
    line.change(**FAST)
    waits_ms = line.reconcile_queue()
    later(limits.DRAIN_CHECK_MS)
    waits_ms = line.reconcile_queue()
    assert waits_ms is not None
    later(waits_ms)
    line.storage.is_usage_stuck = True
    assert line.reconcile_queue() == limits.LIFECYCLE_RETRY_MS_MIN
    assert 1 in line.storage.partitions.values() and line.queue.state == "active"
    assert [one.generation for one in line.record()] == [1, 1, 1, 1], "front ends hear of it no more"
    assert "the last usage of partition 1" in line.queue.last_error
    line.storage.is_usage_stuck = False
    assert line.reconcile_queue() is None
    assert 1 not in line.storage.partitions.values()


@pytest.mark.parametrize("survives", range(1, 9))
def test_worker_killed_in_the_change_over_is_made_good(caller: Caller, survives: int) -> None:
    """After so many calls to storage; whatever was done, the next one goes on."""
    line = Line(caller, "line.fifo")
    line.change(**FAST, Penstock_Partitions="2")
    left = [survives]

    def step(call: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            die(call)

    line.storage.before = step
    try:
        line.reconcile_queue()
    except Killed:
        assert all(not one.closed for one in line.record()), "what is not done is not told"
    line.storage.before = lambda call: None
    line.reconcile_queue()
    assert [(one.closed, one.generation) for one in line.record()] == [(True, 0), (False, 1), (False, 1)]
    line.delete()
    line.reconcile_queue()
    assert (line.queue.state, line.storage.partitions) == ("deleted", {})


def test_change_taken_back_after_the_partition_was_closed_makes_another(caller: Caller, later: Any) -> None:
    line = Line(caller, "line.fifo")
    line.change(**FAST)
    original = line.storage.configure

    async def configure(partition: int, config: Any) -> int:
        held = await original(partition, config)
        return die("closed") if config.closed else held

    line.storage.configure = configure  # type: ignore[method-assign]
    with pytest.raises(Killed):
        line.reconcile_queue()
    line.storage.configure = original  # type: ignore[method-assign]
    assert line.storage.configs[1].closed and not line.record()[0].closed
    line.change(**SLOW)
    line.reconcile_queue()
    (former, fresh) = line.record()
    assert former.closed and (fresh.generation, fresh.per_group) == (1, False)
    assert not line.storage.configs[fresh.partition].closed
    later(400_000)
    assert line.reconcile_queue() is None and line.record() == [fresh]
    line.delete()
    line.reconcile_queue()
    assert line.storage.partitions == {}


def test_fifo_queue_comes_back_to_one_partition(caller: Caller, later: Any) -> None:
    line = Line(caller, "line.fifo", **FAST, **{"Penstock.Partitions": "2"})
    line.change(**SLOW)
    assert all(one.per_group for one in line.record())
    line.reconcile_queue()
    assert [(one.closed, one.generation, one.per_group) for one in line.record()] == [
        (True, 0, True), (True, 0, True), (False, 1, False),
    ]  # fmt: skip
    later(400_000)
    assert line.reconcile_queue() is None
    assert line.record() == [PartitionRecord(3, generation=1)], "its numbers stand above all of before"
    line.change(DeduplicationScope="messageGroup")
    assert line.record() == [PartitionRecord(3, generation=1, per_group=True)], "alone, the scope counts at once"


def test_change_during_a_change_waits_for_it(caller: Caller, later: Any) -> None:
    line = Line(caller, "line.fifo")
    line.change(**FAST, Penstock_Partitions="2")
    line.reconcile_queue()
    line.change(Penstock_Partitions="3")
    line.reconcile_queue()
    assert sum(not one.closed for one in line.record()) == 2
    later(400_000)
    line.reconcile_queue()
    line.reconcile_queue()
    assert [(one.closed, one.generation) for one in line.record()] == [(True, 1)] * 2 + [(False, 2)] * 3


def test_dead_letters_of_a_fifo_queue_go_where_their_groups_are(caller: Caller, later: Any) -> None:
    dead = Line(caller, "dead.fifo")
    arn = f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:{caller.account_id}:dead.fifo","maxReceiveCount":3}}'
    line = Line(caller, "line.fifo", RedrivePolicy=arn)
    assert line.storage.configs[1].dead_letter_groups == ()
    dead.change(**FAST, Penstock_Partitions="2")
    dead.reconcile_queue()
    line.reconcile_queue()
    fresh = tuple(one.partition for one in dead.record() if not one.closed)
    assert line.storage.configs[1].dead_letter_groups == fresh and len(fresh) == 2


def test_rows_of_a_queue_of_one_partition_say_what_its_attributes_say() -> None:
    assert rows_of([], [7], True) == [LayoutRow(7, 0, per_group=True)]
