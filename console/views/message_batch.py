"""Several messages of a queue at once: those chosen in the list, and the download of all that a filter finds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from api.iam.errors import AccessDenied
from api.people.roles import Act
from console.data_plane import DataPlaneError
from console.error_notices import ErrorNotice, notice_of
from console.pages import account_page, told
from console.views.messages import filter_of
from console.views.queue_forms import queue_or_404, queue_url
from console.visits import AccountVisit

# One page of the list with all that was shown more.
CHOSEN_MAX = 100
# A redrive names them in its filter.
REDRIVEN_MAX = 10
DOWNLOADED_MAX = 2_000
# The answer is made whole before it is sent; a page of the data plane adds some 3 MiB at most.
DOWNLOADED_BYTES_MAX = 64 * 2**20
# A front end waits no longer than ten seconds for a page.
WORK_S_MAX = 6.0
_PAGE_MESSAGES = 100
_ACTIONS = {
    "delete": "sqs:DeleteMessage",
    "dead-letter": "penstock:DeadLetterMessage",
    "redrive": "sqs:StartMessageMoveTask",
}
_DONE = {"delete": "deleted", "dead-letter": "in the dead-letter queue now"}


@account_page(Act.CHANGE_MESSAGES, "POST")
def chosen(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """`chosen` are the place and the id of each message, with a space between."""
    queue_or_404(visit, name)
    what = request.POST.get("what", "")
    if what not in _ACTIONS:
        raise AccessDenied("Your role in this account does not allow this with these messages")
    visit.require_change(Act.CHANGE_MESSAGES, _ACTIONS[what], to="do this with these messages")
    picked = [one.partition(" ") for one in request.POST.getlist("chosen")]
    target = queue_url(visit, name, "/messages")
    if not 1 <= len(picked) <= CHOSEN_MAX:
        return told(target, f"Choose 1 to {CHOSEN_MAX} messages.", "warn")
    if what == "redrive":
        ids = [message_id for _, _, message_id in picked if message_id]
        if not 1 <= len(ids) <= REDRIVEN_MAX:
            return told(target, f"Choose 1 to {REDRIVEN_MAX} messages to move back; a filter takes more.", "warn")
        return HttpResponseRedirect(queue_url(visit, name, "/moves?") + urlencode({"ids": ",".join(ids)}))
    done, problem = _act(visit, name, what, [place for place, _, _ in picked])
    text = f"{done} of {len(picked)} messages are {_DONE[what]}." + (f" {problem}" if problem else "")
    return told(target, text, "warn" if what == "delete" or problem else "good")


@account_page(Act.READ_MESSAGES, "GET")
def download(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """What the filter finds, one message in JSON a line, with whole bodies. The last line says whether that is all."""
    queue_or_404(visit, name)
    try:
        lines = b"".join(_lines(visit, name, filter_of(request)))
    except ValueError as error:
        return _refused(request, ErrorNotice(400, str(error)))
    except DataPlaneError as error:
        return _refused(request, notice_of(error))
    answer = HttpResponse(lines, content_type="application/x-ndjson")
    answer["Content-Disposition"] = f'attachment; filename="{name}-messages.jsonl"'
    return answer


def _lines(visit: AccountVisit, name: str, wanted: dict[str, Any]) -> Iterator[bytes]:
    """Raises DataPlaneError."""
    ends_s, count, size_bytes, cursor = time.monotonic() + WORK_S_MAX, 0, 0, ""
    while True:
        asked = {"filter": wanted, "limit": _PAGE_MESSAGES, "cursor": cursor}
        found = visit.data_plane.ask(name, "messages/find", asked)
        for message in found["messages"]:
            # Without its place in this queue, which is of no use elsewhere.
            line = msgspec.json.encode({key: value for key, value in message.items() if key != "message"}) + b"\n"
            size_bytes += len(line)
            yield line
        count += len(found["messages"])
        cursor = found["cursor"]
        is_full = count >= DOWNLOADED_MAX or size_bytes >= DOWNLOADED_BYTES_MAX
        if not cursor or is_full or time.monotonic() > ends_s:
            yield msgspec.json.encode({"messages": count, "complete": not cursor}) + b"\n"
            return


def _act(visit: AccountVisit, name: str, what: str, places: list[str]) -> tuple[int, str]:
    """How many were done, and what was said of the last one that was not. Ends early when the time is over."""
    ends_s, done, problem = time.monotonic() + WORK_S_MAX, 0, ""
    reason = {"reason": "moved by hand"} if what == "dead-letter" else {}
    for place in places:
        if time.monotonic() > ends_s:
            return done, "The time limit was reached: choose the rest again."
        try:
            visit.data_plane.ask(name, f"messages/{what}", {"message": place, **reason})
            done += 1
        except DataPlaneError as error:
            problem = error.detail
    return done, problem


def _refused(request: HttpRequest, refusal: ErrorNotice) -> HttpResponse:
    return render(request, "console/refused.html", {"refusal": refusal}, status=refusal.status)
