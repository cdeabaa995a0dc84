"""The copy of a dead letter: what it keeps, what it says of its source, and the id that stops a second one."""

from __future__ import annotations

import msgspec

from storage_nodes.machines.queue.state.headers import release_header
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.messages import DeadSource, DeathReason
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_GROUP,
    HEADER_RELEASED,
    HEADER_TAG,
    decode_body,
    encode_body,
)


def letter_copy(partition: int, body: bytes) -> bytes:
    source = DeadSource(partition, 70, 1_000, 2_000, 4, DeathReason.MAX_RECEIVES, 9_000, 4)
    return copy_of_dead(source, body)


def test_copy_keeps_the_message_and_replaces_what_would_hold_it_back() -> None:
    headers = [(HEADER_GROUP, b"g"), (HEADER_TAG, b"red"), (HEADER_DELAY_MS, b"5000"), (HEADER_DEDUP, b"theirs")]
    copy = decode_body(letter_copy(3, encode_body(b"value", b"key", headers)))
    assert (copy.key, copy.value) == (b"key", b"value")
    named = dict(copy.headers)
    assert len(named) == len(copy.headers) and named.keys() == {
        HEADER_GROUP, HEADER_TAG, HEADER_DEAD_SOURCE,
    }  # fmt: skip
    source = msgspec.msgpack.decode(named[HEADER_DEAD_SOURCE], type=DeadSource)
    assert source == DeadSource(3, 70, 1_000, 2_000, 4, DeathReason.MAX_RECEIVES, 9_000, 4, place=70)


def test_copy_of_what_was_scheduled_names_where_it_was_sent_to_and_where_it_lay() -> None:
    released = encode_body(b"x", None, [(HEADER_RELEASED, release_header(12, 5_000))])
    headers = dict(decode_body(letter_copy(3, released)).headers)
    source = msgspec.msgpack.decode(headers[HEADER_DEAD_SOURCE], type=DeadSource)
    assert (source.offset, source.place) == (12, 70)


def test_copy_of_a_copy_says_where_it_stood_last() -> None:
    twice = decode_body(letter_copy(9, letter_copy(3, encode_body(b"x"))))
    sources = [content for name, content in twice.headers if name == HEADER_DEAD_SOURCE]
    assert [msgspec.msgpack.decode(content, type=DeadSource).partition for content in sources] == [9]


def test_record_that_does_not_parse_is_kept_as_it_is() -> None:
    copy = decode_body(letter_copy(3, b"\xff\xff"))
    assert copy.value == b"\xff\xff"
