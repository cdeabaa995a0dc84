"""A client of the push consumer, which is driven as an ASGI application."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.support.frontend_plane import HOST, Installation


class Socket:
    """A client of one websocket."""

    def __init__(self, front: Installation, queue: str, headers: dict[str, str], wire: str = "subscribe") -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        scope = {
            "type": "websocket",
            "path": f"/v1/queues/{queue}/{wire}",
            "headers": [(b"host", HOST.encode()), *((n.encode(), v.encode()) for n, v in headers.items())],
            "query_string": b"",
        }
        self.incoming.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(front.application(scope, self.incoming.get, self._send))  # type: ignore[arg-type]

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if message["type"] == "websocket.close":
            assert 0 < len(message["reason"].encode()) <= 123, "a close says why"
            self.incoming.put_nowait({"type": "websocket.disconnect", "code": message["code"]})
        elif message["type"] == "websocket.http.response.body":
            self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def say(self, frame: Any) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)
        self.incoming.put_nowait({"type": "websocket.receive", "text": text})

    async def leave(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self.task, 5)

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == kind]

    @property
    def refused(self) -> tuple[int, str]:
        """Status and problem of the answer to the upgrade."""
        start, body = self.sent
        assert (b"content-type", b"application/problem+json") in start["headers"]
        return start["status"], json.loads(body["body"])["code"]

    @property
    def detail(self) -> str:
        """What the answer to the upgrade says."""
        told: str = json.loads(self.sent[-1]["body"])["detail"]
        return told

    @property
    def close_reason(self) -> str:
        return next((message["reason"] for message in self.sent if message["type"] == "websocket.close"), "")

    @property
    def close_code(self) -> int | None:
        return next((message["code"] for message in self.sent if message["type"] == "websocket.close"), None)
