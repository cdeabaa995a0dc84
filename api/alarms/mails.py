"""Mails of alarms."""

from __future__ import annotations

from django.core.mail import EmailMessage

from api.alarms.judging import AlarmState
from api.alarms.models import AlarmEvent
from api.settings.environment import environment

_SUBJECTS = {
    AlarmState.ALARM: "ALARM: {name}",
    AlarmState.OK: "OK: {name}",
    AlarmState.NO_DATA: "No data: {name}",
}


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
