"""Quotas of one queue or of one key: one call = one transaction = row + audit + version + announcement.

The account sets them for itself: they lower what the account, and each of its queues or keys, may use, and raise
nothing. Lock order: account, then the queue or key. The records of queues and keys carry their quotas; that of the
account says whether any queue has some (`AccountRecord.queues_differ`), so it changes with the first and the last one.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from api.accounts.models import AccessKey
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.changes import announce, next_version
from api.queues.models import Queue
from api.queues.redrive import LIVE, announce_queue
from api.quotas.errors import QuotaProblem, no_such_account
from api.quotas.models import KeyQuotas, QueueQuotas
from api.quotas.selectors import some_queue_differs
from frontend.authn.principal import Principal
from frontend.limits.quotas import QuotaError, check_single_quota
from frontend.metadata.records import RecordKind

Values = Mapping[str, int | None]


@transaction.atomic
def set_queue_quotas(actor: Principal, account_id: str, name: str, values: Values) -> dict[str, int]:
    """All that the queue has from now on; None: none. Raises QuotaProblem."""
    given = check_quotas(values)
    account = locked_account(account_id, no_such_account)
    queue = Queue.objects.select_for_update().filter(account_id=account_id, name=name, state__in=LIVE).first()
    if queue is None:
        raise QuotaProblem(404, "not-found", "There is no such queue.")
    row = QueueQuotas.objects.filter(queue=queue, account_id=account_id).first()
    before = {} if row is None else row.given
    if given != before:
        differed = some_queue_differs(account_id)
        if not given:
            QueueQuotas.objects.filter(queue=queue, account_id=account_id).delete()
        else:
            QueueQuotas.objects.update_or_create(queue=queue, account_id=account_id, defaults={"given": given})
        queue.version = next_version()
        queue.save(update_fields=["version"])
        record(actor, account_id, "queue.set_quotas", f"queue:{name}", quotas=_told(before, given))
        announce_queue(queue)
        if some_queue_differs(account_id) != differed:
            account.version = next_version()
            account.save(update_fields=["version"])
            announce(RecordKind.ACCOUNT, account_id, account.version)
    return given


@transaction.atomic
def set_key_quotas(actor: Principal, account_id: str, access_key_id: str, values: Values) -> dict[str, int]:
    """All that the key has from now on; None: none. Raises QuotaProblem."""
    given = check_quotas(values)
    locked_account(account_id, no_such_account)
    rows = AccessKey.objects.select_for_update().filter(account_id=account_id, access_key_id=access_key_id)
    key = rows.first()
    if key is None:
        raise QuotaProblem(404, "not-found", "There is no such key.")
    row = KeyQuotas.objects.filter(key=key, account_id=account_id).first()
    before = {} if row is None else row.given
    if given != before:
        if not given:
            KeyQuotas.objects.filter(key=key, account_id=account_id).delete()
        else:
            KeyQuotas.objects.update_or_create(key=key, account_id=account_id, defaults={"given": given})
        key.version = next_version()
        key.save(update_fields=["version"])
        record(actor, account_id, "key.set_quotas", f"key:{access_key_id}", quotas=_told(before, given))
        announce(RecordKind.KEY, access_key_id, key.version)
    return given


def copy_key_quotas(old: AccessKey, new: AccessKey) -> None:
    """For a key that takes the place of another, within the transaction that makes it."""
    row = KeyQuotas.objects.filter(key=old, account_id=old.account_id).first()
    if row is not None:
        KeyQuotas.objects.create(key=new, account_id=new.account_id, given=row.given)


def check_quotas(values: Values) -> dict[str, int]:
    """Those that are given. Raises QuotaProblem."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        for name, value in values.items():
            check_single_quota(name, 1_024 if value is None else value)
    except QuotaError as error:
        raise QuotaProblem(400, "invalid-request", str(error)) from None
    return given


def _told(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, list[int | None]]:
    """What changed: value before and after."""
    names = [*before, *(name for name in after if name not in before)]
    changed = [name for name in names if before.get(name) != after.get(name)]
    return {name: [before.get(name), after.get(name)] for name in changed}
