"""Queues. Written by `actions.py` (wishes) and `lifecycle.py` (how far they have come) only.

The wish is (`state`, `attributes`, `generation`): every change that storage must hear of raises `generation`. The row
is settled when `settled_generation` has caught up; until then a lifecycle task owes work, whether or not it was told.

    state      wish                                   settled means
    creating   partitions exist and have leaders      -> active
    active     partitions have this configuration     nothing owed
    deleting   partitions are gone                    -> deleted
    deleted    tombstone: keeps the name at rest      nothing owed
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from api import limits
from api.accounts.models import Account


class QueueState(models.TextChoices):
    CREATING = "creating"
    ACTIVE = "active"
    DELETING = "deleting"
    DELETED = "deleted"


class Queue(models.Model):
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="queues", db_index=False)
    name = models.CharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX, db_collation="C")
    uuid = models.UUIDField(unique=True)
    attributes = models.JSONField()
    tags = models.JSONField(default=dict)
    fifo = models.BooleanField(default=False)
    state = models.CharField(max_length=8, choices=QueueState.choices)
    generation = models.BigIntegerField(default=1)
    settled_generation = models.BigIntegerField(default=0)
    partitions = models.JSONField(default=list)
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)
    # Nobody else may work on the row before this time: a claim, or the pause after a failure.
    next_attempt_at = models.DateTimeField()
    # Names the claim, so that a worker that lost it writes nothing.
    claim = models.UUIDField(null=True)
    failures = models.IntegerField(default=0)
    last_error = models.CharField(max_length=limits.LIFECYCLE_ERROR_CHARACTERS_MAX, default="")
    version = models.BigIntegerField()

    class Meta:
        db_table = "queue"
        constraints = (
            models.UniqueConstraint(
                fields=["account", "name"], condition=~Q(state=QueueState.DELETED), name="queue_name_live"
            ),
        )
        indexes = (
            models.Index(fields=["account", "name", "-deleted_at"], name="queue_by_name"),
            models.Index(
                fields=["next_attempt_at"], condition=~Q(generation=F("settled_generation")), name="queue_unsettled"
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id}/{self.name}"


class QueueDataKey(models.Model):
    """A version of the queue's data key, wrapped by the account key. Old ones stay while messages may need them."""

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="data_keys", db_index=False)
    version = models.IntegerField()
    wrapped = models.BinaryField()

    class Meta:
        db_table = "queue_data_key"
        constraints = (models.UniqueConstraint(fields=["queue", "version"], name="queue_data_key_version"),)

    def __str__(self) -> str:
        return f"{self.queue_id}:{self.version}"
