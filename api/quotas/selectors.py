"""Reading quotas, always as one holder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import Q, QuerySet

from api.accounts.models import AccessKey, Account
from api.queues.models import Queue, QueueStatus
from api.queues.redrive import LIVE
from api.queues.selectors import queue_count
from api.quotas.models import KeyQuotas, QueueQuotas, QueueSending, QuotaHolder, QuotaNotice, QuotaRequest, RequestState
from frontend.limits.quotas import (
    INSTALLATION,
    QuotaKind,
    Rates,
    account_limits,
    given_rates,
    lowest,
    quotas_of,
)


class Quota(NamedTuple):
    """One quota of a holder. `in_use` None: the data plane knows."""

    kind: QuotaKind
    value: int | None
    in_use: int | None


class OwnQuotas(NamedTuple):
    """Of one queue or key: what it was given, and what holds for it with what its account has."""

    given: Rates
    in_force: Rates


def holder_of(holder: str) -> QuotaHolder | None:
    return QuotaHolder.objects.filter(holder=holder).first()


def stopped_accounts() -> QuerySet[Account, str]:
    """The accounts that may not send now, for a query that leaves them out: sending is stopped, or the account is not
    active."""
    stopped = QuotaHolder.objects.exclude(sending_stopped="").values("holder")
    return Account.objects.filter(Q(active=False) | Q(pk__in=stopped)).values_list("pk", flat=True)


def may_send(account_id: str) -> bool:
    return not stopped_accounts().filter(pk=account_id).exists()


def stopped_queues() -> QuerySet[QueueSending, int]:
    """The queues to which nothing may be sent now, by row id, for a query that leaves them out."""
    return QueueSending.objects.exclude(sending_stopped="").values_list("queue_id", flat=True)


def queue_sending(account_id: str, name: str) -> QueueSending | None:
    """None: the queue takes what the quotas allow."""
    rows = QueueSending.objects.filter(account_id=account_id, queue__name=name, queue__state__in=LIVE)
    return rows.first()


def sends_per_s(account_id: str) -> int:
    """So many messages a second may the account send; 0: as its quotas say."""
    row = holder_of(account_id)
    return 0 if row is None else row.sends_per_s


def quota_value(account_id: str, name: str) -> int:
    """Of a quota that has a default."""
    row = holder_of(account_id)
    given = {} if row is None else row.given
    value = given.get(name, quotas_of(account_id)[name].default)
    assert isinstance(value, int)
    return value


def quota_value_or_none(account_id: str, name: str) -> int | None:
    """None where the quota has no limit of its own, or is not known any more."""
    kind = quotas_of(account_id).get(name)
    row = holder_of(account_id)
    found = None if kind is None else (row.given if row else {}).get(name, kind.default)
    return found if isinstance(found, int) else None


def quotas_in_use(holder: str) -> list[Quota]:
    """All of the holder's, in the order in which they are declared."""
    row = holder_of(holder)
    given = {} if row is None else row.given
    used = {} if holder == INSTALLATION else _counts(holder)
    return [Quota(kind, given.get(name, kind.default), used.get(name)) for name, kind in quotas_of(holder).items()]


def requests_of(account_id: str, before: int | None, limit: int) -> list[QuotaRequest]:
    """The newest first, from the first one before `before` on."""
    rows = QuotaRequest.objects.filter(account_id=account_id)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.order_by("-pk")[:limit])


def request_of(account_id: str, request_id: int) -> QuotaRequest | None:
    return QuotaRequest.objects.filter(account_id=account_id, pk=request_id).first()


def open_requests(limit: int) -> list[QuotaRequest]:
    """Of all accounts, the oldest first: for operators."""
    rows = QuotaRequest.objects.filter(state=RequestState.OPEN).select_related("account")
    return list(rows.order_by("pk")[:limit])


def notices_of(account_id: str) -> dict[str, QuotaNotice]:
    """By the name of the quota, what was told last of the account's use of it."""
    rows = QuotaNotice.objects.filter(account_id=account_id, subject="").order_by("told_at")
    return {notice.name: notice for notice in rows}


def queue_quotas(account_id: str, name: str) -> OwnQuotas | None:
    """None: there is no such queue."""
    queue = Queue.objects.filter(account_id=account_id, name=name, state__in=LIVE).select_related("own_quotas").first()
    if queue is None:
        return None
    row = getattr(queue, "own_quotas", None)
    given = given_rates({} if row is None else row.given)
    limits = account_limits(_given_to(account_id))
    return OwnQuotas(given, lowest(lowest(limits.queue, given), limits.account))


def given_to_queues(queues: Sequence[Queue]) -> dict[int, dict[str, int]]:
    """What each of these queues, read as its account, was given of its own, by row id; one without is not in it."""
    rows = QueueQuotas.objects.filter(queue__in=[queue.pk for queue in queues])
    return dict(rows.values_list("queue_id", "given"))


def key_quotas(account_id: str, access_key_id: str) -> OwnQuotas | None:
    """None: there is no such key."""
    rows = AccessKey.objects.filter(account_id=account_id, access_key_id=access_key_id).select_related("own_quotas")
    key = rows.first()
    if key is None:
        return None
    row = getattr(key, "own_quotas", None)
    given = given_rates({} if row is None else row.given)
    limits = account_limits(_given_to(account_id))
    return OwnQuotas(given, lowest(lowest(limits.key, given), limits.account))


def queues_with_quotas(account_id: str, limit: int) -> list[QueueQuotas]:
    """By name."""
    rows = QueueQuotas.objects.filter(account_id=account_id, queue__state__in=LIVE).select_related("queue")
    return list(rows.order_by("queue__name")[:limit])


def keys_with_quotas(account_id: str, limit: int) -> list[KeyQuotas]:
    """By name."""
    rows = KeyQuotas.objects.filter(account_id=account_id).select_related("key")
    return list(rows.order_by("key__name", "key_id")[:limit])


def some_queue_differs(account_id: str) -> bool:
    """As the account's record says it (`api/metadata/store.py`)."""
    rows = QueueQuotas.objects.filter(account_id=account_id)
    return rows.exclude(queue__state=QueueStatus.DELETED).exists()


def _given_to(account_id: str) -> dict[str, int]:
    row = holder_of(account_id)
    return {} if row is None else row.given


def _counts(account_id: str) -> dict[str, int]:
    return {"queues": queue_count(account_id)}
