"""The audit trail. Rows are only ever added."""

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
        indexes = (models.Index(fields=["account_id", "-id"], name="audit_by_account"),)

    def __str__(self) -> str:
        return f"{self.action} {self.subject}"
