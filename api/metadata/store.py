"""The database side: one parameterised statement per kind of record. Reads only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from api import limits
from api.metadata.rows import QUEUE, queue_record
from frontend.metadata.records import AccountRecord, KeyRecord, QueueRecord

_KEY = """
SELECT k.access_key_id, k.account_id, k.name, k.secret_sealed, k.bearer_hash, k.active AND a.active,
       floor(extract(epoch FROM k.expires_at) * 1000)::bigint, k.version
  FROM access_key k JOIN account a ON a.id = k.account_id
 WHERE k.access_key_id = %s
"""
_ACCOUNT = "SELECT id, name, active, version, auto_create_queues FROM account WHERE id = %s"


class StoreUnavailable(Exception):
    """The database does not answer now."""


class MetadataStore:
    """A small pool of connections. Every call may raise StoreUnavailable."""

    def __init__(self, database_url: str) -> None:
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]] = AsyncConnectionPool(
            database_url,
            min_size=limits.METADATA_POOL_MIN,
            max_size=limits.METADATA_POOL_MAX,
            open=False,
            timeout=limits.METADATA_POOL_WAIT_MS_MAX / 1000,
            num_workers=1,
            kwargs={"autocommit": True, "application_name": "penstock-metadata", **limits.LISTEN_KEEPALIVES},
        )

    async def open(self) -> None:
        """Does not wait for the database."""
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def key(self, access_key_id: str) -> KeyRecord | None:
        row = await self._one(_KEY, (access_key_id,))
        return None if row is None else KeyRecord(*row)

    async def account(self, account_id: str) -> AccountRecord | None:
        row = await self._one(_ACCOUNT, (account_id,))
        return None if row is None else AccountRecord(*row)

    async def queue(self, account_id: str, name: str) -> QueueRecord | None:
        row = await self._one(QUEUE, (account_id, name))
        return None if row is None else queue_record(row)

    async def _one(self, statement: str, parameters: tuple[str, ...]) -> tuple[Any, ...] | None:
        # A connection that died while idle is found out by using it: the second attempt has another one.
        for last in (False, True):
            try:
                async with self._connection() as connection:
                    cursor = await connection.execute(statement, parameters)
                    return await cursor.fetchone()
            except psycopg.OperationalError as error:
                if last:
                    raise StoreUnavailable(type(error).__name__) from error
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        try:
            async with self._pool.connection() as connection:
                yield connection
        except PoolTimeout as error:
            raise StoreUnavailable("no database connection is free") from error
