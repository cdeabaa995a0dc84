"""The principal header: only a front end of this installation can make one, and not for long."""

from __future__ import annotations

import base64
import json

import pytest

from frontend.authn.vouching import PrincipalError, principal_mac, verify_principal

KEY = b"k" * 32
NOW_MS = 1_800_000_000_000
CLAIMS = {"account_id": "123456789012", "name": "AKPSAAAAAAAAAAAAAAAA", "request_id": "r", "issued_ms": NOW_MS}


def encoded(claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()


def verify(
    principal: str, mac: str, now_ms: int = NOW_MS, target: bytes = b"/v1/queues?a=1", body: bytes = b"{}"
) -> str:
    return verify_principal(KEY, "POST", target, principal, mac, body, now_ms).account_id


def good() -> tuple[str, str]:
    principal = encoded(CLAIMS)
    return principal, principal_mac(KEY, "POST", b"/v1/queues?a=1", principal, b"{}")


def test_mac_covers_the_documented_text() -> None:
    """docs/processes.md: method LF path?query LF principal LF sha256(body), in hex."""
    import hashlib
    import hmac

    text = "POST\n/p?q=1\nprincipal\n" + hashlib.sha256(b"body").hexdigest()
    expected = hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()
    assert principal_mac(KEY, "POST", b"/p?q=1", "principal", b"body") == expected


def test_principal_with_its_mac_is_accepted_padded_or_not() -> None:
    assert verify(*good()) == "123456789012"
    bare = encoded(CLAIMS).rstrip("=")
    assert verify(bare, principal_mac(KEY, "POST", b"/v1/queues?a=1", bare, b"{}")) == "123456789012"


def test_principal_of_another_request_is_refused() -> None:
    principal, mac = good()
    for changed in (
        {"target": b"/v1/queues"},
        {"body": b"{} "},
    ):
        with pytest.raises(PrincipalError):
            verify(principal, mac, **changed)  # type: ignore[arg-type]
    with pytest.raises(PrincipalError):
        verify(encoded({**CLAIMS, "account_id": "999999999999"}), mac)
    for bad_mac in ("", "0" * 64, mac.upper(), mac[:-1], "ü" * 64):
        with pytest.raises(PrincipalError):
            verify(principal, bad_mac)


def test_principal_older_or_newer_than_a_minute_is_refused() -> None:
    assert verify(*good(), now_ms=NOW_MS + 60_000)
    for now_ms in (NOW_MS + 60_001, NOW_MS - 60_001):
        with pytest.raises(PrincipalError):
            verify(*good(), now_ms=now_ms)


@pytest.mark.parametrize("principal", ["", "%%%", "bm90IGpzb24=", encoded([]), encoded({"account_id": 1}), "x" * 5_000])
def test_principal_that_does_not_parse_is_refused_even_with_a_good_mac(principal: str) -> None:
    with pytest.raises(PrincipalError):
        verify(principal, principal_mac(KEY, "POST", b"/v1/queues?a=1", principal, b"{}"))
