"""The copy of a dead letter: what it keeps, what it says of its source, and the id that stops a second one."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.machines.queue.state.headers import release_header
from storage_nodes.node.replicas.queue_checks import check_headers
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import DeadSource, DeathReason, encode_message
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


@pytest.mark.parametrize("origin", [b"r", b"9" * 40, b"-1/5", b""])
def test_copy_of_what_says_a_place_that_none_is_lay_where_it_lay(origin: bytes) -> None:
    forged = encode_body(b"x", None, [(HEADER_RELEASED, origin)])
    headers = dict(decode_body(letter_copy(3, forged)).headers)
    source = msgspec.msgpack.decode(headers[HEADER_DEAD_SOURCE], type=DeadSource)
    assert (source.offset, source.place) == (70, 70)


@pytest.mark.parametrize("name", [name for name in DeadSource.__struct_fields__ if name != "note"])
@pytest.mark.parametrize("number", [-(2**63), -2, 2**53 + 1, 2**64 - 1])
def test_source_with_a_number_that_cannot_be_is_refused(name: str, number: int) -> None:
    """Folds keep it, and no checkpoint could be made of it."""
    source = DeadSource(3, 70, 1_000, 2_000, 4, DeathReason.MAX_RECEIVES, 9_000, 4)
    headers = [(HEADER_DEAD_SOURCE, encode_message(msgspec.structs.replace(source, **{name: number})))]
    with pytest.raises(StorageError, match="a place and times that can be"):
        check_headers(encode_body(b"x", None, headers), False)


def test_source_as_copies_name_it_is_taken_and_so_is_one_that_does_not_parse() -> None:
    for content in (encode_message(DeadSource(3, 70, 0, 0, 2**31, place=-1)), b"no source"):
        assert check_headers(encode_body(b"x", None, [(HEADER_DEAD_SOURCE, content)]), False) == (False, False, False)
    check_headers(letter_copy(3, encode_body(b"x")), False)


def test_copy_of_a_copy_says_where_it_stood_last() -> None:
    twice = decode_body(letter_copy(9, letter_copy(3, encode_body(b"x"))))
    sources = [content for name, content in twice.headers if name == HEADER_DEAD_SOURCE]
    assert [msgspec.msgpack.decode(content, type=DeadSource).partition for content in sources] == [9]


def test_record_that_does_not_parse_is_kept_as_it_is() -> None:
    copy = decode_body(letter_copy(3, b"\xff\xff"))
    assert copy.value == b"\xff\xff"
