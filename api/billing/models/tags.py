"""Which tags a queue had when."""

from __future__ import annotations

from django.db import models

from api.limits import ACCOUNT_ID_DIGITS


class QueueTags(models.Model):
    """From the hour `since` on; the first row of a queue counts for what lies before it, too.

    Written by a trigger of the table of queues (migration 0009), and by nothing else: one row of a queue and hour, with
    the tags as they were when the hour began. No foreign keys: the history outlives its queue.
    """

    pk = models.CompositePrimaryKey("account_id", "queue_uuid", "since")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    since = models.DateTimeField()
    tags = models.JSONField()

    class Meta:
        db_table = "queue_tags"

    def __str__(self) -> str:
        return f"{self.queue_uuid} from {self.since:%Y-%m-%dT%H}"
