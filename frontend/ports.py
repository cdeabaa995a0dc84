"""How uvicorn is configured for each port."""

from __future__ import annotations

from typing import Any, TypeVar

import uvicorn

from frontend.limits import (
    CONNECTIONS_BACKLOG_MAX,
    KEEP_ALIVE_S,
    SHUTDOWN_GRACE_S,
    SOCKET_FRAME_BYTES_MAX,
    SOCKET_PING_S,
)
from frontend.listening import allow_open_files
from frontend.push.connection import BoundedSocketProtocol
from frontend.server import BoundedHttpProtocol

C = TypeVar("C", bound=uvicorn.Config)


def public_config(kind: type[C], application: Any, host: str, port: int, trusted_proxies: str = "") -> C:
    """The public endpoint."""
    BoundedHttpProtocol.connections_max = allow_open_files()
    return kind(
        application,
        host=host,
        port=port,
        loop="none",
        http=BoundedHttpProtocol,
        ws=BoundedSocketProtocol,
        ws_max_size=SOCKET_FRAME_BYTES_MAX,
        ws_ping_interval=SOCKET_PING_S,
        ws_ping_timeout=SOCKET_PING_S,
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies or None,
        backlog=CONNECTIONS_BACKLOG_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )


def small_config(application: Any, host: str, port: int) -> uvicorn.Config:
    """A port with little behind it: the operators' (/metrics and /healthz), and the one that sends to https."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        loop="none",
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
