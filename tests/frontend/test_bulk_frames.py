"""msgpack frames of the bulk socket: the quick reading takes what the strict one takes, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from frontend.limits import BULK_MESSAGES_MAX
from frontend.push import bulk_frames
from frontend.push.bulk_frames import MSGPACK_FRAMES, BulkFrame, read_bulk_frame
from frontend.push.frames import FrameRefused

encode = msgspec.msgpack.encode


def publish(*messages: dict[str, Any], **more: Any) -> bytes:
    return encode({"type": "publish", "seq": 7, "messages": messages, **more})


def outcome(raw: bytes) -> BulkFrame | str:
    try:
        return read_bulk_frame(MSGPACK_FRAMES, raw)
    except FrameRefused as refused:
        return str(refused)


@pytest.mark.parametrize("count", [1, 15, 16, BULK_MESSAGES_MAX])
def test_frame_that_is_written_again_as_it_came_is_not_walked_over(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[bytes] = []
    monkeypatch.setattr(bulk_frames, "check_msgpack", walked.append)
    attributes = {"a": {"value": "1", "type": "Number"}}
    raw = publish(*[{"body": "x" * 1024, "attributes": attributes, "group": "g"}] * count)
    frame = read_bulk_frame(MSGPACK_FRAMES, raw)
    assert isinstance(frame, bulk_frames.PublishFrame) and len(frame.messages) == count
    assert not walked


@pytest.mark.parametrize(
    "raw",
    [
        encode({"seq": 7, "type": "publish", "messages": [{"body": "x"}]}),  # another order
        publish({"body": "x", "group": None}),  # says what need not be said
        publish(*[{"body": "x"}] * (BULK_MESSAGES_MAX + 1)),
        publish({"body": "\u07dc\u0740"}),  # bytes that could begin a large container
        b"\x83\xa4type\xa7publish\xa3seq\xd3\0\0\0\0\0\0\0\x07\xa8messages\x91\x81\xa4body\xa1x",  # a wide number
    ],
)
def test_frame_that_is_written_otherwise_is_walked_over_and_taken(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[bytes] = []
    monkeypatch.setattr(bulk_frames, "check_msgpack", walked.append)
    assert isinstance(read_bulk_frame(MSGPACK_FRAMES, raw), bulk_frames.PublishFrame)
    assert walked == [raw]


def test_member_that_is_named_twice_is_refused_wherever_it_stands() -> None:
    once = publish({"body": "x", "group": "g"})
    assert isinstance(outcome(once), bulk_frames.PublishFrame)
    twice = once.replace(b"\xa5group\xa1g", b"\xa4body\xa1g")
    assert twice != once and "twice" in str(outcome(twice))


def test_quick_reading_says_of_every_frame_what_the_strict_one_says(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(12)
    frames = [
        publish({"body": "hello"}),
        publish({"body": "x", "attributes": {"a": {"value": "1"}}}, {"body": "y", "tag": "t"}, ids=True),
        publish(*[{"body": "z" * 40}] * 20),
        encode({"type": "ack", "ranges": [[1, 500], [502, 502]]}),
        encode({"type": "credit", "n": 500}),
    ]
    changed: list[bytes] = []
    for _ in range(4_000):
        raw = bytearray(chance.choice(frames))
        for _ in range(chance.randrange(3)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        if chance.random() < 0.2:
            raw = raw[: chance.randrange(len(raw))] if chance.random() < 0.5 else raw + b"\xc0"
        changed.append(bytes(raw))
    quick = [outcome(raw) for raw in changed]
    monkeypatch.setattr(bulk_frames, "_is_small", lambda raw: False)
    assert [outcome(raw) for raw in changed] == quick
    assert sum(isinstance(one, str) for one in quick) > 1_000
