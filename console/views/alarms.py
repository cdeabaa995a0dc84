"""Alarms of an account: the list, one of them with its history, created, changed, muted, deleted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.alarms import actions, selectors
from api.alarms.actions import AlarmError, AlarmSpec, invalid_alarm
from api.alarms.judging import COMPARED_IN_WORDS, AlarmState, Comparison, MissingData, said
from api.alarms.models import MetricAlarm
from api.people.roles import Act
from api.series.metrics import METRICS, Statistic
from console.error_notices import notice_of
from console.pages import account_page, denied, told
from console.templatetags.words import span
from console.visits import AccountVisit

MUTES_HOURS = (1, 8, 24, 168)
LENGTHS = (("60", "1 minute"), ("300", "5 minutes"), ("900", "15 minutes"), ("3600", "1 hour"))
STATES = {AlarmState.OK: "OK", AlarmState.ALARM: "alarm", AlarmState.NO_DATA: "no data"}
MISSING = (
    (MissingData.MISSING.value, "is missing"),
    (MissingData.NOT_BREACHING.value, "is fine"),
    (MissingData.BREACHING.value, "breaches"),
    (MissingData.IGNORE.value, "changes nothing"),
)
NEW = {
    "metric": "ApproximateAgeOfOldestMessage", "comparison": Comparison.ABOVE.value, "threshold": "300",
    "period_s": "60", "periods": "5", "breaching": "5", "missing": MissingData.MISSING.value,
}  # fmt: skip
# What a new alarm may begin as: word of the address, label, values of the form.
STARTS: dict[str, tuple[str, dict[str, str]]] = {
    "age": ("Messages wait too long", {}),
    "dead-letters": (
        "Dead letters are there",
        {"metric": "ApproximateNumberOfMessagesVisible", "statistic": Statistic.MAXIMUM.value, "threshold": "0"}
        | {"periods": "1", "breaching": "1"},
    ),
    "errors": (
        "Requests fail",
        {"metric": "NumberOfErrors", "threshold": "0", "period_s": "300", "periods": "1", "breaching": "1"},
    ),
    "throttled": (
        "Requests are throttled",
        {"metric": "NumberOfThrottledRequests", "threshold": "0", "period_s": "300", "periods": "3", "breaching": "2"},
    ),
}
DIGITS_MAX = 9
NO_MAIL = ".invalid"


@account_page(Act.READ_ALARMS, "GET")
def alarms(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    found = selectors.alarms_of(visit.account_id)
    names = selectors.queue_names(visit.account_id, (alarm.queue_uuid for alarm in found))
    shown = {
        "alarms": [(alarm, names.get(alarm.queue_uuid, ""), rule_in_words(alarm)) for alarm in found],
        "events": selectors.alarm_events_of(visit.account_id),
        "states": STATES,
        "sees_webhooks": visit.allows("webhooks.list"),
        "now": clock.now(),
    }
    return render(request, "console/alarms/index.html", shown)


@account_page(Act.MANAGE_ALARMS, "GET", "POST")
def new_alarm(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    email = visit.person.email
    # A stand-in owner has an address that no mail reaches.
    mail_to = "" if email.endswith(NO_MAIL) else email
    start = request.GET.get("start", "")
    start = start if start in STARTS else "age"
    form: Mapping[str, Any] = {**NEW, **STARTS[start][1], "queue": request.GET.get("queue", ""), "mail_to": mail_to}
    refusal = None
    if request.method == "POST":
        form = request.POST.dict()
        name = request.POST.get("name", "").replace("\0", "").strip()
        try:
            if selectors.alarm_of(visit.account_id, name) is not None:
                raise invalid_alarm(f"An alarm {name} exists already: choose another name, or change that alarm.")
            actions.put_alarm(visit.actor, visit.account_id, name, _spec(form))
            return told(alarm_url(visit, name), "The alarm is created. It is evaluated within a minute.")
        except AlarmError as error:
            refusal = notice_of(error)
    shown = {
        **_form(form, f"{_base(visit)}/alarms/new", "Create the alarm"),
        "name_asked": True,
        "starts": [(key, label) for key, (label, _) in STARTS.items()],
        "start": start,
        "refusal": refusal,
    }
    return render(request, "console/alarms/new.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.READ_ALARMS, "GET", "POST")
def one_alarm(request: HttpRequest, visit: AccountVisit, alarm: str) -> HttpResponse:
    if request.method == "POST" and not visit.may(Act.MANAGE_ALARMS):
        return denied(request, visit, Act.MANAGE_ALARMS)
    found = _alarm_or_404(visit, alarm)
    refusal, form = None, _form_of(visit, found)
    if request.method == "POST":
        form = request.POST.dict()
        try:
            actions.put_alarm(visit.actor, visit.account_id, alarm, _spec(form))
            return told(alarm_url(visit, alarm), "The alarm is changed. It is evaluated within a minute.")
        except AlarmError as error:
            refusal = notice_of(error)
    now = clock.now()
    shown = {
        **_form(form, alarm_url(visit, alarm), "Change the alarm"),
        "alarm": found,
        "base": alarm_url(visit, alarm),
        "queue": _form_of(visit, found)["queue"],
        "rule": rule_in_words(found),
        "events": selectors.alarm_events_of(visit.account_id, alarm),
        "states": STATES,
        "mutes": MUTES_HOURS,
        "is_muted": found.muted_until is not None and found.muted_until > now,
        "now": now,
        "refusal": refusal,
    }
    return render(request, "console/alarms/alarm.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.MUTE_ALARMS, "POST")
def mute(request: HttpRequest, visit: AccountVisit, alarm: str) -> HttpResponse:
    _alarm_or_404(visit, alarm)
    hours = request.POST.get("hours", "")
    until = clock.now() + timedelta(hours=int(hours)) if hours in map(str, MUTES_HOURS) else None
    actions.mute_alarm(visit.actor, visit.account_id, alarm, until)
    if until is None:
        return told(alarm_url(visit, alarm), "Notifications are sent again.")
    text = "No notifications are sent until then. Changes are still in the history."
    return told(alarm_url(visit, alarm), text, "warn")


@account_page(Act.DELETE_ALARMS, "POST")
def delete(request: HttpRequest, visit: AccountVisit, alarm: str) -> HttpResponse:
    _alarm_or_404(visit, alarm)
    actions.delete_alarm(visit.actor, visit.account_id, alarm)
    return told(f"{_base(visit)}/alarms", f"The alarm {alarm} is deleted.", "warn")


def alarm_url(visit: AccountVisit, name: str) -> str:
    return f"{_base(visit)}/alarm/{name}"


def rule_in_words(alarm: MetricAlarm) -> str:
    length = span(alarm.period_s)
    often = f"in {alarm.breaching} of {alarm.periods} periods of {length}" if alarm.periods > 1 else f"over {length}"
    return f"{alarm.statistic} of {alarm.metric} {said(alarm.rule)} {often}"


def _base(visit: AccountVisit) -> str:
    return f"/console/a/{visit.account_id}"


def _alarm_or_404(visit: AccountVisit, name: str) -> MetricAlarm:
    found = selectors.alarm_of(visit.account_id, name)
    if found is None:
        raise Http404
    return found


def _form(form: Mapping[str, Any], action: str, button: str) -> dict[str, Any]:
    return {
        "form": form,
        "action": action,
        "button": button,
        "metrics": list(METRICS.values()),
        "statistics": [one.value for one in Statistic],
        "comparisons": [(one.value, text) for one, text in COMPARED_IN_WORDS.items()],
        "lengths": LENGTHS,
        "missing": MISSING,
    }


def _form_of(visit: AccountVisit, alarm: MetricAlarm) -> dict[str, Any]:
    names = selectors.queue_names(visit.account_id, [alarm.queue_uuid])
    return {
        "queue": names.get(alarm.queue_uuid, ""), "metric": alarm.metric, "statistic": alarm.statistic,
        "comparison": alarm.comparison, "threshold": f"{alarm.threshold:g}", "period_s": str(alarm.period_s),
        "periods": str(alarm.periods), "breaching": str(alarm.breaching), "missing": alarm.missing,
        "mail_to": ", ".join(alarm.mail_to), "webhooks": ", ".join(alarm.webhooks),
    }  # fmt: skip


def _spec(form: Mapping[str, Any]) -> AlarmSpec:
    """Raises AlarmError for what no form of these pages sends, and for what is no number."""
    metric = METRICS.get(form.get("metric", ""))
    if metric is None:
        raise invalid_alarm("There is no such metric.")
    try:
        statistic = Statistic(form.get("statistic") or metric.statistics[0])
        comparison, missing = Comparison(form.get("comparison", "")), MissingData(form.get("missing", ""))
    except ValueError:
        raise invalid_alarm("Choose a statistic, a comparison and what missing data means.") from None
    return AlarmSpec(
        form.get("queue", "").replace("\0", "").strip(), metric.name, statistic, _whole(form, "period_s"), comparison,
        _threshold(form.get("threshold", "")), _whole(form, "periods"), _whole(form, "breaching"), missing,
        form.get("mail_to", "").replace(",", " ").split(),
        form.get("webhooks", "").replace("\0", "").replace(",", " ").split(),
    )  # fmt: skip


def _whole(form: Mapping[str, Any], name: str) -> int:
    text = form.get(name, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise invalid_alarm("Periods and breaching periods are whole numbers.")
    return int(text)


def _threshold(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise invalid_alarm("The threshold is a number.")
    return found
