"""Errors of the REST interface: RFC 9457 problems, `application/problem+json`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import structlog
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import status
from rest_framework.exceptions import APIException, NotFound, UnsupportedMediaType, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from api.absence import NOTHING_HERE, nothing_with
from api.accounts.actions import AccountError
from api.iam.errors import AccessDenied, IamError
from api.limits import ERRORS_TOLD_MAX, FIRST_ERROR_CHARACTERS_MAX, REQUEST_BYTES_MAX
from api.outage import DATABASE_AWAY, outage_text
from api.queues.attributes import QueueProblem
from frontend.errors import title_of

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:penstock:problem:"
_QUEUE_STATUS = {
    "QueueDoesNotExist": status.HTTP_404_NOT_FOUND,
    "ResourceNotFoundException": status.HTTP_404_NOT_FOUND,
    "QueueNameExists": status.HTTP_409_CONFLICT,
    "QueueDeletedRecently": status.HTTP_409_CONFLICT,
    "UnsupportedOperation": status.HTTP_409_CONFLICT,
    "PreconditionFailed": status.HTTP_412_PRECONDITION_FAILED,
    "AccessDeniedException": status.HTTP_403_FORBIDDEN,
    "OverLimit": status.HTTP_403_FORBIDDEN,
    "ServiceUnavailable": status.HTTP_503_SERVICE_UNAVAILABLE,
}
RETRY_AFTER_S = 5
# In the place of DRF's texts, by their codes.
_TEXTS = {"not_a_dict": "must be a JSON object", "not_a_list": "must be a JSON list"}


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler. None leaves our own bugs to Django, which answers 500 and logs them."""
    answer = _problem_of(error, context)
    if answer is not None and answer.status_code == 404 and answer.data.get("detail") == NOTHING_HERE:
        answer.data["detail"] = nothing_with(context.get("kwargs") or {})
    return answer


def _problem_of(error: Exception, context: dict[str, Any]) -> Response | None:
    if isinstance(error, QueueProblem):
        errors = [{"pointer": error.pointer, "detail": error.message}] if error.pointer else None
        return problem(_QUEUE_STATUS.get(error.code, 400), _hyphenated(error.code), error.message, errors)
    if isinstance(error, AccessDenied):
        return problem(403, "access-denied", str(error))
    if isinstance(error, IamError):
        errors = [{"pointer": error.member, "detail": error.text}] if error.member else None
        return problem(error.status, error.code, error.text, errors)
    if isinstance(error, AccountError):
        return problem(400, "invalid-request", str(error))
    if isinstance(error, DATABASE_AWAY):
        return problem(503, "service-unavailable", outage_text(error))
    plain = exception_handler(error, context)
    if plain is None:
        return None
    if isinstance(error, ValidationError):
        errors = list(islice(_pointers(error.detail, ""), ERRORS_TOLD_MAX))
        answer = problem(400, "invalid-request", _first_error(errors), errors)
    elif isinstance(error, Http404 | NotFound):
        answer = problem(404, "not-found", NOTHING_HERE)
    elif isinstance(error, UnsupportedMediaType):
        answer = problem(415, "unsupported-media-type", "The body must be JSON: give Content-Type: application/json.")
    else:
        assert isinstance(error, APIException)
        answer = problem(plain.status_code, str(error.default_code).replace("_", "-"), str(error.detail))
    for name in ("WWW-Authenticate", "Retry-After", "Allow"):
        if plain.has_header(name):
            answer[name] = plain[name]
    return answer


def problem(code: int, name: str, detail: str, errors: list[dict[str, str]] | None = None) -> Response:
    content: dict[str, Any] = {"type": TYPE_PREFIX + name, "title": title_of(name), "status": code}
    content |= {"code": name, "detail": detail}
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    if request_id:
        content["request_id"] = request_id
    if errors:
        content["errors"] = errors
    answer = Response(content, status=code, content_type=CONTENT_TYPE)
    if code == status.HTTP_503_SERVICE_UNAVAILABLE:
        answer["Retry-After"] = str(RETRY_AFTER_S)
    return answer


# --- what never reaches a view of DRF: Django's handlers, named in urls.py ---


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        return _plain_problem(413, "request-too-large", f"A body has at most {REQUEST_BYTES_MAX} bytes here.")
    return _plain_problem(400, "invalid-request", "The request cannot be read.")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _plain_problem(403, "access-denied", "This is not allowed.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _plain_problem(404, "not-found", "No resource has this path. /v1/openapi.json lists all of them.")


def internal_failure(request: HttpRequest) -> HttpResponse:
    """Our own bug: Django has logged it, the caller learns the request id alone."""
    return _plain_problem(500, "internal-failure", "The request could not be completed.")


def _plain_problem(code: int, name: str, detail: str) -> HttpResponse:
    return JsonResponse(problem(code, name, detail).data, status=code, content_type=CONTENT_TYPE)


def _pointers(detail: Any, pointer: str) -> Iterator[dict[str, str]]:
    """DRF's nested error lists as JSON pointers into the request body."""
    if isinstance(detail, dict):
        for key, value in detail.items():
            yield from _pointers(value, f"{pointer}/{key}")
    elif isinstance(detail, list):
        for value in detail:
            yield from _pointers(value, pointer)
    else:
        text = _TEXTS.get(getattr(detail, "code", ""), str(detail))
        yield {"pointer": pointer.removesuffix("/non_field_errors"), "detail": text}


def _first_error(errors: list[dict[str, str]]) -> str:
    """For clients that show this text alone."""
    if not errors:
        return "The request does not validate."
    first, others = errors[0], len(errors) - 1
    told = f"The request does not validate: {first['pointer'] or 'the body'}: {first['detail']}"
    told = told[:FIRST_ERROR_CHARACTERS_MAX].rstrip(".")
    return f"{told}." if not others else f"{told}, and {others} more in `errors`."


def _hyphenated(code: str) -> str:
    """QueueNameExists -> queue-name-exists, the same form as the data API's codes."""
    text = code.removesuffix("Exception")
    return "".join(f"-{char.lower()}" if char.isupper() else char for char in text).lstrip("-")
