"""The reference of the REST API: a page for everybody, like the document that it is made from."""

from __future__ import annotations

import functools
import gzip
import hashlib
import threading
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.loader import render_to_string

from api.settings.environment import environment
from console.api_reference import reference
from console.security import keep_to_own_things

_making = threading.Lock()


class _Page(NamedTuple):
    content: bytes
    zipped: bytes
    etag: str


def api_reference(request: HttpRequest) -> HttpResponse:
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(("GET", "HEAD"))
    asked = request.GET.get("q", "").strip()
    answer = HttpResponse(_render(asked)) if asked else _whole_page(request)
    answer["Cache-Control"] = "no-store" if asked else "no-cache"
    return keep_to_own_things(answer)


def _whole_page(request: HttpRequest) -> HttpResponse:
    with _making:  # the first visitors wait for one page instead of making one each
        page = _made()
    if request.headers.get("If-None-Match") == page.etag:
        answer = HttpResponse(status=304)
    else:
        zips = "gzip" in request.headers.get("Accept-Encoding", "")
        answer = HttpResponse(page.zipped if zips else page.content)
        if zips:
            answer["Content-Encoding"] = "gzip"
    answer["ETag"] = page.etag
    answer["Vary"] = "Accept-Encoding"
    return answer


@functools.cache
def _made() -> _Page:
    content = _render("").encode()
    return _Page(content, gzip.compress(content, mtime=0), f'W/"{hashlib.sha256(content).hexdigest()[:32]}"')


def _render(asked: str) -> str:
    whole = reference()
    tags = whole.found(asked)
    told = {
        "reference": whole,
        "tags": tags,
        "asked": asked,
        "endpoint": environment().endpoint,
        "count": sum(len(tag.entries) for tag in tags),
        "count_of_all": sum(len(tag.entries) for tag in whole.tags),
    }
    return render_to_string("console/reference/index.html", told)
