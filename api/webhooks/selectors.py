"""Reads of webhooks: always as one account."""

from __future__ import annotations

from api.webhooks import limits
from api.webhooks.models import Webhook, WebhookDelivery


def webhooks_of(account_id: str) -> list[Webhook]:
    return list(Webhook.objects.filter(account_id=account_id).order_by("name"))


def lock_webhook(account_id: str, name: str) -> None:
    """Until the transaction ends, if there is such a webhook."""
    Webhook.objects.select_for_update().filter(account_id=account_id, name=name).first()


def webhook_of(account_id: str, name: str) -> Webhook | None:
    return Webhook.objects.filter(account_id=account_id, name=name).first()


def deliveries_of(account_id: str, name: str) -> list[WebhookDelivery]:
    """The latest first."""
    rows = WebhookDelivery.objects.filter(account_id=account_id, webhook__name=name)
    return list(rows.order_by("-pk")[: limits.DELIVERIES_LISTED_MAX])
