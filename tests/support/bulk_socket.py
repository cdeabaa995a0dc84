"""Bulk sockets: a client of one, which drives the ASGI application without a connection, and what its tests share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.frontend_plane import HOST, Installation
from tests.support.settling import settle

JSON, MSGPACK = "penstock.bulk.json", "penstock.bulk.msgpack"
# The policy of a key.
SEND_ONLY = json.dumps(
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}}
)


class BulkSocket:
    """A client of one bulk socket."""

    def __init__(
        self,
        front: Installation,
        queue: str,
        subprotocols: list[str],
        token: str | None,
        of_account: str = "",
        **headers: str,
    ) -> None:
        """`of_account`: the path names it."""
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.is_binary = subprotocols[:1] == [MSGPACK]
        self.is_stuck = False  # it reads nothing more
        self.is_gone = False  # what is sent to it fails
        if token is not None:
            headers["authorization"] = f"Bearer {token or front.key.bearer_token}"
        scope = {
            "type": "websocket",
            "path": f"/v1/accounts/{of_account}/queues/{queue}/bulk" if of_account else f"/v1/queues/{queue}/bulk",
            "headers": [(b"host", HOST.encode()), *((n.encode(), v.encode()) for n, v in headers.items())],
            "query_string": b"",
            "subprotocols": subprotocols,
        }
        self.incoming.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(front.application(scope, self.incoming.get, self._send))  # type: ignore[arg-type]

    async def _send(self, message: dict[str, Any]) -> None:
        while self.is_stuck and message["type"] == "websocket.send":
            await asyncio.sleep(3600)
        if self.is_gone:
            raise OSError("the client has gone")
        self.sent.append(message)
        if message["type"] == "websocket.close":
            assert 0 < len(message["reason"].encode()) <= 123, "a close says why"
            self.incoming.put_nowait({"type": "websocket.disconnect", "code": message["code"]})
        elif message["type"] == "websocket.http.response.body":
            self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def say(self, frame: Any) -> None:
        raw = frame
        if not isinstance(frame, bytes | str):
            raw = msgspec.msgpack.encode(frame) if self.is_binary else json.dumps(frame)
        self.incoming.put_nowait({"type": "websocket.receive", "bytes" if isinstance(raw, bytes) else "text": raw})

    def publish(self, seq: int, *bodies: str, **more: Any) -> None:
        self.say({"type": "publish", "seq": seq, "messages": [{"body": body} for body in bodies], **more})

    async def leave(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self.task, 5)

    def of(self, kind: str) -> list[dict[str, Any]]:
        sent = [message for message in self.sent if message["type"] == "websocket.send"]
        if self.is_binary:
            frames = [msgspec.msgpack.decode(message["bytes"]) for message in sent]
        else:
            frames = [json.loads(message["text"]) for message in sent]
        return [frame for frame in frames if frame["type"] == kind]

    async def first(self, kind: str) -> dict[str, Any]:
        await settle(lambda: bool(self.of(kind)))
        return self.of(kind)[0]

    def bodies(self) -> list[str]:
        return [one["body"] for frame in self.of("messages") for one in frame["messages"]]

    @property
    def refused(self) -> tuple[int, str]:
        start, body = self.sent
        return start["status"], json.loads(body["body"])["code"]

    @property
    def closed(self) -> tuple[int, str]:
        return next(((m["code"], m["reason"]) for m in self.sent if m["type"] == "websocket.close"), (0, ""))


def gate_storage(front: Installation) -> asyncio.Event:
    """Storage takes nothing until this is set."""
    gate = asyncio.Event()
    send = front.storage.send

    async def slow(*arguments: Any) -> Any:
        await gate.wait()
        return await send(*arguments)

    front.storage.send = slow  # type: ignore[method-assign]
    return gate


@pytest.fixture
async def sockets(front: Installation) -> AsyncIterator[Any]:
    opened: list[BulkSocket] = []

    def connect(
        queue: str = "orders",
        subprotocols: tuple[str, ...] = (MSGPACK,),
        token: str | None = "",
        at: Installation | None = None,
        **headers: str,
    ) -> BulkSocket:
        opened.append(BulkSocket(at or front, queue, list(subprotocols), token, **headers))
        return opened[-1]

    yield connect
    for socket in opened:
        if not socket.task.done():
            await socket.leave()
    assert front.plane.sockets.calls == front.plane.open_sockets.calls == front.plane.bulk_sends.calls == 0
