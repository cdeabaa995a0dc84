"""The calls of pages to a front end: what they carry, and how refusals come back."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest

from api.secrets import internal_key
from console import data_plane as module
from console.data_plane import DataPlane, DataPlaneError
from frontend.authn.page_pass import open_page_pass
from frontend.authn.principal import person

# Before the fixture of this folder takes its place.
CALL = DataPlane._call
PERSON = "0a3c1111-1111-4111-8111-111111111111"


class FrontEnd:
    """Answers as a front end does, and keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[httpx2.Request] = []
        self.answer: httpx2.Response | Exception = httpx2.Response(200, json={"messages": []})
        made = httpx2.Client(base_url="http://front.test", transport=httpx2.MockTransport(self._serve))
        monkeypatch.setattr(module, "client", lambda: made)
        monkeypatch.setattr(DataPlane, "_call", CALL)

    def _serve(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def front_end(data_plane: Any, monkeypatch: pytest.MonkeyPatch) -> FrontEnd:
    return FrontEnd(monkeypatch)


@pytest.fixture
def asking(db: None) -> DataPlane:
    return DataPlane(person("123456789012", PERSON, "10.0.0.7", True))


def test_call_carries_a_pass_that_a_front_end_opens(front_end: FrontEnd, asking: DataPlane) -> None:
    asking.ask("orders", "messages/find", {"filter": {}})
    (request,) = front_end.asked
    authorization = request.headers["Authorization"].encode()
    now_ms = time.time_ns() // 1_000_000
    path = request.url.raw_path
    found = open_page_pass(internal_key(), authorization, "POST", path, b"", request.content, now_ms)
    assert found is not None
    assert (found.account_id, found.name) == ("123456789012", f"person:{PERSON}")
    assert (found.source_ip, found.is_secure) == ("10.0.0.7", True)
    assert open_page_pass(internal_key(), authorization, "POST", path, b"", b"{}", now_ms) is None


def test_name_of_a_queue_leads_to_no_other_path(front_end: FrontEnd, asking: DataPlane) -> None:
    asking.ask("../keys?x=/", "messages/peek")
    assert front_end.asked[0].url.raw_path == b"/v1/queues/..%2Fkeys%3Fx%3D%2F/messages/peek"


def test_counts_of_many_queues_are_asked_for_in_parts(front_end: FrontEnd, asking: DataPlane) -> None:
    front_end.answer = httpx2.Response(200, json={"queues": {}})
    asking.counts([f"q-{number}" for number in range(120)])
    assert len(front_end.asked) == 3


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        (httpx2.Response(429, json={"code": "request-throttled", "detail": "d"}), "request-throttled", 429),
        (httpx2.Response(500, text="<html>"), "service-unavailable", 500),
        (httpx2.ConnectError("no"), "service-unavailable", 503),
        (httpx2.ReadTimeout("late"), "service-unavailable", 503),
    ],
    ids=["problem", "no problem", "away", "late"],
)
def test_refusal_has_a_code_and_no_failure_is_shown(
    front_end: FrontEnd, asking: DataPlane, answer: Any, code: str, status: int
) -> None:
    front_end.answer = answer
    with pytest.raises(DataPlaneError) as caught:
        asking.ask("orders", "messages/peek")
    assert (caught.value.code, caught.value.status) == (code, status)
    assert "<html>" not in caught.value.detail


@pytest.mark.django_db(transaction=True)
def test_no_database_connection_is_kept_while_a_front_end_is_waited_for(front_end: FrontEnd) -> None:
    from django.db import connection

    kept: list[bool] = []

    class Looking(httpx2.BaseTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            kept.append(connection.connection is not None)
            return httpx2.Response(200, json={})

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    module.client()._transport = Looking()
    DataPlane(person("123456789012", PERSON)).ask("orders", "messages/peek")
    assert kept == [False]
