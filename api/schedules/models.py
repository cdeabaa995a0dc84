"""Schedules of queues. Written by `actions.py` (what was asked for) and `firing.py` (how far it has come) only."""

from __future__ import annotations

from django.db import models

from api import limits
from api.queues.models import Queue
from frontend.limits import GROUP_ID_CHARS_MAX


class CronSchedule(models.Model):
    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="schedules", db_index=False)
    name = models.CharField(max_length=limits.SCHEDULE_NAME_CHARACTERS_MAX, db_collation="C")
    uuid = models.UUIDField(unique=True)
    cron = models.CharField(max_length=limits.CRON_CHARACTERS_MAX)
    zone = models.CharField(max_length=limits.ZONE_CHARACTERS_MAX)
    # Body and attributes, sealed with the queue's data key as a message is; the group is clear, as on messages.
    content_sealed = models.BinaryField()
    group = models.CharField(max_length=GROUP_ID_CHARS_MAX, default="")
    enabled = models.BooleanField(default=True)
    # The first tick that was not handed to storage yet.
    next_tick_at = models.DateTimeField()
    last_tick_at = models.DateTimeField(null=True)
    fired = models.BigIntegerField(default=0)
    missed = models.BigIntegerField(default=0)
    # Who works on the row, and until when nobody else may; a claim that was never given back runs out.
    claim = models.UUIDField(null=True)
    free_at = models.DateTimeField()
    failures = models.IntegerField(default=0)
    last_error = models.CharField(max_length=limits.SCHEDULE_ERROR_CHARACTERS_MAX, default="")
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()

    class Meta:
        db_table = "schedule"
        constraints = (models.UniqueConstraint(fields=["queue", "name"], name="schedule_name"),)
        indexes = (models.Index(fields=["next_tick_at"], condition=models.Q(enabled=True), name="schedule_due"),)

    def __str__(self) -> str:
        return f"{self.queue}/{self.name}"
