"""Frames: golden bytes, arbitrary cuts, and hostile bytes."""

from __future__ import annotations

import struct
import tracemalloc

import google_crc32c
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_nodes.limits import FRAME_BYTES_MAX
from storage_nodes.protocol.frames import (
    FLAG_ANSWER,
    FLAG_ERROR,
    HEADER_BYTES,
    Frame,
    FrameDecoder,
    FrameError,
    encode_frame,
    frame_pieces,
)

frames = st.builds(Frame, st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=300))


def test_frame_has_its_golden_bytes() -> None:
    assert encode_frame(11, 0, 1, b"").hex() == "a7010b000000000100000000f784600e"
    assert encode_frame(10, FLAG_ANSWER | FLAG_ERROR, 0xDEADBEEF, b"\x93\x04\xa0\x00").hex() == (
        "a7010a03deadbeef000000044d0e3cfd9304a000"
    )


def test_frame_layout_is_the_one_that_is_drawn() -> None:
    payload = b"payload"
    head = struct.pack(">BBBBII", 0xA7, 1, 12, 1, 77, len(payload))
    crc = google_crc32c.value(head + payload)
    assert encode_frame(12, FLAG_ANSWER, 77, payload) == head + struct.pack(">I", crc) + payload
    pieces = frame_pieces(12, FLAG_ANSWER, 77, payload)
    assert b"".join(pieces) == encode_frame(12, FLAG_ANSWER, 77, payload)
    assert pieces[1] is payload, "not copied"


@settings(max_examples=200, deadline=None)
@given(st.lists(frames, max_size=5), st.lists(st.integers(1, 40), max_size=60))
def test_frames_come_out_whatever_the_cuts(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(*frame) for frame in sent)
    decoder = FrameDecoder()
    received: list[Frame] = []
    at = 0
    for cut in cuts:
        received += decoder.feed(stream[at : at + cut])
        at += cut
    received += decoder.feed(stream[at:])
    assert received == sent


@pytest.mark.parametrize("cut", [1, 12, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, 60])
@pytest.mark.parametrize("payload_bytes", [0, 1, 100])
def test_decoder_begins_anew_where_a_frame_ended(cut: int, payload_bytes: int) -> None:
    sent = Frame(10, FLAG_ANSWER, 5, bytes(range(payload_bytes)))
    encoded = encode_frame(*sent)
    decoder = FrameDecoder()
    for _ in range(3):
        received: list[Frame] = []
        for at in range(0, len(encoded), cut):
            assert decoder.pending_bytes == at and not received
            received += decoder.feed(encoded[at : at + cut])
        assert received == [sent] and decoder.pending_bytes == 0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=8))
@example([b"\xa7\x01\x00\x00" + b"\xff" * 12])
@example([b"\xa7\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"])
def test_arbitrary_bytes_raise_nothing_but_frame_error(chunks: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for chunk in chunks:
            decoder.feed(chunk)
    except FrameError:
        return
    assert len(b"".join(chunks)) < HEADER_BYTES or b"".join(chunks)[0] == 0xA7


@settings(max_examples=300, deadline=None)
@given(frames, st.data())
def test_frame_with_any_one_bit_flipped_never_comes_out(frame: Frame, data: st.DataObject) -> None:
    encoded = bytearray(encode_frame(*frame))
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << (bit % 8)
    try:
        received = FrameDecoder().feed(bytes(encoded))
    except FrameError:
        return
    assert received == [], "a longer length only waits for more bytes"


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_claim_over_the_limit_is_refused_at_once(length: int) -> None:
    with pytest.raises(FrameError, match="at most"):
        FrameDecoder().feed(struct.pack(">BBBBIII", 0xA7, 1, 10, 0, 1, length, 0))


def test_claim_within_the_limit_takes_no_memory() -> None:
    header = struct.pack(">BBBBIII", 0xA7, 1, 10, 0, 1, FRAME_BYTES_MAX, 0)
    tracemalloc.start()
    try:
        decoders = [FrameDecoder() for _ in range(100)]
        for decoder in decoders:
            assert decoder.feed(header) == []
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_frame_of_the_largest_size_passes() -> None:
    payload = bytes(FRAME_BYTES_MAX)
    assert FrameDecoder().feed(encode_frame(10, 0, 1, payload)) == [Frame(10, 0, 1, payload)]


@pytest.mark.parametrize(("at", "value"), [(0, 0xA6), (1, 2)])
def test_frame_of_another_protocol_is_refused(at: int, value: int) -> None:
    encoded = bytearray(encode_frame(10, 0, 1, b"x"))
    encoded[at] = value
    with pytest.raises(FrameError):
        FrameDecoder().feed(bytes(encoded))
