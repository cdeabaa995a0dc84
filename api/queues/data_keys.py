"""Data keys of queues: made with the queue, and replaced when enough messages were sealed under them.

Every message gets a random nonce of 96 bits. After 2^32 messages under one key the chance that two are the same is
2^-33, which is the limit that NIST SP 800-38D sets. Front ends tell their counts late, and lose some, so a key is
replaced at DATA_KEY_MESSAGES_MAX, half of that.

Older keys stay while messages may need them: for DATA_KEY_REPLACED_DAYS, longer in a queue that holds scheduled
messages (they can be rescheduled again and again) or a schedule from before. Then they are forgotten, with the grants.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from django.db import connection, transaction
from django.db.models import Exists, Min, OuterRef

from api import clock, limits
from api.accounts.models import Account
from api.audit.actions import LIFECYCLE, record
from api.changes import next_data_key_version, next_version
from api.queues import layout
from api.queues.attributes import QueueProblem
from api.queues.models import Queue, QueueDataKey, QueueStatus
from api.queues.redrive import LIVE, announce_queue, grant_keys, withdraw_versions
from api.schedules.models import CronSchedule
from api.secrets import keyring

_log = structlog.get_logger(__name__)
# Rows are locked in one order: two front ends do not wait for each other in a circle.
_NOTE = """
WITH used AS (
     SELECT unnest(%s::uuid[]) AS queue, unnest(%s::int[]) AS version, unnest(%s::bigint[]) AS messages),
   locked AS (
     SELECT k.id, u.messages FROM used u JOIN queue q ON q.uuid = u.queue
       JOIN queue_data_key k ON k.queue_id = q.id AND k.version = u.version
      ORDER BY k.id FOR NO KEY UPDATE OF k)
UPDATE queue_data_key k SET sealed = k.sealed + locked.messages
  FROM locked WHERE k.id = locked.id
RETURNING k.queue_id, k.sealed
"""


class DataKeyUse(NamedTuple):
    """Messages that a front end sealed under this version since it told last."""

    queue_uuid: uuid.UUID
    version: int
    messages: int


def note_data_key_uses(uses: Sequence[DataKeyUse]) -> int:
    """Counts, and replaces the keys that have served long enough. How many were replaced."""
    columns = [list(column) for column in zip(*uses, strict=True)] or [[], [], []]
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, columns)
        used = cursor.fetchall()
    full = {queue_id for queue_id, sealed in used if sealed >= limits.DATA_KEY_MESSAGES_MAX}
    return sum(_replaced(queue_id) for queue_id in sorted(full))


def _replaced(queue_id: int) -> bool:
    try:
        return replace_data_key(queue_id)
    except QueueProblem as problem:
        # A dead-letter queue holds as many keys as it may. The report is not refused for that: it would be told again.
        _log.error("data_key_not_replaced", queue=queue_id, reason=problem.code)
        return False


@transaction.atomic
def replace_data_key(queue_id: int) -> bool:
    """From the announcement on front ends seal under a new version; one that has not heard of it asks when it is given
    such a message. False: it was replaced before, or the queue goes. Raises QueueProblem where a dead-letter queue can
    hold no further key."""
    account = Account.objects.select_for_update().get(queues__pk=queue_id)
    queue = Queue.objects.select_for_update().filter(pk=queue_id, state__in=LIVE).first()
    if queue is None:
        return False
    current = queue.data_keys.order_by("-version").first()
    if current is None or current.sealed < limits.DATA_KEY_MESSAGES_MAX:
        return False
    version = add_data_key(account, queue)
    current.replaced_at = clock.now()
    current.save(update_fields=["replaced_at"])
    queue.version = next_version()
    queue.save(update_fields=["version"])
    grant_keys(queue)
    record(LIFECYCLE, account.pk, "queue.replace_data_key", f"queue:{queue.name}", version=version)
    announce_queue(queue)
    return True


class ReplacedKeys(NamedTuple):
    """A queue with versions of its data key that were replaced long ago, and its partitions."""

    queue_id: int
    partitions: list[int]


def replaced_long_ago() -> list[ReplacedKeys]:
    """Some of them, by chance: those that still need their old keys do not stand in the way of others."""
    old = QueueDataKey.objects.filter(queue=OuterRef("pk"), replaced_at__lt=_needed_since())
    queues = Queue.objects.filter(Exists(old), state=QueueStatus.ACTIVE).order_by("?")
    return [
        ReplacedKeys(queue.pk, [row.partition for row in layout.rows_of(queue.layout, queue.partitions)])
        for queue in queues[: limits.DATA_KEYS_FORGOTTEN_AT_ONCE_MAX]
    ]


@transaction.atomic
def forget_replaced_keys(queue_id: int) -> int:
    """Of a queue that holds no scheduled messages. How many versions went."""
    account = Account.objects.select_for_update().filter(queues__pk=queue_id).first()
    queue = Queue.objects.select_for_update().filter(pk=queue_id, state=QueueStatus.ACTIVE).first()
    if account is None or queue is None:
        return 0
    needed_since = _needed_since()
    oldest = CronSchedule.objects.filter(queue=queue).aggregate(at=Min("created_at"))["at"]
    if oldest is not None:
        # Its content is sealed under the version of that time.
        needed_since = min(needed_since, oldest - timedelta(days=1))
    old = queue.data_keys.filter(replaced_at__lt=needed_since)
    versions = sorted(old.values_list("version", flat=True))
    if versions:
        old.delete()
        withdraw_versions(queue, versions)
        queue.version = next_version()
        queue.save(update_fields=["version"])
        record(LIFECYCLE, account.pk, "queue.forget_data_keys", f"queue:{queue.name}", versions=versions)
        announce_queue(queue)
    return len(versions)


def _needed_since() -> datetime:
    return clock.now() - timedelta(days=limits.DATA_KEY_REPLACED_DAYS)


def add_data_key(account: Account, queue: Queue) -> int:
    """The version of a new key of the queue."""
    version = next_data_key_version()
    wrapped = keyring().new_data_key(account.pk, bytes(account.account_key_wrapped), queue.uuid.bytes, version)
    QueueDataKey.objects.create(queue=queue, version=version, wrapped=wrapped)
    return version
