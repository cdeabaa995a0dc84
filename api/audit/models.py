"""The audit trail, whose rows are only ever added; calls that were refused, while they are counted."""

from __future__ import annotations

from django.db import models


class AuditEntry(models.Model):
    """No foreign keys: the trail outlives what it speaks of."""

    at = models.DateTimeField()
    account_id = models.CharField(max_length=12)
    # An access key id, or the part of the system that acted: `operator`, `lifecycle`.
    actor = models.CharField(max_length=64)
    request_id = models.CharField(max_length=64)
    action = models.CharField(max_length=64)
    subject = models.CharField(max_length=200)
    details = models.JSONField(default=dict)

    class Meta:
        db_table = "audit_entry"
        indexes = (
            models.Index(fields=["account_id", "-id"], name="audit_by_account"),
            models.Index(fields=["account_id", "-at"], name="audit_by_time"),
        )

    def __str__(self) -> str:
        return f"{self.action} {self.subject}"


class RefusalTally(models.Model):
    """Refused calls of one kind since the last entry of the trail about them. Written by `refusals.py` only.

    "*" as the actor, action or subject stands for all beyond the first so many.
    """

    account_id = models.CharField(max_length=12)
    actor = models.CharField(max_length=64)
    action = models.CharField(max_length=64)
    subject = models.CharField(max_length=200)
    source = models.CharField(max_length=45, default="")
    count = models.BigIntegerField(default=0)
    opened_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "audit_refusal"
        constraints = (
            models.UniqueConstraint(fields=["account_id", "actor", "action", "subject"], name="audit_refusal_kind"),
        )
        indexes = (models.Index(fields=["opened_at"], name="audit_refusal_opened"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.actor} {self.action} {self.subject}"
