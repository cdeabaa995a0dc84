"""Encryption keys: REST, states, queues that name them, rights, and counts of use."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from api import clock
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.encryption import actions, limits
from api.encryption.models import EncryptionKey, EncryptionKeyUse, EncryptionKeyVersion
from api.iam.actions import keys
from api.queues.models import Queue, QueueDataKey
from frontend.crypto.envelope import key_names
from tests.support.control_plane import Caller, new_caller
from tests.support.encryption_keys import (
    KEYS,
    dead_letters_to,
    do,
    end_waiting_period,
    make,
    make_queue,
    opens,
    sealed_in,
)
from tests.support.encryption_keys import caller as caller
from workers.lifecycle.reconciling import resync

pytestmark = pytest.mark.django_db(transaction=True)


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# --- REST ---


def test_key_is_made_listed_described_and_changed(caller: Caller) -> None:
    made = make(caller, description="of orders", shared_accounts=["111122223333", "111122223333", caller.account_id])
    assert made["state"] == "enabled" and made["versions"] == 1 and made["shared_accounts"] == ["111122223333"]
    assert made["arn"] == f"arn:aws:kms:us-east-1:{caller.account_id}:key/{made['id']}"
    assert "wrapped" not in json.dumps(made)
    make(caller, "another")
    listed = caller.request("GET", KEYS + "?page_size=1").json()
    assert [one["name"] for one in listed["encryption_keys"]] == ["another"]
    rest = caller.request("GET", f"{KEYS}?page_token={listed['next_page_token']}").json()
    assert rest == {"encryption_keys": [made], "next_page_token": None}
    changed = caller.request("PATCH", f"{KEYS}/{made['id']}", {"description": "", "shared_accounts": []}).json()
    assert changed == {**made, "description": "", "shared_accounts": []}
    assert caller.request("GET", f"{KEYS}/{made['id']}").json() == changed
    assert new_caller("neighbour").request("GET", f"{KEYS}/{made['id']}").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": ""}, {"name": "a b"}, {"name": "a/b"}, {"name": "é"}, {"name": "x" * 65}, {"name": 1},
        {"name": "a", "description": "x" * 257}, {"name": "a", "description": "\x00"}, {"name": "a", "other": 1},
        {"name": "a", "shared_accounts": ["1"]}, {"name": "a", "shared_accounts": "111122223333"},
        {"name": "a", "shared_accounts": ["111122223333"] * 101}, {"name": "a", "shared_accounts": [None]},
    ],
)  # fmt: skip
def test_bad_key_is_refused_and_nothing_is_stored(caller: Caller, body: dict[str, Any]) -> None:
    answer = caller.request("POST", KEYS, body)
    assert answer.status_code == 400 and answer["content-type"].startswith("application/problem+json")
    assert not EncryptionKey.objects.exists() and not EncryptionKeyVersion.objects.exists()


def test_name_is_unique_in_the_account_until_the_key_is_deleted(caller: Caller) -> None:
    made = make(caller)
    assert code_of(caller.request("POST", KEYS, {"name": made["name"]})) == (409, "encryption-key-exists")
    make(new_caller("neighbour"))
    do(caller, made, "deletion", body={"days": 7})
    assert code_of(caller.request("POST", KEYS, {"name": made["name"]})) == (409, "encryption-key-exists")
    end_waiting_period(made)
    assert actions.delete_due_keys() == 1
    assert make(caller)["id"] != made["id"]


def test_keys_and_versions_have_a_bound(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEYS_PER_ACCOUNT_MAX", 1)
    monkeypatch.setattr(limits, "VERSIONS_PER_KEY_MAX", 2)
    made = make(caller)
    assert code_of(caller.request("POST", KEYS, {"name": "second"})) == (403, "over-limit")
    assert do(caller, made, "rotation").json()["versions"] == 2
    assert code_of(do(caller, made, "rotation")) == (403, "over-limit")


@pytest.mark.parametrize("key_id", ["x", "5f0c3e9e-0000-4000-8000-000000000001", "orders-key"])
def test_key_that_is_not_there_is_not_found(caller: Caller, key_id: str) -> None:
    make(caller)
    for method, what in (("GET", ""), ("GET", "/uses"), ("POST", "/enable"), ("DELETE", "/deletion")):
        assert caller.request(method, f"{KEYS}/{key_id}{what}").status_code == 404


# --- states ---


def test_key_goes_through_its_states(caller: Caller) -> None:
    made = make(caller)
    assert do(caller, made, "disable").json()["state"] == "disabled"
    assert do(caller, made, "enable").json()["state"] == "enabled"
    assert code_of(do(caller, made, "deletion", "DELETE")) == (409, "encryption-key-state")
    pending = do(caller, made, "deletion", body={"days": 7})
    assert pending.status_code == 202 and pending.json()["state"] == "pending_deletion"
    assert pending.json()["deletes_at"] is not None
    for what in ("enable", "disable", "rotation", "deletion"):
        assert code_of(do(caller, made, what, body={} if what == "deletion" else None)) == (409, "encryption-key-state")
    cancelled = do(caller, made, "deletion", "DELETE").json()
    assert (cancelled["state"], cancelled["deletes_at"]) == ("disabled", None)


@pytest.mark.parametrize("days", [6, 31, 0, -1, "7", 7.5, True, None])
def test_waiting_period_has_its_bounds(caller: Caller, days: object) -> None:
    made = make(caller)
    assert do(caller, made, "deletion", body={"days": days}).status_code == 400
    assert EncryptionKey.objects.get().state == "enabled"


def test_key_is_not_deleted_before_its_waiting_period_is_over(caller: Caller) -> None:
    made = make(caller)
    do(caller, made, "deletion", body={"days": 7})
    resync()
    assert EncryptionKeyVersion.objects.count() == 1
    end_waiting_period(made)
    resync()
    assert not EncryptionKeyVersion.objects.exists()
    assert caller.request("GET", f"{KEYS}/{made['id']}").status_code == 404


def test_key_that_another_worker_deletes_at_the_same_time_does_not_stop_the_others(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = make(caller), make(caller, "other")
    for key in (made, other):
        do(caller, key, "deletion", body={})
        end_waiting_period(key)
    delete, first = actions._delete_if_due, iter([True])

    def late(account_id: str, key_pk: uuid.UUID) -> bool:
        """Another worker deletes the first key between the look and this."""
        if next(first, False):
            assert delete(account_id, key_pk)
        return delete(account_id, key_pk)

    monkeypatch.setattr(actions, "_delete_if_due", late)
    assert actions.delete_due_keys() == 1
    assert not EncryptionKeyVersion.objects.exists()
    assert AuditEntry.objects.filter(action="encryption_key.delete").count() == 2


def test_every_change_of_a_key_is_in_the_audit_trail(caller: Caller) -> None:
    made = make(caller)
    for what in ("disable", "disable", "enable", "rotation"):
        do(caller, made, what)
    do(caller, made, "deletion", body={})
    end_waiting_period(made)
    actions.delete_due_keys()
    rows = AuditEntry.objects.filter(subject=f"encryption_key:{made['id']}").order_by("id")
    assert [(row.action.removeprefix("encryption_key."), row.actor) for row in rows] == [
        ("create", caller.access_key_id),
        ("disable", caller.access_key_id),
        ("enable", caller.access_key_id),
        ("rotate", caller.access_key_id),
        ("schedule_deletion", caller.access_key_id),
        ("delete", "lifecycle"),
    ]


# --- queues that name keys ---


def test_queue_finds_its_key_by_every_name(caller: Caller) -> None:
    key_id = make(caller)["id"]
    arn = f"arn:aws:kms:us-east-1:{caller.account_id}"
    for number, named in enumerate(
        (key_id, "alias/orders-key", f"{arn}:key/{key_id}", f"{arn}:alias/orders-key"),
    ):
        make_queue(caller, f"q{number}", KmsMasterKeyId=named)
        queue = Queue.objects.get(name=f"q{number}")
        assert (queue.encryption_key, queue.encryption_keys) == (key_id, [key_id])
        assert queue.attributes["KmsMasterKeyId"] == named and queue.attributes["SqsManagedSseEnabled"] == "false"


def test_name_that_is_none_of_a_key_of_the_account_is_kept_and_names_nothing(caller: Caller) -> None:
    foreign = make(new_caller("neighbour"), "theirs")
    for number, named in enumerate(
        ("alias/none", foreign["id"], foreign["arn"], "alias/theirs", "arn:aws:kms:eu-west-1:1:key/x", "orders-key"),
    ):
        make_queue(caller, f"q{number}", KmsMasterKeyId=named)
        queue = Queue.objects.get(name=f"q{number}")
        assert (queue.encryption_key, queue.attributes["KmsMasterKeyId"]) == ("", named)


def test_queue_that_is_given_the_name_again_finds_a_key_made_since(caller: Caller) -> None:
    make_queue(caller, "orders", KmsMasterKeyId="alias/orders-key")
    made = make(caller)
    assert Queue.objects.get().encryption_key == ""
    caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"KmsMasterKeyId": "alias/orders-key"})
    assert Queue.objects.get().encryption_key == made["id"]


def test_queue_forgets_its_key_with_the_attribute_but_not_what_it_sealed(caller: Caller) -> None:
    made = make(caller)
    for change in ({"KmsMasterKeyId": ""}, {"SqsManagedSseEnabled": "true"}):
        name = next(iter(change))
        make_queue(caller, name, KmsMasterKeyId=made["id"])
        envelope = sealed_in(name)
        caller.sqs("SetQueueAttributes", QueueName=name, Attributes=change)
        queue = Queue.objects.get(name=name)
        assert (queue.encryption_key, queue.encryption_keys) == ("", [made["id"]])
        assert opens(name, envelope)
        assert key_names(sealed_in(name)).encryption_version == 0


def test_rest_shows_and_sets_the_key_of_a_queue(caller: Caller) -> None:
    made = make(caller)
    content = {"name": "orders", "encryption_key": "alias/orders-key", "data_key_reuse_seconds": 60}
    queue = caller.request("POST", "/v1/queues", content).json()
    assert (queue["encryption_key"], queue["encryption_key_id"]) == ("alias/orders-key", made["id"])
    assert queue["data_key_reuse_seconds"] == 60
    queue = caller.request("PATCH", "/v1/queues/orders", {"encryption_key": None}).json()
    assert (queue["encryption_key"], queue["encryption_key_id"], queue["data_key_reuse_seconds"]) == (None, None, None)


def test_rest_refuses_a_key_that_is_not_there(caller: Caller) -> None:
    made = make(caller)
    assert caller.request("POST", "/v1/queues", {"name": "orders"}).status_code == 201
    for named, words in (
        ("orders-key", "is alias/orders-key meant?"),
        ("alias/ordres-key", "it is alias/ and a name"),
        (made["id"][:-1], "it is alias/ and a name"),
    ):
        for method, path, content in (("POST", "/v1/queues", {"name": "new"}), ("PATCH", "/v1/queues/orders", {})):
            answer = caller.request(method, path, {**content, "encryption_key": named})
            assert answer.status_code == 400 and words in answer.json()["errors"][0]["detail"]
            assert answer.json()["errors"][0]["pointer"] == "/encryption_key"
    assert caller.request("GET", "/v1/queues/new").status_code == 404
    assert caller.request("GET", "/v1/queues/orders").json()["encryption_key"] is None
    for named in (made["arn"], made["id"], "alias/aws/sqs", None):
        assert caller.request("PATCH", "/v1/queues/orders", {"encryption_key": named}).status_code == 200


def test_rotation_writes_no_row_of_a_queue_and_old_messages_open(caller: Caller) -> None:
    made = make(caller)
    make_queue(caller, "orders", KmsMasterKeyId=made["id"])
    before, version = sealed_in("orders"), Queue.objects.get().version
    do(caller, made, "rotation")
    after = sealed_in("orders")
    assert key_names(after).encryption_version > key_names(before).encryption_version
    assert opens("orders", before) and opens("orders", after)
    assert Queue.objects.get().version == version and QueueDataKey.objects.count() == 1


def test_dead_letters_open_along_the_chain_after_key_and_version_changed(caller: Caller) -> None:
    """The key of the source is given to it before, and another one after it was chained."""
    first, second = make(caller), make(caller, "second")
    make_queue(caller, "last")
    make_queue(caller, "dead", **dead_letters_to(caller, "last"))
    make_queue(caller, "orders", KmsMasterKeyId=first["id"], **dead_letters_to(caller, "dead"))
    envelopes = [sealed_in("orders")]
    do(caller, first, "rotation")
    envelopes.append(sealed_in("orders"))
    caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"KmsMasterKeyId": second["id"]})
    envelopes.append(sealed_in("orders"))
    do(caller, second, "rotation")
    for name in ("orders", "dead", "last"):
        assert [opens(name, envelope) for envelope in envelopes] == [True] * 3, name


def test_deleted_key_is_not_handed_on_along_the_chain(caller: Caller) -> None:
    made = make(caller)
    make_queue(caller, "dead")
    make_queue(caller, "orders", KmsMasterKeyId=made["id"])
    do(caller, made, "deletion", body={})
    end_waiting_period(made)
    actions.delete_due_keys()
    caller.sqs("SetQueueAttributes", QueueName="orders", Attributes=dead_letters_to(caller, "dead"))
    assert Queue.objects.get(name="dead").encryption_keys == []


# --- rights ---


def restricted(caller: Caller, *actions_allowed: str, resource: str = "*") -> Caller:
    statement = {"Effect": "Allow", "Action": list(actions_allowed), "Resource": resource}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    made = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("restricted", policy=policy))
    return Caller(caller.account_id, made.key.access_key_id)


def test_giving_a_queue_a_key_needs_the_right_to_use_that_key(caller: Caller) -> None:
    made, other = make(caller), make(caller, "other")
    make_queue(caller, "orders")
    arn = f"arn:aws:penstock:us-east-1:{caller.account_id}:encryption-key/{made['id']}"
    without = restricted(caller, "sqs:*")
    policy = {"Statement": [
        {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"},
        {"Effect": "Allow", "Action": "penstock:UseEncryptionKey", "Resource": arn},
    ], "Version": "2012-10-17"}  # fmt: skip
    allowed = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("allowed", policy=json.dumps(policy)))
    with_one = Caller(caller.account_id, allowed.key.access_key_id)
    for key, key_id, status in ((without, made["id"], 403), (with_one, made["id"], 200), (with_one, other["id"], 403)):
        named = {"KmsMasterKeyId": key_id}
        assert key.sqs("SetQueueAttributes", QueueName="orders", Attributes=named).status_code == status
        assert key.request("PATCH", "/v1/queues/orders", {"encryption_key": key_id}).status_code == status
        assert key.sqs("CreateQueue", QueueName=f"new-{status}-{key_id}", Attributes=named).status_code == status
        created = {"name": f"rest-{status}-{key_id}", "encryption_key": key_id}
        assert key.request("POST", "/v1/queues", created).status_code == (201 if status == 200 else 403)
    assert without.sqs("SetQueueAttributes", QueueName="orders", Attributes={"DelaySeconds": "1"}).status_code == 200


def test_rights_on_a_key_are_of_that_key(caller: Caller) -> None:
    made, other = make(caller), make(caller, "other")
    arn = f"arn:aws:penstock:us-east-1:{caller.account_id}:encryption-key/{made['id']}"
    key = restricted(caller, "penstock:DisableEncryptionKey", resource=arn)
    assert do(key, made, "disable").status_code == 200
    assert do(key, other, "disable").status_code == do(key, made, "enable").status_code == 403


@pytest.mark.parametrize("spelling", [str.upper, lambda key_id: key_id.replace("-", "")])
def test_key_is_known_by_one_spelling_of_its_id_so_that_a_denial_cannot_be_avoided(
    caller: Caller, spelling: Callable[[str], str]
) -> None:
    made = make(caller)
    denied = {"id": spelling(made["id"])}
    for method, what in (("GET", "uses"), ("POST", "disable"), ("POST", "rotation")):
        assert do(caller, denied, what, method).status_code == 404
    assert EncryptionKey.objects.get().state == "enabled"


@pytest.mark.parametrize("change", [{"SqsManagedSseEnabled": "false"}, {"RedrivePolicy": ""}])
def test_queue_is_not_given_a_key_by_a_call_that_does_not_name_it(caller: Caller, change: dict[str, str]) -> None:
    """The name was of nothing when it was set, so no right was asked for."""
    without = restricted(caller, "sqs:*")
    make_queue(caller, "dead")
    make_queue(without, "orders", KmsMasterKeyId="alias/orders-key", **dead_letters_to(caller, "dead"))
    make(caller)
    assert without.sqs("SetQueueAttributes", QueueName="orders", Attributes=change).status_code == 200
    assert Queue.objects.get(name="orders").encryption_key == ""


# --- counts of use ---


def told(caller: Caller, uses: Any) -> Any:
    return Caller("", "").request("POST", "/internal/encryption-keys/used", {"uses": uses})


def test_uses_told_by_front_ends_add_up_by_the_hour(caller: Caller) -> None:
    made = make(caller)
    for counts in ([3, 1], [1, 0]):
        assert told(caller, {made["id"]: counts, str(uuid.uuid4()): [9, 9]}).status_code == 200
    assert told(caller, {}).status_code == 200
    shown = do(caller, made, "uses", "GET").json()["uses"]
    assert [(row["sealed"], row["opened"]) for row in shown] == [(4, 1)]
    assert EncryptionKeyUse.objects.count() == 1
    assert EncryptionKeyUse.objects.get().hour.minute == 0


@pytest.mark.parametrize("uses", [{"x": [1, 1]}, {str(uuid.uuid4()): [1]}, {str(uuid.uuid4()): [-1, 0]}, [], None])
def test_uses_that_do_not_parse_are_refused(caller: Caller, uses: Any) -> None:
    assert told(caller, uses).status_code == 400


def test_uses_are_no_account_s_to_tell(caller: Caller) -> None:
    assert caller.request("POST", "/internal/encryption-keys/used", {"uses": {}}).status_code == 401


def test_old_counts_are_forgotten(caller: Caller) -> None:
    made = make(caller)
    told(caller, {made["id"]: [1, 1]})
    assert actions.forget_old_uses() == 0
    EncryptionKeyUse.objects.update(hour=clock.now() - timedelta(days=limits.USE_DAYS_KEPT + 1))
    assert actions.forget_old_uses() == 1
