"""What is left of encryption keys, queues and accounts at their end: nothing that opens a message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from api import clock
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.encryption import actions
from api.encryption.models import EncryptionKeyVersion
from api.encryption.shredding import shred_account
from api.queues import lifecycle, redrive
from api.queues.models import DataKeyGrant, Queue, QueueDataKey
from api.secrets import keyring
from frontend.crypto.envelope import key_names
from frontend.crypto.keyring import KeyringError
from tests.support.control_plane import Caller, new_caller
from tests.support.encryption_keys import caller as caller
from tests.support.encryption_keys import (
    dead_letters_to,
    do,
    end_waiting_period,
    make,
    make_queue,
    opens,
    sealed_in,
    view,
)
from workers.lifecycle.reconciling import resync

pytestmark = pytest.mark.django_db(transaction=True)


def wrapped_values() -> list[bytes]:
    """Everything in the database that could still be a wrapped key."""
    found = []
    with connection.cursor() as cursor:
        for table, column in (
            ("queue_data_key", "wrapped"),
            ("queue_data_key_grant", "wrapped"),
            ("encryption_key_version", "wrapped"),
            ("account", "account_key_wrapped"),
        ):
            cursor.execute(f"SELECT {column} FROM {table}")
            found += [bytes(row[0]) for row in cursor.fetchall()]
    return found


def scene(caller: Caller) -> tuple[dict[str, Any], bytes]:
    """A queue with a key, and a dead-letter queue which was granted its data key; a message of it."""
    made = make(caller)
    make_queue(caller, "dead")
    make_queue(caller, "orders", KmsMasterKeyId=made["id"], **dead_letters_to(caller, "dead"))
    envelope = sealed_in("orders")
    assert opens("orders", envelope) and opens("dead", envelope)
    return made, envelope


def test_deleted_key_leaves_nothing_that_opens_its_messages(caller: Caller) -> None:
    """The copies of data keys that dead-letter queues hold do not help."""
    made, envelope = scene(caller)
    versions = {bytes(row.wrapped) for row in EncryptionKeyVersion.objects.all()}
    do(caller, made, "deletion", body={})
    end_waiting_period(made)
    actions.delete_due_keys()
    assert not versions & set(wrapped_values())
    assert not opens("dead", envelope)
    assert DataKeyGrant.objects.count() == 1, "the grant is there, and opens nothing"
    queue = view("orders")
    assert queue.opening_key(key_names(envelope)) is None


def test_shredded_queue_leaves_no_copy_of_its_data_keys(caller: Caller) -> None:
    _, envelope = scene(caller)
    held = {bytes(row.wrapped) for row in QueueDataKey.objects.filter(queue__name="orders")}
    granted = {bytes(row.wrapped) for row in DataKeyGrant.objects.all()}
    assert held == granted
    version = Queue.objects.get(name="dead").version
    assert caller.request("DELETE", "/v1/queues/orders?shred=true").status_code == 202
    assert not held & set(wrapped_values())
    assert not opens("dead", envelope)
    assert Queue.objects.get(name="dead").version > version, "front ends hear of it"


def test_deleted_queue_leaves_its_dead_letters_readable_until_they_are_gone(caller: Caller) -> None:
    _, envelope = scene(caller)
    held = {bytes(row.wrapped) for row in QueueDataKey.objects.filter(queue__name="orders")}
    assert caller.request("DELETE", "/v1/queues/orders").status_code == 202
    assert not QueueDataKey.objects.filter(queue__name="orders").exists()
    resync()
    assert opens("dead", envelope)
    version = Queue.objects.get(name="dead").version
    Queue.objects.filter(name="orders").update(
        deleted_at=clock.now() - timedelta(days=redrive.limits.KEY_GRANT_DAYS + 1)
    )
    resync()
    assert not held & set(wrapped_values()) and not opens("dead", envelope)
    assert Queue.objects.get(name="dead").version > version, "front ends hear of it"


@pytest.mark.parametrize("value", ["1", "yes", "", "True"])
def test_shred_is_true_or_false(caller: Caller, value: str) -> None:
    make_queue(caller, "orders")
    assert caller.request("DELETE", f"/v1/queues/orders?shred={value}").status_code == 400
    assert Queue.objects.get().state == "active"


def test_shredded_account_leaves_nothing_that_opens_anything(caller: Caller) -> None:
    """Copies of rows made before, as in a backup of single tables, do not open without the account's key."""
    from django.db import transaction

    neighbour = new_caller("neighbour")
    make(neighbour)
    scene(caller)
    make_queue(caller, "going", **dead_letters_to(caller, "dead"))
    Queue.objects.filter(name="going").update(state="deleting")  # its partitions are not gone yet
    data_key = QueueDataKey.objects.get(queue__name="orders")
    owner_uuid = Queue.objects.get(name="orders").uuid.bytes
    with transaction.atomic():
        shred_account(OPERATOR, caller.account_id)
    wrapped = Queue.objects.get(name="orders").account.account_key_wrapped
    with pytest.raises(KeyringError):
        keyring().unwrap_data_key(caller.account_id, bytes(wrapped), owner_uuid, data_key.version, data_key.wrapped)
    with pytest.raises(KeyringError):
        keyring().unwrap_account_key(caller.account_id, bytes(wrapped))
    left = Queue.objects.filter(account_id=caller.account_id)
    assert {queue.state for queue in left} <= {"deleting", "deleted"}
    assert not QueueDataKey.objects.filter(queue__account_id=caller.account_id).exists()
    assert not DataKeyGrant.objects.filter(queue__account_id=caller.account_id).exists()
    assert not EncryptionKeyVersion.objects.filter(key__account_id=caller.account_id).exists()
    assert EncryptionKeyVersion.objects.filter(key__account_id=neighbour.account_id).count() == 1
    assert AuditEntry.objects.filter(account_id=caller.account_id, action="account.shred").count() == 1


def test_lifecycle_of_a_shredded_queue_ends(caller: Caller) -> None:
    make_queue(caller, "orders")
    caller.request("DELETE", "/v1/queues/orders?shred=true")
    assert Queue.objects.get().state == "deleted"
    assert lifecycle.due_queues(0) == ([], None)
