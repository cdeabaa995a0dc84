"""The end of an account's keys: nothing that it stored can be opened then.

account key         overwritten: nothing that it wrapped can be unwrapped, wherever copies are
encryption keys     their versions are deleted
data keys, grants   deleted; the queues themselves are deleted in the background
access keys         deleted, with their sealed secrets
"""

from __future__ import annotations

from django.db import connection

from api.accounts.actions import delete_key
from api.accounts.models import AccessKey, Account
from api.audit.actions import record
from api.changes import announce, next_version
from api.encryption.actions import shred_keys_of
from api.queues.actions import delete_queue
from api.queues.keeping import let_go_all
from api.queues.models import Queue, QueueStatus
from api.queues.redrive import LIVE, shred_keys
from frontend.authn.principal import Principal
from frontend.metadata.records import RecordKind


def shred_account(actor: Principal, account_id: str) -> None:
    """Part of the caller's transaction, which holds the account's row. For good."""
    assert connection.in_atomic_block
    for queue in Queue.objects.filter(account_id=account_id, state=QueueStatus.DELETING):
        shred_keys(queue)
    let_go_all(actor, account_id)
    queues = list(Queue.objects.filter(account_id=account_id, state__in=LIVE).values_list("name", flat=True))
    for name in queues:
        delete_queue(actor, account_id, name, shred=True, at_once=True)
    encryption_keys = shred_keys_of(actor, account_id)
    for access_key_id in AccessKey.objects.filter(account_id=account_id).values_list("pk", flat=True):
        delete_key(actor, account_id, access_key_id)
    account = Account.objects.select_for_update().get(id=account_id)
    account.account_key_wrapped = b""
    account.version = next_version()
    account.save(update_fields=["account_key_wrapped", "version"])
    record(
        actor, account_id, "account.shred", f"account:{account_id}", queues=len(queues), encryption_keys=encryption_keys
    )
    announce(RecordKind.ACCOUNT, account_id, account.version)
