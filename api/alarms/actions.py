"""The only writer of alarms: created and changed by customers, judged by workers.

A judgement is one transaction with its event: a worker that dies leaves the period to the next one, and a period is
judged once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction

from api import clock
from api.absence import NOTHING_HERE
from api.accounts.selectors import locked_account
from api.alarms import limits
from api.alarms.judging import AlarmState, Comparison, MissingData, judge
from api.alarms.models import AlarmEvent, MetricAlarm
from api.alarms.notifications import alarm_content
from api.audit.actions import record
from api.people.errors import PeopleError
from api.people.mails import normal_email
from api.queues.models import GONE, Queue
from api.series.metrics import METRICS, Statistic
from api.series.reading import SeriesError, check_query
from api.webhooks.deliveries import begin_delivery
from api.webhooks.models import Webhook
from api.webhooks.selectors import webhooks_of
from frontend.authn.principal import Principal, service

ALARMS = service("alarms")
# One part of a path.
_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_TOLD = (
    "metric", "statistic", "period_s", "comparison", "threshold", "periods", "breaching", "missing", "mail_to",
    "webhooks",
)  # fmt: skip
MUTED, TOO_MANY, REFUSED = "muted", "too many mails", "refused by the mail server"
TOO_MANY_CALLS = "too many calls"


class AlarmError(Exception):
    """An operating error. `code` is one of ALARM_STATUS."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = ALARM_STATUS[code]
        self.code = code
        self.detail = detail


ALARM_STATUS = {"invalid-request": 400, "not-found": 404, "over-limit": 409}


def invalid_alarm(detail: str) -> AlarmError:
    return AlarmError("invalid-request", detail)


def no_such_alarm() -> AlarmError:
    return AlarmError("not-found", NOTHING_HERE)


class AlarmSpec(NamedTuple):
    """What an alarm is created from, or changed to."""

    queue_name: str
    metric: str
    statistic: Statistic
    period_s: int
    comparison: Comparison
    threshold: float
    periods: int
    breaching: int
    missing: MissingData
    mail_to: Sequence[str]
    webhooks: Sequence[str] = ()


@transaction.atomic
def put_alarm(actor: Principal, account_id: str, name: str, spec: AlarmSpec) -> tuple[MetricAlarm, bool]:
    """Creates or replaces it; True where it is new. It is judged again from the beginning. Raises AlarmError."""
    account = locked_account(account_id, no_such_alarm)
    addresses = _check(name, spec)
    webhooks = _known_webhooks(account_id, spec.webhooks)
    queue = Queue.objects.filter(account_id=account_id, name=spec.queue_name).exclude(state__in=GONE).first()
    if queue is None:
        raise invalid_alarm(f"There is no queue {spec.queue_name}.")
    now = clock.now()
    alarm = MetricAlarm.objects.select_for_update().filter(account=account, name=name).first()
    is_new, before = alarm is None, {} if alarm is None else _told(alarm)
    if alarm is None:
        if MetricAlarm.objects.filter(account=account).count() >= limits.ALARMS_PER_ACCOUNT_MAX:
            raise AlarmError("over-limit", f"An account has at most {limits.ALARMS_PER_ACCOUNT_MAX} alarms.")
        alarm = MetricAlarm(account=account, name=name, created_at=now, state_since=now)
    alarm.queue_uuid, alarm.mail_to, alarm.webhooks = queue.uuid, addresses, webhooks
    for field in ("metric", "period_s", "threshold", "periods", "breaching"):
        setattr(alarm, field, getattr(spec, field))
    alarm.statistic, alarm.comparison, alarm.missing = spec.statistic.value, spec.comparison.value, spec.missing.value
    alarm.judged_up_to, alarm.next_at, alarm.modified_at = None, now, now
    alarm.save()
    was = {"before": before} if before else {}
    record(actor, account_id, "alarm.put", f"alarm:{name}", queue=queue.name, **_told(alarm), **was)
    return alarm, is_new


@transaction.atomic
def delete_alarm(actor: Principal, account_id: str, name: str) -> None:
    """Its history stays. Raises AlarmError."""
    alarm = _locked(account_id, name)
    record(actor, account_id, "alarm.delete", f"alarm:{name}", before=_told(alarm))
    alarm.delete()


@transaction.atomic
def mute_alarm(actor: Principal, account_id: str, name: str, until: datetime | None) -> MetricAlarm:
    """None: its changes are told again. Raises AlarmError."""
    now = clock.now()
    if until is not None and not now < until <= now + timedelta(days=limits.ALARM_MUTE_DAYS_MAX):
        raise invalid_alarm(f"An alarm is muted until a time to come, within {limits.ALARM_MUTE_DAYS_MAX} days.")
    alarm = _locked(account_id, name)
    before, alarm.muted_until = alarm.muted_until, until
    alarm.save(update_fields=["muted_until"])
    times = {"until": until, "before": before}
    told = {which: at.isoformat() if at else None for which, at in times.items()}
    record(actor, account_id, "alarm.mute", f"alarm:{name}", **told)
    return alarm


@transaction.atomic
def note_values(read_for: MetricAlarm, end: datetime, values: Sequence[float | None], now: datetime) -> bool:
    """Judges the periods that end at `end`; `read_for`: the alarm as it was when the values were read. False: the alarm
    is gone, was changed since, or they were judged before."""
    alarm = MetricAlarm.objects.select_for_update().filter(pk=read_for.pk).first()
    if alarm is None or alarm.modified_at != read_for.modified_at:
        return False
    if alarm.judged_up_to and alarm.judged_up_to >= end:
        return False
    before = AlarmState(alarm.state)
    found = judge(alarm.rule, values, before)
    alarm.judged_up_to, alarm.next_at = end, end + timedelta(seconds=alarm.period_s)
    alarm.state_reason = found.reason[: limits.ALARM_REASON_CHARACTERS_MAX]
    if found.state is not before:
        alarm.state, alarm.state_since = found.state.value, now
        _note(alarm, before, now)
    alarm.save()
    return True


def note_mailed(event_id: int) -> None:
    AlarmEvent.objects.filter(pk=event_id, mailed_at=None).update(mailed_at=clock.now())


def give_up_mail(event_id: int) -> None:
    rows = AlarmEvent.objects.filter(pk=event_id, mailed_at=None)
    rows.update(mailed_at=clock.now(), not_mailed=REFUSED)


def remove_old_events(now: datetime) -> int:
    old = AlarmEvent.objects.filter(at__lt=now - timedelta(days=limits.ALARM_EVENTS_KEPT_DAYS))
    ids = list(old.order_by("at").values_list("pk", flat=True)[: limits.JUDGED_AT_ONCE_MAX])
    removed, _ = AlarmEvent.objects.filter(pk__in=ids).delete()
    return removed


def _told(alarm: MetricAlarm) -> dict[str, object]:
    """What the trail keeps of an alarm."""
    return {"queue_id": str(alarm.queue_uuid), **{field: getattr(alarm, field) for field in _TOLD}}


def _note(alarm: MetricAlarm, before: AlarmState, now: datetime) -> None:
    """Part of the caller's transaction, with the alarm locked."""
    why_not = ""
    if alarm.muted_until is not None and alarm.muted_until > now:
        why_not = MUTED
    elif alarm.mail_to and _mails_of_hour(alarm.account_id, now) + len(alarm.mail_to) > limits.ALARM_MAILS_PER_HOUR_MAX:
        why_not = TOO_MANY
    is_told = bool(alarm.mail_to) and not why_not
    AlarmEvent.objects.create(
        alarm=alarm, account_id=alarm.account_id, alarm_name=alarm.name, before=before.value, state=alarm.state,
        reason=alarm.state_reason, at=now, mail_to=alarm.mail_to, not_mailed=why_not,
        mailed_at=None if is_told else now, not_called=_call(alarm, before, now),
    )  # fmt: skip


def _call(alarm: MetricAlarm, before: AlarmState, now: datetime) -> str:
    """Begins the calls of the alarm's webhooks; answers why one of them is not called."""
    if not alarm.webhooks:
        return ""
    if alarm.muted_until is not None and alarm.muted_until > now:
        return MUTED
    found = Webhook.objects.filter(account_id=alarm.account_id, name__in=alarm.webhooks)
    content = alarm_content(alarm, before, now)
    begun = [begin_delivery(webhook, alarm.name, content, now) for webhook in found]
    return TOO_MANY_CALLS if None in begun else ""


def _known_webhooks(account_id: str, names: Sequence[str]) -> list[str]:
    """Under the lock of the account. Raises AlarmError."""
    wanted = list(dict.fromkeys(names))
    if len(wanted) > limits.ALARM_WEBHOOKS_MAX:
        raise invalid_alarm(f"webhooks has at most {limits.ALARM_WEBHOOKS_MAX} names.")
    known = {webhook.name for webhook in webhooks_of(account_id)}
    if missing := [name for name in wanted if name not in known]:
        raise invalid_alarm(f"There is no webhook {', '.join(map(repr, missing))} in this account.")
    return wanted


def _mails_of_hour(account_id: str, now: datetime) -> int:
    rows = AlarmEvent.objects.filter(account_id=account_id, at__gt=now - timedelta(hours=1), not_mailed="")
    return sum(len(mail_to) for mail_to in rows.values_list("mail_to", flat=True))


def _check(name: str, spec: AlarmSpec) -> list[str]:
    """The addresses as they are stored. Raises AlarmError."""
    if len(name) > limits.ALARM_NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        length = f"1 to {limits.ALARM_NAME_CHARACTERS_MAX}"
        raise invalid_alarm(
            f"An alarm's name has {length} letters, digits, hyphens, underscores, single dots between them."
        )
    if spec.metric not in METRICS:
        raise invalid_alarm(f"There is no metric {spec.metric}.")
    try:
        check_query(METRICS[spec.metric], spec.statistic, spec.period_s)
    except SeriesError as error:
        raise invalid_alarm(str(error)) from None
    if spec.period_s > limits.ALARM_PERIOD_S_MAX:
        raise invalid_alarm(f"A period of an alarm has at most {limits.ALARM_PERIOD_S_MAX} s.")
    if not 1 <= spec.breaching <= spec.periods <= limits.ALARM_PERIODS_MAX:
        raise invalid_alarm(f"periods are 1 to {limits.ALARM_PERIODS_MAX}, breaching is 1 to as many as they are.")
    if spec.periods * spec.period_s > limits.ALARM_SPAN_S_MAX:
        raise invalid_alarm(f"All periods together have at most {limits.ALARM_SPAN_S_MAX} s.")
    if not abs(spec.threshold) <= limits.ALARM_THRESHOLD_MAX:
        raise invalid_alarm(f"The threshold is at most {limits.ALARM_THRESHOLD_MAX:g}.")
    if len(spec.mail_to) > limits.ALARM_MAILS_MAX:
        raise invalid_alarm(f"mail_to has at most {limits.ALARM_MAILS_MAX} addresses.")
    try:
        return list(dict.fromkeys(normal_email(address) for address in spec.mail_to))
    except PeopleError as error:
        raise invalid_alarm(error.detail) from None


def _locked(account_id: str, name: str) -> MetricAlarm:
    alarm = MetricAlarm.objects.select_for_update().filter(account_id=account_id, name=name).first()
    if alarm is None:
        raise no_such_alarm()
    return alarm
