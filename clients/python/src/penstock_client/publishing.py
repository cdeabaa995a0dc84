"""Publishes: frames that wait for their confirm, and go again where it did not come.

A frame that is not confirmed when the connection is lost is sent again on the next one. It may have been stored: then
its messages are there twice, unless they have deduplication ids on a queue that looks at them. One with acks `none`,
which asks for at most once, is sent once: it ends as a failure with the code OUTCOME_UNKNOWN.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock_client.errors import PublishRefused
from penstock_client.link import Link
from penstock_client.messages import Failure, Message, Published
from penstock_client.wire import Form, frame_of, size_bytes

ATTEMPTS_MAX = 6
RETRY_PAUSE_S = 0.2
# What was sent once and may be stored or not.
OUTCOME_UNKNOWN = "outcome-unknown"
# Failures of the service, not of the message.
_PASSING = frozenset(("service-unavailable", "request-throttled"))
# After these the messages may be stored all the same.
_UNSURE = frozenset(("service-unavailable", "internal-failure"))
# Ends of a whole frame that is not refused for good, and not sent again.
_UNTOLD = frozenset((OUTCOME_UNKNOWN, "internal-failure"))
# What a frame may have, and how many may be under way, where the service does not say.
_MESSAGES_MAX = 500
_BYTES_MAX = 4 * 1024 * 1024
_PUBLISHES_MAX = 8
_ACKS_ATTRIBUTE = "Penstock.Acks"

_LOST = {"code": OUTCOME_UNKNOWN, "detail": "The connection was lost before the confirm came."}

Row = dict[str, Any]


class _Frame(NamedTuple):
    """Messages at these places of a publish, as they are sent. `is_once`: they may not be sent a second time."""

    places: Sequence[int]
    seq: int
    raw: bytes | str
    is_once: bool


class _Waiting:
    """A frame without its confirm. `sent_on` is the connection that it was sent on, 0 for none."""

    __slots__ = ("confirm", "is_once", "raw", "sent_on")

    def __init__(self, frame: _Frame, confirm: asyncio.Future[dict[str, Any]]) -> None:
        self.raw = frame.raw
        self.is_once = frame.is_once
        self.confirm = confirm
        self.sent_on = 0


class Publishing:
    """Of one queue. `in_order`: one frame at a time, as a FIFO queue needs it."""

    def __init__(self, form: Form, in_order: bool, deduplicate: bool) -> None:
        self.link: Link
        self._form = form
        self._in_order = asyncio.Lock() if in_order else None
        self._window: asyncio.Semaphore | None = None  # made when the service has said how many
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
            for seq, waiting in list(self._waiting.items()):
                if waiting.sent_on == self.link.connection:
                    continue
                if waiting.sent_on and waiting.is_once:
                    self.confirmed({"type": "refuse", "seq": seq, **_LOST})
                else:
                    await self._send(waiting)

    @property
    def is_unconfirmed(self) -> bool:
        """Does a frame wait for its confirm?"""
        return bool(self._waiting)

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
        asked_s = 0.0
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(max(RETRY_PAUSE_S * 2**attempt, asked_s))
            failures = await self._once(left, rows, published, acks)
            left, asked_s = [], 0.0
            for one in failures:
                if one.code in _PASSING and attempt + 1 < ATTEMPTS_MAX:
                    left.append(one.index)
                    asked_s = max(asked_s, one.retry_after_s)
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
        answers = await asyncio.gather(*(self._answer(frame) for frame in cut))
        answered = zip(cut, answers, strict=True)
        return [failure for frame, answer in answered for failure in _take_in(published, frame, answer)]

    async def _once_in_order(
        self, places: Sequence[int], frames: Iterator[_Frame], published: Published
    ) -> list[Failure]:
        """One frame after the other. What is behind a failure that passes is not sent, and fails in the same way: it
        must not be stored before what is published again."""
        failures: list[Failure] = []
        sent = 0
        for frame in frames:
            found = _take_in(published, frame, await self._answer(frame))
            failures += found
            sent += len(frame.places)
            passing = next((one for one in found if one.code in _PASSING), None)
            if passing is not None:
                return failures + [replace(passing, index=at) for at in places[sent:]]
        return failures

    def _frames(self, places: Sequence[int], rows: list[Row], ids: bool, acks: str | None) -> Iterator[_Frame]:
        """Each within what the service takes."""
        most = self.link.limits.get("messages_max", _MESSAGES_MAX)
        for start in range(0, len(places), most):
            yield from self._halved(places[start : start + most], rows, ids, acks)

    def _halved(self, places: Sequence[int], rows: list[Row], ids: bool, acks: str | None) -> Iterator[_Frame]:
        seq = next(self._seq)
        frame = frame_of("publish", seq=seq, messages=[rows[at] for at in places])
        if ids:
            frame["ids"] = True
        if acks is not None:
            frame["acks"] = acks
        raw = self._form.encode(frame)
        if size_bytes(raw) <= self.link.limits.get("bytes_max", _BYTES_MAX):
            yield _Frame(places, seq, raw, acks == "none" or any(_asks_for_none(rows[at]) for at in places))
        elif len(places) == 1:
            raise PublishRefused("request-too-large", "A message is larger than a frame may be.")
        else:
            middle = len(places) // 2
            yield from self._halved(places[:middle], rows, ids, acks)
            yield from self._halved(places[middle:], rows, ids, acks)

    async def _answer(self, frame: _Frame) -> dict[str, Any]:
        """The confirm, or the refusal."""
        if self._window is None:
            self._window = asyncio.Semaphore(self.link.limits.get("publishes_max", _PUBLISHES_MAX))
        async with self._window:
            waiting = _Waiting(frame, asyncio.get_running_loop().create_future())
            try:
                async with self._sending:
                    if self.link.failure is not None:
                        raise self.link.failure
                    self._waiting[frame.seq] = waiting
                    await self._send(waiting)
                return await waiting.confirm
            finally:
                self._waiting.pop(frame.seq, None)

    async def _send(self, waiting: _Waiting) -> None:
        """Where there is no connection now, the next one sends it."""
        if self.link.is_open:
            waiting.sent_on = self.link.connection
            await self.link.send(waiting.raw)


def _asks_for_none(row: Row) -> bool:
    asked = row.get("attributes")
    return asked is not None and asked.get(_ACKS_ATTRIBUTE, {}).get("value") == "none"


def _take_in(published: Published, frame: _Frame, answer: dict[str, Any]) -> list[Failure]:
    """What failed of the messages of this frame. Raises PublishRefused."""
    places = frame.places
    if answer["type"] == "refuse":
        failure = _failure(0, frame, answer)
        if failure.code not in _PASSING and failure.code not in _UNTOLD:
            raise PublishRefused(failure.code, failure.detail)
        return [replace(failure, index=at) for at in places]
    if published.sent is not None:
        for at, sent in zip(places, answer["sent"], strict=True):
            published.sent[at] = sent
    return [_failure(places[failed["index"]], frame, failed["error"]) for failed in answer["failed"]]


def _failure(place: int, frame: _Frame, told: dict[str, Any]) -> Failure:
    """A failure that leaves open whether the messages are stored is one that no repetition may follow, where they are
    sent once."""
    code = told["code"]
    if frame.is_once and code in _UNSURE:
        code = OUTCOME_UNKNOWN
    return Failure(place, code, told["detail"], told.get("retry_after_s") or 0.0)
