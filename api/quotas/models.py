"""Quotas that differ from the defaults, requests for more, and what was told of their use. Written by `actions.py`."""

from __future__ import annotations

from django.db import models

from api import limits
from api.accounts.models import AccessKey, Account
from api.queues.models import Queue

HOLDER_CHARACTERS_MAX = 12


class QuotaHolder(models.Model):
    """An account, or the installation (`quotas.INSTALLATION`), that has quotas of its own.

    `given` maps names to values. `sending_stopped` says why the account may not send; "" where it may. `sends_per_s`:
    so many messages a second may it send; 0: as its quotas say; `held_reason` says why. `version` counts for the
    installation alone: an account's record has the account's version.
    """

    holder = models.CharField(primary_key=True, max_length=HOLDER_CHARACTERS_MAX)
    given = models.JSONField(default=dict)
    sending_stopped = models.CharField(default="", max_length=limits.STOP_REASON_CHARACTERS_MAX)
    sends_per_s = models.IntegerField(default=0)
    held_reason = models.CharField(default="", max_length=limits.STOP_REASON_CHARACTERS_MAX)
    changed_at = models.DateTimeField()
    version = models.BigIntegerField(default=0)

    class Meta:
        db_table = "quota_holder"

    def __str__(self) -> str:
        return self.holder


class QueueQuotas(models.Model):
    """A queue that has quotas of its own (`quotas.SINGLE_QUOTAS`): names and values. One without has no row. It stays
    with a queue that is deleted and kept, and is there again when that is restored."""

    queue = models.OneToOneField(Queue, on_delete=models.CASCADE, primary_key=True, related_name="own_quotas")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="queue_quotas")
    given = models.JSONField()

    class Meta:
        db_table = "quota_queue"

    def __str__(self) -> str:
        return str(self.pk)


class QueueSending(models.Model):
    """A queue to which nothing may be sent (`sending_stopped` says why), or so many messages a second (0: as the quotas
    say; `held_reason` says why), whoever sends. Others have no row."""

    queue = models.OneToOneField(Queue, on_delete=models.CASCADE, primary_key=True, related_name="sending")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="queue_sending")
    sending_stopped = models.CharField(default="", max_length=limits.STOP_REASON_CHARACTERS_MAX)
    sends_per_s = models.IntegerField(default=0)
    held_reason = models.CharField(default="", max_length=limits.STOP_REASON_CHARACTERS_MAX)

    class Meta:
        db_table = "quota_queue_sending"

    def __str__(self) -> str:
        return str(self.pk)


class KeyQuotas(models.Model):
    """The same of an access key."""

    key = models.OneToOneField(AccessKey, on_delete=models.CASCADE, primary_key=True, related_name="own_quotas")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="key_quotas")
    given = models.JSONField()

    class Meta:
        db_table = "quota_key"

    def __str__(self) -> str:
        return str(self.pk)


class RequestState(models.TextChoices):
    OPEN = "open"
    APPROVED = "approved"
    REFUSED = "refused"


class QuotaRequest(models.Model):
    """An account asks for another value; an operator decides, once."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="quota_requests")
    name = models.CharField(max_length=64)
    value = models.BigIntegerField()
    reason = models.CharField(default="", max_length=limits.QUOTA_REASON_CHARACTERS_MAX)
    state = models.CharField(default=RequestState.OPEN, max_length=16)
    answer = models.CharField(default="", max_length=limits.QUOTA_REASON_CHARACTERS_MAX)
    created_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "quota_request"
        constraints = (
            models.UniqueConstraint(
                fields=["account", "name"], condition=models.Q(state=RequestState.OPEN), name="quota_request_open"
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id} {self.name} {self.pk}"


class QuotaNotice(models.Model):
    """When it was told last that an account came near a quota ("warning"), or over it ("exceeded"). `subject`: that a
    queue (`queue:NAME`) or key (`key:ID`) of it did. Written by `notices.py`."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="quota_notices")
    name = models.CharField(max_length=64)
    level = models.CharField(max_length=16)
    subject = models.CharField(default="", max_length=limits.NOTICE_SUBJECT_CHARACTERS_MAX)
    told_at = models.DateTimeField()

    class Meta:
        db_table = "quota_notice"
        constraints = (
            models.UniqueConstraint(fields=["account", "subject", "name", "level"], name="quota_notice_once"),
        )

    def __str__(self) -> str:
        return f"{self.account_id} {self.name} {self.level}"
