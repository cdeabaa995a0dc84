"""Mails of alarms."""

from __future__ import annotations

from smtplib import SMTPRecipientsRefused

from django.core.mail import EmailMessage

from api.alarms.judging import AlarmState
from api.alarms.models import AlarmEvent
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
