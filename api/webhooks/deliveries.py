"""Deliveries to webhooks: begun with the change that they tell, claimed by workers, ended by what the endpoint answers.

    waiting --claim, call--> delivered       an answer of 2xx
            ------------->   waiting         any other outcome, after a pause that grows with the attempts
            ------------->   failed          410, or no attempt is left

A claim counts as an attempt before the call is made: a worker that dies leaves the delivery to the next claim, and no
delivery is called more often than it has attempts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import F, Window
from django.db.models.functions import RowNumber

from api.secrets import keyring
from api.webhooks import limits
from api.webhooks.models import CallResult, DeliveryState, Webhook, WebhookDelivery
from frontend.crypto.keyring import KeyringError

_GONE = 410
_log = structlog.get_logger(__name__)


class ClaimedDelivery(NamedTuple):
    """What a worker has to call. `secrets`: all that sign now."""

    pk: int
    attempt: int
    account_id: str
    public_id: str
    url: str
    secrets: tuple[str, ...]
    body: bytes


class CallOutcome(NamedTuple):
    result: CallResult
    status_code: int | None = None
    latency_ms: int = 0


def sealed_secret_as(webhook_id: UUID) -> str:
    return f"webhook:{webhook_id}"


def sealed_url_as(webhook_id: UUID) -> str:
    return f"webhook-url:{webhook_id}"


def begin_delivery(
    webhook: Webhook, about: str, content: Mapping[str, Any], now: datetime,
    attempts_max: int = limits.DELIVERY_ATTEMPTS_MAX,
) -> WebhookDelivery | None:  # fmt: skip
    """Part of the caller's transaction. None: as many were begun within the hour as may be."""
    begun = WebhookDelivery.objects.filter(webhook=webhook, created_at__gt=now - timedelta(hours=1)).count()
    if begun >= limits.DELIVERIES_PER_HOUR_MAX:
        return None
    delivery = WebhookDelivery(
        webhook=webhook, account_id=webhook.account_id, about=about, next_at=now, created_at=now,
        attempts_max=attempts_max,
    )  # fmt: skip
    members = {"id": delivery.public_id, **content}
    delivery.body = json.dumps(members, separators=(",", ":"), allow_nan=False)
    assert len(delivery.body) <= limits.WEBHOOK_BODY_BYTES_MAX, "json.dumps writes ASCII"
    delivery.save()
    return delivery


@transaction.atomic
def claim_deliveries(now: datetime, places: int, busy: Mapping[str, int]) -> list[ClaimedDelivery]:
    """The longest due first, as many as there are places, and of an account no more than its share; `busy`: calls under
    way by account."""
    due = WebhookDelivery.objects.filter(state=DeliveryState.WAITING, next_at__lte=now, attempts__lt=F("attempts_max"))
    full = [account_id for account_id, calls in busy.items() if calls >= limits.CALLS_OF_ACCOUNT_MAX]
    turn = Window(RowNumber(), partition_by=F("account_id"), order_by=("next_at", "pk"))
    rows = due.exclude(account_id__in=full).annotate(turn=turn).filter(turn__lte=limits.CALLS_OF_ACCOUNT_MAX)
    chosen = [
        pk
        for pk, account_id, turn_of in rows.order_by("next_at", "pk").values_list("pk", "account_id", "turn")
        if turn_of + busy.get(account_id, 0) <= limits.CALLS_OF_ACCOUNT_MAX
    ][:places]
    found = due.filter(pk__in=chosen).select_for_update(skip_locked=True, of=("self",)).select_related("webhook")
    claimed = []
    for delivery in found.order_by("next_at", "pk"):
        delivery.attempts += 1
        delivery.next_at = now + timedelta(seconds=limits.DELIVERY_CLAIM_S)
        delivery.save(update_fields=["attempts", "next_at"])
        try:
            claimed.append(_opened(delivery, now))
        except KeyringError:
            _log.error("webhook_not_opened", delivery=delivery.pk)
    return claimed


@transaction.atomic
def note_outcome(claimed: ClaimedDelivery, outcome: CallOutcome, now: datetime) -> None:
    """Nothing happens where the claim ran out and another worker took the delivery, or the webhook is gone."""
    rows = WebhookDelivery.objects.select_for_update()
    delivery = rows.filter(pk=claimed.pk, state=DeliveryState.WAITING, attempts=claimed.attempt).first()
    if delivery is None:
        return
    delivery.result, delivery.status_code = outcome.result.value, outcome.status_code
    delivery.latency_ms, delivery.last_at = outcome.latency_ms, now
    if outcome.result is CallResult.DELIVERED:
        delivery.state = DeliveryState.DELIVERED.value
    elif outcome.status_code == _GONE or delivery.attempts >= delivery.attempts_max:
        delivery.state = DeliveryState.FAILED.value
    else:
        delivery.next_at = now + timedelta(seconds=limits.DELIVERY_PAUSES_S[delivery.attempts - 1])
    delivery.save()
    if delivery.state != DeliveryState.WAITING:
        _forget_oldest(delivery.webhook_id)


def end_lost_deliveries(now: datetime) -> int:
    """Those whose worker died in the last attempt; and what is too old to be listed. How many have failed by that."""
    lost = WebhookDelivery.objects.filter(
        state=DeliveryState.WAITING, next_at__lte=now, attempts__gte=F("attempts_max")
    )
    ended = lost.update(state=DeliveryState.FAILED.value, last_at=now, result=CallResult.NO_ANSWER.value)
    old = WebhookDelivery.objects.filter(created_at__lt=now - timedelta(days=limits.DELIVERIES_KEPT_DAYS))
    ids = old.order_by("created_at").values_list("pk", flat=True)[: limits.DELIVERIES_REMOVED_AT_ONCE_MAX]
    WebhookDelivery.objects.filter(pk__in=list(ids)).delete()
    return ended


def _opened(delivery: WebhookDelivery, now: datetime) -> ClaimedDelivery:
    """Raises KeyringError."""
    webhook, ring = delivery.webhook, keyring()
    sealed = [bytes(webhook.secret_sealed)]
    if webhook.previous_sealed is not None and webhook.previous_until is not None and webhook.previous_until > now:
        sealed.append(bytes(webhook.previous_sealed))
    secret_as = sealed_secret_as(webhook.pk)
    return ClaimedDelivery(
        delivery.pk, delivery.attempts, delivery.account_id, delivery.public_id,
        ring.open_secret(delivery.account_id, sealed_url_as(webhook.pk), bytes(webhook.url_sealed)),
        tuple(ring.open_secret(delivery.account_id, secret_as, one) for one in sealed), delivery.body.encode(),
    )  # fmt: skip


def _forget_oldest(webhook_id: UUID) -> None:
    ended = WebhookDelivery.objects.filter(webhook_id=webhook_id).exclude(state=DeliveryState.WAITING)
    ids = ended.order_by("-pk").values_list("pk", flat=True)[limits.DELIVERIES_KEPT_MAX :]
    WebhookDelivery.objects.filter(pk__in=list(ids[: limits.DELIVERIES_REMOVED_AT_ONCE_MAX])).delete()
