"""Lines as messages: every byte comes back, and every body is text a queue accepts."""

from __future__ import annotations

import io
import os
import re
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import limits
from deploy.lines import EncodedLine, batches, decode_line, encode_line, read_lines

# Written out apart from the code under test: the characters SQS documents as allowed.
SQS_TEXT = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")


def as_received(encoded: EncodedLine) -> bytes:
    body, encoding = encoded
    return decode_line(body, None if encoding is None else ("String", encoding))


@given(st.lists(st.binary(max_size=40), max_size=35))
def test_lines_any_bytes_come_back(lines: list[bytes]) -> None:
    encoded = [one for batch in batches(lines) for one in batch]
    assert [as_received(one) for one in encoded] == lines
    assert all(SQS_TEXT.fullmatch(body) for body, _ in encoded)


@pytest.mark.parametrize(
    ("line", "encoding"),
    [
        (b"plain text", None),
        (b"carriage return\r", None),
        ("grüße \U0001f600".encode(), None),
        (b"", "empty"),
        (b"\xff\xfe", "base64"),
        (b"nul \x00 inside", "base64"),
        ("not a character: \uffff".encode(), "base64"),
        (b"\xed\xa0\x80", "base64"),
    ],
)
def test_line_travels_as_text_where_it_can(line: bytes, encoding: str | None) -> None:
    body, chosen = encode_line(line)
    assert chosen == encoding
    assert (body == line.decode()) if encoding is None else True


def test_message_of_another_sender_is_its_text() -> None:
    assert decode_line("hello", None) == b"hello"
    assert decode_line("x", ("String", "unknown")) == b"x"


def test_lines_last_newline_may_lack() -> None:
    assert list(read_lines(io.BytesIO(b"a\r\n\nb"))) == [b"a\r", b"", b"b"]
    assert list(read_lines(io.BytesIO(b""))) == []


@given(st.binary(max_size=2_000), st.integers(1, 50))
def test_lines_are_those_of_the_stream_however_it_is_read(content: bytes, read_bytes: int) -> None:
    content = content.replace(b"\x00", b"\n")
    with mock.patch.object(limits, "READ_BYTES", read_bytes):
        assert list(read_lines(io.BytesIO(content))) == [line.removesuffix(b"\n") for line in io.BytesIO(content)]


def test_lines_of_a_pipe_that_has_no_more_for_now_go_at_once() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as pipe:
        feed = batches(read_lines(stream))
        pipe.write(b"one\ntwo\nthr")
        assert next(feed) == [("one", None), ("two", None)]
        pipe.write(b"ee\n")
        assert next(feed) == [("three", None)]
        pipe.write(b"x\n" * 1_200)
        pipe.close()
        assert [len(batch) for batch in feed] == [500, 500, 200]


def test_batches_keep_count_and_bytes_within_bounds() -> None:
    lines = [b"x" * 300_000] * 7 + [b"y"] * 1_025
    made = list(batches(lines))
    assert sum(map(len, made)) == len(lines)
    for batch in made:
        assert 1 <= len(batch) <= limits.BATCH_MESSAGES
        assert sum(len(body) for body, _ in batch) <= limits.BATCH_BYTES_MAX


def test_batches_line_larger_than_a_batch_goes_alone() -> None:
    made = list(batches([b"a", b"x" * (limits.BATCH_BYTES_MAX + 1), b"b"]))
    assert [len(batch) for batch in made] == [1, 1, 1]
