"""Message move tasks as callers see them: started, listed, cancelled. What a worker makes of them: `moving.py`.

Every query names the account: a task, a queue or a handle of another account is not there.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from typing import Any, NamedTuple

from django.db import transaction

from api import clock, limits
from api.accounts.models import Account
from api.audit.actions import record
from api.hints import Hint, send_hint
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.models import ACTIVE_MOVES, MessageMoveTask, MoveStatus, Queue, QueueStatus
from api.queues.redrive import sources_of
from api.settings.environment import environment
from frontend.authn.principal import Principal


class Choice(NamedTuple):
    """What a task of REST is to move, and when it stops. `filter` as JSON; None = every message."""

    filter: dict[str, object] | None = None
    messages_max: int | None = None
    dry_run: bool = False
    returned_max: int | None = None
    returned_percent_max: int | None = None


@transaction.atomic
def start_move(
    actor: Principal,
    account_id: str,
    source_arn: object,
    destination_arn: object,
    messages_per_s: object,
    choice: Choice | None = None,
) -> MessageMoveTask:
    """`choice` makes it a task that looks for its messages; it is checked by who asks. Raises QueueProblem."""
    rate = _check_rate(messages_per_s)
    Account.objects.select_for_update().get(id=account_id)
    source = _queue_of(account_id, source_arn, "SourceArn")
    if not sources_of(account_id, source.name).exists():
        raise _invalid("Source queue must be configured as a Dead Letter Queue.")
    destination = None
    if destination_arn not in (None, ""):
        destination = _queue_of(account_id, destination_arn, "DestinationArn")
        if destination.pk == source.pk:
            raise _invalid("Source queue arn and destination queue arn must be different.")
        if destination.fifo != source.fifo:
            raise _invalid("Source queue and destination queue must be of the same type.")
    _refuse_too_many(account_id, source)
    now = clock.now()
    task = MessageMoveTask.objects.create(
        uuid=uuid.uuid4(),
        account_id=account_id,
        source=source,
        destination=destination,
        source_arn=_arn_of(source),
        destination_arn="" if destination is None else _arn_of(destination),
        messages_per_s=rate,
        scans=choice is not None,
        **(Choice() if choice is None else choice)._asdict(),
        started_at=now,
        next_attempt_at=now,
        leases_expired_at=now,
    )
    _forget_old(source)
    details: dict[str, object] = {
        "task": str(task.uuid),
        "destination": task.destination_arn,
        "messages_per_s": rate,
    }
    if choice is not None:
        # The names of the conditions: a text that is searched for may be a message's.
        details |= {"filter": sorted(choice.filter or ()), "dry_run": choice.dry_run}
    record(actor, account_id, "queue.move.start", f"queue:{source.name}", **details)
    task_id = task.pk
    transaction.on_commit(lambda: send_hint(Hint.MOVE_MESSAGES, task_id))
    return task


@transaction.atomic
def pause_move(actor: Principal, account_id: str, task_uuid: uuid.UUID) -> MessageMoveTask:
    """The task stops once the worker has seen this. Pausing a paused one changes nothing."""
    task = _running(account_id, task_uuid, "paused")
    if task.paused_at is None:
        task.paused_at = clock.now()
        task.save(update_fields=["paused_at"])
        record(actor, account_id, "queue.move.pause", f"queue:{task.source.name}", task=str(task.uuid))
    return task


@transaction.atomic
def resume_move(actor: Principal, account_id: str, task_uuid: uuid.UUID) -> MessageMoveTask:
    """It goes on where it was. The time of its pauses does not count against its hours."""
    task = _running(account_id, task_uuid, "resumed")
    if task.paused_at is None:
        return task
    now = clock.now()
    task.paused_ms += int((now - task.paused_at).total_seconds() * 1000)
    task.paused_at = None
    if task.claim is None:
        task.next_attempt_at = now
    task.save(update_fields=["paused_at", "paused_ms", "next_attempt_at"])
    record(actor, account_id, "queue.move.resume", f"queue:{task.source.name}", task=str(task.uuid))
    task_id = task.pk
    transaction.on_commit(lambda: send_hint(Hint.MOVE_MESSAGES, task_id))
    return task


def move_of(account_id: str, source_name: str, task_uuid: uuid.UUID) -> MessageMoveTask | None:
    """A task that moves messages out of this queue of the account."""
    return MessageMoveTask.objects.filter(account_id=account_id, source__name=source_name, uuid=task_uuid).first()


@transaction.atomic
def cancel_move(actor: Principal, account_id: str, task_uuid: uuid.UUID) -> MessageMoveTask:
    """No message moves once the worker has seen this; those that were moved stay where they are."""
    task = _running(account_id, task_uuid, "cancelled")
    task.status = MoveStatus.CANCELLING
    if task.claim is None:
        task.next_attempt_at = clock.now()
    task.save(update_fields=["status", "next_attempt_at"])
    record(actor, account_id, "queue.move.cancel", f"queue:{task.source.name}", task=str(task.uuid))
    task_id = task.pk
    transaction.on_commit(lambda: send_hint(Hint.MOVE_MESSAGES, task_id))
    return task


def _running(account_id: str, task_uuid: uuid.UUID, done: str) -> MessageMoveTask:
    """The task, locked, to be `done` something with. Raises QueueProblem."""
    rows = MessageMoveTask.objects.select_for_update(of=("self",)).select_related("source")
    task = rows.filter(account_id=account_id, uuid=task_uuid).first()
    if task is None:
        raise QueueProblem("ResourceNotFoundException", "Task does not exist.")
    if task.status != MoveStatus.RUNNING:
        raise _invalid(f"Only active tasks can be {done}")
    return task


def moves_of(account_id: str, source_arn: object, limit: int) -> list[MessageMoveTask]:
    """The newest first. Raises QueueProblem where there is no such queue."""
    source = _queue_of(account_id, source_arn, "SourceArn")
    return list(source.move_tasks.filter(account_id=account_id).order_by("-started_at", "-pk")[:limit])


def check_limit(value: object) -> int:
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= limits.MOVE_TASKS_LISTED_MAX:
        raise _invalid(f"MaxResults must be between 1 and {limits.MOVE_TASKS_LISTED_MAX}, if provided.")
    return value


def handle_of(task: MessageMoveTask) -> str:
    """Names the task; opens nothing by itself."""
    content = json.dumps({"taskId": str(task.uuid), "sourceArn": task.source_arn})
    return base64.b64encode(content.encode()).decode()


def task_of_handle(account_id: str, handle: object) -> uuid.UUID:
    """Raises QueueProblem for anything that `handle_of` did not make, and where its source queue is gone."""
    try:
        if not isinstance(handle, str) or not 0 < len(handle) <= limits.MOVE_HANDLE_CHARACTERS_MAX:
            raise ValueError("of an impossible length")
        content: Any = json.loads(base64.b64decode(handle, validate=True))
        task, source_arn = uuid.UUID(content["taskId"]), content["sourceArn"]
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _invalid("Value for parameter TaskHandle is invalid.") from None
    _queue_of(account_id, source_arn, "SourceArn")
    return task


def _queue_of(account_id: str, arn: object, parameter: str) -> Queue:
    named = rules.parse_arn(arn)
    found = None
    if named is not None and (named.region, named.account_id) == (environment().region, account_id):
        found = Queue.objects.filter(account_id=account_id, name=named.name, state=QueueStatus.ACTIVE).first()
    if found is None:
        raise QueueProblem(
            "ResourceNotFoundException", f"The resource that you specified for the {parameter} parameter doesn't exist."
        )
    return found


def _refuse_too_many(account_id: str, source: Queue) -> None:
    active = MessageMoveTask.objects.filter(account_id=account_id, status__in=ACTIVE_MOVES)
    if active.filter(source=source).exists():
        raise _invalid(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    if active.count() >= limits.MOVE_TASKS_ACTIVE_PER_ACCOUNT_MAX:
        raise QueueProblem(
            "OverLimit", f"An account has at most {limits.MOVE_TASKS_ACTIVE_PER_ACCOUNT_MAX} active move tasks."
        )


def _forget_old(source: Queue) -> None:
    """What no listing shows any more."""
    newest = source.move_tasks.order_by("-started_at", "-pk").values_list("pk", flat=True)
    kept = list(newest[: limits.MOVE_TASKS_LISTED_MAX])
    source.move_tasks.exclude(pk__in=kept).exclude(status__in=ACTIVE_MOVES).delete()


def _check_rate(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= limits.MOVE_MESSAGES_PER_S_MAX:
        raise _invalid(f"MaxNumberOfMessagesPerSecond must be between 1 and {limits.MOVE_MESSAGES_PER_S_MAX}.")
    return value


def _arn_of(queue: Queue) -> str:
    return rules.format_arn(environment().region, queue.account_id, queue.name)


def _invalid(message: str) -> QueueProblem:
    return QueueProblem("InvalidParameterValueException", message)
