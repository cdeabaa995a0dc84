"""The yardstick: a bare ASGI callable that reads a POST body and answers 200, under the same server settings."""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

_ANSWER = b'{"MessageId":"00000000-0000-0000-0000-000000000000"}'


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _ANSWER})


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = uvicorn.Config(application, http="httptools", loop="uvloop", access_log=False, log_level="warning")
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
