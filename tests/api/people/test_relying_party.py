"""Which addresses passkeys can be bound to."""

from __future__ import annotations

import pytest

from api.people.relying_party import RelyingParty, relying_party


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("https://queue.example.com", RelyingParty("queue.example.com", "https://queue.example.com")),
        ("https://Queue.example.com:443/", RelyingParty("queue.example.com", "https://queue.example.com")),
        ("https://queue.example.com:8443", RelyingParty("queue.example.com", "https://queue.example.com:8443")),
        ("http://localhost:9324", RelyingParty("localhost", "http://localhost:9324")),
        ("http://127.0.0.1:9324", RelyingParty("localhost", "http://localhost:9324")),
        ("http://[::1]:80", RelyingParty("localhost", "http://localhost")),
        ("http://queue.example.com", None),
        ("https://10.0.0.5", None),
        ("http://10.0.0.5:9324", None),
        ("https://", None),
        ("", None),
    ],
)
def test_address_gives_its_name_and_origin_where_browsers_know_passkeys(
    endpoint: str, expected: RelyingParty | None
) -> None:
    assert relying_party(endpoint) == expected
