"""The source of a request: vouched for by a front end, or the address of the connection."""

from __future__ import annotations

import time

import pytest

from api.people import limits
from api.people.models import PersonSession
from api.people.origin import SOURCE_HEADER, SOURCE_MAC_HEADER, source_mac
from api.secrets import internal_key
from tests.api.people.visitor import PASSWORD, Visitor, new_visitor, refused

pytestmark = pytest.mark.django_db
SIGN_IN = {"email": "ann@example.com", "password": PASSWORD}


def vouched(source: str, age_ms: int = 0, path: str = "/v1/session", method: str = "POST") -> dict[str, str]:
    header = f"{source} {int(time.time() * 1000) - age_ms}"
    return {SOURCE_HEADER: header, SOURCE_MAC_HEADER: source_mac(internal_key(), method, path, header)}


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
