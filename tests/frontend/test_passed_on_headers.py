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


async def test_cookies_of_one_visitor_are_not_sent_for_the_next(front: Installation) -> None:
    """The connection to the control plane is shared by all visitors."""
    cookie = "penstock_session=of-the-first; Path=/console; HttpOnly"
    front.control_answer = lambda _: httpx2.Response(200, text="page", headers={"set-cookie": cookie})
    assert (await front.call("GET", "/console/link", {"host": HOST})).headers["set-cookie"] == cookie
    await front.call("GET", "/console/", {"host": HOST})
    await front.call("GET", "/console/", {"host": HOST, "cookie": "penstock_session=of-the-third"})
    sent = [call.headers.get_list("cookie") for call in front.control_calls]
    assert sent == [[], [], ["penstock_session=of-the-third"]]


async def test_control_plane_gets_no_header_of_ours_in_the_place_of_one_that_the_client_left_out(
    front: Installation,
) -> None:
    front.control_answer = lambda _: httpx2.Response(200, text="page")
    await front.call("GET", "/console/", {"host": HOST})
    await front.call("GET", "/console/", {"host": HOST, "user-agent": "theirs", "accept-encoding": "br"})
    without, given = front.control_calls
    assert not {"user-agent", "accept", "accept-encoding"} & set(without.headers)
    assert (given.headers["user-agent"], given.headers["accept-encoding"]) == ("theirs", "br")
