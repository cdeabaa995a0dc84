"""The database side: one parameterised statement per kind of record. Reads only.

A few connections, made when they are needed and thrown away when they fail: nothing here waits for a database that is
away, and nothing has to recover when it is back. Whether it is there is the listener's to find out (`listener.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
import psycopg

from api import limits
from api.database_probe import is_full
from api.metadata.holding import EncodedRecord
from api.metadata.rows import (
    ENCRYPTION_KEY,
    ENCRYPTION_KEYS,
    QUEUE,
    QUEUES,
    encryption_key_record,
    queue_record,
    quotas_in,
)
from frontend.metadata.messages import AccountReply, Change, EncryptionKeyReply, KeyReply, QueueReply
from frontend.metadata.records import (
    OWN_POLICY,
    AccountRecord,
    KeyRecord,
    PolicyRecord,
    RecordKind,
    queue_change_key,
    split_queue_change_key,
)
from storage_nodes.protocol.messages import encode_message

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]

_KEYS = """
SELECT k.access_key_id, k.account_id, k.name, k.secret_sealed, k.bearer_hash, k.active AND a.active,
       floor(extract(epoch FROM k.expires_at) * 1000)::bigint, k.version,
       r.key_id IS NOT NULL, r.policy, r.tags::text, p.names, p.texts, s.given::text
  FROM access_key k JOIN account a ON a.id = k.account_id
  LEFT JOIN iam_key_access r ON r.key_id = k.access_key_id
  LEFT JOIN quota_key s ON s.key_id = k.access_key_id
  CROSS JOIN LATERAL (
       SELECT array_agg(named.name ORDER BY named.name) AS names, array_agg(named.text ORDER BY named.name) AS texts
         FROM iam_policy_attachment t JOIN iam_policy named ON named.id = t.policy_id
        WHERE t.key_id = r.key_id) p
"""
# The installation's own quotas come as a record of their own.
_ACCOUNTS = """
SELECT * FROM (
       SELECT a.id, a.name, a.active, a.version, a.auto_create_queues, q.given::text, q.sending_stopped,
              EXISTS (SELECT 1 FROM quota_queue s JOIN queue ON queue.id = s.queue_id
                       WHERE s.account_id = a.id AND queue.state <> 'deleted'),
              q.sends_per_s, q.held_reason
         FROM account a LEFT JOIN quota_holder q ON q.holder = a.id
       UNION ALL
       SELECT q.holder, '', true, q.version, false, q.given::text, '', false, 0, '' FROM quota_holder q
        WHERE q.holder = 'installation') records
"""
# The source is another after a restore, and after a standby took over: what was read before says nothing about it.
_POSITION = """
SELECT concat_ws('/', s.system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
                 'feed_change'::regclass::oid),
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       (SELECT min(transaction) FROM feed_change)
  FROM pg_control_system() s
"""
_CHANGES = "SELECT kind, key, version, transaction FROM feed_change WHERE transaction >= %s ORDER BY version"


_tags = msgspec.json.Decoder(dict[str, str]).decode


class StoreUnavailable(Exception):
    """The database does not answer now."""


class StoreFull(StoreUnavailable):
    """The database is there, and takes no more connections: what it holds may change meanwhile."""


class TooManyConnections(psycopg.OperationalError):
    """PostgreSQL refused a connection because all are in use (SQLSTATE 53300)."""


class FeedPosition(NamedTuple):
    """How far the log of changes was read: every transaction below `horizon` had ended, and was seen."""

    source: str
    horizon: int


class Missed(NamedTuple):
    """What came since a position: every change of it, and the new position. `again`: those that may be read twice."""

    position: FeedPosition
    changes: list[Change]
    again: set[int]


def _key_row(row: Sequence[Any]) -> EncodedRecord:
    is_restricted, own, tags, names, texts, quotas = row[8:]
    policies = None
    if is_restricted:
        attached = (PolicyRecord(*one) for one in zip(names or (), texts or (), strict=True))
        policies = [*((PolicyRecord(OWN_POLICY, own),) if own else ()), *attached]
    fields: list[Any] = [*row[:8], policies, _tags(tags) if tags else {}, quotas_in(quotas)]
    record = KeyRecord(*fields)
    return EncodedRecord(row[0], row[7], encode_message(KeyReply(record)))


def _account_row(row: Sequence[Any]) -> EncodedRecord:
    fields: list[Any] = [*row[:5], quotas_in(row[5]), row[6] or "", row[7], row[8] or 0, row[9] or ""]
    return EncodedRecord(row[0], row[3], encode_message(AccountReply(AccountRecord(*fields))))


def _queue_row(row: Sequence[Any]) -> EncodedRecord:
    record = queue_record(row)
    return EncodedRecord(
        queue_change_key(record.account_id, record.name), record.version, encode_message(QueueReply(record))
    )


def _encryption_key_row(row: Sequence[Any]) -> EncodedRecord:
    record = encryption_key_record(row)
    return EncodedRecord(record.key_id, record.version, encode_message(EncryptionKeyReply(record)))


_ROW_OF: dict[RecordKind, Callable[[Sequence[Any]], EncodedRecord]] = {
    RecordKind.KEY: _key_row,
    RecordKind.ACCOUNT: _account_row,
    RecordKind.QUEUE: _queue_row,
    RecordKind.ENCRYPTION_KEY: _encryption_key_row,
}
_ALL: dict[RecordKind, str] = {
    RecordKind.ACCOUNT: _ACCOUNTS,
    RecordKind.KEY: _KEYS,
    RecordKind.QUEUE: QUEUES,
    RecordKind.ENCRYPTION_KEY: ENCRYPTION_KEYS,
}
_ONE: dict[RecordKind, str] = {
    RecordKind.ACCOUNT: _ACCOUNTS + " WHERE id = %s",
    RecordKind.KEY: _KEYS + " WHERE k.access_key_id = %s",
    RecordKind.QUEUE: QUEUE,
    RecordKind.ENCRYPTION_KEY: ENCRYPTION_KEY,
}


class MetadataStore:
    """Every call may raise StoreUnavailable."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._places = asyncio.Semaphore(limits.METADATA_CONNECTIONS_MAX)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._reads: set[asyncio.Task[Any]] = set()

    async def row(self, kind: RecordKind, key: str) -> EncodedRecord | None:
        """The record as it is in the database now, None where there is none."""
        parameters = split_queue_change_key(key) if kind == RecordKind.QUEUE else (key,)
        found = await self._within(self._one(_ONE[kind], parameters), limits.METADATA_READ_MS_MAX)
        return None if found is None else _ROW_OF[kind](found)

    async def missed(self, since: FeedPosition, ms_max: int) -> Missed | None:
        """None: the log of changes does not say all that came since. Load then."""
        return await self._within(self._missed(since), ms_max)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        """Everything as it was at one moment."""
        async with self._connection() as connection:
            snapshot = Snapshot(connection, self._within)
            await snapshot.begin()
            try:
                yield snapshot
            finally:
                # Not used again: what is half read would have to be read to its end.
                await connection.close()

    async def drop_connections(self) -> None:
        """The database is away, or was: no connection made before is worth anything."""
        for connection in (*self._idle, *self._busy):
            await connection.close()
        self._idle.clear()
        for read in list(self._reads):
            read.cancel()

    async def _missed(self, since: FeedPosition) -> Missed | None:
        async with self._connection() as connection, connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            now, whole_from = await _position(connection)
            if since.source != now.source or (whole_from is not None and since.horizon < whole_from):
                return None
            rows = await (await connection.execute(_CHANGES, (since.horizon,))).fetchall()
        again = {row[2] for row in rows if row[3] >= now.horizon}
        return Missed(now, [Change(*row[:3]) for row in rows], again)

    async def _one(self, statement: str, parameters: tuple[str, ...]) -> tuple[Any, ...] | None:
        # Connections that died while idle are found out by using one: the second attempt makes a new one.
        for last in (False, True):
            try:
                async with self._connection() as connection:
                    return await (await connection.execute(statement, parameters)).fetchone()
            except TooManyConnections:
                raise
            except psycopg.OperationalError:
                if last:
                    raise
                self._idle.clear()
        raise AssertionError("unreachable")

    async def _within(self, read: Awaitable[T], ms_max: int) -> T:
        """A read that takes too long is left alone, not cancelled: psycopg would wait for the server to agree. Its
        connection stays out until it ends, or until all connections are dropped."""
        task: asyncio.Task[T] = asyncio.ensure_future(read)
        self._reads.add(task)
        task.add_done_callback(self._landed)
        done, _ = await asyncio.wait((task,), timeout=ms_max / 1000)
        if not done:
            raise StoreUnavailable("PostgreSQL does not answer in time")
        if task.cancelled():
            raise StoreUnavailable("the connection to PostgreSQL was given up")
        try:
            return task.result()
        except TooManyConnections as error:
            raise StoreFull("PostgreSQL takes no more connections") from error
        except (psycopg.Error, OSError) as error:
            raise StoreUnavailable(f"PostgreSQL: {type(error).__name__}") from error

    def _landed(self, task: asyncio.Task[Any]) -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen where nobody waits any more

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        async with self._places:
            connection = await self._open()
            self._busy.add(connection)
            try:
                yield connection
            except BaseException:
                await connection.close()
                raise
            finally:
                self._busy.discard(connection)
                if not connection.closed:
                    self._idle.append(connection)

    async def _open(self) -> Connection:
        """One that is idle, or a new one. Where PostgreSQL takes no more, one that is in use here is waited for."""
        for _ in range(limits.METADATA_FULL_ATTEMPTS_MAX):
            connection = self._usable()
            if connection is not None:
                return connection
            try:
                return await connect(self._database_url, "penstock-metadata")
            except TooManyConnections:
                if not self._busy and not self._idle:
                    raise
            await asyncio.sleep(random.uniform(0.5, 1.0) * limits.METADATA_FULL_RETRY_MS / 1000)
        raise TooManyConnections("PostgreSQL takes no more connections")

    def _usable(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None


class Snapshot:
    """A transaction that sees one state of the database."""

    def __init__(self, connection: Connection, within: Callable[[Awaitable[Any], int], Awaitable[Any]]) -> None:
        self._connection = connection
        self._within = within
        self.position = FeedPosition("", 0)

    async def begin(self) -> None:
        await self._within(self._begin(), limits.METADATA_LOAD_MS_MAX)

    async def rows(self, kind: RecordKind) -> AsyncIterator[list[EncodedRecord]]:
        """Every record of a kind, a few at a time."""
        cursor = self._connection.cursor(name="records")
        await self._within(cursor.execute(_ALL[kind]), limits.METADATA_LOAD_MS_MAX)
        row_of = _ROW_OF[kind]
        while found := await self._within(cursor.fetchmany(limits.METADATA_LOAD_ROWS), limits.METADATA_LOAD_MS_MAX):
            yield [row_of(row) for row in found]
        await self._within(cursor.close(), limits.METADATA_LOAD_MS_MAX)

    async def _begin(self) -> None:
        await self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self.position = (await _position(self._connection))[0]


async def _position(connection: Connection) -> tuple[FeedPosition, int | None]:
    """Where the log of changes ends, and how far back it is whole (None: as far as it will)."""
    row = await (await connection.execute(_POSITION)).fetchone()
    assert row is not None
    return FeedPosition(row[0], row[1]), row[2]


async def connect(database_url: str, name: str) -> Connection:
    """Raises psycopg.OperationalError, also where nobody answers in time."""
    try:
        async with asyncio.timeout(limits.METADATA_CONNECT_MS_MAX / 1000):
            return await psycopg.AsyncConnection.connect(
                database_url, autocommit=True, application_name=name, **limits.LISTEN_KEEPALIVES
            )
    except TimeoutError:
        raise psycopg.OperationalError("PostgreSQL takes no connection") from None
    except psycopg.OperationalError as error:
        if is_full(error):
            raise TooManyConnections(str(error)) from None
        raise
