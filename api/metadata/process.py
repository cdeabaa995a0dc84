"""Puts the service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

import structlog

from api.metadata.listener import follow_forever
from api.metadata.server import MetadataServer
from api.metadata.service import MetadataLookups
from api.metadata.store import MetadataStore
from api.observability import serve_operators_port
from storage_nodes.trust.credentials import Credentials
from storage_nodes.trust.names import InnerRole
from storage_nodes.trust.port import NamedPort

_log = structlog.get_logger(__name__)


class MetadataSettings(NamedTuple):
    database_url: str
    cluster_id: str
    host: str
    port: int
    metrics_host: str
    metrics_port: int | None
    credentials: Credentials | None = None


class MetadataProcess:
    """`start` returns when the port takes connections; the database may come later."""

    def __init__(self, settings: MetadataSettings) -> None:
        self._settings = settings
        self._store = MetadataStore(settings.database_url)
        self.lookups = MetadataLookups(self._store)
        self._connections: set[MetadataServer] = set()
        self._servers: list[asyncio.Server] = []
        self._listener: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        settings = self._settings
        lookups = self.lookups
        lookups.start()
        self._listener = asyncio.create_task(follow_forever(settings.database_url, lookups), name="metadata-feed")
        loop = asyncio.get_running_loop()

        def serve() -> asyncio.Protocol:
            return MetadataServer(lookups, settings.cluster_id, self._connections)

        credentials = settings.credentials
        accept = serve if credentials is None else NamedPort(credentials, InnerRole.METADATA).over(serve)
        server = await loop.create_server(accept, settings.host, settings.port)
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]
        if settings.metrics_port is not None:
            operators = await serve_operators_port(settings.metrics_host, settings.metrics_port, self.healthy)
            self._servers.append(operators)
        _log.info("metadata_started", host=settings.host, port=self.port)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.cut_off()
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        await self._store.drop_connections()
        await self.lookups.close()

    async def healthy(self) -> tuple[bool, str]:
        """A copy answers, also while PostgreSQL is away."""
        if self.lookups.live:
            return True, "ok"
        why = "takes no more connections" if self.lookups.is_refused else "does not answer"
        if self.lookups.is_outdated:
            return False, f"PostgreSQL {why}, and the copy of the records is too old"
        if self.lookups.loaded:
            return True, f"degraded: PostgreSQL {why}, records are served from the copy"
        return False, f"PostgreSQL {why}, and there is no copy of the records yet"
