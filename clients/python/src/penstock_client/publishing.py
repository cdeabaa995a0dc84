"""Publishes: frames that wait for their confirm, and go again where it did not come.

A frame that is not confirmed when the connection is lost is sent again on the next one. It may have been stored: then
its messages are there twice, unless they have deduplication ids on a queue that looks at them.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from penstock_client.errors import PublishRefused
from penstock_client.link import Link
from penstock_client.messages import Failure, Message, Published
from penstock_client.wire import Form, frame_of, size_bytes

FRAMES_IN_FLIGHT_MAX = 16
ATTEMPTS_MAX = 6
RETRY_PAUSE_S = 0.2
# Failures of the service, not of the message.
_PASSING = frozenset(("service-unavailable", "request-throttled"))
# What a frame may have, until the service says.
_MESSAGES_MAX = 500
_BYTES_MAX = 4 * 1024 * 1024

Row = dict[str, Any]


class _Waiting:
    """A frame without its confirm."""

    __slots__ = ("confirm", "raw")

    def __init__(self, raw: bytes | str, confirm: asyncio.Future[dict[str, Any]]) -> None:
        self.raw = raw
        self.confirm = confirm


class Publishing:
    """Of one queue. `in_order`: one frame at a time, as a FIFO queue needs it."""

    def __init__(self, form: Form, in_order: bool, deduplicate: bool) -> None:
        self.link: Link
        self._form = form
        self._in_order = asyncio.Lock() if in_order else None
        self._window = asyncio.Semaphore(FRAMES_IN_FLIGHT_MAX)
        self._sending = asyncio.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._seq = itertools.count()
        self._deduplicate = deduplicate
        self._name = secrets.token_hex(8)
        self._number = itertools.count()

    async def publish(self, messages: Sequence[Message | str], ids: bool, acks: str | None) -> Published:
        rows = [{"body": one} if isinstance(one, str) else one.row() for one in messages]
        if self._deduplicate:
            for row in rows:
                row.setdefault("deduplication_id", f"{self._name}-{next(self._number)}")
        if self._in_order is None:
            return await self._attempts(rows, ids, acks)
        async with self._in_order:
            return await self._attempts(rows, ids, acks)

    async def resend(self) -> None:
        """On a new connection, before anything else is sent on it."""
        async with self._sending:
            for waiting in list(self._waiting.values()):
                await self.link.send(waiting.raw)

    def confirmed(self, frame: dict[str, Any]) -> None:
        waiting = self._waiting.pop(frame["seq"], None)
        if waiting is not None and not waiting.confirm.done():
            waiting.confirm.set_result(frame)

    def give_up(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.confirm.done():
                one.confirm.set_exception(error)

    async def _attempts(self, rows: list[Row], ids: bool, acks: str | None) -> Published:
        """What fails for a reason that passes is published again, a few times."""
        published = Published(len(rows), [], [None] * len(rows) if ids else None)
        left = list(range(len(rows)))
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(RETRY_PAUSE_S * 2**attempt)
            failures = await self._once(left, rows, published, acks)
            left = []
            for one in failures:
                if one.code in _PASSING and attempt + 1 < ATTEMPTS_MAX:
                    left.append(one.index)
                else:
                    published.failed.append(one)
            if not left:
                break
        published.failed.sort(key=lambda one: one.index)
        return published

    async def _once(
        self, places: Sequence[int], rows: list[Row], published: Published, acks: str | None
    ) -> list[Failure]:
        """All of these rows once, in as many frames as they take. Returns what failed."""
        frames = self._frames(places, rows, published.sent is not None, acks)
        if self._in_order is not None:
            return await self._once_in_order(places, frames, published)
        cut = list(frames)
        answers = await asyncio.gather(*(self._frame(seq, raw) for _, seq, raw in cut))
        answered = zip(cut, answers, strict=True)
        return [failure for (some, _, _), answer in answered for failure in _take_in(published, some, answer)]

    async def _once_in_order(
        self, places: Sequence[int], frames: Iterator[tuple[Sequence[int], int, bytes | str]], published: Published
    ) -> list[Failure]:
        """One frame after the other. What is behind a failure that passes is not sent, and fails in the same way: it
        must not be stored before what is published again."""
        failures: list[Failure] = []
        sent = 0
        for some, seq, raw in frames:
            found = _take_in(published, some, await self._frame(seq, raw))
            failures += found
            sent += len(some)
            passing = next((one for one in found if one.code in _PASSING), None)
            if passing is not None:
                return failures + [Failure(at, passing.code, passing.detail) for at in places[sent:]]
        return failures

    def _frames(
        self, places: Sequence[int], rows: list[Row], ids: bool, acks: str | None
    ) -> Iterator[tuple[Sequence[int], int, bytes | str]]:
        """(places, seq, frame): each within what the service takes."""
        most = self.link.limits.get("messages_max", _MESSAGES_MAX)
        for start in range(0, len(places), most):
            yield from self._halved(places[start : start + most], rows, ids, acks)

    def _halved(
        self, places: Sequence[int], rows: list[Row], ids: bool, acks: str | None
    ) -> Iterator[tuple[Sequence[int], int, bytes | str]]:
        seq = next(self._seq)
        frame = frame_of("publish", seq=seq, messages=[rows[at] for at in places])
        if ids:
            frame["ids"] = True
        if acks is not None:
            frame["acks"] = acks
        raw = self._form.encode(frame)
        if size_bytes(raw) <= self.link.limits.get("bytes_max", _BYTES_MAX):
            yield places, seq, raw
        elif len(places) == 1:
            raise PublishRefused("request-too-large", "A message is larger than a frame may be.")
        else:
            middle = len(places) // 2
            yield from self._halved(places[:middle], rows, ids, acks)
            yield from self._halved(places[middle:], rows, ids, acks)

    async def _frame(self, seq: int, raw: bytes | str) -> dict[str, Any]:
        """The confirm, or the refusal."""
        async with self._window:
            confirm: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            try:
                async with self._sending:
                    if self.link.failure is not None:
                        raise self.link.failure
                    self._waiting[seq] = _Waiting(raw, confirm)
                    await self.link.send(raw)
                return await confirm
            finally:
                self._waiting.pop(seq, None)


def _take_in(published: Published, places: Sequence[int], answer: dict[str, Any]) -> list[Failure]:
    """What failed of the messages at these places. Raises PublishRefused."""
    if answer["type"] == "refuse":
        if answer["code"] not in _PASSING:
            raise PublishRefused(answer["code"], answer["detail"])
        return [Failure(at, answer["code"], answer["detail"]) for at in places]
    if published.sent is not None:
        for at, sent in zip(places, answer["sent"], strict=True):
            published.sent[at] = sent
    return [
        Failure(places[failed["index"]], failed["error"]["code"], failed["error"]["detail"])
        for failed in answer["failed"]
    ]
