"""Lifecycle tasks: hints that are lost, doubled, late, or cut short end in the desired state."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

import pytest
from django.utils import timezone

from api import limits
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.hints import Hint
from api.queues import actions, lifecycle
from api.queues.layout import LayoutRow
from api.queues.lifecycle import ReconcileResult
from api.queues.models import Queue
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.control_plane import Caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle import steps
from workers.lifecycle.reconciling import reconcile_queue, resync
from workers.lifecycle.steps import reconcile_partitions


class Killed(BaseException):
    """The worker dies here: nothing after it runs."""


def new_queue(caller: Caller, name: str = "orders") -> Queue:
    return actions.create_queue(OPERATOR, caller.account_id, name, {}, {}).queue


def die(call: str) -> NoReturn:
    raise Killed


def done(partition: int) -> ReconcileResult:
    """The queue has this one partition."""
    return ReconcileResult([LayoutRow(partition, 0)], [])


def lease_runs_out() -> None:
    Queue.objects.update(next_attempt_at=timezone.now() - timedelta(milliseconds=1))


def test_hint_provisions_the_queue(caller: Caller) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)
    assert reconcile_queue(queue.pk, storage) is None
    queue.refresh_from_db()
    assert (queue.state, queue.partitions, queue.observed_generation, queue.claim) == ("active", [1], 1, None)


def test_hint_taken_twice_works_once(caller: Caller) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)
    reconcile_queue(queue.pk, storage)
    version = Queue.objects.get(pk=queue.pk).version
    reconcile_queue(queue.pk, storage)
    assert storage.calls == ["create", "stats"]
    assert Queue.objects.get(pk=queue.pk).version == version


def test_hint_taken_while_another_worker_is_at_it_does_nothing(caller: Caller) -> None:
    storage, second = ScriptedStorage(), ScriptedStorage()
    queue = new_queue(caller)
    claim = lifecycle.claim_queue(queue.pk)
    assert claim is not None
    assert reconcile_queue(queue.pk, second) is None
    assert second.calls == []
    assert lifecycle.complete_queue(claim, done(storage._created + 1))


def test_hint_for_a_row_that_is_not_there_does_nothing(caller: Caller) -> None:
    storage = ScriptedStorage()
    assert reconcile_queue(2**40, storage) is None
    assert storage.calls == []


@pytest.mark.parametrize("dies_at", ["create", "stats"])
def test_worker_killed_while_provisioning_is_made_good_after_its_lease(caller: Caller, dies_at: str) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)
    storage.before = lambda call: die(call) if call == dies_at else None
    with pytest.raises(Killed):
        reconcile_queue(queue.pk, storage)
    storage.before = lambda call: None
    assert reconcile_queue(queue.pk, storage) is None
    assert Queue.objects.get(pk=queue.pk).state == "creating"
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert Queue.objects.get(pk=queue.pk).state == "active"
    assert len(storage.partitions) == 1


def test_worker_killed_before_settling_leaves_one_partition(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "complete_queue", lambda claim, made: die(""))
        with pytest.raises(Killed):
            reconcile_queue(queue.pk, storage)
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert Queue.objects.get(pk=queue.pk).partitions == [1]
    assert list(storage.partitions.values()) == [1]


def test_worker_that_lost_its_claim_writes_nothing(caller: Caller) -> None:
    queue = new_queue(caller)
    late = lifecycle.claim_queue(queue.pk)
    lease_runs_out()
    quick = lifecycle.claim_queue(queue.pk)
    assert late is not None and quick is not None
    assert not lifecycle.complete_queue(late, done(98))
    assert lifecycle.fail_queue(late, "late") == 0
    assert lifecycle.complete_queue(quick, done(99))
    queue.refresh_from_db()
    assert (queue.partitions, queue.failures) == ([99], 0)


def test_storage_error_pauses_twice_as_long_each_time(caller: Caller) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)

    def refuse(call: str) -> None:
        raise StorageError(ErrorCode.NOT_ENOUGH_NODES, "1 of 3")

    storage.before = refuse
    pauses = []
    for _ in range(8):
        lease_runs_out()
        pauses.append(reconcile_queue(queue.pk, storage))
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    queue.refresh_from_db()
    assert (queue.failures, queue.state) == (8, "creating")
    assert "NOT_ENOUGH_NODES" in queue.last_error
    assert reconcile_queue(queue.pk, storage) is None, "not before its time"


def test_queue_deleted_while_being_provisioned_leaves_nothing_behind(caller: Caller) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)
    claim = lifecycle.claim_queue(queue.pk)
    assert claim is not None
    made = storage.run(lambda client: reconcile_partitions(client, claim, lambda: 0), 1)
    actions.delete_queue(OPERATOR, caller.account_id, "orders")
    assert lifecycle.complete_queue(claim, made)
    assert Queue.objects.get(pk=queue.pk).state == "deleting"
    reconcile_queue(queue.pk, storage)
    queue.refresh_from_db()
    assert (queue.state, queue.partitions, storage.partitions) == ("deleted", [], {})


def test_delete_finds_the_partition_nobody_noted(caller: Caller) -> None:
    """The provisioning worker died between creating the partition and noting it; then the queue was deleted."""
    storage = ScriptedStorage()
    queue = new_queue(caller)
    storage.before = lambda call: die(call) if call == "stats" else None
    with pytest.raises(Killed):
        reconcile_queue(queue.pk, storage)
    storage.before = lambda call: None
    actions.delete_queue(OPERATOR, caller.account_id, "orders")
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert Queue.objects.get(pk=queue.pk).state == "deleted"
    assert storage.partitions == {}


def test_worker_killed_while_deleting_is_made_good(caller: Caller) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)
    reconcile_queue(queue.pk, storage)
    actions.delete_queue(OPERATOR, caller.account_id, "orders")
    storage.before = die
    with pytest.raises(Killed):
        reconcile_queue(queue.pk, storage)
    storage.before = lambda call: None
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert (Queue.objects.get(pk=queue.pk).state, storage.partitions) == ("deleted", {})


def test_desired_state_changed_while_worked_on_is_worked_on_again(caller: Caller) -> None:
    storage = ScriptedStorage()
    queue = new_queue(caller)
    reconcile_queue(queue.pk, storage)
    change = {"MessageRetentionPeriod": "600"}
    actions.set_queue_attributes(OPERATOR, caller.account_id, "orders", change)
    claim = lifecycle.claim_queue(queue.pk)
    actions.set_queue_attributes(OPERATOR, caller.account_id, "orders", {"MessageRetentionPeriod": "700"})
    assert claim is not None and claim.config.retention_ms == 600_000
    assert lifecycle.complete_queue(claim, done(1))
    reconcile_queue(queue.pk, storage)
    assert storage.configs[1].retention_ms == 700_000


def test_resync_sends_hints_for_rows_that_stand_still(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Hint, int]] = []
    monkeypatch.setattr("workers.lifecycle.reconciling.send_hint", lambda hint, pk: sent.append((hint, pk)) or True)
    storage = ScriptedStorage()
    creating, reconciled, deleting, claimed, young = (new_queue(caller, name) for name in "abcde")
    reconcile_queue(reconciled.pk, storage)
    actions.delete_queue(OPERATOR, caller.account_id, "c")
    Queue.objects.exclude(pk=young.pk).update(next_attempt_at=timezone.now() - timedelta(seconds=6))
    lifecycle.claim_queue(claimed.pk)
    assert resync() == 2
    assert sorted(sent, key=lambda item: item[1]) == [
        (Hint.PROVISION_QUEUE, creating.pk),
        (Hint.DELETE_QUEUE, deleting.pk),
    ]


def deleted_queue(caller: Caller, storage: ScriptedStorage) -> Queue:
    queue = new_queue(caller)
    reconcile_queue(queue.pk, storage)
    actions.delete_queue(OPERATOR, caller.account_id, "orders")
    storage.calls.clear()
    return queue


def test_partition_is_deleted_once_its_last_usage_is_confirmed(caller: Caller) -> None:
    storage = ScriptedStorage()
    deleted_queue(caller, storage)
    reconcile_queue(Queue.objects.get().pk, storage)
    assert storage.calls == ["retire", "retire", "delete"]
    assert Queue.objects.get().state == "deleted"


def test_partition_whose_last_usage_is_not_confirmed_stays_and_says_so(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LAST_USAGE_WAIT_MS", 30)
    storage = ScriptedStorage()
    storage.is_usage_stuck = True
    queue = deleted_queue(caller, storage)
    reconcile_queue(queue.pk, storage)
    queue.refresh_from_db()
    assert (queue.state, list(storage.partitions.values())) == ("deleting", [1])
    assert "the last usage of partition 1 is not confirmed yet" in queue.last_error
    storage.is_usage_stuck = False
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert (Queue.objects.get(pk=queue.pk).state, storage.partitions) == ("deleted", {})


def test_partition_without_a_leader_holds_its_deletion_for_a_bounded_time(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LAST_USAGE_LAST_WAIT_MS", 30)
    lost: list[str] = []
    monkeypatch.setattr(steps._log, "error", lambda event, **given: lost.append(f"{event} {given['partition']}"))
    storage = ScriptedStorage()
    queue = deleted_queue(caller, storage)

    def no_majority(call: str) -> None:
        if call == "retire":
            raise StorageError(ErrorCode.NO_QUORUM, "one of three")

    storage.before = no_majority
    reconcile_queue(queue.pk, storage)
    assert "NO_QUORUM" in Queue.objects.get(pk=queue.pk).last_error and storage.partitions
    Queue.objects.filter(pk=queue.pk).update(failures=limits.LAST_USAGE_FAILURES_MAX)
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert (Queue.objects.get(pk=queue.pk).state, storage.partitions) == ("deleted", {})
    assert lost == ["last_usage_lost 1"]


def test_quarantined_partition_is_deleted_sooner_and_operators_are_told_what_is_lost(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LAST_USAGE_WAIT_MS", 30)
    lost: list[str] = []
    monkeypatch.setattr(steps._log, "error", lambda event, **given: lost.append(f"{event} {given['reason']}"))
    storage = ScriptedStorage()
    storage.is_usage_stuck = True
    queue = deleted_queue(caller, storage)
    storage.quarantined = {1}
    reason = "QUARANTINED: most of its replicas have stopped"
    for failures in (0, limits.LAST_USAGE_QUARANTINED_FAILURES_MAX - 1):
        Queue.objects.filter(pk=queue.pk).update(failures=failures)
        lease_runs_out()
        reconcile_queue(queue.pk, storage)
        queue.refresh_from_db()
        assert reason in queue.last_error and (queue.state, list(storage.partitions.values())) == ("deleting", [1])
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert (Queue.objects.get(pk=queue.pk).state, storage.partitions) == ("deleted", {})
    assert lost == [f"last_usage_lost {reason}"]
    entry = AuditEntry.objects.get(action="queue.last_usage_lost")
    assert entry.subject == f"queue:{queue.name}"
    assert entry.details == {"partition": 1, "reason": reason, "uuid": str(queue.uuid)}


def test_partition_that_is_not_quarantined_is_waited_for_as_long_as_ever(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LAST_USAGE_WAIT_MS", 30)
    storage = ScriptedStorage()
    storage.is_usage_stuck = True
    queue = deleted_queue(caller, storage)
    Queue.objects.filter(pk=queue.pk).update(failures=limits.LAST_USAGE_FAILURES_MAX - 1)
    lease_runs_out()
    reconcile_queue(queue.pk, storage)
    assert (Queue.objects.get(pk=queue.pk).state, list(storage.partitions.values())) == ("deleting", [1])
