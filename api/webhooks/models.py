"""Webhooks of accounts, and what was to be delivered to them. Written by `actions.py` and `deliveries.py` only."""

from __future__ import annotations

import enum
import uuid

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.limits import ACCOUNT_ID_DIGITS
from api.webhooks import limits

_WORD_CHARACTERS = 40


class DeliveryState(enum.StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


class CallResult(enum.StrEnum):
    """Of the last attempt."""

    NONE = ""
    DELIVERED = "delivered"
    STATUS = "status"  # an answer that is not 2xx
    NO_ADDRESS = "no-address"  # none that may be called: also where the name has one that may not
    NO_CONNECTION = "no-connection"
    NO_TLS = "no-tls"
    NO_ANSWER = "no-answer"  # the connection ended before there was one, or it was no HTTP
    TIMEOUT = "timeout"


class Webhook(models.Model):
    """Its URL is sealed as its secrets are: it often holds one. `shown_url` is what people see of it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="webhooks", db_index=False)
    name = models.CharField(max_length=limits.WEBHOOK_NAME_CHARACTERS_MAX)
    url_sealed = models.BinaryField()
    shown_url = models.CharField(max_length=limits.WEBHOOK_URL_CHARACTERS_MAX)
    secret_sealed = models.BinaryField()
    # Signs beside the other one until then.
    previous_sealed = models.BinaryField(null=True)
    previous_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    rotated_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "webhook"
        constraints = (models.UniqueConstraint(fields=["account", "name"], name="webhook_name"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.name}"


class WebhookDelivery(models.Model):
    """A body that a webhook is to get. `next_at`: when it may be claimed, while it waits."""

    id = models.BigAutoField(primary_key=True)
    uuid = models.UUIDField(default=uuid.uuid4)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    # The alarm; empty: a test.
    about = models.CharField(max_length=limits.WEBHOOK_NAME_CHARACTERS_MAX, default="")
    body = models.TextField()
    state = models.CharField(max_length=_WORD_CHARACTERS, default=DeliveryState.WAITING.value)
    attempts = models.SmallIntegerField(default=0)
    attempts_max = models.SmallIntegerField(default=limits.DELIVERY_ATTEMPTS_MAX)
    next_at = models.DateTimeField()
    created_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True)
    result = models.CharField(max_length=_WORD_CHARACTERS, default=CallResult.NONE.value)
    status_code = models.SmallIntegerField(null=True)
    latency_ms = models.IntegerField(null=True)

    class Meta:
        db_table = "webhook_delivery"
        indexes = (
            models.Index(fields=["webhook", "-id"], name="webhook_delivery_of"),
            models.Index(fields=["next_at"], condition=Q(state="waiting"), name="webhook_delivery_due"),
            models.Index(fields=["created_at"], name="webhook_delivery_by_time"),
        )

    def __str__(self) -> str:
        return f"{self.uuid} {self.state}"

    @property
    def public_id(self) -> str:
        return f"msg_{self.uuid.hex}"
