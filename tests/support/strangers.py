"""Those who should not be at a port of the installation, and what their visit did: how soon they were hung up on, what
was told of them, what memory they took during it, and how others were served."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec
import pytest

from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import ErrorReply, encode_message
from storage_nodes.protocol.messages.core import Message
from storage_nodes.trust import refusals as refusals_module

# What is promised: from the last byte of a stranger to the end of its connection, and for the answers of others.
CLOSED_WITHIN_S = 1.0
# The best of so many tries counts, each of them the whole case: a machine with other work is late now and then, a
# process that is slow is late each time.
TRIES = 3
# A try waits for so long: before the deadline of a greeting (5 s), which ends a connection in any case.
PATIENCE_S = 4.0
# What Python may hold more than before, with all that others say during it: far less than the 2^31 bytes of a claim.
HEAP_BYTES_MAX = 8 * 1024 * 1024
Logs = list[dict[str, Any]]


async def until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(patience_s):
        while not is_so():
            await asyncio.sleep(0.002)


# --- who comes ------------------------------------------------------------------------------------------------


class Visitor(asyncio.Protocol):
    """Notes when it said something last, and when it was hung up on; by itself it does not hang up."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.source = ""
        self.said_s = self.lost_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.source = str(transport.get_extra_info("sockname"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_s = time.monotonic()
        self.lost.set()

    def write(self, data: bytes) -> None:
        self.transport.write(data)
        self.said_s = time.monotonic()


class Caller(Visitor):
    """Speaks frames, and takes down what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[ErrorReply] = []
        self.answers = 0
        self._decoder = FrameDecoder()

    def data_received(self, data: bytes) -> None:
        for _, flags, _, payload in self._decoder.feed(data):
            if flags & FLAG_ERROR:
                self.errors.append(msgspec.msgpack.decode(payload, type=ErrorReply))
            else:
                self.answers += 1

    def say(self, opcode: int, message: Message, number: int = 1) -> None:
        self.write(encode_frame(opcode, 0, number, encode_message(message)))


class Handshaker(Visitor):
    """Shows what this context has, and goes on as far as the other side lets it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self.heard = ""  # in plain, or as an alert
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        self._go_on()

    def _go_on(self) -> None:
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            self.heard += self._tls.read(65_536).decode()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.heard += (error.reason or str(error)).lower().replace("_", " ")
        said = self._outgoing.read()
        if said:
            self.write(said)


V = TypeVar("V", bound=Visitor)


async def comes(make: Callable[[], V], host: str, port: int) -> V:
    """As a bare connection."""
    async with asyncio.timeout(5):
        _, visitor = await asyncio.get_running_loop().create_connection(make, host, port)
    return visitor


# --- what is told ---------------------------------------------------------------------------------------------


class Told:
    """Stands for the loggers: what is said to it is kept."""

    def __init__(self) -> None:
        self.lines: Logs = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append({"event": event, "level": level, **fields})


def heard_logs(monkeypatch: pytest.MonkeyPatch, *modules: object) -> Logs:
    """What these modules tell from now on, and what is told of refusals. Not `capture_logs`: loggers may have been used
    before, and keep what they were then."""
    logger = Told()
    for module in (refusals_module, *modules):
        monkeypatch.setattr(module, "_log", logger)
    # As many as a test has, however many were told in this second.
    monkeypatch.setattr(refusals_module, "_gate", refusals_module._Gate())
    return logger.lines


def lines(told: Logs, event: str) -> Logs:
    return [line for line in told if line["event"] == event]


# --- what a visit does ----------------------------------------------------------------------------------------


class Visit:
    """One stranger at a port: the log says who it was and why it went, it takes no memory, and another client is served
    all the time."""

    def __init__(self, bystander: Callable[[], Awaitable[object]], told: Logs) -> None:
        self.closed_s = 0.0
        self._slowest_s = 0.0
        self._bystander = bystander
        self._told = told
        self._calls = 0
        self._is_over = False

    @property
    def seconds(self) -> float:
        """The longest that anybody waited: for the end of the stranger, or the bystander for an answer."""
        return max(self.closed_s, self._slowest_s)

    async def ends(self, visitor: Visitor) -> None:
        """It is hung up on."""
        async with asyncio.timeout(PATIENCE_S):
            await visitor.lost.wait()
        self.closed_s = visitor.lost_s - visitor.said_s

    def is_told(self, event: str, visitor: Visitor, **fields: object) -> dict[str, Any]:
        """One line, with its address and port, and all of `fields`."""
        (line,) = lines(self._told, event)
        assert line["source"] == visitor.source
        assert {name: line[name] for name in fields} == fields
        return line

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        self._told.clear()
        calls = asyncio.create_task(self._call())
        tracemalloc.start()
        try:
            before_bytes, _ = tracemalloc.get_traced_memory()
            yield
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            self._is_over = True
        await calls
        assert self._calls, "another client was served during it"
        assert most_bytes - before_bytes <= HEAP_BYTES_MAX

    async def _call(self) -> None:
        """One call after the other: at each moment of the visit one is under way, and the last one outlives it."""
        while not self._is_over:
            began_s = time.monotonic()
            await self._bystander()
            self._slowest_s = max(self._slowest_s, time.monotonic() - began_s)
            self._calls += 1


S = TypeVar("S", bound=Visit)


async def in_time(case: Callable[[], Awaitable[S]]) -> S:
    """All that a case asserts holds in each try, and the best one is as quick as promised."""
    took_s = []
    for _ in range(TRIES):
        visit = await case()
        took_s.append(visit.seconds)
        if visit.seconds < CLOSED_WITHIN_S:
            return visit
    pytest.fail(f"closed, or others answered, after {took_s} s")
