"""What is to come: single messages with a time of their own, and messages by cron."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.people.roles import Act
from api.queues.attributes import QueueProblem
from api.schedules import actions, selectors
from api.schedules.actions import ScheduleChange, ScheduleSpec
from api.schedules.models import CronSchedule
from console.data_plane import DataPlaneError
from console.error_notices import notice_of
from console.pages import account_page, told
from console.views.messages import attribute_rows, due_ms_of
from console.views.queue import tab_of
from console.views.queue_forms import queue_or_404, queue_url
from console.visits import AccountVisit

SCHEDULES_SHOWN_MAX = 100
SCHEDULED_SHOWN = 25


@account_page(Act.READ_QUEUES, "GET", "POST", does="penstock:ListSchedules")
def schedules(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    refusal = None
    if request.method == "POST":
        visit.require_change(Act.CHANGE_MESSAGES, to="schedule messages")
        visit.require("schedules.create")
        form = request.POST
        spec = ScheduleSpec(
            form.get("name", "").strip(), form.get("cron", "").strip(), form.get("zone", "").strip() or "UTC",
            form.get("body", ""), _attributes(request), form.get("group", "").strip() or None, True,
        )  # fmt: skip
        try:
            made = actions.create_schedule(visit.actor, visit.account_id, name, spec)
            return told(queue_url(visit, name, "/schedules"), f"The schedule {made.name} is created.")
        except QueueProblem as error:
            refusal = notice_of(error)
    shown = {
        **tab_of(visit, queue, "schedules"),
        "schedules": selectors.schedules_of(queue.pk, "", SCHEDULES_SHOWN_MAX),
        "refusal": refusal,
        "form": request.POST,
        "attributes": attribute_rows(request),
    }
    return render(request, "console/messages/schedules.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.CHANGE_MESSAGES, "GET", "POST", does="penstock:ListSchedules")
def edit_schedule(request: HttpRequest, visit: AccountVisit, name: str, schedule: str) -> HttpResponse:
    """The message is not shown: an empty body leaves it as it is."""
    queue = queue_or_404(visit, name)
    visit.require("schedules.update")
    found = selectors.schedule_of(visit.account_id, name, schedule)
    if found is None:
        raise Http404
    refusal = None
    if request.method == "POST":
        try:
            change = _change_asked(request, queue.fifo)
            actions.update_schedule(visit.actor, visit.account_id, name, schedule, change)
            return told(queue_url(visit, name, "/schedules"), f"The schedule {schedule} is changed.")
        except QueueProblem as error:
            refusal = notice_of(error)
    shown = {
        **tab_of(visit, queue, "schedules"),
        "schedule": found,
        "refusal": refusal,
        "form": request.POST if refusal else _form_of(found),
        "attributes": attribute_rows(request),
    }
    return render(request, "console/messages/schedule_edit.html", shown, status=refusal.status if refusal else 200)


def _form_of(schedule: CronSchedule) -> dict[str, str]:
    read_at = schedule.modified_at.isoformat()
    return {"cron": schedule.cron, "zone": schedule.zone, "group": schedule.group, "read_at": read_at}


def _change_asked(request: HttpRequest, fifo: bool) -> ScheduleChange:
    """Raises QueueProblem."""
    form = request.POST
    body = form.get("body", "")
    attributes = _attributes(request)
    if attributes and not body:
        text = "Attributes are stored together with the body: write the body, too."
        raise QueueProblem("InvalidParameterValueException", text)
    try:
        read_at = datetime.fromisoformat(form.get("read_at", ""))
    except ValueError:
        raise QueueProblem("PreconditionFailed", "The form does not say when it was read.") from None
    return ScheduleChange(
        form.get("cron", ""), form.get("zone", "").strip() or "UTC", body or None, attributes if body else None,
        form.get("group", "").strip() if fifo or "group" in form else None, read_at,
    )  # fmt: skip


def _attributes(request: HttpRequest) -> dict[str, tuple[str, str]]:
    return {key: (kind, value) for key, kind, value in attribute_rows(request)}


@account_page(Act.CHANGE_MESSAGES, "POST")
def change_schedule(request: HttpRequest, visit: AccountVisit, name: str, schedule: str, verb: str) -> HttpResponse:
    queue_or_404(visit, name)
    if verb not in ("delete", "pause", "resume"):
        raise Http404
    visit.require(f"schedules.{verb}")
    who = (visit.actor, visit.account_id, name, schedule)
    if verb == "delete":
        actions.delete_schedule(*who)
    else:
        actions.set_enabled(*who, verb == "resume")
    text = {"delete": "deleted", "pause": "paused", "resume": "resumed"}[verb]
    return told(queue_url(visit, name, "/schedules"), f"The schedule {schedule} is {text}.")


@account_page(Act.READ_MESSAGES, "GET")
def scheduled(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """Single messages by due time."""
    queue = queue_or_404(visit, name)
    cursor = request.GET.get("cursor", "")
    target = f"scheduled?limit={SCHEDULED_SHOWN}" + (f"&cursor={quote(cursor, safe='')}" if cursor else "")
    try:
        found = visit.data_plane.look(name, target)
    except DataPlaneError as error:
        return render(request, "console/parts/refusal.html", {"refusal": notice_of(error)})
    messages = [{**one, "due": _minute_of(one["deliver_at_ms"])} for one in found["messages"]]
    shown = {**tab_of(visit, queue, "schedules"), "messages": messages, "cursor": found["next_cursor"]}
    return render(request, "console/messages/scheduled.html", {**shown, "is_first": not cursor})


@account_page(Act.CHANGE_MESSAGES, "POST", does="penstock:CancelScheduledMessages")
def cancel_scheduled(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue_or_404(visit, name)
    visit.data_plane.ask(name, "scheduled/cancel", {"ids": [request.POST.get("id", "")]})
    return told(queue_url(visit, name, "/schedules"), "The scheduled message is cancelled.", "warn")


@account_page(Act.CHANGE_MESSAGES, "POST", does="penstock:RescheduleMessages")
def reschedule(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """To another time, in UTC. The id stays the same."""
    queue_or_404(visit, name)
    try:
        due_ms = due_ms_of(request.POST.get("due", ""))
    except ValueError as error:
        raise QueueProblem("InvalidParameterValueException", str(error)) from None
    visit.data_plane.ask(name, "scheduled/reschedule", {"ids": [request.POST.get("id", "")], "deliver_at_ms": due_ms})
    return told(queue_url(visit, name, "/schedules"), "The scheduled message has another time.")


def _minute_of(at_ms: int) -> str:
    """As a field for a time holds it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")
