"""Queues. Written by `actions.py` (desired state) and `lifecycle.py` (how far storage follows it) only.

The desired state is (`state`, `attributes`, `generation`): every change that storage must hear of raises `generation`.
The row is pending until `observed_generation` has caught up: a lifecycle task has work, whether or not it was told.

    state      desired                                once reconciled
    creating   partitions exist and have leaders      -> active
    active     partitions have this configuration     unchanged
    kept       partitions keep messages for longer    unchanged (keeping.py)
    deleting   partitions are gone                    -> deleted
    deleted    tombstone: the name is in cooldown     unchanged
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from api import limits
from api.accounts.models import Account


class QueueStatus(models.TextChoices):
    CREATING = "creating"
    ACTIVE = "active"
    KEPT = "kept"
    DELETING = "deleting"
    DELETED = "deleted"


# Such a queue takes and gives no messages, and is found by nobody but those who ask for deleted ones.
GONE = (QueueStatus.KEPT, QueueStatus.DELETING, QueueStatus.DELETED)


class Queue(models.Model):
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="queues", db_index=False)
    name = models.CharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX, db_collation="C")
    uuid = models.UUIDField(unique=True)
    attributes = models.JSONField()
    tags = models.JSONField(default=dict)
    fifo = models.BooleanField(default=False)
    # Name of the queue that its RedrivePolicy names, "" without one: what the sources of a queue are found by.
    dead_letter_target = models.CharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX, default="", db_collation="C")
    # Id of the customer's key that its KmsMasterKeyId names, "" where that names none; ids of all that messages which
    # lie here, dead letters too, may have been sealed under.
    encryption_key = models.CharField(max_length=36, default="")
    encryption_keys = models.JSONField(default=list)
    state = models.CharField(max_length=8, choices=QueueStatus.choices)
    generation = models.BigIntegerField(default=1)
    observed_generation = models.BigIntegerField(default=0)
    partitions = models.JSONField(default=list)
    # More of them, where there is more to be said (layout.py); those it had before; tags below this may be in use.
    layout = models.JSONField(default=list)
    retired = models.JSONField(default=list)
    number_end = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)
    # Of a deleted queue of an account with a period of grace: it can be restored until then, and its name is free. That
    # stays so when the period is over. `shreds`: granted copies of its data keys go then, too.
    kept_until = models.DateTimeField(null=True)
    shreds = models.BooleanField(default=False)
    # Messages live so much longer than the attribute says: while the queue is kept, and until then once it is restored.
    retention_extra_ms = models.BigIntegerField(default=0)
    retention_extra_until = models.DateTimeField(null=True)
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
                fields=["account", "name"],
                condition=~Q(state=QueueStatus.DELETED) & Q(kept_until__isnull=True),
                name="queue_name_live",
            ),
        )
        indexes = (
            models.Index(fields=["account", "name", "-deleted_at"], name="queue_by_name"),
            models.Index(
                fields=["account", "dead_letter_target", "name"],
                condition=~Q(dead_letter_target=""),
                name="queue_by_target",
            ),
            models.Index(
                fields=["next_attempt_at"], condition=~Q(generation=F("observed_generation")), name="queue_pending"
            ),
            models.Index(fields=["kept_until"], condition=Q(state=QueueStatus.KEPT), name="queue_kept"),
            models.Index(
                fields=["retention_extra_until"],
                condition=Q(retention_extra_until__isnull=False),
                name="queue_restored",
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id}/{self.name}"


class QueueCount(models.Model):
    """How many queues an account has that are not deleted for good. Written by triggers on the table of queues alone
    (migration 0009): counting 100,000 rows took longer than all the rest of CreateQueue."""

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="+")
    count = models.IntegerField()

    class Meta:
        db_table = "queue_count"

    def __str__(self) -> str:
        return f"{self.account_id}: {self.count}"


class QueueDataKey(models.Model):
    """A version of the queue's data key, wrapped by the account key. Old ones stay while messages may need them.

    Versions come from one sequence: no two keys of an installation have the same.
    """

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="data_keys", db_index=False)
    version = models.IntegerField()
    wrapped = models.BinaryField()
    # Messages under it, as far as front ends told (data_keys.py).
    sealed = models.BigIntegerField(default=0)
    # Since then front ends seal under another version.
    replaced_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "queue_data_key"
        constraints = (models.UniqueConstraint(fields=["queue", "version"], name="queue_data_key_version"),)
        indexes = (
            models.Index(
                fields=["replaced_at"],
                condition=models.Q(replaced_at__isnull=False),
                name="queue_data_key_replaced",
            ),
        )

    def __str__(self) -> str:
        return f"{self.queue_id}:{self.version}"


class DataKeyGrant(models.Model):
    """A data key of another queue of the account, granted to this one, so that its dead letters can be read here.

    Outlives its owner: who deletes a queue does not mean to lose what had failed there.
    """

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="key_grants", db_index=False)
    version = models.BigIntegerField()
    wrapped = models.BinaryField()
    owner_uuid = models.UUIDField()
    owner_name = models.CharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX)

    class Meta:
        db_table = "queue_data_key_grant"
        constraints = (
            models.UniqueConstraint(fields=["queue", "owner_uuid", "version"], name="queue_data_key_grant_version"),
        )

    def __str__(self) -> str:
        return f"{self.queue_id}:{self.owner_name}:{self.version}"


class MoveStatus(models.TextChoices):
    """As SQS names them."""

    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


ACTIVE_MOVES = (MoveStatus.RUNNING, MoveStatus.CANCELLING)


class MessageMoveTask(models.Model):
    """A dead-letter queue being emptied. `moves.py` writes what is asked for, `moving.py` the progress.

    Tasks of SQS lease whatever comes until nothing does. Those of REST (`scans`) look through what the queue held when
    they began, in log order, and move what their filter wants: `position` has for every partition the next offset, the
    offset to end before, and how far what arrived since was watched for messages that came back.

    `claim` and `next_attempt_at` are a lease, as those of a queue. `leases_expired_at` is when the leases that a dead
    worker may have left on messages have run out: before, an empty queue does not mean that nothing is left.
    """

    uuid = models.UUIDField(unique=True)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, db_index=False)
    source = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="move_tasks", db_index=False)
    # Null: every message goes back to the queue it came from.
    destination = models.ForeignKey(Queue, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    source_arn = models.CharField(max_length=limits.ARN_CHARACTERS_MAX)
    destination_arn = models.CharField(max_length=limits.ARN_CHARACTERS_MAX, default="")
    # As asked for; null = as fast as it goes.
    messages_per_s = models.IntegerField(null=True)
    # The task ends when it has moved so many; null = when the source is empty.
    messages_max = models.BigIntegerField(null=True)
    status = models.CharField(max_length=10, choices=MoveStatus.choices, default=MoveStatus.RUNNING)
    moved = models.BigIntegerField(default=0)
    # Null until a worker has counted.
    to_move = models.BigIntegerField(null=True)
    failure_reason = models.CharField(max_length=limits.MOVE_FAILURE_CHARACTERS_MAX, default="")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    next_attempt_at = models.DateTimeField()
    claim = models.UUIDField(null=True)
    leases_expired_at = models.DateTimeField()
    failures = models.IntegerField(default=0)
    scans = models.BooleanField(default=False)
    # As `frontend.message_browser.filters` reads it; null = every message.
    filter = models.JSONField(null=True)
    # Counts what it would move.
    dry_run = models.BooleanField(default=False)
    # More than so many messages, or so many of a hundred, came back: the task fails. Null = it does not.
    returned_max = models.BigIntegerField(null=True)
    returned_percent_max = models.IntegerField(null=True)
    position = models.JSONField(default=dict)
    scanned = models.BigIntegerField(default=0)
    matched = models.BigIntegerField(default=0)
    skipped = models.BigIntegerField(default=0)
    returned = models.BigIntegerField(default=0)
    # Paused since then; for SQS it is running.
    paused_at = models.DateTimeField(null=True)
    paused_ms = models.BigIntegerField(default=0)

    class Meta:
        db_table = "message_move_task"
        constraints = (
            models.UniqueConstraint(
                fields=["source"], condition=Q(status__in=("RUNNING", "CANCELLING")), name="move_task_active"
            ),
        )
        indexes = (
            models.Index(fields=["account", "source_arn", "-started_at"], name="move_task_by_source"),
            models.Index(
                fields=["next_attempt_at"], condition=Q(status__in=("RUNNING", "CANCELLING")), name="move_task_due"
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id}/{self.uuid}"
