"""Logs and the operators' port: one JSON object a line on stderr; `/metrics` and `/healthz` over a small HTTP server.

Libraries log through the standard `logging`, which is rendered the same way. Nothing here knows a secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable

import structlog
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

REQUEST_HEAD_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 5
# Each kind has a logger of its own below it.
_REFUSALS_OF_DJANGO = "django.security."

# Says whether the process can do its work now; the text goes into the answer.
HealthCheck = Callable[[], Awaitable[tuple[bool, str]]]


def configure_logging(level: str) -> None:
    """Safe to call twice."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        _add_process,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.addFilter(_without_trace_of_refusals)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _without_trace_of_refusals(record: logging.LogRecord) -> bool:
    """Django logs what it refuses for the sake of safety, as a body that is too large, with its trace and as an error.
    Any client can cause it: a line is enough, and no error of ours."""
    if record.name.startswith(_REFUSALS_OF_DJANGO):
        record.exc_info, record.exc_text = None, None
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True


def _add_process(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event["process"] = os.environ.get("PENSTOCK_PROCESS", "penstock")
    return event


async def serve_operators_port(host: str, port: int, healthy: HealthCheck) -> asyncio.Server:
    """Listens until the returned server is closed."""
    return await asyncio.start_server(answering(healthy), host, port, limit=REQUEST_HEAD_BYTES_MAX)


def answering(healthy: HealthCheck) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """What serves a connection: one request each, for scrapers are few."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await _respond(head, healthy))
                await writer.drain()
        writer.close()

    return answer


def serve_operators_port_in_thread(host: str, port: int, healthy: HealthCheck) -> None:
    """For processes whose main thread has no event loop. Raises OSError where nothing can listen there: in the thread
    it would end the thread alone, and leave a process that works and never counts as ready."""
    listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)

    async def run() -> None:
        server = await asyncio.start_server(answering(healthy), sock=listening, limit=REQUEST_HEAD_BYTES_MAX)
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), name="operators-port", daemon=True).start()


async def always_healthy() -> tuple[bool, str]:
    return True, "ok"


async def _respond(head: bytes, healthy: HealthCheck) -> bytes:
    parts = head.split(b" ", 2)
    path = parts[1].split(b"?")[0] if len(parts) == 3 else b""
    if path == b"/metrics":
        return _http(b"200 OK", CONTENT_TYPE_LATEST, generate_latest(REGISTRY))
    if path == b"/healthz":
        ok, text = await healthy()
        return _http(b"200 OK" if ok else b"503 Service Unavailable", "text/plain", text.encode())
    return _http(b"404 Not Found", "text/plain", b"not here: /metrics and /healthz are")


def _http(status: bytes, content_type: str, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, content_type.encode(), len(body)) + body
