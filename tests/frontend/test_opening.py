"""Records that are opened by the short cut, and those that are not, read the same."""

from __future__ import annotations

import random

import pytest

from frontend.messages.opening import _plain_parts
from storage_nodes.protocol.records import HEADER_TAG, LENGTHS_MAX, RecordError, decode_body, encode_body
from storage_nodes.protocol.usage import Origin, usage_key

KEY = usage_key(Origin.CLIENT, 7)


@pytest.mark.parametrize("value_bytes", [64, 65, 100, 1024, LENGTHS_MAX - 1])
def test_record_with_a_usage_key_and_no_headers_is_read_by_the_short_cut(value_bytes: int) -> None:
    value = random.Random(value_bytes).randbytes(value_bytes)
    assert _plain_parts(encode_body(value, KEY)) == (KEY, value)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x00", encode_body(b"x" * 100), encode_body(b"x" * 100, b"key"), encode_body(b"", KEY),
        encode_body(b"x" * 63, KEY), encode_body(b"x" * LENGTHS_MAX, KEY), encode_body(b"x" * 9000, KEY),
        encode_body(b"x" * 100, KEY, ((HEADER_TAG, b"t"),)), encode_body(b"x" * 100, KEY) + b"\x00",
        encode_body(b"x" * 100, KEY)[:-1],
    ],
)  # fmt: skip
def test_any_other_record_is_left_to_the_codec(body: bytes) -> None:
    assert _plain_parts(body) is None


def test_short_cut_never_says_anything_but_what_the_codec_says() -> None:
    chance = random.Random(12)
    read = 0
    for _ in range(20_000):
        body = bytearray(encode_body(chance.randbytes(chance.choice((62, 63, 64, 65, 200, 300))), KEY))
        for _ in range(chance.randrange(3)):
            body[chance.randrange(len(body)) if chance.random() < 0.5 else chance.randrange(9)] = chance.randrange(256)
        if chance.random() < 0.2:
            del body[chance.randrange(len(body)) :]
        found = _plain_parts(bytes(body))
        if found is None:
            continue
        read += 1
        try:
            decoded = decode_body(bytes(body))
        except RecordError as error:
            raise AssertionError(bytes(body)) from error
        assert found == (decoded.key, decoded.value) and not decoded.headers
    assert read > 1_000
