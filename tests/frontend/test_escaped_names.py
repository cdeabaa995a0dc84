"""Names of members in escaped letters are found whichever way they are looked for, in bodies that are JSON or not."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.sqs import protocol as protocol_module


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(["\\u", "\\\\", '\\"', "a", '"', ":", " ", '":', "\\u0061"]), max_size=30))
def test_escaped_names_are_found_alike_from_either_side(parts: list[str]) -> None:
    body = "".join(parts).encode()
    found = []
    for bytes_per_quote in (0, 1_000):  # back from names, on from escapes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(protocol_module, "_BYTES_PER_QUOTE", bytes_per_quote)
            found.append(protocol_module.has_escaped_name(body))
    assert found == [re.search(rb'\\u[^"\\]*"\s*:', body) is not None] * 2


def test_text_of_escapes_is_not_stepped_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stepping from escape to escape took four times as long as it takes to decode them."""
    monkeypatch.setattr(protocol_module, "_ESCAPED_NAME", None)
    for characters in (100, 1_000, 100_000):
        body = {"QueueUrl": "orders", "MessageBody": "é" * characters}
        assert not protocol_module.has_escaped_name(json.dumps(body).encode())
