"""Schedules as callers see them: created, changed, paused, resumed, deleted. What a worker makes of them: `firing.py`.

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
from api.audit.actions import record
from api.encryption.actions import note_uses
from api.queues.attributes import QueueProblem
from api.queues.models import Queue, QueueStatus
from api.queues.moving import record_of, view_of
from api.schedules.cron import CronError, check_cron, check_zone, next_tick
from api.schedules.models import CronSchedule
from frontend.authn.principal import Principal
from frontend.crypto.envelope import Content, seal
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


class ScheduleChange(NamedTuple):
    """None leaves a part as it is. A new body comes with all attributes of the message; a group of "" is none.

    `read_at`: the change is of what was last changed then, and of nothing newer.
    """

    cron: str | None = None
    zone: str | None = None
    body: str | None = None
    attributes: dict[str, tuple[str, str]] | None = None
    group: str | None = None
    read_at: datetime | None = None


@transaction.atomic
def create_schedule(actor: Principal, account_id: str, queue_name: str, spec: ScheduleSpec) -> CronSchedule:
    """Raises QueueProblem."""
    queue = _queue_of(account_id, queue_name)
    if _NAME.fullmatch(spec.name) is None:
        longest = limits.SCHEDULE_NAME_CHARACTERS_MAX
        raise _invalid(f"A schedule's name has 1 to {longest} letters, digits, hyphens and underscores.")
    cron, zone, first = _first_tick(spec.cron, spec.zone)
    content = _check_message(queue, spec.body, spec.attributes, spec.group)
    others = CronSchedule.objects.filter(queue=queue)
    if others.filter(name=spec.name).exists():
        raise QueueProblem("QueueNameExists", "The queue has a schedule of this name.")
    if others.count() >= limits.SCHEDULES_PER_QUEUE_MAX:
        raise QueueProblem("OverLimit", f"A queue has at most {limits.SCHEDULES_PER_QUEUE_MAX} schedules.")
    now = clock.now()
    schedule_uuid = uuid.uuid4()
    sealed = _sealed(queue, schedule_uuid, content)
    schedule = CronSchedule.objects.create(
        queue=queue, name=spec.name, uuid=schedule_uuid, cron=cron, zone=zone, content_sealed=sealed,
        group=spec.group or "", enabled=spec.enabled, next_tick_at=first, free_at=now, created_at=now, modified_at=now,
    )  # fmt: skip
    _note(actor, schedule, "schedule.create", cron=cron, zone=zone)
    return schedule


@transaction.atomic
def update_schedule(
    actor: Principal, account_id: str, queue_name: str, name: str, change: ScheduleChange
) -> CronSchedule:
    """Ticks that were handed over already come as they were. Raises QueueProblem."""
    schedule = _locked(account_id, queue_name, name)
    if change.read_at not in (None, schedule.modified_at):
        raise QueueProblem("PreconditionFailed", "The schedule has changed since it was read.")
    if change.attributes is not None and change.body is None:
        raise _invalid("Attributes are changed together with the body: give both.")
    was = {"cron": schedule.cron, "zone": schedule.zone, "group": schedule.group}
    details = _change_ticks(schedule, change) | _change_message(schedule, change)
    if details:
        schedule.modified_at = clock.now()
        schedule.save()
        before = {name: value for name, value in was.items() if name in details}
        _note(actor, schedule, "schedule.update", **details, before=before)
    return schedule


def _change_ticks(schedule: CronSchedule, change: ScheduleChange) -> dict[str, object]:
    """What has changed, as the audit trail says it."""
    if change.cron is None and change.zone is None:
        return {}
    cron = schedule.cron if change.cron is None else change.cron
    cron, zone, _ = _first_tick(cron, schedule.zone if change.zone is None else change.zone)
    if (cron, zone) == (schedule.cron, schedule.zone):
        return {}
    schedule.cron, schedule.zone = cron, zone
    _begin_anew(schedule)
    return {"cron": cron, "zone": zone}


def _change_message(schedule: CronSchedule, change: ScheduleChange) -> dict[str, object]:
    group = schedule.group if change.group is None else change.group
    if change.body is None and group == schedule.group:
        return {}
    # A group alone is looked at with a body that every queue takes: the one that is kept is sealed.
    content = _check_message(schedule.queue, change.body or "x", change.attributes or {}, group or None)
    details: dict[str, object] = {} if group == schedule.group else {"group": group}
    schedule.group = group
    if change.body is not None:
        schedule.content_sealed = _sealed(schedule.queue, schedule.uuid, content)
        details["message"] = "replaced"
    return details


def _begin_anew(schedule: CronSchedule) -> None:
    """With the next tick from now on, and none before what was handed over: who works on the row gives it up."""
    after = max(clock.now(), schedule.last_tick_at or schedule.created_at)
    schedule.next_tick_at = next_tick(schedule.cron, schedule.zone, after)
    schedule.claim, schedule.free_at = None, clock.now()
    schedule.failures, schedule.last_error = 0, ""


@transaction.atomic
def set_enabled(actor: Principal, account_id: str, queue_name: str, name: str, enabled: bool) -> CronSchedule:
    """Pause or resume. Ticks that pass while it is paused do not come; those handed over already do."""
    schedule = _locked(account_id, queue_name, name)
    if schedule.enabled == enabled:
        return schedule
    schedule.enabled = enabled
    schedule.modified_at = clock.now()
    schedule.claim = None
    if enabled:
        _begin_anew(schedule)
    schedule.save()
    _note(actor, schedule, "schedule.resume" if enabled else "schedule.pause")
    return schedule


@transaction.atomic
def delete_schedule(actor: Principal, account_id: str, queue_name: str, name: str) -> None:
    schedule = _locked(account_id, queue_name, name)
    _note(actor, schedule, "schedule.delete")
    schedule.delete()


def _first_tick(cron: str, zone: str) -> tuple[str, str, datetime]:
    try:
        normal, zone = check_cron(cron), check_zone(zone)
        return normal, zone, next_tick(normal, zone, clock.now())
    except CronError as error:
        raise _invalid(str(error)) from None


def _check_message(queue: Queue, body: str, attributes: dict[str, tuple[str, str]], group: str | None) -> Content:
    try:
        message = outgoing_message(body, attributes, lambda name, given: read_attribute(name, *given))
        message.group = group
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


def _sealed(queue: Queue, schedule_uuid: uuid.UUID, content: Content) -> bytes:
    uses = EncryptionKeyUses()
    try:
        key = _view_of(queue, uses).sealing_key(clock.now().timestamp())
    except RequestError as refusal:
        raise QueueProblem(refusal.code, refusal.message) from None
    counted = uses.take(1)
    if counted:
        note_uses({uuid.UUID(key_id): count for key_id, count in counted.items()})
    return seal(key, b"schedule/" + schedule_uuid.hex.encode(), content)[1]


def _locked(account_id: str, queue_name: str, name: str) -> CronSchedule:
    rows = CronSchedule.objects.select_for_update(of=("self",)).select_related("queue")
    found = rows.filter(
        queue__account_id=account_id, queue__name=queue_name, queue__state=QueueStatus.ACTIVE, name=name
    ).first()
    if found is None:
        raise QueueProblem("ResourceNotFoundException", "The queue has no schedule of this name.")
    return found


def _note(actor: Principal, schedule: CronSchedule, action: str, **details: object) -> None:
    subject = f"queue:{schedule.queue.name}"
    record(actor, schedule.queue.account_id, action, subject, schedule=schedule.name, **details)


def _invalid(message: str) -> QueueProblem:
    return QueueProblem("InvalidParameterValueException", message)
