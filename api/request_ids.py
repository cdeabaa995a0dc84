"""The id of a request: the front end gives it one, and it stands in the log, in the audit trail and in every problem.

First of all middleware, so that what is refused before a view knows its caller has it as well.
"""

from __future__ import annotations

import re

import structlog
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def request_id_of(request: HttpRequest) -> str:
    """Empty where there is none, or something that is none."""
    given = request.headers.get("X-Request-Id", "")
    return given if _REQUEST_ID.fullmatch(given) else ""


class RequestIds(MiddlewareMixin):
    def process_request(self, request: HttpRequest) -> None:
        structlog.contextvars.unbind_contextvars("request_id")
        request_id = request_id_of(request)
        if request_id:
            structlog.contextvars.bind_contextvars(request_id=request_id)
