"""The list of queues, the counts beside it, and the jump to one by name."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.iam.open_queues import QUEUES_WEIGHED_MAX
from api.people.roles import Act
from api.queues import selectors
from api.queues.models import Queue
from api.queues.selectors import KINDS, SORTS, QueueSearch
from console.data_plane import DataPlaneError
from console.error_notices import notice_of
from console.pages import account_page, denied, queue_list_page
from console.visits import AccountVisit

PAGE_QUEUES = 50
JUMPS_MAX = 8
_PAGES_MAX = 10_000
_TEXT_CHARS_MAX = 80


class ListAsked(NamedTuple):
    """What stands in the address of the page."""

    text: str
    kind: str
    sort: str
    page: int

    def search(self) -> QueueSearch:
        return QueueSearch(self.text, self.kind, self.sort)

    def query(self, **changes: object) -> str:
        given = {"q": self.text, "kind": self.kind, "sort": self.sort, "page": self.page, **changes}
        plain = {"q": "", "kind": "", "sort": "name", "page": 1}
        return urlencode({key: value for key, value in given.items() if value != plain[key]})


def list_asked(request: HttpRequest) -> ListAsked:
    """Anything that is not allowed counts as not given."""
    given = request.GET
    text = given.get("q", "").strip().replace("\0", "")[:_TEXT_CHARS_MAX]
    kind, sort, page = given.get("kind", ""), given.get("sort", "name"), given.get("page", "1")
    number = int(page) if page.isascii() and page.isdigit() and len(page) < 6 else 1
    return ListAsked(
        text, kind if kind in KINDS else "", sort if sort in SORTS else "name", min(max(number, 1), _PAGES_MAX)
    )


@queue_list_page("GET")
def queues(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    asked = list_asked(request)
    start = (asked.page - 1) * PAGE_QUEUES
    found, total, is_cut = visit.search_queues(asked.search(), start, PAGE_QUEUES)
    names = [queue.name for queue in found]
    shown = {
        "asked": asked,
        "queues": found,
        "dead_letter_names": selectors.dead_letter_names_among(visit.account_id, names),
        "names": ",".join(names),
        "total": total,
        "has_deleted": visit.allows("deleted_queues.list")
        and bool(selectors.deleted_queues_of(visit.account_id, 0, 1)),
        "weighed_max": QUEUES_WEIGHED_MAX if is_cut else 0,
        "first": start + 1,
        "last": start + len(found),
        "page_before": asked.query(page=asked.page - 1) if asked.page > 1 else None,
        "page_after": asked.query(page=asked.page + 1) if start + len(found) < total else None,
        "sorts": {
            column: (asked.query(sort=_next_sort(asked, column), page=1), _arrow(asked, column))
            for column in ("name", "waiting", "age", "created", "modified")
        },
    }
    is_list = request.headers.get("HX-Target") == "queue-list"
    return render(request, "console/queues/list.html" if is_list else "console/queues/index.html", shown)


@account_page(Act.READ_ACCOUNT, "GET")
def counts(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """The counts of one page of the list, put into its rows."""
    names = [name for name in request.GET.get("names", "").split(",") if name][:PAGE_QUEUES]
    action = Act.READ_QUEUES.value
    if not visit.reads_all_queues and not any(visit.rights.may_on_queue(name, action) for name in names):
        return denied(request, visit, Act.READ_QUEUES)
    if not names or not visit.is_active:
        return HttpResponse(status=204)
    try:
        found = visit.data_plane.counts(names)
    except DataPlaneError as error:
        return render(request, "console/parts/refusal.html", {"refusal": notice_of(error)})
    rows = [(name, found[name]) for name in names if name in found and "error" not in found[name]]
    return render(request, "console/queues/counts.html", {"rows": rows})


@queue_list_page("GET")
def jump(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """Queues whose name holds the text: the answers of Ctrl-K."""
    text = list_asked(request).text
    found: list[Queue] = []
    if text:
        found = visit.search_queues(QueueSearch(text), 0, JUMPS_MAX).found
    return render(request, "console/parts/jumps.html", {"queues": found, "text": text})


def _next_sort(asked: ListAsked, column: str) -> str:
    """The other way round with a second press. Of what waits, the most and the longest come first."""
    first, then = (f"-{column}", column) if column in ("waiting", "age") else (column, f"-{column}")
    return then if asked.sort == first else first


def _arrow(asked: ListAsked, column: str) -> str:
    return {column: "ascending", f"-{column}": "descending"}.get(asked.sort, "none")
