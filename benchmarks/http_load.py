"""A small HTTP/1.1 load generator: keep-alive connections, requests signed with SigV4, answers read to their end.

Requests are signed here in few steps, so that the generator takes as little of the shared cores as it can; the server
verifies every one. One request per connection is in flight.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast


class LoadTarget(NamedTuple):
    """Where to, and as whom."""

    host: str
    port: int
    region: str
    access_key_id: str
    secret_access_key: str


class Signer:
    """Signs SQS JSON requests for one target; the signing key is derived once."""

    def __init__(self, target: LoadTarget) -> None:
        self._target = target
        self._date = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        day = self._date[:8]
        key = f"AWS4{target.secret_access_key}".encode()
        for part in (day, target.region, "sqs", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key
        self._scope = f"{day}/{target.region}/sqs/aws4_request"
        self._host = f"{target.host}:{target.port}"

    def request(self, action: str, body: bytes) -> bytes:
        """The bytes of one signed request."""
        action_name = f"AmazonSQS.{action}"
        signed = "content-type;host;x-amz-date;x-amz-target"
        canonical = (
            f"POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:{self._host}\nx-amz-date:{self._date}\n"
            f"x-amz-target:{action_name}\n\n{signed}\n{hashlib.sha256(body).hexdigest()}"
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{self._date}\n{self._scope}\n{digest}"
        signature = hmac.digest(self._key, to_sign.encode(), "sha256").hex()
        head = (
            f"POST / HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/x-amz-json-1.0\r\n"
            f"x-amz-date: {self._date}\r\nx-amz-target: {action_name}\r\n"
            f"authorization: AWS4-HMAC-SHA256 Credential={self._target.access_key_id}/{self._scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class HttpConnection(asyncio.Protocol):
    """One keep-alive connection; `ask` answers with (status, body)."""

    def __init__(self) -> None:
        self._buffer = b""
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        assert self._transport is not None and self._waiting is None, "one request at a time"
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._buffer[:head_end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 : (head.find(b"\r\n", at) + 1 or len(head) + 1) - 1]) if at >= 0 else 0
        end = head_end + 4 + length
        if len(self._buffer) >= end:
            body, self._buffer = self._buffer[head_end + 4 : end], self._buffer[end:]
            waiting, self._waiting = self._waiting, None
            if waiting is not None and not waiting.done():
                waiting.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def open_connections(host: str, port: int, count: int) -> list[HttpConnection]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(HttpConnection, host, port))[1] for _ in range(count)]


async def ask_sqs(
    connection: HttpConnection, signer: Signer, action: str, parameters: dict[str, Any]
) -> dict[str, Any]:
    """One action's answer. Raises RuntimeError where it is not a success."""
    status, body = await connection.ask(signer.request(action, json.dumps(parameters).encode()))
    if status != 200:
        raise RuntimeError(f"{action} answered {status}: {body[:300]!r}")
    answer: dict[str, Any] = json.loads(body) if body else {}
    return answer


async def cycle_until(
    connection: HttpConnection, signer: Signer, url: str, size: int, text: Callable[[], str], ends_s: float
) -> int:
    """Sends, receives and deletes, one message a call (`size` 1) or batches of `size`, until `ends_s` of perf_counter;
    how many messages went round. Raises RuntimeError where a call fails."""
    ask, cycled = partial(ask_sqs, connection, signer), 0
    while time.perf_counter() < ends_s:
        if size == 1:
            await ask("SendMessage", {"QueueUrl": url, "MessageBody": text()})
        else:
            entries = [{"Id": str(number), "MessageBody": text()} for number in range(size)]
            await ask("SendMessageBatch", {"QueueUrl": url, "Entries": entries})
        answer = await ask("ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": size})
        receipts = [message["ReceiptHandle"] for message in answer.get("Messages", ())]
        if size == 1 and receipts:
            await ask("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": receipts[0]})
        elif receipts:
            deletes = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
            await ask("DeleteMessageBatch", {"QueueUrl": url, "Entries": deletes})
        cycled += len(receipts)
    return cycled


async def request_rate(
    connections: list[HttpConnection], make: Callable[[int], bytes], seconds: float
) -> tuple[int, float]:
    """Requests answered with 200 within `seconds`, one in flight per connection: (count, seconds). Raises on others."""
    count = 0
    started = time.perf_counter()
    ends = started + seconds

    async def worker(connection: HttpConnection) -> None:
        nonlocal count
        while time.perf_counter() < ends:
            status, body = await connection.ask(make(count))
            if status != 200:
                raise RuntimeError(f"answered {status}: {body[:300]!r}")
            count += 1

    await asyncio.gather(*map(worker, connections))
    return count, time.perf_counter() - started
