"""Messages of a queue: looked at without a receive, searched, sent, sent again, moved, deleted.

Everything here is asked of a front end (console/data_plane.py); only what the form says is made into a request.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.clock import parse_time
from api.people.roles import Act
from api.settings.environment import environment
from console.data_plane import DataPlaneError
from console.error_notices import ErrorNotice, notice_of
from console.pages import account_page, told
from console.same_as import Snippet, sending
from console.views.queue import tab_of
from console.views.queue_forms import queue_or_404, queue_url
from console.visits import AccountVisit

PAGE_MESSAGES = 25
# Of each message in the list; one that is opened is asked for whole.
BODY_CHARS_SHOWN = 4_096
COPIES_MAX = 100
_BATCH = 10
_DIGITS_MAX = 10
_STATES = ("waiting", "in_flight", "delayed")
_FILTERS = ("ids", "groups", "tags")
_WRITTEN = "A time is written like 2026-12-01T06:30, in UTC."


@account_page(Act.READ_MESSAGES, "GET")
def messages(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """The page; its list comes after it."""
    queue = queue_or_404(visit, name)
    asked = {key: value for key, value in request.GET.items() if value and key != "cursor"}
    shown = {
        **tab_of(visit, queue, "messages"),
        "asked": asked,
        "query": urlencode(asked),
        "states": [(state, state.replace("_", " ")) for state in _STATES],
    }
    return render(request, "console/messages/index.html", shown)


@account_page(Act.READ_MESSAGES, "GET")
def message_list(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """A page of what is found. A search that has looked for two seconds says how far it came, and goes on if asked."""
    queue = queue_or_404(visit, name)
    try:
        wanted = filter_of(request)
        asked = {"limit": PAGE_MESSAGES, "cursor": request.GET.get("cursor", ""), "body_chars": BODY_CHARS_SHOWN}
        found = visit.data_plane.ask(name, "messages/find", {"filter": wanted, **asked})
    except ValueError as error:
        return render(request, "console/parts/refusal.html", {"refusal": ErrorNotice(400, str(error))})
    except DataPlaneError as error:
        return render(request, "console/parts/refusal.html", {"refusal": notice_of(error)})
    again = {key: value for key, value in request.GET.items() if value and key != "cursor"}
    shown = {
        **tab_of(visit, queue, "messages"),
        "messages": found["messages"],
        "scanned": found["scanned"],
        "more": urlencode({**again, "cursor": found["cursor"]}) if found["cursor"] else "",
        "is_first": not request.GET.get("cursor"),
        "is_filtered": bool(again),
    }
    return render(request, "console/messages/list.html", shown)


@account_page(Act.READ_QUEUES, "GET", "POST", does="sqs:SendMessage")
def send(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """The form keeps what was sent, for the next one."""
    queue = queue_or_404(visit, name)
    form: dict[str, Any] = {"count": "1"}
    message: dict[str, Any] = {"body": "hello"}
    refusal, sent = None, None
    if request.method == "POST":
        form = {key: str(value) for key, value in request.POST.items()}
        try:
            message = message_of(request)
            if form.get("due", "").strip():
                message["deliver_at_ms"] = due_ms_of(form["due"].strip())
            count = _number(form.get("count", ""), "How many", 1, COPIES_MAX) or 1
            sent = _send(visit, name, message, count)
        except ValueError as error:
            refusal = ErrorNotice(400, str(error))
        except DataPlaneError as error:
            refusal = notice_of(error)
    shown = {
        **tab_of(visit, queue, "send"),
        "form": form,
        "attributes": attribute_rows(request),
        "refusal": refusal,
        "sent": sent,
        "snippets": _snippets(visit, name, message),
    }
    return render(request, "console/messages/send.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.READ_MESSAGES, "GET", "POST", does="penstock:ResendMessage")
def resend(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """Edit, send, remove the old one. The token names the message."""
    queue = queue_or_404(visit, name)
    token = request.POST.get("message") or request.GET.get("message", "")
    refusal, form = None, {key: str(value) for key, value in request.POST.items()}
    if request.method == "POST":
        try:
            change = {key: value for key, value in message_of(request).items() if value is not None}
            destination = form.get("destination", "").strip()
            asked = {"message": token, **change, **({"destination": destination} if destination else {})}
            visit.data_plane.ask(name, "messages/resend", asked)
            return told(
                queue_url(visit, name, "/messages"), f"Sent again to {destination or name}; the old message is deleted."
            )
        except ValueError as error:
            refusal = ErrorNotice(400, str(error))
        except DataPlaneError as error:
            refusal = notice_of(error)
        attributes = attribute_rows(request)
    else:
        seen = _whole(visit, name, token, request.GET.get("id", ""))
        form = {"body": seen.get("body", ""), "group": seen.get("group", "")}
        given = seen.get("attributes", {})
        attributes = [(key, one["type"], one["value"]) for key, one in given.items()]
    shown = {**tab_of(visit, queue, "messages"), "form": form, "message": token, "attributes": attributes}
    status = refusal.status if refusal else 200
    return render(request, "console/messages/resend.html", {**shown, "refusal": refusal}, status=status)


@account_page(Act.READ_MESSAGES, "GET")
def body(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """The whole body of one message, to be kept: never shown in place, never guessed at."""
    queue_or_404(visit, name)
    message_id = request.GET.get("id", "")
    seen = _whole(visit, name, request.GET.get("message", ""), message_id)
    answer = HttpResponse(seen.get("body", ""), content_type="text/plain; charset=utf-8")
    plain = "".join(char for char in message_id if char.isalnum() or char == "-")[:40]
    answer["Content-Disposition"] = f'attachment; filename="message-{plain}.txt"'
    return answer


@account_page(Act.CHANGE_MESSAGES, "POST", does="sqs:DeleteMessage")
def delete_message(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    asked = {"message": request.POST.get("message", ""), "reason": request.POST.get("reason", "")}
    visit.data_plane.ask(name, "messages/delete", asked)
    return told(queue_url(visit, name, "/messages"), "The message is deleted.", "warn")


@account_page(Act.READ_QUEUES, "POST", does="penstock:DeadLetterMessage")
def dead_letter(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    reason = request.POST.get("reason", "").strip() or "moved by hand"
    moved = visit.data_plane.ask(
        name, "messages/dead-letter", {"message": request.POST.get("message", ""), "reason": reason}
    )
    return told(queue_url(visit, name, "/messages"), f"The message is in {moved['destination']} now.")


def _snippets(visit: AccountVisit, name: str, message: dict[str, Any]) -> list[Snippet]:
    env = environment()
    return sending(env.endpoint, env.region, f"{env.endpoint}/{visit.account_id}/{name}", name, message)


def message_of(request: HttpRequest) -> dict[str, Any]:
    """A message as the REST API takes it. Raises ValueError."""
    form = request.POST
    attributes = {key: {"type": kind, "value": value} for key, kind, value in attribute_rows(request) if key}
    message: dict[str, Any] = {"body": form.get("body", "")}
    if attributes or "attribute_name" in form:
        message["attributes"] = attributes
    for member in ("group", "deduplication_id", "tag"):
        if form.get(member, "").strip():
            message[member] = form[member].strip()
    delay_s = _number(form.get("delay_seconds", ""), "The delay", 0, 900)
    if delay_s is not None:
        message["delay_seconds"] = delay_s
    priority = _number(form.get("priority", ""), "The priority", 0, 9)
    if priority is not None:
        message["priority"] = priority
    return message


def due_ms_of(text: str) -> int:
    """Raises ValueError."""
    try:
        return int(parse_time(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(_WRITTEN) from None


def filter_of(request: HttpRequest) -> dict[str, Any]:
    """As the message browser takes it. Raises ValueError."""
    given = request.GET
    wanted: dict[str, Any] = {}
    if given.get("text"):
        wanted["body_contains"] = given["text"]
    for member in _FILTERS:
        if given.get(member, "").strip():
            wanted[member] = given[member].replace(",", " ").split()
    states = [state for state in given.getlist("state") if state in _STATES]
    if states:
        wanted["states"] = states
    attribute = given.get("attribute", "").strip()
    if attribute:
        key, equals, value = attribute.partition("=")
        wanted["attributes"] = {key.strip(): value.strip() if equals else None}
    for member, label in (("receives_min", "Receives"), ("age_seconds_min", "Age"), ("age_seconds_max", "Age")):
        number = _number(given.get(member, ""), label, 0, 10**9)
        if number is not None:
            wanted[member] = number
    if given.get("note"):
        wanted["note_contains"] = given["note"]
    return wanted


def _send(visit: AccountVisit, name: str, message: dict[str, Any], count: int) -> dict[str, Any]:
    """Ids of what was sent. Raises DataPlaneError."""
    if count == 1:
        one = visit.data_plane.ask(name, "messages", message)
        return {"count": 1, "id": one["id"], "sequence_number": one.get("sequence_number")}
    done = 0
    while done < count:
        batch = [message] * min(_BATCH, count - done)
        answers = visit.data_plane.ask(name, "messages", {"messages": batch})["messages"]
        failed = next((one["error"] for one in answers if "error" in one), None)
        if failed is not None:
            sent = done + sum("error" not in one for one in answers)
            raise DataPlaneError(failed["code"], f"{sent} of {count} were sent. {failed['detail']}", 400)
        done += len(batch)
    return {"count": done}


def _whole(visit: AccountVisit, name: str, token: str, message_id: str) -> dict[str, Any]:
    """One message that was seen before, with all of its body. Raises DataPlaneError."""
    asked = {"filter": {"ids": [message_id]}, "limit": PAGE_MESSAGES}
    cursor = ""
    for _ in range(10):
        found = visit.data_plane.ask(name, "messages/find", {**asked, "cursor": cursor})
        match = next((one for one in found["messages"] if one["message"] == token), None)
        if match is not None:
            return dict(match)
        cursor = found["cursor"]
        if not cursor:
            break
    raise DataPlaneError("message-does-not-exist", "The message is not in the queue any more.", 404)


def attribute_rows(request: HttpRequest) -> list[tuple[str, str, str]]:
    form = request.POST
    lists = [form.getlist(f"attribute_{part}") for part in ("name", "type", "value")]
    return [(key.strip(), kind, value) for key, kind, value in zip(*lists, strict=False) if key.strip()]


def _number(text: str, label: str, low: int, high: int) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and low <= int(text) <= high):
        raise ValueError(f"{label} is an integer from {low:,} to {high:,}.")
    return int(text)
