"""The request id stands in every problem, also of what is refused before anybody is known."""

from __future__ import annotations

import pytest
import structlog
from django.test import Client

pytestmark = pytest.mark.django_db
REQUEST_ID = "req-7.a_b"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/session", b"", 401),
        ("GET", "/v1/people/me", b"", 401),
        ("GET", "/v1/accounts", b"", 401),
        ("GET", "/v1/queues", b"", 401),
        ("POST", "/v1/session", b"{", 400),
        ("POST", "/v1/people", b'{"email":3}', 400),
        ("POST", "/v1/people/confirmation", b'{"token":"a","token":"b"}', 400),
        ("POST", "/v1/invitations/acceptance", b"{}", 401),
        ("GET", "/v1/queues/fz/moves/b1", b"", 404),
        ("GET", "/v1/nothing", b"", 404),
        ("GET", "/static/", b"", 404),
    ],
)
def test_problem_has_the_id_of_its_request(method: str, path: str, body: bytes, status: int) -> None:
    client = Client(raise_request_exception=False)
    headers = {"X-Request-Id": REQUEST_ID}
    answer = client.generic(method, path, body, content_type="application/json", headers=headers)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert answer.json()["request_id"] == REQUEST_ID


@pytest.mark.parametrize("given", [{}, {"X-Request-Id": "a b"}, {"X-Request-Id": "a" * 65}])
def test_request_without_an_id_has_not_that_of_another(given: dict[str, str]) -> None:
    structlog.contextvars.bind_contextvars(request_id="of-another")
    assert "request_id" not in Client().get("/v1/nothing", headers=given).json()
