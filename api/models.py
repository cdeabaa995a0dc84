"""The change feed's log. Written by `changes.py` only."""

from __future__ import annotations

from django.db import models


class FeedChange(models.Model):
    """One announced change. A row outlives the record it speaks of: it is the tombstone of what was deleted.

    `transaction` is the id of the transaction that wrote the row (64 bits, never used again): readers go by it, because
    a transaction may commit after one that drew a higher version.
    """

    version = models.BigIntegerField(primary_key=True)
    kind = models.CharField(max_length=16)
    key = models.CharField(max_length=128)
    transaction = models.BigIntegerField(db_index=True)

    class Meta:
        db_table = "feed_change"

    def __str__(self) -> str:
        return f"{self.kind} {self.key} {self.version}"
