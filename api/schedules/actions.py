"""Schedules as callers see them: created, paused, resumed, deleted. What a worker makes of them: `firing.py`.

The message of a schedule is checked by the rules of messages, and sealed at once with the queue's data key: its content
is nowhere in clear, and can be read no more once the queue and its keys are gone.
"""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from api import clock, limits
from api.audit.actions import Actor, record
from api.encryption.actions import note_uses
from api.queues.attributes import QueueProblem
from api.queues.models import Queue, QueueStatus
from api.queues.moving import record_of, view_of
from api.schedules.cron import CronError, check_cron, check_zone, next_tick
from api.schedules.models import CronSchedule
from frontend.crypto.envelope import Content, DataKey, seal
from frontend.errors import RequestError
from frontend.messages.attributes import read_attribute
from frontend.messages.drafts import draft_message
from frontend.messages.outgoing import outgoing_message
from frontend.queues.key_uses import EncryptionKeyUses
from frontend.queues.resolver import ResolvedQueue

_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.SCHEDULE_NAME_CHARACTERS_MAX}}}", re.ASCII)
# The check of a FIFO queue's message wants some deduplication id; every tick has one of its own.
_ANY_ID = "tick"


class ScheduleSpec(NamedTuple):
    """What a schedule is made from. Attributes are (type, value); a Binary value is base64."""

    name: str
    cron: str
    zone: str
    body: str
    attributes: dict[str, tuple[str, str]]
    group: str | None
    enabled: bool


@transaction.atomic
def create_schedule(actor: Actor, account_id: str, queue_name: str, spec: ScheduleSpec) -> CronSchedule:
    """Raises QueueProblem."""
    queue = _queue_of(account_id, queue_name)
    if _NAME.fullmatch(spec.name) is None:
        longest = limits.SCHEDULE_NAME_CHARACTERS_MAX
        raise _invalid(f"A schedule's name has 1 to {longest} letters, digits, hyphens and underscores.")
    cron, zone, first = _first_tick(spec.cron, spec.zone)
    content = _check_message(queue, spec)
    others = CronSchedule.objects.filter(queue=queue)
    if others.filter(name=spec.name).exists():
        raise QueueProblem("QueueNameExists", "The queue has a schedule of this name.")
    if others.count() >= limits.SCHEDULES_PER_QUEUE_MAX:
        raise QueueProblem("OverLimit", f"A queue has at most {limits.SCHEDULES_PER_QUEUE_MAX} schedules.")
    now = clock.now()
    schedule_uuid = uuid.uuid4()
    sealed = seal(_sealing_key_of(queue), b"schedule/" + schedule_uuid.hex.encode(), content)[1]
    schedule = CronSchedule.objects.create(
        queue=queue, name=spec.name, uuid=schedule_uuid, cron=cron, zone=zone, content_sealed=sealed,
        group=spec.group or "", enabled=spec.enabled, next_tick_at=first, free_at=now, created_at=now, modified_at=now,
    )  # fmt: skip
    _note(actor, schedule, "schedule.create", cron=cron, zone=zone)
    return schedule


@transaction.atomic
def set_enabled(actor: Actor, account_id: str, queue_name: str, name: str, enabled: bool) -> CronSchedule:
    """Pause or resume. Ticks that pass while it is paused do not come; those handed over already do."""
    schedule = _locked(account_id, queue_name, name)
    if schedule.enabled == enabled:
        return schedule
    schedule.enabled = enabled
    schedule.modified_at = clock.now()
    schedule.claim = None
    if enabled:
        # Not before what was handed over when it was paused.
        after = max(clock.now(), schedule.last_tick_at or schedule.created_at)
        schedule.next_tick_at = next_tick(schedule.cron, schedule.zone, after)
        schedule.free_at, schedule.failures, schedule.last_error = clock.now(), 0, ""
    schedule.save()
    _note(actor, schedule, "schedule.resume" if enabled else "schedule.pause")
    return schedule


@transaction.atomic
def delete_schedule(actor: Actor, account_id: str, queue_name: str, name: str) -> None:
    schedule = _locked(account_id, queue_name, name)
    _note(actor, schedule, "schedule.delete")
    schedule.delete()


def _first_tick(cron: str, zone: str) -> tuple[str, str, datetime]:
    try:
        normal, zone = check_cron(cron), check_zone(zone)
        return normal, zone, next_tick(normal, zone, clock.now())
    except CronError as error:
        raise _invalid(str(error)) from None


def _check_message(queue: Queue, spec: ScheduleSpec) -> Content:
    try:
        message = outgoing_message(spec.body, spec.attributes, lambda name, given: read_attribute(name, *given))
        message.group = spec.group
        message.dedup_id = _ANY_ID if queue.fifo else None
        draft = draft_message(message, _view_of(queue).send_rules)
    except RequestError as refusal:
        raise QueueProblem(refusal.code, refusal.message) from None
    if draft.is_scheduled:
        raise _invalid("A message of a schedule has no delivery time of its own.")
    return Content(draft.content.body, draft.content.attributes)


def _queue_of(account_id: str, name: str) -> Queue:
    """Locked, so that the count of its schedules holds."""
    rows = Queue.objects.select_for_update(of=("self",)).select_related("account")
    queue = rows.filter(account_id=account_id, name=name, state=QueueStatus.ACTIVE).first()
    if queue is None:
        raise QueueProblem("QueueDoesNotExist", "The specified queue does not exist.")
    return queue


def _view_of(queue: Queue, uses: EncryptionKeyUses | None = None) -> ResolvedQueue:
    found = record_of(queue)
    assert found is not None
    return view_of(found, encryption_key_uses=uses)


def _sealing_key_of(queue: Queue) -> DataKey:
    uses = EncryptionKeyUses()
    try:
        key = _view_of(queue, uses).sealing_key(clock.now().timestamp())
    except RequestError as refusal:
        raise QueueProblem(refusal.code, refusal.message) from None
    counted = uses.take(1)
    if counted:
        note_uses({uuid.UUID(key_id): count for key_id, count in counted.items()})
    return key


def _locked(account_id: str, queue_name: str, name: str) -> CronSchedule:
    rows = CronSchedule.objects.select_for_update(of=("self",)).select_related("queue")
    found = rows.filter(
        queue__account_id=account_id, queue__name=queue_name, queue__state=QueueStatus.ACTIVE, name=name
    ).first()
    if found is None:
        raise QueueProblem("ResourceNotFoundException", "The queue has no schedule of this name.")
    return found


def _note(actor: Actor, schedule: CronSchedule, action: str, **details: object) -> None:
    subject = f"queue:{schedule.queue.name}"
    record(actor, schedule.queue.account_id, action, subject, schedule=schedule.name, **details)


def _invalid(message: str) -> QueueProblem:
    return QueueProblem("InvalidParameterValueException", message)
