"""That the use of a quota comes near it, or goes beyond: into the audit trail of the account, once in a while.

Told of an account, and of single queues and keys, whether the rates are their own or those that the account gave to
each of them. Of queues and keys no more than SINGLE_NOTICES_MAX within QUOTA_NOTICE_HOURS: an account may have many.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from api import clock, limits
from api.accounts.models import AccessKey, Account
from api.audit.actions import record
from api.queues.models import Queue
from api.queues.redrive import LIVE
from api.quotas.models import QuotaNotice
from frontend.authn.principal import Principal
from frontend.limits.quotas import KEY_RATES, QUEUE_RATES, SOFT_LEVEL_PERCENT, quotas_of

WARNING, EXCEEDED = "warning", "exceeded"
QUEUE_SUBJECT, KEY_SUBJECT = "queue:", "key:"
_OF_QUEUES = frozenset(kind.name for kind in QUEUE_RATES)
_OF_KEYS = frozenset(kind.name for kind in KEY_RATES)


@transaction.atomic
def note_use(actor: Principal, account_id: str, name: str, level: str, percent: int, subject: str = "") -> bool:
    """At most once within QUOTA_NOTICE_HOURS. `subject`: `queue:NAME` or `key:ID`, "" = the account as a whole. False:
    it was told before, or there is nothing to tell."""
    assert level in (WARNING, EXCEEDED)
    if name not in quotas_of(account_id) or Account.objects.filter(pk=account_id).first() is None:
        return False
    now = clock.now()
    over = now - timedelta(hours=limits.QUOTA_NOTICE_HOURS)
    if subject and not (_is_there(account_id, name, subject) and _has_room(account_id, over)):
        return False
    row, made = QuotaNotice.objects.select_for_update().get_or_create(
        account_id=account_id, name=name, level=level, subject=subject, defaults={"told_at": now}
    )
    if not made:
        if row.told_at > over:
            return False
        row.told_at = now
        row.save(update_fields=["told_at"])
    if subject:
        record(actor, account_id, f"quota.{level}", subject, quota=name, percent=percent)
    else:
        record(actor, account_id, f"quota.{level}", f"quota:{name}", percent=percent)
    return True


def note_count(actor: Principal, account_id: str, name: str, count: int, limit: int) -> None:
    """A count that has just grown to this: a warning where it comes near its quota."""
    if count * 100 >= limit * SOFT_LEVEL_PERCENT:
        note_use(actor, account_id, name, WARNING, count * 100 // limit)


def _is_there(account_id: str, name: str, subject: str) -> bool:
    """A queue is paid for before it is looked up: front ends tell of names that no queue has, too."""
    if not subject.isprintable():
        return False
    if subject.startswith(QUEUE_SUBJECT) and name in _OF_QUEUES:
        queue = subject.removeprefix(QUEUE_SUBJECT)
        return Queue.objects.filter(account_id=account_id, name=queue, state__in=LIVE).exists()
    if subject.startswith(KEY_SUBJECT) and name in _OF_KEYS:
        key = subject.removeprefix(KEY_SUBJECT)
        return AccessKey.objects.filter(account_id=account_id, access_key_id=key).exists()
    return False


def _has_room(account_id: str, over: datetime) -> bool:
    """Rows of queues and keys stand for their hour only."""
    rows = QuotaNotice.objects.filter(account_id=account_id).exclude(subject="")
    rows.filter(told_at__lte=over).delete()
    return rows.count() < limits.SINGLE_NOTICES_MAX
