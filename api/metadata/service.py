"""Lookups: from the cache while the change feed stands, read through to the database otherwise.

    live      LISTEN stands: answers are cached and invalidated, subscribers are told of every change
    not live  changes cannot be heard: nothing is cached, subscribers are cut off, so that they know it too
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from prometheus_client import Counter, Gauge

from api.metadata.store import MetadataStore, StoreUnavailable
from frontend.metadata.cache import Versioned, VersionedCache
from frontend.metadata.interface import MISS
from frontend.metadata.limits import (
    ACCOUNTS_CACHED_MAX,
    KEYS_CACHED_MAX,
    METADATA_FILL_ATTEMPTS_MAX,
    QUEUES_CACHED_MAX,
)
from frontend.metadata.messages import Change
from frontend.metadata.records import AccountRecord, KeyRecord, QueueRecord, RecordKind, split_queue_change_key

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Versioned)

_READS = Counter("penstock_metadata_database_reads_total", "Lookups that went to PostgreSQL.")
_LIVE = Gauge("penstock_metadata_feed_live", "1 while changes are heard from PostgreSQL.")
_SUBSCRIBERS = Gauge("penstock_metadata_subscribers", "Front ends that follow the change feed.")


class Subscriber:
    """Somebody who follows the feed."""

    def tell(self, change: Change) -> None:
        raise NotImplementedError

    def cut_off(self) -> None:
        raise NotImplementedError


class MetadataLookups:
    """The records, and who is told of their changes."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._keys: VersionedCache[str, KeyRecord] = VersionedCache(KEYS_CACHED_MAX)
        self._queues: VersionedCache[tuple[str, str], QueueRecord] = VersionedCache(QUEUES_CACHED_MAX)
        self._accounts: VersionedCache[str, AccountRecord] = VersionedCache(ACCOUNTS_CACHED_MAX)
        self._subscribers: set[Subscriber] = set()
        self.live = False

    async def key(self, access_key_id: str, fresh: bool) -> KeyRecord | None:
        return await self._get(self._keys, access_key_id, fresh, lambda: self._store.key(access_key_id))

    async def queue(self, account_id: str, name: str, fresh: bool) -> QueueRecord | None:
        key = (account_id, name)
        return await self._get(self._queues, key, fresh, lambda: self._store.queue(account_id, name))

    async def account(self, account_id: str, fresh: bool) -> AccountRecord | None:
        return await self._get(self._accounts, account_id, fresh, lambda: self._store.account(account_id))

    def subscribe(self, subscriber: Subscriber) -> None:
        """Only while live."""
        assert self.live
        self._subscribers.add(subscriber)
        _SUBSCRIBERS.set(len(self._subscribers))

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        _SUBSCRIBERS.set(len(self._subscribers))

    # --- what the listener reports ---

    def feed_live(self) -> None:
        self._drop()
        self.live = True
        _LIVE.set(1)

    def feed_lost(self) -> None:
        self.live = False
        _LIVE.set(0)
        self._drop()
        for subscriber in list(self._subscribers):
            subscriber.cut_off()

    def changed(self, change: Change) -> None:
        """Own cache first: who hears of a change and asks again must not get the old record."""
        if change.kind == RecordKind.QUEUE:
            self._queues.invalidate(split_queue_change_key(change.key), change.version)
        elif change.kind == RecordKind.KEY:
            self._keys.invalidate(change.key, change.version)
        elif change.kind == RecordKind.ACCOUNT:
            self._accounts.invalidate(change.key, change.version)
        for subscriber in list(self._subscribers):
            subscriber.tell(change)

    def _drop(self) -> None:
        self._keys.drop()
        self._queues.drop()
        self._accounts.drop()

    async def _get(
        self, cache: VersionedCache[K, R], key: K, fresh: bool, read: Callable[[], Awaitable[R | None]]
    ) -> R | None:
        if not self.live:
            _READS.inc()
            return await read()
        if not fresh:
            known = cache.get(key, _now_ms())
            if known is not MISS:
                return known
        for _ in range(METADATA_FILL_ATTEMPTS_MAX):
            fill = cache.begin(key)
            _READS.inc()
            try:
                record = await read()
            except BaseException:
                cache.abandon(fill)
                raise
            if cache.finish(fill, record, _now_ms()):
                return record
        raise StoreUnavailable("the record changes faster than it can be read")


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
