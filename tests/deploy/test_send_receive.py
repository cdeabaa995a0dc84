"""`send` and `receive` against a queue that is played: what is counted is acknowledged, what is deleted was written."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from penstock_client import Failure, Message, Published

from deploy import limits
from deploy.commands.receive import receive_all
from deploy.commands.send import send_all
from deploy.errors import CommandError
from deploy.lines import ATTRIBUTE, batches


class PlayedDelivery:
    def __init__(self, body: str, attributes: dict[str, tuple[str, str]]) -> None:
        self.body = body
        self.attributes = attributes


class PlayedBatch(list[PlayedDelivery]):
    def __init__(self, deliveries: Sequence[PlayedDelivery], written: io.BytesIO, acked: list[bytes]) -> None:
        super().__init__(deliveries)
        self._written = written
        self._acked = acked

    async def ack(self) -> bool:
        self._acked.append(self._written.getvalue())
        return True


class PlayedQueue:
    def __init__(self, failed: Sequence[Failure] = ()) -> None:
        self.published: list[Message | str] = []
        self.failed = failed
        self.batches: list[PlayedBatch] = []
        self.asked: dict[str, Any] = {}
        self.answers: asyncio.Event | None = None

    async def publish(self, messages: Sequence[Message | str]) -> Published:
        if self.answers is not None:
            await self.answers.wait()
        self.published += messages
        return Published(len(messages), list(self.failed))

    async def receive(self, **asked: Any) -> AsyncIterator[PlayedBatch]:
        self.asked = asked
        for batch in self.batches:
            yield batch


async def test_every_line_is_sent_once_and_counted() -> None:
    queue: Any = PlayedQueue()
    told: list[int] = []
    lines = [b"%d" % n for n in range(2 * limits.BATCH_MESSAGES + 1)]
    assert await send_all(queue, batches(lines), told.append, lambda: None) == len(lines) == sum(told)
    assert sorted(queue.published) == sorted(line.decode() for line in lines)


async def test_line_that_is_no_text_says_how_it_is_encoded() -> None:
    queue: Any = PlayedQueue()
    await send_all(queue, batches([b"\xff"]), lambda count: None, lambda: None)
    (message,) = queue.published
    assert message.attributes == {ATTRIBUTE: "base64"}


async def test_line_that_is_not_stored_ends_the_command_with_the_reason() -> None:
    queue: Any = PlayedQueue([Failure(0, "invalid-parameter-value", "too long")])
    told: list[int] = []
    with pytest.raises(CommandError, match="not stored: 1 message: invalid-parameter-value: too long"):
        await send_all(queue, batches([b"x", b"y"]), told.append, lambda: None)
    assert told == [1], "the other one is stored, and is counted"


async def test_batch_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEND_SILENCE_S", 0.01)
    told: list[str] = []
    queue: Any = PlayedQueue()
    await send_all(queue, batches([b"quick"]), lambda count: None, lambda: told.append("stalled"))
    await asyncio.sleep(0.02)
    assert told == [], "what was acknowledged in time is no stall"
    queue.answers = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, queue.answers.set)
    await send_all(queue, batches([b"slow"]), lambda count: None, lambda: told.append("stalled"))
    assert told == ["stalled"]


async def test_lines_are_written_before_their_messages_are_deleted() -> None:
    written, acked = io.BytesIO(), []
    queue: Any = PlayedQueue()
    plain = [PlayedDelivery("a", {}), PlayedDelivery("-", {ATTRIBUTE: ("String", "empty")})]
    queue.batches = [PlayedBatch(plain, written, acked), PlayedBatch([PlayedDelivery("b", {})], written, acked)]
    assert await receive_all(queue, written, 7, 1.5, lambda count: None) == 3
    assert acked == [b"a\n\n", b"a\n\nb\n"]
    assert (queue.asked["limit"], queue.asked["idle_s"]) == (7, 1.5)


async def test_lines_that_cannot_be_written_are_not_deleted() -> None:
    class Closed(io.BytesIO):
        def write(self, data: Any) -> int:
            raise BrokenPipeError

    written, acked = Closed(), []
    queue: Any = PlayedQueue()
    queue.batches = [PlayedBatch([PlayedDelivery("a", {})], written, acked)]
    with pytest.raises(BrokenPipeError):
        await receive_all(queue, written, None, 1.0, lambda count: None)
    assert not acked
