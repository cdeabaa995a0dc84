"""A refusal outside of the SQS wire is a problem, one on it has the form of SQS, and none is a failure of our own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from frontend.rest.message_browser import BROWSER_ROUTES
from frontend.rest.messages import ROUTES
from frontend.rest.parked import PARKED_ROUTES
from frontend.rest.scheduled import SCHEDULED_ROUTES
from tests.frontend.test_rest import problem
from tests.support.frontend_plane import HOST, Installation, Reply

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
QUEUE = "/v1/queues/orders"
TABLES = {"messages": ROUTES | BROWSER_ROUTES, "scheduled": SCHEDULED_ROUTES, "parked-groups": PARKED_ROUTES}
PATHS = {
    f"{QUEUE}/{room}" + (f"/{name.decode()}" if name else ""): route
    for room, routes in TABLES.items()
    for name, route in routes.items()
}


def check(reply: Reply) -> None:
    """An answer that a client can read, whatever it asked."""
    assert reply.status < 500, reply.body
    kind = reply.headers["content-type"]
    if reply.status < 400:
        return
    assert b"<html" not in reply.body.lower() and reply.body
    if kind == "application/x-amz-json-1.0":
        assert reply.error
    elif kind == "text/xml":
        assert reply.body.startswith((b"<?xml", b"<UnknownOperationException/>"))
    elif kind != "application/json":  # of a query request that accepts it
        problem(reply)
    if reply.status == 405:
        assert reply.headers["allow"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_refuses_other_methods_and_says_which_it_takes(front: Installation, path: str) -> None:
    for method in METHODS:
        if method == PATHS[path].method:
            continue
        reply = await front.rest(path, {}, method=method)
        assert (reply.status, problem(reply)) == (405, "method-not-allowed"), method
        assert reply.headers["allow"] == PATHS[path].method


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/v2", "/v1/../x", "/v1/%00", "/x%zz", "/v1/queues/%2e%2e/x", "/v1/\x00", "/é"])
async def test_path_that_there_is_not_is_a_problem(front: Installation, path: str, method: str) -> None:
    reply = await front.rest(path, {}, method=method)
    assert (reply.status, problem(reply)) == (404, "not-found") and not front.control_calls


async def test_target_or_header_that_is_too_long_is_a_problem(front: Installation) -> None:
    for path in ("/v1/queues/" + "a" * 2_000, "/v1/queues?prefix=" + "a" * 9_000):
        reply = await front.rest(path, method="GET")
        assert (reply.status, problem(reply)) == (414, "target-too-long") and not front.control_calls
    reply = await front.call("GET", "/v1/queues", {"host": HOST, "x": "y" * 40_000})
    assert (reply.status, problem(reply)) == (431, "headers-too-large")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (httpx2.Response(404, text="<html>", headers={"content-type": "text/html"}), (404, "not-found")),
        (httpx2.Response(405, headers={"allow": "GET, PUT"}), (405, "method-not-allowed")),
        (httpx2.Response(400, text="Invalid HTTP request received."), (400, "invalid-parameter-value")),
        (httpx2.Response(500, text="Internal Server Error"), (503, "service-unavailable")),
    ],
)
async def test_refusal_from_below_the_views_of_the_control_plane_becomes_a_problem(
    front: Installation, answer: httpx2.Response, expected: tuple[int, str]
) -> None:
    front.control_answer = lambda _: answer
    reply = await front.rest("/v1/anything", method="GET")
    assert (reply.status, problem(reply)) == expected
    assert reply.headers.get("allow", "") == answer.headers.get("allow", "")
    page = await front.call("GET", "/console/x", {"host": HOST})
    assert page.status == answer.status_code, "a page of the console stays what it is"


# --- anything ---

few = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
pieces = st.sampled_from(
    (*(path.lstrip("/") for path in PATHS), "v1", "queues", "orders", "123456789012", "messages", "subscribe", "..",
     ".", "%", "%2f", "%ZZ", "%ff", "%00", "\x00", "é", "?", "?limit=x", "?after=%ff", "?cursor=", "&", "=",
     "a" * 1_100, "")
)  # fmt: skip
paths = st.lists(pieces, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts)) | st.sampled_from([*PATHS])
members = st.sampled_from(
    ("body", "messages", "receipts", "ids", "tags", "filter", "message", "limit", "cursor", "states", "group", "groups",
     "all", "attributes", "deliver_at_ms", "delay_ms", "max_messages", "wait_seconds", "visibility_seconds", "count")
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=3),
    max_leaves=4,
)
fitting = st.dictionaries(members, values, max_size=3).map(lambda content: json.dumps(content).encode())
bodies = fitting | st.binary(max_size=30) | st.sampled_from((b"", b"{", b"[]", b"[" * 50_000, b'"\\ud800"', b"1e999"))
kinds = st.sampled_from(
    ("application/json", "application/json", "application/json", "text/html", "application/x-www-form-urlencoded", "é")
)
extra = st.dictionaries(
    st.sampled_from(
        ("accept", "content-length", "content-encoding", "authorization", "x-amz-target", "x-amz-date", "host")
    ),
    st.sampled_from(
        ("", "gzip", "1", "9" * 30, "application/json", "Bearer x", "AWS4-HMAC-SHA256 x", "AmazonSQS.SendMessage")
    ),
    max_size=2,
)


def test_nothing_that_is_asked_is_answered_with_500_or_html() -> None:
    with asyncio.Runner() as runner:
        front = runner.run(_made())

        @few
        @given(st.sampled_from(METHODS), paths, bodies, kinds, extra)
        def ask(method: str, path: str, body: bytes, kind: str, more: dict[str, str]) -> None:
            headers = {"host": HOST, "authorization": f"Bearer {front.key.bearer_token}", "content-type": kind, **more}
            gone = asyncio.Event()
            gone.set()  # a long poll ends at once
            reply = runner.run(front.call(method, path, headers, body, gone))
            if reply.status:
                check(reply)

        ask()


async def _made() -> Installation:
    front = Installation()
    front.add_queue("line.fifo", (2,))
    front.control_answer = _nothing
    return front


def _nothing(_: httpx2.Request) -> Any:
    return httpx2.Response(404, text="<html>nothing", headers={"content-type": "text/html"})
