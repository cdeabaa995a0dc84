"""One hot request from its first stage to its answer, without a task.

A coroutine that runs a wire's function is stepped by hand: once at the start, and again by each future that it waits
for. To uvicorn's class this object stands where the cycle of the connection does, so that later requests wait behind
it, and a stopping server waits for it.

    begun      stages run
    waiting    for storage, or for the client to read what it was answered before
    complete   answered; or the client has left, and the answer with it
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import structlog
from uvicorn.protocols.http.flow_control import FlowControl

from frontend.http import HttpResponse, Request

Answering = Coroutine[Any, Any, HttpResponse | None]

_GONE = {"type": "http.disconnect"}
_NO_MORE = {"type": "http.request", "body": b"", "more_body": False}
_FAILED = HttpResponse(500, ((b"content-type", b"text/plain; charset=utf-8"),), b"Internal Server Error")
_log = structlog.get_logger("frontend.express")


class CallConnection(Protocol):
    """What a call needs of its connection."""

    loop: asyncio.AbstractEventLoop
    flow: FlowControl

    def wait_writable(self) -> asyncio.Future[None]:
        """Until the client has read what it was sent."""

    def finish(self, call: ExpressCall, answer: HttpResponse | None) -> None:
        """Writes the answer, and goes on to the next request. None: there is nothing to write."""


class ExpressCall:
    """`keep_alive`, `response_started`, `response_complete`, `disconnected` and `message_event` are read and set by
    uvicorn's class."""

    __slots__ = (
        "_answer", "_answering", "_connection", "_departure", "_is_input_ended", "_waiting", "disconnected", "held",
        "keep_alive", "response_complete", "response_started",
    )  # fmt: skip

    def __init__(self, connection: CallConnection, keep_alive: bool) -> None:
        self._connection = connection
        self._answering: Answering | None = None
        self._answer: HttpResponse | None = None  # while the client must read first
        self._waiting: asyncio.Future[Any] | None = None
        self._departure: asyncio.Future[dict[str, Any]] | None = None
        self._is_input_ended = False
        self.held: Request | None = None  # a large body's, whose room goes back with the answer
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_started = False
        self.response_complete = False

    def begin(self, answering: Answering) -> None:
        self._answering = answering
        self._step(None)

    # --- of the client ---

    def receive(self) -> asyncio.Future[dict[str, Any]]:
        """The ASGI channel of a request that came whole: all that can come is that the client leaves, or sends no more.
        A future, so that waiting for it takes no task either."""
        self._departure = self._connection.loop.create_future()
        if self.disconnected:
            self._departure.set_result(_GONE)
        elif self._is_input_ended:
            self._departure.set_result(_NO_MORE)
        return self._departure

    def end_input(self) -> None:
        """The client sends no more, and still reads."""
        self._is_input_ended = True
        if self._departure is not None and not self._departure.done():
            self._departure.set_result(_NO_MORE)

    @property
    def message_event(self) -> ExpressCall:
        return self

    def set(self) -> None:
        """As the event of a cycle: uvicorn sets it when the client has left."""
        self.disconnected = True
        if self._departure is not None and not self._departure.done():
            self._departure.set_result(_GONE)

    # --- as a task, where a stopping server waits for those ---

    def cancel(self, msg: str | None = None) -> None:
        if self._waiting is not None:
            self._waiting.cancel(msg)

    # --- steps ---

    def _step(self, _: asyncio.Future[Any] | None) -> None:
        self._waiting = None
        assert self._answering is not None
        try:
            waiting = self._answering.send(None)
        except StopIteration as end:
            self._answering = None
            self._answered(end.value)
            return
        except BaseException as error:
            # The wires answer whatever happens; what gets here is a cancellation, or our bug.
            self._answering = None
            if not isinstance(error, asyncio.CancelledError):
                _log.exception("express_call_failed")
            self.keep_alive = False
            self._answered(_FAILED)
            return
        if waiting is None:  # a bare turn of the event loop
            self._connection.loop.call_soon(self._step, None)
            return
        # What `Task` does with a future that was yielded to it.
        waiting._asyncio_future_blocking = False
        self._waiting = waiting
        waiting.add_done_callback(self._step)

    def _answered(self, answer: HttpResponse | None) -> None:
        connection = self._connection
        if self.disconnected:
            answer = None
        elif answer is not None and connection.flow.write_paused:
            self._answer = answer
            self._waiting = reading = connection.wait_writable()
            reading.add_done_callback(self._go_on)
            return
        self._waiting = None
        self.response_started = self.response_complete = True
        connection.finish(self, answer)

    def _go_on(self, _: asyncio.Future[Any]) -> None:
        answer, self._answer = self._answer, None
        self._answered(answer)
