"""Alarms on the schedule: those whose next period is over, and mails that wait. Safe to run twice."""

from __future__ import annotations

from smtplib import SMTPRecipientsRefused
from time import monotonic

import structlog

from api import clock
from api.alarms import actions, limits, selectors
from api.alarms.notifications import is_final, send_alarm_mail

_log = structlog.get_logger(__name__)


def judge_alarms() -> int:
    """How many were judged. What one slice leaves the next one finds."""
    now, ends_s = clock.now(), monotonic() + limits.JUDGE_SLICE_S
    until, judged = selectors.judged_until(now), 0
    for alarm in selectors.alarms_due(until):
        if monotonic() > ends_s:
            break
        try:
            end, values = selectors.values_of(alarm, until, now)
            judged += actions.note_values(alarm, end, values, now)
        except Exception:
            _log.exception("alarm_failed", alarm=alarm.pk)
    return judged


def mail_alarms() -> int:
    """A mail whose handing over is not noted comes again: better twice than never. A mail that fails holds up no other
    one; a mail whose addresses the mail server refuses for good is given up. How many were sent."""
    ends_s, sent = monotonic() + limits.JUDGE_SLICE_S, 0
    for event in selectors.unmailed_alarm_events():
        if monotonic() > ends_s:
            break
        alarm = event.alarm
        names = selectors.queue_names(event.account_id, [alarm.queue_uuid]) if alarm is not None else {}
        try:
            send_alarm_mail(event, next(iter(names.values()), ""))
            actions.note_mailed(event.pk)
            sent += 1
        except SMTPRecipientsRefused as error:
            if is_final(error):
                actions.give_up_mail(event.pk)
            _log.warning("alarm_not_mailed", event_id=event.pk, error=type(error).__name__)
        except OSError as error:
            _log.warning("alarm_not_mailed", event_id=event.pk, error=type(error).__name__)
        except Exception:
            actions.give_up_mail(event.pk)
            _log.exception("alarm_not_mailed", event_id=event.pk)
    actions.remove_old_events(clock.now())
    return sent
