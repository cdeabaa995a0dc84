"""The only writer of webhooks: created, changed, rotated, tested and deleted by customers.

Secrets leave in the answer that creates or rotates them, and are sealed under the account and the webhook's id.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import NamedTuple

from django.db import transaction

from api import clock
from api.absence import NOTHING_HERE
from api.accounts.selectors import locked_account
from api.alarms.models import MetricAlarm
from api.audit.actions import record
from api.people import rates
from api.people.errors import PeopleError
from api.secrets import keyring
from api.settings.environment import environment
from api.webhooks import deliveries, limits
from api.webhooks.addresses import CallPolicy, parse_networks, parse_ports
from api.webhooks.callees import CalleeError, parse_callee
from api.webhooks.models import Webhook, WebhookDelivery
from api.webhooks.signing import new_webhook_secret
from frontend.authn.principal import Principal

# One part of a path, as names of alarms are.
_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_TESTS = rates.Rate("webhook_tests_per_account", limits.TESTS_PER_ACCOUNT_BURST, limits.TESTS_PER_ACCOUNT_EVERY_S)


class WebhookError(Exception):
    """An operating error. `code` is one of WEBHOOK_STATUS."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = WEBHOOK_STATUS[code]
        self.code = code
        self.detail = detail


WEBHOOK_STATUS = {"invalid-request": 400, "not-found": 404, "over-limit": 409, "webhook-in-use": 409}


def no_such_webhook() -> WebhookError:
    return WebhookError("not-found", NOTHING_HERE)


class PutWebhook(NamedTuple):
    """`secret` is empty where the webhook was there before: it keeps its own."""

    webhook: Webhook
    secret: str


@transaction.atomic
def put_webhook(actor: Principal, account_id: str, name: str, url: str) -> PutWebhook:
    """Creates it, or changes its URL. Raises WebhookError."""
    account = locked_account(account_id, no_such_webhook)
    if len(name) > limits.WEBHOOK_NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        length = f"1 to {limits.WEBHOOK_NAME_CHARACTERS_MAX}"
        text = f"A webhook's name has {length} letters, digits, hyphens, underscores, single dots between them."
        raise WebhookError("invalid-request", text)
    try:
        callee = parse_callee(url, call_policy())
    except CalleeError as error:
        raise WebhookError("invalid-request", str(error)) from None
    webhook, secret = Webhook.objects.filter(account=account, name=name).first(), ""
    if webhook is None:
        if Webhook.objects.filter(account=account).count() >= limits.WEBHOOKS_PER_ACCOUNT_MAX:
            raise WebhookError("over-limit", f"An account has at most {limits.WEBHOOKS_PER_ACCOUNT_MAX} webhooks.")
        secret, webhook = new_webhook_secret(), Webhook(account=account, name=name, created_at=clock.now())
        webhook.secret_sealed = keyring().seal_secret(account_id, deliveries.sealed_secret_as(webhook.pk), secret)
    webhook.url_sealed = keyring().seal_secret(account_id, deliveries.sealed_url_as(webhook.pk), callee.url)
    was = {} if secret else {"before": webhook.shown_url}
    webhook.shown_url = callee.shown
    webhook.save()
    record(actor, account_id, "webhook.put", f"webhook:{name}", url=callee.shown, **was)
    return PutWebhook(webhook, secret)


@transaction.atomic
def rotate_webhook(actor: Principal, account_id: str, name: str, grace_s: int) -> PutWebhook:
    """The old secret signs beside the new one for `grace_s`. Raises WebhookError."""
    if not 0 <= grace_s <= limits.WEBHOOK_GRACE_S_MAX:
        raise WebhookError("invalid-request", f"A grace has at most {limits.WEBHOOK_GRACE_S_MAX} s.")
    webhook, now, secret = _locked(account_id, name), clock.now(), new_webhook_secret()
    webhook.previous_sealed = bytes(webhook.secret_sealed) if grace_s else None
    webhook.previous_until = now + timedelta(seconds=grace_s) if grace_s else None
    webhook.secret_sealed = keyring().seal_secret(account_id, deliveries.sealed_secret_as(webhook.pk), secret)
    webhook.rotated_at = now
    webhook.save()
    record(actor, account_id, "webhook.rotate", f"webhook:{name}", grace_s=grace_s)
    return PutWebhook(webhook, secret)


def check_webhook(actor: Principal, account_id: str, name: str) -> WebhookDelivery:
    """A worker calls it once, within seconds. Counted for the account as well, which may delete a webhook with all that
    was delivered to it, and create it again. Raises WebhookError."""
    try:
        rates.charge(_TESTS, account_id)
    except PeopleError as error:
        raise WebhookError("over-limit", f"Too many tests. Try again in {error.retry_after_s} s.") from None
    return _begin_test(actor, account_id, name)


@transaction.atomic
def _begin_test(actor: Principal, account_id: str, name: str) -> WebhookDelivery:
    webhook = _locked(account_id, name)
    content = {"type": "webhook.test", "account_id": account_id, "webhook": name}
    delivery = deliveries.begin_delivery(webhook, "", content, clock.now(), attempts_max=1)
    if delivery is None:
        raise WebhookError("over-limit", f"A webhook is called {limits.DELIVERIES_PER_HOUR_MAX} times an hour at most.")
    record(actor, account_id, "webhook.test", f"webhook:{name}")
    return delivery


@transaction.atomic
def delete_webhook(actor: Principal, account_id: str, name: str) -> None:
    """What waits for it is not delivered. Raises WebhookError while alarms name it."""
    locked_account(account_id, no_such_webhook)  # alarms that name webhooks are written under the same lock
    webhook = _locked(account_id, name)
    rows = MetricAlarm.objects.filter(account_id=account_id, webhooks__contains=[name])
    if alarms := list(rows.order_by("name").values_list("name", flat=True)[:4]):
        shown = ", ".join(alarms[:3]) + (" and others" if len(alarms) > 3 else "")
        raise WebhookError("webhook-in-use", f"These alarms call it: {shown}. Take it from them first.")
    webhook.delete()
    record(actor, account_id, "webhook.delete", f"webhook:{name}")


def _locked(account_id: str, name: str) -> Webhook:
    webhook = Webhook.objects.select_for_update().filter(account_id=account_id, name=name).first()
    if webhook is None:
        raise no_such_webhook()
    return webhook


def call_policy() -> CallPolicy:
    """What the operator's settings let webhooks call."""
    env = environment()
    return CallPolicy(parse_networks(env.webhook_networks), parse_ports(env.webhook_ports))
