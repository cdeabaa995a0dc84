"""One queue, over one websocket that is opened again whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from penstock_client.consuming import Consuming, Receiving
from penstock_client.errors import NotConnected
from penstock_client.link import Link
from penstock_client.messages import Batch, Message, Published
from penstock_client.publishing import Publishing
from penstock_client.wire import best_form

_log = logging.getLogger("penstock_client")


class Queue:
    """Made by `connect`. `publish` may be called by any number of tasks, `receive` by one at a time."""

    def __init__(
        self,
        endpoint: str,
        token: str,
        name: str,
        *,
        deduplicate: bool = False,
        open_timeout_s: float = 10.0,
        pause_s_max: float = 10.0,
        **options: Any,
    ) -> None:
        form = best_form()
        self.name = name
        self._open_timeout_s = open_timeout_s
        self._publishing = Publishing(form, name.endswith(".fifo"), deduplicate)
        self._consuming = Consuming()
        self._link = Link(
            endpoint, token, name, form, self._on_ready, self._on_frame, self._is_held, pause_s_max, options
        )
        self._publishing.link = self._consuming.link = self._link
        self._watch: asyncio.Task[None] | None = None
        self.lost = 0
        self.errors = 0

    async def __aenter__(self) -> Self:
        """Raises ConnectionRefused, NotConnected, and ClientError where the connection fails in another way."""
        self._link.start()
        self._watch = asyncio.create_task(self._give_up_with_the_link())
        ready = asyncio.ensure_future(self._link.ready.wait())
        failed = asyncio.ensure_future(self._link.failed.wait())
        try:
            await asyncio.wait({ready, failed}, timeout=self._open_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            ready.cancel()
            failed.cancel()
        if not self._link.ready.is_set():
            error = self._link.failure or NotConnected(f"no connection within {self._open_timeout_s:g} s")
            await self.close()
            raise error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """What is not confirmed ends with NotConnected; what is not settled goes back to the queue."""
        await self._link.close()
        if self._watch is not None:
            await asyncio.gather(self._watch, return_exceptions=True)

    async def publish(
        self, messages: Sequence[Message | str], *, ids: bool = False, acks: str | None = None
    ) -> Published:
        """Stores messages; returns when the service has confirmed them. Goes on over lost connections.

        ids   ask for the ids of the messages
        acks  `quorum` (as by default), `all`, `leader` or `none`: when the service confirms

        Raises PublishRefused where nothing of a frame is taken, ConnectionRefused, NotConnected.
        """
        return await self._publishing.publish(messages, ids, acks)

    def receive(
        self, *, prefetch: int = 1_000, tags: Sequence[str] = (), limit: int | None = None, idle_s: float | None = None
    ) -> AsyncIterator[Batch]:
        """Batches of messages, each to be acknowledged.

        prefetch  so many messages are sent ahead of what is settled
        tags      only messages that have one of them; the first receive of a queue chooses them
        limit     end after so many messages
        idle_s    end when no message came for so long

        Raises ConnectionRefused, NotConnected.
        """
        return Receiving(self._consuming, prefetch, tags, limit, idle_s)

    async def _on_ready(self) -> None:
        await self._publishing.resend()
        await self._consuming.begin()

    def _on_frame(self, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if kind in ("confirm", "refuse"):
            self._publishing.confirmed(frame)
        elif kind == "messages":
            self._consuming.arrived(frame)
        elif kind == "lost":
            # Those messages come again; settling them has no effect.
            self.lost += sum(last - first + 1 for first, last in frame["ranges"])
        elif kind == "error":
            self.errors += 1
            _log.warning("%s: %s: %s", self.name, frame["code"], frame["detail"])

    def _is_held(self) -> bool:
        return self._publishing.is_unconfirmed

    async def _give_up_with_the_link(self) -> None:
        await self._link.failed.wait()
        assert self._link.failure is not None
        self._publishing.give_up(self._link.failure)
        self._consuming.give_up()


def connect(endpoint: str, token: str, queue: str, **options: Any) -> Queue:
    """`async with connect("http://127.0.0.1:9324", token, "orders") as queue:`

    deduplicate     give each message without a deduplication id one of its own, so that what is repeated after a lost
                    connection is stored once. For FIFO queues, and for standard queues with
                    `Penstock.DeduplicationWindow`; others refuse it
    open_timeout_s  for the first connection
    pause_s_max     between tries to connect again
    and any option of `websockets.asyncio.client.connect`, such as `ssl` and `proxy`
    """
    return Queue(endpoint, token, queue, **options)
