"""The front end's client of the metadata service: cached lookups, kept true by the change feed.

    connected       cache answers; misses ask the service, one lookup per key at a time. The service may have lost
                    PostgreSQL: then nothing changes, and cache and service answer without a deadline. If it is
                    refused by a PostgreSQL that is there, both have the deadline
    disconnected    cache answers up to METADATA_STALENESS_MS_MAX, then it is dropped; misses are refused
    reconnected     the service tells what was missed, or this client asks which of its records are out of date. The
                    deadline runs until that is done, unless the service has no copy because PostgreSQL was away
                    whenever it looked. One that reaches PostgreSQL and cannot load lifts no deadline: keys may be
                    revoked meanwhile

The `cached_*` calls never wait and look at no clock but the negative entries'; the staleness bound is a timer, so
a hit costs one dictionary lookup.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Literal, TypeVar, cast

import structlog

from frontend.metadata.cache import Versioned, VersionedCache
from frontend.metadata.connection import ConnectionLost, MetadataConnection, Pushed, open_connection
from frontend.metadata.interface import MISS, MetadataUnavailable, Missing
from frontend.metadata.limits import (
    ACCOUNTS_CACHED_MAX,
    ENCRYPTION_KEYS_CACHED_MAX,
    KEYS_CACHED_MAX,
    METADATA_BACKOFF_MS_MAX,
    METADATA_BACKOFF_MS_MIN,
    METADATA_COMPARE_JITTER_MS,
    METADATA_COMPARE_RECORDS_MAX,
    METADATA_CONNECT_TIMEOUT_MS,
    METADATA_FILL_ATTEMPTS_MAX,
    METADATA_LOOKUPS_AHEAD_MAX,
    METADATA_RECONNECT_WAIT_MS,
    METADATA_STALENESS_MS_MAX,
    QUEUES_CACHED_MAX,
)
from frontend.metadata.messages import (
    AccountReply,
    Change,
    Compare,
    CompareReply,
    EncryptionKeyReply,
    FeedState,
    GetAccount,
    GetEncryptionKey,
    GetKey,
    GetQueue,
    KeyReply,
    MetadataOpcode,
    QueueReply,
    Subscribe,
    UseReport,
    UseShares,
)
from frontend.metadata.records import (
    AccountRecord,
    EncryptionKeyRecord,
    KeyRecord,
    QueueRecord,
    RecordKind,
    queue_change_key,
    split_queue_change_key,
)
from frontend.metadata.shares import Shares
from frontend.readiness import Trouble
from storage_nodes.trust.connection import PeerRefused
from storage_nodes.trust.credentials import Credentials

_log = structlog.get_logger("frontend.metadata")
K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Versioned)

__all__ = ["MISS", "MetadataClient", "MetadataUnavailable"]


class MetadataClient:
    """`start` returns whether or not the service is there; calls then raise MetadataUnavailable until it is."""

    def __init__(
        self,
        host: str,
        port: int,
        cluster_id: str,
        name: str = "frontend",
        staleness_ms: int = METADATA_STALENESS_MS_MAX,
        credentials: Credentials | None = None,
    ) -> None:
        self._address = (host, port)
        self._credentials = credentials
        self._cluster_id = cluster_id
        self._name = name
        self._staleness_ms = staleness_ms
        self._keys: VersionedCache[str, KeyRecord] = VersionedCache(KEYS_CACHED_MAX)
        self._queues: VersionedCache[tuple[str, str], QueueRecord] = VersionedCache(QUEUES_CACHED_MAX)
        self._accounts: VersionedCache[str, AccountRecord] = VersionedCache(ACCOUNTS_CACHED_MAX)
        self._encryption_keys: VersionedCache[str, EncryptionKeyRecord] = VersionedCache(ENCRYPTION_KEYS_CACHED_MAX)
        self._flights: dict[tuple[str, Hashable], asyncio.Task[object]] = {}
        self._shares = Shares()
        self._connection: MetadataConnection | None = None
        self._connected = asyncio.Event()
        # How far the feed was heard: everything up to the change of this number, in an epoch of the service ("" where
        # something may have been missed); and what the service said last on this connection.
        self._epoch = ""
        self._sequence = 0
        self._state: FeedState | None = None
        self._comparison: asyncio.Task[None] | None = None
        self._lost_at_ms = 0
        self._lost_since_ms = _unix_ms()
        self._stale_timer: asyncio.TimerHandle | None = None
        self._runner: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def serves(self) -> bool:
        """Can any message be sent or received with what is known here, or with what can be asked?"""
        state = self._state
        if self._connection is not None and state is not None and (state.loaded or not state.database_lost_at_ms):
            return True
        return len(self._keys) > 0

    async def look(self) -> None:
        """Before `troubles`: a service that hangs says nothing, so it is asked. Takes METADATA_ALIVE_MS_MAX at most."""
        if self._connection is not None:
            await self._connection.look()

    def troubles(self) -> list[Trouble]:
        """What is not as it should be, and since when."""
        connection = self._connection
        if connection is None:
            return [Trouble("metadata service", "It is not reachable.", self._lost_since_ms)]
        if connection.is_silent:
            return [Trouble("metadata service", "It does not answer.", _unix_ms() - connection.silent_ms)]
        lost_at_ms = 0 if self._state is None else self._state.database_lost_at_ms
        if not lost_at_ms:
            return []
        reason = "PostgreSQL does not answer the metadata service: nothing can be changed."
        if self._state is not None and self._state.refused:
            reason = "PostgreSQL takes no more connections: the metadata service does not hear of changes."
        return [Trouble("PostgreSQL", reason, lost_at_ms)]

    async def start(self) -> None:
        """Connects in the background; waits a moment for the first connection."""
        assert self._runner is None
        self._lost_at_ms = _now_ms()
        self._runner = asyncio.create_task(self._keep_connected(), name="metadata-connection")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(METADATA_CONNECT_TIMEOUT_MS / 1000):
                await self._connected.wait()

    async def close(self) -> None:
        if self._stale_timer is not None:
            self._stale_timer.cancel()
        if self._comparison is not None:
            self._comparison.cancel()
        if self._runner is None:
            return
        self._runner.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._runner
        self._runner = None

    # --- lookups ---

    def cached_key(self, access_key_id: str) -> KeyRecord | Literal[Missing.MISS] | None:
        return self._keys.held(access_key_id) or self._keys.get(access_key_id, _now_ms())

    def cached_queue(self, account_id: str, name: str) -> QueueRecord | Literal[Missing.MISS] | None:
        key = (account_id, name)
        return self._queues.held(key) or self._queues.get(key, _now_ms())

    def cached_account(self, account_id: str) -> AccountRecord | Literal[Missing.MISS] | None:
        return self._accounts.get(account_id, _now_ms())

    def cached_encryption_key(self, key_id: str) -> EncryptionKeyRecord | Literal[Missing.MISS] | None:
        return self._encryption_keys.get(key_id, _now_ms())

    async def get_key(self, access_key_id: str) -> KeyRecord | None:
        # Whose key it is, if anybody's, is not known yet: all key look-ups have one share together.
        return await self._get(RecordKind.KEY, self._keys, access_key_id, "", lambda: self._ask_key(access_key_id))

    async def get_queue(self, account_id: str, name: str) -> QueueRecord | None:
        key = (account_id, name)
        ask = partial(self._ask_queue, key, fresh=False)
        return await self._get(RecordKind.QUEUE, self._queues, key, account_id, ask)

    async def get_account(self, account_id: str) -> AccountRecord | None:
        ask = partial(self._ask_account, account_id)
        return await self._get(RecordKind.ACCOUNT, self._accounts, account_id, account_id, ask)

    async def get_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        ask = partial(self._ask_encryption_key, key_id, fresh=False)
        return await self._get(RecordKind.ENCRYPTION_KEY, self._encryption_keys, key_id, account_id, ask)

    async def refresh_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        ask = partial(self._ask_encryption_key, key_id, fresh=True)
        fill = self._fill(self._encryption_keys, key_id, account_id, ask)
        return await asyncio.create_task(fill, name="metadata-refresh")

    async def refresh_queue(self, account_id: str, name: str) -> QueueRecord | None:
        """As the database says now, past every cache; use after a change that was just answered."""
        key = (account_id, name)
        # A task, which its deadlines need: a hot request is none (frontend/express).
        ask = partial(self._ask_queue, key, fresh=True)
        return await asyncio.create_task(self._fill(self._queues, key, account_id, ask), name="metadata-refresh")

    async def look_up_queue(self, asker: str, account_id: str, name: str) -> QueueRecord | None:
        key = (account_id, name)
        ask = partial(self._ask_queue, key, fresh=False, confirmed=True)
        return await asyncio.create_task(self._fill(self._queues, key, asker, ask), name="metadata-look-up")

    async def repeat_look_up(self, asker: str, account_id: str, name: str) -> None:
        await asyncio.create_task(self._ask_in_turn(asker, (account_id, name)), name="metadata-look-up")

    async def report_use(self, report: UseReport) -> UseShares:
        """Raises MetadataUnavailable."""
        reply = await self._live().ask(MetadataOpcode.REPORT_USE, report)
        assert isinstance(reply, UseShares)
        return reply

    async def _get(
        self,
        kind: RecordKind,
        cache: VersionedCache[K, R],
        key: K,
        share: str,
        ask: Callable[[], Awaitable[R | None]],
    ) -> R | None:
        record = cache.get(key, _now_ms())
        if record is not MISS:
            return record
        return cast("R | None", await asyncio.shield(self._fly(kind, cache, key, share, ask)))

    def _fly(
        self,
        kind: RecordKind,
        cache: VersionedCache[K, R],
        key: K,
        share: str,
        ask: Callable[[], Awaitable[R | None]],
    ) -> asyncio.Task[object]:
        """The look-up of a record, one for all who ask. A task of its own: whoever gave up waiting must not take the
        answer away from the others."""
        flight_key = (kind, key)
        flight = self._flights.get(flight_key)
        if flight is None:
            flight = asyncio.create_task(self._fill(cache, key, share, ask), name="metadata-lookup")
            self._flights[flight_key] = flight
            flight.add_done_callback(lambda done: self._land(flight_key, done))
        return flight

    def _land(self, flight_key: tuple[str, Hashable], flight: asyncio.Task[object]) -> None:
        del self._flights[flight_key]
        if not flight.cancelled():
            flight.exception()  # marks it as seen where every waiter has left

    async def _fill(
        self, cache: VersionedCache[K, R], key: K, share: str, ask: Callable[[], Awaitable[R | None]]
    ) -> R | None:
        async with self._shares.turn(share):
            return await self._fill_in_turn(cache, key, ask)

    async def _fill_in_turn(
        self, cache: VersionedCache[K, R], key: K, ask: Callable[[], Awaitable[R | None]]
    ) -> R | None:
        for _ in range(METADATA_FILL_ATTEMPTS_MAX):
            await self._wait_connected()
            fill = cache.begin(key)
            try:
                record = await ask()
            except ConnectionLost:
                cache.abandon(fill)
                await asyncio.sleep(METADATA_BACKOFF_MS_MIN / 1000)  # until its loss is noted, or the next one is there
                continue
            except BaseException:
                cache.abandon(fill)
                raise
            if cache.finish(fill, record, _now_ms()):
                return record
        raise MetadataUnavailable("the record changes, or the connection breaks, faster than it can be read")

    async def _ask_in_turn(self, share: str, key: tuple[str, str]) -> None:
        async with self._shares.turn(share):
            for _ in range(METADATA_FILL_ATTEMPTS_MAX):
                await self._wait_connected()
                try:
                    await self._ask_queue(key, fresh=False, confirmed=True)
                except ConnectionLost:
                    await asyncio.sleep(METADATA_BACKOFF_MS_MIN / 1000)
                    continue
                return
        raise MetadataUnavailable("the connection breaks faster than a record can be read")

    async def _ask_key(self, access_key_id: str) -> KeyRecord | None:
        reply = await self._live().ask(MetadataOpcode.GET_KEY, GetKey(access_key_id))
        assert isinstance(reply, KeyReply)
        return reply.record

    async def _ask_queue(self, key: tuple[str, str], fresh: bool, confirmed: bool = False) -> QueueRecord | None:
        reply = await self._live().ask(MetadataOpcode.GET_QUEUE, GetQueue(key[0], key[1], fresh, confirmed))
        assert isinstance(reply, QueueReply)
        return reply.record

    async def _ask_account(self, account_id: str) -> AccountRecord | None:
        reply = await self._live().ask(MetadataOpcode.GET_ACCOUNT, GetAccount(account_id))
        assert isinstance(reply, AccountReply)
        return reply.record

    async def _ask_encryption_key(self, key_id: str, fresh: bool) -> EncryptionKeyRecord | None:
        reply = await self._live().ask(MetadataOpcode.GET_ENCRYPTION_KEY, GetEncryptionKey(key_id, fresh))
        assert isinstance(reply, EncryptionKeyReply)
        return reply.record

    # --- connection and feed ---

    def _live(self) -> MetadataConnection:
        if self._connection is None:
            raise MetadataUnavailable("the metadata service is not reachable")
        return self._connection

    async def _wait_connected(self) -> None:
        """A restart of the service is ridden out; a longer outage refuses at once."""
        if self._connection is not None:
            return
        left_ms = self._lost_at_ms + METADATA_RECONNECT_WAIT_MS - _now_ms()
        if left_ms > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await self._connected.wait()

    async def _keep_connected(self) -> None:
        backoff_ms, refusal = METADATA_BACKOFF_MS_MIN, ""
        host, port = self._address
        while True:
            self._state = None
            try:
                heard = Subscribe(self._epoch, self._sequence)
                connection = await open_connection(
                    host, port, self._cluster_id, self._name, heard, self._hear, self._credentials
                )
            except (MetadataUnavailable, OSError) as error:
                if isinstance(error, PeerRefused) and str(error) != refusal:
                    refusal = str(error)
                    _log.error("metadata_service_refused", reason=refusal)
                await asyncio.sleep(random.uniform(0.5, 1.0) * backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, METADATA_BACKOFF_MS_MAX)
                continue
            backoff_ms = METADATA_BACKOFF_MS_MIN
            self._attach(connection)
            try:
                await connection.lost
            finally:
                connection.close()
                self._detach()

    def _attach(self, connection: MetadataConnection) -> None:
        self._connection = connection
        self._connected.set()
        if self._state is not None:
            self._follow(self._state)

    def _detach(self) -> None:
        self._connection = None
        self._connected.clear()
        self._lost_at_ms, self._lost_since_ms = _now_ms(), _unix_ms()
        if self._comparison is not None:
            self._comparison.cancel()
        self._limit_caches()

    def _hear(self, pushed: Pushed) -> None:
        self._sequence = pushed.sequence
        if isinstance(pushed, Change):
            self._changed(pushed)
            return
        self._state = pushed
        if pushed.missed or pushed.epoch != self._epoch:
            self._epoch = ""
        if self._connection is not None:
            self._follow(pushed)

    def _follow(self, state: FeedState) -> None:
        """How long may the cache be used, and what has to be done for that?"""
        if state.refused:
            self._limit_caches()  # what is changed now is told when the service hears of it
        elif self._epoch == state.epoch:
            self._trust_caches()
        elif state.loaded:
            self._limit_caches()
            if self._comparison is None or self._comparison.done():
                self._comparison = asyncio.create_task(self._compare(state.epoch), name="metadata-comparison")
        elif state.never_reached:
            self._trust_caches()  # it cannot say what was missed; while PostgreSQL is away nothing more is
        else:
            self._limit_caches()

    def _limit_caches(self) -> None:
        if self._stale_timer is None:  # else it runs since an earlier loss, after which nothing was made good
            loop = asyncio.get_running_loop()
            self._stale_timer = loop.call_later(self._staleness_ms / 1000, self._drop_caches)

    def _trust_caches(self) -> None:
        if self._stale_timer is not None:
            self._stale_timer.cancel()
            self._stale_timer = None

    async def _compare(self, epoch: str) -> None:
        """Asks which of the records held here are out of date, and forgets those. A failure is made good at the next
        heartbeat."""
        queues = [(queue_change_key(*key), version) for key, version in self._queues.versions()]
        held = [(RecordKind.KEY, self._keys.versions()), (RecordKind.ACCOUNT, self._accounts.versions())]
        held += ((RecordKind.QUEUE, queues), (RecordKind.ENCRYPTION_KEY, self._encryption_keys.versions()))
        if any(records for _, records in held):
            await asyncio.sleep(random.uniform(0, METADATA_COMPARE_JITTER_MS) / 1000)
        try:
            for kind, records in held:
                for start in range(0, len(records), METADATA_COMPARE_RECORDS_MAX):
                    await self._compare_some(kind, records[start : start + METADATA_COMPARE_RECORDS_MAX])
        except MetadataUnavailable:
            return
        if self._state is not None and self._state.epoch == epoch and not self._state.refused:
            self._epoch = epoch
            self._trust_caches()

    async def _compare_some(self, kind: RecordKind, records: list[tuple[str, int]]) -> None:
        asked = Compare(kind.value, [key for key, _ in records], [version for _, version in records])
        reply = await self._live().ask(MetadataOpcode.COMPARE, asked)
        assert isinstance(reply, CompareReply)
        versions = dict(records)
        for key in reply.outdated:
            self._changed(Change(kind.value, key, versions[key] + 1))

    def _drop_caches(self) -> None:
        self._stale_timer = None
        self._epoch = ""
        self._keys.drop()
        self._queues.drop()
        self._accounts.drop()
        self._encryption_keys.drop()

    def _changed(self, change: Change) -> None:
        if change.kind == RecordKind.QUEUE:
            self._queues.invalidate(split_queue_change_key(change.key), change.version)
        elif change.kind == RecordKind.KEY:
            self._keys.invalidate(change.key, change.version)
        elif change.kind == RecordKind.ACCOUNT:
            self._account_changed(change)
        elif change.kind == RecordKind.ENCRYPTION_KEY:
            self._encryption_keys.invalidate(change.key, change.version)

    def _account_changed(self, change: Change) -> None:
        """Quotas and stops are taken from what is at hand, without waiting: so what is known of an account is asked for
        again at once. Else the first request after any time would pass under what held before."""
        account_id, was_held = change.key, self._accounts.held(change.key) is not None
        self._accounts.invalidate(account_id, change.version)
        if was_held and self._accounts.held(account_id) is None and len(self._flights) < METADATA_LOOKUPS_AHEAD_MAX:
            ask = partial(self._ask_account, account_id)
            self._fly(RecordKind.ACCOUNT, self._accounts, account_id, account_id, ask)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _unix_ms() -> int:
    return int(time.time() * 1000)
