"""Deletion protection, and deleted queues that are kept: by REST, by SQS, and by the rounds of the workers."""

from __future__ import annotations

import io
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.utils import timezone

from api.accounts.models import AccessKey, Account
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.encryption.shredding import shred_account
from api.iam.actions import keys
from api.metadata.rows import QUEUE, queue_record
from api.queues import keeping
from api.queues.lifecycle import retry_queue
from api.queues.models import DataKeyGrant, Queue, QueueDataKey
from frontend.metadata.records import QueueRecord
from storage_nodes.limits import RETENTION_MS_MAX
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue, resync

pytestmark = pytest.mark.django_db(transaction=True)
DAY_MS = 86_400_000


@pytest.fixture
def scripted(transactional_db: None, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch) -> ScriptedStorage:
    for module in ("keeping", "redrive"):
        monkeypatch.setattr(f"api.queues.{module}.send_hint", lambda hint, queue_id: reconcile_queue(queue_id, storage))
    return storage


@pytest.fixture
def owner(scripted: ScriptedStorage) -> Caller:
    """An account that keeps deleted queues for two days, with the queue `orders`."""
    found = new_caller()
    assert found.request("PATCH", "/v1/account", {"deletion_grace_days": 2}).status_code == 200
    assert found.request("POST", "/v1/queues", {"name": "orders"}).status_code == 201
    return found


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def deleted(owner: Caller, name: str = "orders", query: str = "") -> str:
    answer = owner.request("DELETE", f"/v1/queues/{name}{query}")
    assert (answer.status_code, answer.json()["state"]) == (202, "kept")
    queue_id: str = answer.json()["queue_id"]
    return queue_id


def restricted(owner: Caller, action: str, **more: Any) -> Caller:
    statement = {"Effect": "Allow", "Action": action, "Resource": "*", **more}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    made = keys.make_key(OPERATOR, owner.account_id, keys.KeySpec("k", policy=json.dumps(policy)))
    return Caller(owner.account_id, made.key.access_key_id)


def days_pass(days: float) -> None:
    for queue in Queue.objects.all():
        for name in ("deleted_at", "kept_until", "retention_extra_until"):
            if getattr(queue, name) is not None:
                setattr(queue, name, getattr(queue, name) - timedelta(days=days))
        queue.save()


def record_of(owner: Caller, name: str) -> QueueRecord | None:
    """As front ends get it."""
    with connection.cursor() as cursor:
        cursor.execute(QUEUE, (owner.account_id, name))
        row = cursor.fetchone()
    return None if row is None else queue_record(row)


# --- protection ---


def test_protected_account_refuses_deletion_and_says_what_to_do(owner: Caller) -> None:
    owner.request("PATCH", "/v1/account", {"deletion_protection": True})
    refused = owner.request("DELETE", "/v1/queues/orders")
    assert code(refused) == (409, "unsupported-operation") and "PATCH /v1/account" in refused.json()["detail"]
    assert code(owner.request("DELETE", "/v1/queues/none")) == (404, "queue-does-not-exist")
    by_sqs = owner.sqs("DeleteQueue", QueueName="orders")
    assert code(by_sqs) == (400, "UnsupportedOperation") and "Deletion protection" in by_sqs.json()["message"]
    assert Queue.objects.get().state == "active"
    owner.request("PATCH", "/v1/account", {"deletion_protection": False})
    deleted(owner)


def test_protection_keeps_a_deleted_queue_from_being_let_go(owner: Caller) -> None:
    queue_id = deleted(owner)
    owner.request("PATCH", "/v1/account", {"deletion_protection": True})
    assert code(owner.request("DELETE", f"/v1/deleted-queues/{queue_id}")) == (409, "unsupported-operation")
    assert Queue.objects.get().state == "kept"


def test_rules_of_deletion_are_audited_and_bounded(owner: Caller) -> None:
    shown = owner.request("PATCH", "/v1/account", {"deletion_grace_days": 30, "deletion_protection": True}).json()
    assert (shown["deletion_grace_days"], shown["deletion_protection"]) == (30, True)
    entry = AuditEntry.objects.filter(action="account.configure").latest("id")
    assert entry.details == {
        "deletion_grace_days": 30,
        "deletion_protection": True,
        "before": {"deletion_grace_days": 2, "deletion_protection": False},
    }
    for bad in ({"deletion_grace_days": 31}, {"deletion_grace_days": -1}, {"deletion_protection": "perhaps"}):
        assert owner.request("PATCH", "/v1/account", bad).status_code == 400
    assert Account.objects.get().deletion_grace_days == 30


# --- grace ---


def test_deleted_queue_is_gone_for_clients_and_its_partitions_stay(owner: Caller, scripted: ScriptedStorage) -> None:
    """The answer of DeleteQueue is that of SQS."""
    answer = owner.sqs("DeleteQueue", QueueName="orders")
    assert (answer.status_code, answer.json()) == (200, {})
    assert code(owner.sqs("ListQueueTags", QueueName="orders")) == (400, "QueueDoesNotExist")
    assert owner.sqs("ListQueues").json()["names"] == [] and record_of(owner, "orders") is None
    assert code(owner.request("POST", "/v1/queues", {"name": "orders"})) == (409, "queue-deleted-recently")
    assert list(scripted.partitions.values()) == [1] and QueueDataKey.objects.count() == 1


def test_kept_messages_live_longer_by_the_grace(owner: Caller, scripted: ScriptedStorage) -> None:
    assert scripted.configs[1].retention_ms == 4 * DAY_MS
    deleted(owner)
    assert scripted.configs[1].retention_ms == 6 * DAY_MS
    owner.request("PATCH", "/v1/account", {"deletion_grace_days": 30})
    owner.request("POST", "/v1/queues", {"name": "long"})
    deleted(owner, "long")
    assert scripted.configs[2].retention_ms == RETENTION_MS_MAX


def test_restored_queue_is_the_same_one(owner: Caller, scripted: ScriptedStorage) -> None:
    before = record_of(owner, "orders")
    queue_id = deleted(owner)
    days_pass(1)
    listed = owner.request("GET", "/v1/deleted-queues").json()["queues"]
    assert [(one["name"], one["queue_id"]) for one in listed] == [("orders", queue_id)]
    answer = owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration")
    assert (answer.status_code, answer.json()["state"], answer.json()["kept_until"]) == (200, "active", None)
    after = record_of(owner, "orders")
    assert before is not None and after is not None and after.version > before.version
    for field in ("queue_uuid", "partitions", "data_keys"):
        assert getattr(after, field) == getattr(before, field)
    assert owner.request("GET", "/v1/deleted-queues").json()["queues"] == []
    # What it held keeps the time that it had left; then the queue is as every other one.
    assert round(scripted.configs[1].retention_ms / DAY_MS, 3) == 5
    days_pass(4.01)
    resync()
    assert scripted.configs[1].retention_ms == 4 * DAY_MS
    assert keeping.end_due_extensions() == 0


@pytest.mark.parametrize("days", [8, 2])
def test_extension_of_a_restored_queue_ends_with_the_retention_that_is_set_since(
    owner: Caller, scripted: ScriptedStorage, days: int
) -> None:
    queue_id = deleted(owner)
    days_pass(1)
    assert owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 200
    days_pass(1)
    retention = {"retention_seconds": days * 86_400}
    assert owner.request("PATCH", "/v1/queues/orders", retention).status_code == 200
    days_pass(days - 1.01)
    resync()
    assert round(scripted.configs[1].retention_ms / DAY_MS, 3) == days + 1, "a message of before may be left"
    days_pass(0.02)
    resync()
    assert scripted.configs[1].retention_ms == days * DAY_MS


def test_restored_queue_can_be_deleted_and_restored_again(owner: Caller) -> None:
    for _ in range(2):
        queue_id = deleted(owner)
        assert owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 200
    assert [one.state for one in Queue.objects.all()] == ["active"]


def test_message_that_outlived_one_deletion_outlives_the_next(owner: Caller, scripted: ScriptedStorage) -> None:
    """A message may have waited while its queue was kept before: that time counts again."""
    for _ in range(2):
        queue_id = deleted(owner)
        days_pass(1)
        assert owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 200
    assert round(scripted.configs[1].retention_ms / DAY_MS, 3) == 6


def test_queue_that_was_restored_and_deleted_for_good_makes_no_partitions_again(
    owner: Caller, scripted: ScriptedStorage
) -> None:
    queue_id = deleted(owner)
    assert owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 200
    owner.request("PATCH", "/v1/account", {"deletion_grace_days": 0})
    assert owner.request("DELETE", "/v1/queues/orders").status_code == 202
    assert (Queue.objects.get().state, scripted.partitions) == ("deleted", {})
    # As a row of before has it.
    Queue.objects.update(retention_extra_until=timezone.now() - timedelta(days=5))
    resync()
    assert (Queue.objects.get().state, scripted.partitions, keeping.end_due_extensions()) == ("deleted", {}, 0)


def test_name_is_free_while_its_queue_is_kept(owner: Caller) -> None:
    queue_id = deleted(owner)
    days_pass(1)
    assert owner.request("POST", "/v1/queues", {"name": "orders"}).status_code == 201
    taken = owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration")
    assert code(taken) == (409, "queue-name-exists") and "another name" in taken.json()["detail"]
    path = f"/v1/deleted-queues/{queue_id}/restoration"
    assert owner.request("POST", path, {"name": "orders.fifo"}).status_code == 400
    assert owner.request("POST", path, {"name": "a b"}).status_code == 400
    assert owner.request("POST", path, {"name": "orders-2"}).json()["name"] == "orders-2"
    assert sorted(owner.sqs("ListQueues").json()["names"]) == ["orders", "orders-2"]


def test_kept_queue_ends_without_touching_the_next_one_of_its_name(owner: Caller, scripted: ScriptedStorage) -> None:
    deleted(owner)
    days_pass(1)
    owner.request("POST", "/v1/queues", {"name": "orders"})
    version = Queue.objects.get(state="active").version
    days_pass(1)
    resync()
    assert sorted((one.state, one.version == version) for one in Queue.objects.all()) == [
        ("active", True),
        ("deleted", False),
    ]
    assert list(scripted.partitions.values()) == [2] and QueueDataKey.objects.count() == 1
    found = record_of(owner, "orders")
    assert found is not None and found.version == version


def test_deleted_queue_goes_when_its_days_are_over_and_not_before(owner: Caller, scripted: ScriptedStorage) -> None:
    queue_id = deleted(owner)
    days_pass(1.99)
    resync()
    assert Queue.objects.get().state == "kept"
    days_pass(0.02)
    resync()
    assert Queue.objects.get().state == "deleted"
    assert (scripted.partitions, QueueDataKey.objects.count()) == ({}, 0)
    assert keeping.end_due_keeping() == 0
    assert owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 404
    actions = AuditEntry.objects.filter(subject="queue:orders").order_by("id").values_list("action", flat=True)
    assert list(actions)[-3:] == ["queue.delete", "queue.let_go", "queue.deleted"]


def test_deleted_queue_can_be_let_go_early(owner: Caller, scripted: ScriptedStorage) -> None:
    queue_id = deleted(owner)
    assert owner.request("DELETE", f"/v1/deleted-queues/{queue_id}").status_code == 202
    assert (Queue.objects.get().state, scripted.partitions) == ("deleted", {})


def test_deleted_queue_of_another_account_is_not_found(owner: Caller) -> None:
    queue_id = deleted(owner)
    other = new_caller("other")
    assert other.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 404
    assert other.request("DELETE", f"/v1/deleted-queues/{queue_id}").status_code == 404
    assert other.request("GET", "/v1/deleted-queues").json()["queues"] == []
    assert Queue.objects.get().state == "kept"


def test_right_to_a_queue_is_asked_before_it_is_deleted_too(owner: Caller) -> None:
    """A call that overtakes the deletion of the queue is no way around the right."""
    queue_id = owner.request("GET", "/v1/queues/orders").json()["queue_id"]
    key = restricted(owner, "sqs:GetQueueAttributes")
    assert code(key.request("DELETE", f"/v1/deleted-queues/{queue_id}")) == (403, "access-denied")
    assert code(key.request("POST", f"/v1/deleted-queues/{queue_id}/restoration")) == (403, "access-denied")
    assert owner.request("DELETE", f"/v1/deleted-queues/{queue_id}").status_code == 404


def test_tags_of_the_deleted_queue_are_weighed_and_not_those_of_the_next_one_of_its_name(owner: Caller) -> None:
    owner.sqs("TagQueue", QueueName="orders", Tags={"team": "a"})
    queue_id = deleted(owner)
    days_pass(1)
    owner.request("POST", "/v1/queues", {"name": "orders", "tags": {"team": "b"}})
    of_a, of_b = (
        restricted(owner, "*", Condition={"StringEquals": {"aws:ResourceTag/team": team}}) for team in ("a", "b")
    )
    assert code(of_b.request("DELETE", f"/v1/deleted-queues/{queue_id}")) == (403, "access-denied")
    assert of_a.request("DELETE", f"/v1/deleted-queues/{queue_id}").status_code == 202


def test_keys_are_shredded_after_the_grace_only(owner: Caller) -> None:
    owner.request("POST", "/v1/queues", {"name": "dead"})
    owner.request("PATCH", "/v1/queues/orders", {"dead_letter_queue": {"name": "dead"}})
    deleted(owner, query="?shred=true")
    assert DataKeyGrant.objects.count() == 1 and QueueDataKey.objects.count() == 2
    days_pass(2)
    resync()
    assert DataKeyGrant.objects.count() == 0 and QueueDataKey.objects.count() == 1


def test_sources_lose_their_dead_letter_queue_and_have_it_back(owner: Caller, scripted: ScriptedStorage) -> None:
    owner.request("POST", "/v1/queues", {"name": "dead"})
    owner.request("PATCH", "/v1/queues/orders", {"dead_letter_queue": {"name": "dead", "max_receives": 3}})
    assert scripted.configs[1].dead_letter_partition == 2
    queue_id = deleted(owner, "dead")
    assert scripted.configs[1].max_receives == 0
    assert owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 200
    assert (scripted.configs[1].max_receives, scripted.configs[1].dead_letter_partition) == (3, 2)


def test_operator_retries_all_pending_work_of_a_name(owner: Caller) -> None:
    deleted(owner)
    days_pass(1)
    owner.request("POST", "/v1/queues", {"name": "orders"})
    assert not retry_queue(OPERATOR, owner.account_id, "orders")
    later = timezone.now() + timedelta(hours=1)
    Queue.objects.update(generation=F("generation") + 1, next_attempt_at=later)
    other = new_caller("other")
    assert not retry_queue(OPERATOR, other.account_id, "orders")
    Queue.objects.filter(state="active").update(claim=uuid.uuid4())
    assert retry_queue(OPERATOR, owner.account_id, "orders")
    found = {one.state: one.next_attempt_at < later for one in Queue.objects.all()}
    assert found == {"kept": True, "active": False}, "a worker is at the other one"
    Queue.objects.update(claim=None, next_attempt_at=later)
    assert retry_queue(OPERATOR, owner.account_id, "orders")
    assert not Queue.objects.filter(next_attempt_at=later).exists()


def test_queue_in_creation_is_not_kept(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.queues.actions.send_hint", lambda hint, queue_id: False)
    from api.queues.actions import create_queue, delete_queue

    create_queue(OPERATOR, owner.account_id, "young", {}, {})
    assert delete_queue(OPERATOR, owner.account_id, "young").state == "deleting"


def test_account_that_ends_keeps_nothing(owner: Caller) -> None:
    from django.db import transaction

    deleted(owner)
    owner.request("POST", "/v1/queues", {"name": "live"})
    owner.request("PATCH", "/v1/account", {"deletion_protection": True})
    with transaction.atomic():
        shred_account(OPERATOR, owner.account_id)
    assert {one.state for one in Queue.objects.all()} == {"deleted"}
    assert (QueueDataKey.objects.count(), AccessKey.objects.count()) == (0, 0)


def test_creation_that_waited_for_the_end_of_its_account_makes_nothing(owner: Caller) -> None:
    """The call was allowed while the account was active, and gets the row when it is closed."""
    from api.accounts.actions import set_account_active
    from api.queues.actions import create_queue
    from api.queues.attributes import QueueProblem

    set_account_active(OPERATOR, owner.account_id, False)
    with pytest.raises(QueueProblem, match="not active") as caught:
        create_queue(OPERATOR, owner.account_id, "late", {}, {})
    assert caught.value.code == "AccessDeniedException"
    assert not Queue.objects.filter(name="late").exists()


def test_kept_queue_is_not_moved_by_the_lifecycle(owner: Caller, scripted: ScriptedStorage) -> None:
    """A FIFO queue in the middle of other partitions goes on when it is restored."""
    owner.request("POST", "/v1/queues", {"name": "a.fifo"})
    scripted.held[2] = 5
    change = {"partitions": 2, "deduplication_scope": "group", "throughput_limit": "group"}
    assert owner.request("PATCH", "/v1/queues/a.fifo", change).status_code == 200
    queue_id = deleted(owner, "a.fifo")
    queue = Queue.objects.get(name="a.fifo")
    Queue.objects.filter(pk=queue.pk).update(next_attempt_at=timezone.now())
    assert reconcile_queue(queue.pk, scripted) is None
    queue.refresh_from_db()
    assert queue.generation == queue.observed_generation
    assert owner.request("POST", f"/v1/deleted-queues/{queue_id}/restoration").status_code == 200
    queue.refresh_from_db()
    assert queue.generation > queue.observed_generation


# --- operators ---


def operate(verb: str, *arguments: str) -> Any:
    said = io.StringIO()
    options = [one for one in arguments if one.startswith("--")]
    call_command("operate_queues", *options, "--", verb, *arguments[len(options) :], stdout=said)
    return json.loads(said.getvalue())


def test_operator_restores_by_name_or_id(owner: Caller) -> None:
    queue_id = deleted(owner)
    assert [one["name"] for one in operate("deleted", "--account=tests")] == ["orders"]
    restored = operate("restore", "--account=tests", "--as=back", "orders")
    assert (restored["name"], restored["state"], restored["queue_id"]) == ("back", "active", queue_id)
    assert [one["name"] for one in operate("list", "--account=tests")] == ["back"]
    assert AuditEntry.objects.get(action="queue.restore").actor == "operator"


def test_operator_is_told_which_of_several_queues_had_the_name(owner: Caller) -> None:
    first = deleted(owner)
    days_pass(1)
    owner.request("POST", "/v1/queues", {"name": "orders"})
    second = deleted(owner)
    with pytest.raises(CommandError, match=f"give the id: {first}, {second}"):
        operate("restore", "--account=tests", "orders")
    assert operate("restore", "--account=tests", second)["state"] == "active"
    assert operate("let-go", "--account=tests", first)["state"] == "deleting"
    with pytest.raises(CommandError, match="no deleted queue 'orders'"):
        operate("restore", "--account=tests", "orders")


def test_operator_sets_the_rules_of_deletion(owner: Caller) -> None:
    said = io.StringIO()
    call_command("operate_accounts", "configure", "tests", "--deletion-protection=on", stdout=said)
    assert "deletion protection on, deleted queues are kept for 2 days" in said.getvalue()
    assert code(owner.request("DELETE", "/v1/queues/orders")) == (409, "unsupported-operation")
    with pytest.raises(CommandError, match="0 to 30 days"):
        call_command("operate_accounts", "configure", "tests", "--deletion-grace-days=31")
