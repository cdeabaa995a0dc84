"""What a front end says and does while a part behind it is away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from frontend import control_watch
from frontend.authn.principal import Principal
from frontend.control import ControlPlane
from frontend.control_watch import ControlWatch
from frontend.errors import RequestError, unavailable
from frontend.http import Request
from frontend.readiness import ALIVE_FULL, ALIVE_PATH, Trouble, readiness
from frontend.rest.away_page import away_page
from tests.support.frontend_plane import HOST, Installation

POSTGRESQL = Trouble("PostgreSQL", "It does not answer.", 1_700_000_000_000)


# --- readiness ---


def test_reasons_name_the_part_and_since_when() -> None:
    said = readiness(True, [POSTGRESQL])
    assert said.status == 200
    assert said.body == (
        b'{"status":"degraded","reasons":[{"part":"PostgreSQL","reason":"It does not answer.",'
        b'"since":"2023-11-14T22:13:20Z"}]}'
    )
    assert readiness(True, []).body == b'{"status":"ready","reasons":[]}'
    assert readiness(False, [POSTGRESQL]).status == 503


async def test_readiness_asks_before_it_says(front: Installation) -> None:
    found: list[Trouble] = []

    async def look() -> None:
        found.append(Trouble("metadata service", "It does not answer.", 0))

    front.plane._metadata_look, front.plane._metadata_troubles = look, lambda: found
    assert (await front.call("GET", "/readyz", {})).json["status"] == "degraded"


async def test_front_end_stays_in_use_while_it_serves(front: Installation) -> None:
    front.plane._metadata_troubles = lambda: [POSTGRESQL]
    reply = await front.call("GET", "/readyz", {})
    assert (reply.status, reply.json["status"], reply.headers["content-type"]) == (200, "degraded", "application/json")
    front.plane.metadata_serves = lambda: False
    reply = await front.call("GET", "/readyz", {})
    assert (reply.status, reply.json["status"]) == (503, "unavailable")
    assert (await front.call("GET", "/healthz", {})).body == b"ok\n"


# --- the control plane ---


class Behind:
    """A control plane: `alive` and `calls` are a status, an exception, or None for silence."""

    def __init__(self) -> None:
        self.alive: Any = 200
        self.alive_text = b"ok\n"
        self.call: Any = 200
        self.asked = 0
        self.looks = 0
        http = httpx2.AsyncClient(base_url="http://control.test", transport=httpx2.MockTransport(self._answer))
        self.watch = ControlWatch(http)
        self.http = http

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == ALIVE_PATH:
            self.looks += 1
            given = self.alive
        else:
            self.asked += 1
            given = self.call
        await asyncio.sleep(3600 if given is None else 0.001)
        if isinstance(given, Exception):
            raise given
        return httpx2.Response(given, content=self.alive_text if request.url.path == ALIVE_PATH else b"{}")

    async def ask(self) -> int:
        with self.watch:
            response = await self.watch.unless_away(self.http.get("/x"))
            if response.status_code == 503:
                self.watch.suspect()
            return response.status_code


@pytest.fixture
async def behind(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Behind]:
    for name, ms in (("PATIENCE_MS", 10), ("PROBE_INTERVAL_MS", 10), ("PROBE_MS_MAX", 50)):
        monkeypatch.setattr(control_watch, f"CONTROL_{name}", ms)
    behind = Behind()
    yield behind
    await behind.watch.close()


async def test_quick_calls_are_not_watched(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_watch, "CONTROL_PATIENCE_MS", 200)
    assert await behind.ask() == 200
    assert behind.watch._task is not None
    await behind.watch._task
    assert behind.looks == 0


async def test_call_that_waits_in_a_working_control_plane_is_left_alone(behind: Behind) -> None:
    behind.call = None
    call = asyncio.create_task(behind.ask())
    while behind.looks < 3:
        await asyncio.sleep(0.005)
    assert not call.done()
    call.cancel()


@pytest.mark.parametrize("alive", [503, httpx2.ConnectError("refused"), None])
async def test_waiting_calls_and_the_next_ones_are_refused_until_it_is_back(behind: Behind, alive: Any) -> None:
    behind.call, behind.alive = None, alive
    calls = [asyncio.create_task(behind.ask()) for _ in range(3)]
    for call in calls:
        with pytest.raises(RequestError) as caught:
            await call
        assert (caught.value.code, caught.value.retry_after_s) == ("ServiceUnavailable", 2)
    assert behind.looks >= (control_watch.CONTROL_SILENT_MAX if alive is None else 1)
    (trouble,) = behind.watch.troubles()
    assert trouble.part == "control plane" and abs(trouble.since_ms - time.time() * 1000) < 5_000
    asked = behind.asked
    with pytest.raises(RequestError):
        await behind.ask()
    assert behind.asked == asked, "nobody is sent there"
    behind.call, behind.alive = 200, 200
    while behind.watch.troubles():
        await asyncio.sleep(0.005)
    assert await behind.ask() == 200


async def test_calls_pass_while_postgresql_takes_no_more_connections_and_that_is_told(behind: Behind) -> None:
    behind.call, behind.alive_text = None, ALIVE_FULL
    call = asyncio.create_task(behind.ask())
    while not behind.watch.troubles():
        await asyncio.sleep(0.005)
    (trouble,) = behind.watch.troubles()
    assert trouble == ("control plane", control_watch.DATABASE_FULL, trouble.since_ms)
    assert abs(trouble.since_ms - time.time() * 1000) < 5_000 and not call.done()
    call.cancel()
    behind.call = 200
    assert await behind.ask() == 200, "over the connections that the control plane has"
    behind.alive_text = b"ok\n"
    while behind.watch.troubles():
        await asyncio.sleep(0.005)


async def test_one_unanswered_look_is_not_believed(behind: Behind) -> None:
    behind.call, behind.alive = None, None
    call = asyncio.create_task(behind.ask())
    while not behind.looks:
        await asyncio.sleep(0.005)
    behind.alive = 200
    while behind.looks < 4:
        await asyncio.sleep(0.005)
    assert not call.done() and behind.watch._silences == 0
    call.cancel()


async def test_503_makes_it_look_at_once_and_decides_nothing_itself(behind: Behind) -> None:
    """A queue that cannot be made is not a control plane that is away."""
    behind.call = 503
    for _ in range(3):
        assert await behind.ask() == 503
    while not behind.looks:
        await asyncio.sleep(0.005)
    assert not behind.watch.troubles()
    behind.alive = 503
    with contextlib.suppress(RequestError):  # the look may be quicker than the call
        assert await behind.ask() == 503
    while not behind.watch.troubles():
        await asyncio.sleep(0.005)


async def test_callers_are_told_in_their_protocol(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_watch, "CONTROL_PATIENCE_MS", 1)

    def hangs(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503, json={"code": "ServiceUnavailable", "message": "SECRET"})

    front.control_answer, front.control_alive = hangs, 503
    reply = await front.sqs("CreateQueue", {"QueueName": "new"})
    assert (reply.status, reply.error) == (503, "ServiceUnavailable") and "retry-after" in reply.headers
    while not front.plane.control.troubles():
        await asyncio.sleep(0.001)
    calls = len(front.control_calls)
    assert (await front.sqs("ListQueues", {})).headers["retry-after"] == "2"
    reply = await front.rest("/v1/queues", method="GET")
    assert (reply.status, reply.headers["content-type"]) == (503, "application/problem+json")
    assert reply.headers["retry-after"] == "2"
    assert len(front.control_calls) == calls
    assert (await front.call("GET", "/readyz", {})).json["reasons"][0]["part"] == "control plane"
    await front.plane.control.close()


@pytest.mark.parametrize(
    ("path", "asked", "is_page"),
    [
        ("/console/", {"accept": "text/html,*/*;q=0.8"}, True),
        ("/console/sign-in", {"accept": "*/*", "hx-request": "true"}, True),
        ("/console/a/1/", {"accept": "application/json"}, False),
        ("/v1/openapi.json", {"accept": "text/html"}, False),
    ],
)
async def test_browser_is_shown_a_page_that_loads_nothing_while_the_control_plane_is_away(
    front: Installation, path: str, asked: dict[str, str], is_page: bool
) -> None:
    def falls(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("away")

    front.control_answer = falls
    reply = await front.call("GET", path, {"host": HOST, **asked})
    assert reply.status == 503 and int(reply.headers["retry-after"]) > 0 and reply.headers["x-request-id"]
    text = reply.body.decode()
    assert ("Try again in" in text and "<p" in text) == is_page
    assert reply.headers["content-type"] == ("text/html; charset=utf-8" if is_page else "application/problem+json")
    assert "src=" not in text and "<link" not in text
    assert ("<!doctype html>" in text) == (is_page and "hx-request" not in asked)
    await front.plane.control.close()


def test_style_of_that_page_is_the_one_that_its_policy_allows() -> None:
    page = away_page(Request("GET", b"/console/", b"", "http", "", [], never), unavailable("x"))
    style = re.findall(rb"<style>(.*?)</style>", page.body)
    digest = base64.b64encode(hashlib.sha256(style[0]).digest())
    assert len(style) == 1 and b"style-src 'sha256-" + digest + b"'" in dict(page.headers)[b"content-security-policy"]


async def never() -> Any:
    raise AssertionError("there is no body to read")


async def test_control_plane_that_is_not_there_is_refused_at_once() -> None:
    control = ControlPlane("127.0.0.1:1", b"i" * 32)
    assert control.troubles() == []
    with pytest.raises(RequestError, match="does not answer"):
        await control.sqs("ListQueues", Principal("123456789012", "AKPS"), "r", {})
    await asyncio.sleep(0.2)
    assert [one.part for one in control.troubles()] == ["control plane"]
    await control.close()
