"""The source of a request: vouched for by a front end, or the address of the connection."""

from __future__ import annotations

import io
import time
from typing import Any

import httpx2
import pytest

from api.people import limits
from api.people.errors import PeopleError
from api.people.models import PersonSession
from api.people.origin import SOURCE_HEADER, SOURCE_MAC_HEADER, origin_of, source_mac
from api.secrets import internal_key
from frontend.control import ControlPlane
from frontend.http import Request
from tests.api.people.visitor import PASSWORD, Visitor, new_visitor, refused

pytestmark = pytest.mark.django_db
SIGN_IN = {"email": "ann@example.com", "password": PASSWORD}


def vouched(source: str, age_ms: int = 0, path: str = "/v1/session", method: str = "POST") -> dict[str, str]:
    header = f"{source} {int(time.time() * 1000) - age_ms}"
    return {SOURCE_HEADER: header, SOURCE_MAC_HEADER: source_mac(internal_key(), method, path.encode(), header)}


@pytest.mark.parametrize(
    ("source", "kept"), [("203.0.113.7", "203.0.113.7"), ("2001:DB8:0::1", "2001:db8::1"), ("::1", "::1")]
)
def test_vouched_source_is_the_one_that_is_kept(ann: Visitor, source: str, kept: str) -> None:
    made = new_visitor().call("POST", "/v1/session", SIGN_IN, **vouched(source))
    assert made.json()["session"]["source_address"] == kept


@pytest.mark.parametrize(("age_ms", "accepted"), [(limits.SOURCE_AGE_MS_MAX - 5_000, True), (60_001, False)])
def test_old_word_for_a_source_is_refused(ann: Visitor, age_ms: int, accepted: bool) -> None:
    answer = new_visitor().call("POST", "/v1/session", SIGN_IN, **vouched("203.0.113.7", age_ms))
    assert (answer.status_code == 201) == accepted
    ahead = new_visitor().call("POST", "/v1/session", SIGN_IN, **vouched("203.0.113.7", -age_ms - 1_000))
    assert (ahead.status_code == 201) == accepted


def test_source_without_a_valid_mac_is_refused(ann: Visitor) -> None:
    good = vouched("203.0.113.7")
    PersonSession.objects.all().delete()
    for bad in (
        {SOURCE_HEADER: good[SOURCE_HEADER]},
        {**good, SOURCE_MAC_HEADER: "0" * 64},
        {**good, SOURCE_MAC_HEADER: "\xe9" * 64},
        {**good, SOURCE_HEADER: good[SOURCE_HEADER].replace("203", "204")},
        vouched("203.0.113.7", path="/v1/people"),
        vouched("203.0.113.7", method="GET"),
        vouched("somewhere"),
        vouched("1.2.3"),
        vouched("1" * 40),
        vouched(""),
    ):
        assert refused(new_visitor().call("POST", "/v1/session", SIGN_IN, **bad)) == (403, "access-denied"), bad
    assert not PersonSession.objects.exists()


@pytest.mark.parametrize(("given", "kept"), [("req-1", "req-1"), ("a" * 64, "a" * 64), ("a" * 65, ""), ("a b", "")])
def test_request_id_is_kept_where_it_is_one(ann: Visitor, given: str, kept: str) -> None:
    from api.audit.models import AuditEntry

    new_visitor().call("POST", "/v1/session", SIGN_IN, **{"X-Request-Id": given})
    assert AuditEntry.objects.filter(action="session.begin").latest("id").request_id == kept


class Sent:
    """What a front end's answer was made of."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.messages).decode()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", [b"/console/%27", b"/console/sign%2din", b"/console/%c3%a9", b"/console/%C3%A9?x=%27"])
async def test_path_is_vouched_for_as_it_was_written(path: bytes) -> None:
    """Both planes: the client of the front end, and Django behind ASGI."""
    import api.asgi

    target, _, query = path.partition(b"?")
    control = ControlPlane("control.example", internal_key(), transport=httpx2.ASGITransport(api.asgi.application))
    request, sent = Request("GET", target, query, "http", "203.0.113.7", [(b"host", b"localhost")], never), Sent()
    request.read_headers()
    status = await control.pass_on(request, None, sent, with_pages=True)
    await control.close()
    assert status == (200 if b"sign" in path else 404), sent.text
    assert "<!doctype html>" in sent.text


@pytest.mark.parametrize("raw_path", [b"/v1/sessio%6e", b"/v1/./session", b"/v1/session%2f"])
def test_source_is_vouched_for_one_spelling_of_a_path_alone(raw_path: bytes) -> None:
    from django.core.handlers.asgi import ASGIRequest

    headers = [(name.lower().encode(), value.encode()) for name, value in vouched("203.0.113.7").items()]
    scope = {"type": "http", "method": "POST", "path": "/v1/session", "query_string": b"", "headers": headers}
    assert origin_of(ASGIRequest({**scope, "raw_path": b"/v1/session"}, io.BytesIO())).source == "203.0.113.7"
    with pytest.raises(PeopleError, match="not vouched for"):
        origin_of(ASGIRequest({**scope, "raw_path": raw_path}, io.BytesIO()))


async def never() -> Any:
    raise AssertionError("there is no body to read")
