"""What the next page tells after a redirect, once: "The queue was deleted." Signed, in a cookie of its own."""

from __future__ import annotations

from typing import NamedTuple

from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseBase

_COOKIE = "penstock_notice"
_SALT = "console.notice"
_AGE_S_MAX = 60
_CHARS_MAX = 300


class Notice(NamedTuple):
    text: str
    kind: str = "good"


def leave(response: HttpResponse, text: str, kind: str = "good") -> HttpResponse:
    content = signing.dumps([text[:_CHARS_MAX], kind], salt=_SALT)
    response.set_cookie(_COOKIE, content, max_age=_AGE_S_MAX, path="/console", httponly=True, samesite="Lax")
    return response


def take(request: HttpRequest) -> Notice | None:
    content = request.COOKIES.get(_COOKIE)
    if not content:
        return None
    setattr(request, _COOKIE, True)
    try:
        text, kind = signing.loads(content, salt=_SALT, max_age=_AGE_S_MAX)
    except signing.BadSignature:
        return None
    return Notice(text, kind)


def forget_shown(request: HttpRequest, response: HttpResponseBase) -> None:
    if getattr(request, _COOKIE, False):
        response.delete_cookie(_COOKIE, path="/console")
