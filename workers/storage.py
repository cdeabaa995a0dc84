"""One storage client per worker process, on an event loop of its own thread; tasks call it from theirs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from api.settings.environment import environment
from storage_nodes.client.storage_client import StorageClient
from storage_nodes.trust.credentials import own_credentials
from workers import limits

S = TypeVar("S", covariant=True)
T = TypeVar("T")


class StorageRunner(Protocol[S]):
    """Runs work with what it needs of a storage client, in bounded time. `StorageThread` is one."""

    def run(self, work: Callable[[S], Awaitable[T]], timeout_s: float) -> T: ...


class StorageThread:
    """The loop, its thread, and the client that lives there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="storage-client", daemon=True)
        self._thread.start()
        env = environment()
        self.client = asyncio.run_coroutine_threadsafe(self._open(env.cluster_id), self._loop).result()

    def run(self, work: Callable[[StorageClient], Awaitable[T]], timeout_s: float) -> T:
        """Runs `work` with the client. Raises what it raises, or TimeoutError; the work is then cancelled."""

        async def bounded() -> T:
            async with asyncio.timeout(timeout_s):
                return await work(self.client)

        return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()

    def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self.client.close(), self._loop).result(limits.STORAGE_STOP_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(limits.STORAGE_STOP_S_MAX)

    async def _open(self, cluster_id: str) -> StorageClient:
        credentials = own_credentials(cluster_id)
        client = StorageClient(cluster_id, environment().nodes(), "worker", credentials=credentials)
        await client.start()
        return client


_lock = threading.Lock()
_storage: StorageThread | None = None


def storage() -> StorageThread:
    """Opened by the first task that needs it."""
    global _storage
    with _lock:
        if _storage is None:
            _storage = StorageThread()
        return _storage


def close_storage() -> None:
    global _storage
    with _lock:
        opened, _storage = _storage, None
    if opened is not None:
        opened.close()
