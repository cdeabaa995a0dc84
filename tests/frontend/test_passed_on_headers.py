"""Headers of requests that are passed on to the control plane."""

from __future__ import annotations

import httpx2

from tests.support.frontend_plane import HOST, Installation


async def test_white_space_around_a_header_is_no_part_of_it(front: Installation) -> None:
    front.control_answer = lambda _: httpx2.Response(200, text="page")
    headers = {"host": f"{HOST} ", "user-agent": "curl/8 \t", "cookie": " a=1 ", "x-foo": "\ta b "}
    assert (await front.call("GET", "/console/", headers)).body == b"page"
    (call,) = front.control_calls
    passed_on = [call.headers[name] for name in ("x-forwarded-host", "user-agent", "cookie", "x-foo")]
    assert passed_on == [HOST, "curl/8", "a=1", "a b"]


async def test_request_that_cannot_be_passed_on_says_nothing_of_the_control_plane(front: Installation) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.LocalProtocolError("Illegal header value")

    front.control_answer = refuse
    assert (await front.call("GET", "/console/", {"host": HOST})).status == 400
    front.control_answer = lambda _: httpx2.Response(200, text="page")
    assert (await front.call("GET", "/console/", {"host": HOST})).body == b"page" and len(front.control_calls) == 2
