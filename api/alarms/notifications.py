"""What mails and webhooks are told of a change of an alarm's state. What webhooks get is a JSON object, whose members
stay."""

from __future__ import annotations

from datetime import datetime
from smtplib import SMTPRecipientsRefused
from typing import Any

from django.core.mail import EmailMessage

from api.alarms.judging import AlarmState
from api.alarms.models import AlarmEvent, MetricAlarm
from api.queues.models import GONE, Queue
from api.settings.environment import environment

_SUBJECTS = {
    AlarmState.ALARM: "ALARM: {name}",
    AlarmState.OK: "OK: {name}",
    AlarmState.NO_DATA: "No data: {name}",
}


_FINAL = 500  # SMTP answers from here on are not to be tried again


def send_alarm_mail(event: AlarmEvent, queue: str) -> None:
    """`queue` empty: it is gone."""
    subject = _SUBJECTS[AlarmState(event.state)].format(name=event.alarm_name)
    lines = [f"The alarm {event.alarm_name} of account {event.account_id} was {event.before}, and is {event.state}."]
    lines += [f"Queue: {queue}"] if queue else []
    lines += [f"Since: {event.at:%Y-%m-%d %H:%M:%S} UTC", "", event.reason]
    endpoint = environment().endpoint
    if queue:
        lines += ["", f"{endpoint}/console/a/{event.account_id}/queues/{queue}/metrics?span=24h"]
    text = "\n".join(lines) + f"\n\n-- \nPenstock, {endpoint}\n"
    EmailMessage(subject, text, to=event.mail_to).send()


def is_final(error: SMTPRecipientsRefused) -> bool:
    """The mail server takes none of the addresses, and says that it never will."""
    return all(code >= _FINAL for code, _ in error.recipients.values())


def alarm_content(alarm: MetricAlarm, before: AlarmState, now: datetime) -> dict[str, Any]:
    """`queue` is null where it is gone."""
    rows = Queue.objects.filter(account_id=alarm.account_id, uuid=alarm.queue_uuid).exclude(state__in=GONE)
    return {
        "type": "alarm.state_changed",
        "account_id": alarm.account_id,
        "alarm": alarm.name,
        "queue": rows.values_list("name", flat=True).first(),
        "before": before.value,
        "state": alarm.state,
        "since": now.isoformat(timespec="milliseconds"),
        "reason": alarm.state_reason,
        "metric": alarm.metric,
        "statistic": alarm.statistic,
        "comparison": alarm.comparison,
        "threshold": alarm.threshold,
        "period_s": alarm.period_s,
        "periods": alarm.periods,
        "breaching": alarm.breaching,
    }
