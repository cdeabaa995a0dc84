"""The change feed: how a committed change reaches every cache.

Every change of an account, key or queue takes the next value of one sequence as the row's `version`, writes it into
the table `feed_change`, and announces it on the channel `penstock_changes`, all in the same transaction: PostgreSQL
delivers the announcement if and only if the transaction commits, and after its rows are visible. The version is drawn
while the row (or its account's row) is locked, so versions of one thing never fall.

Who was not listening reads the table. It goes by transaction and not by version, because a transaction may commit after
one that drew a higher version: a reader remembers the lowest transaction id that was still running when it looked (the
horizon), and next time reads every row from there on. Nothing can come in below it.
"""

from __future__ import annotations

import json

from django.db import connection

from api import limits
from frontend.metadata.records import RecordKind

CHANNEL = "penstock_changes"
SEQUENCE = "penstock_version"
DATA_KEYS = "penstock_data_key"
ENCRYPTION_KEYS = "penstock_encryption_key"

_ANNOUNCE = """
WITH noted AS (
     INSERT INTO feed_change (version, kind, key, transaction)
     VALUES (%s, %s, %s, pg_current_xact_id()::text::bigint) RETURNING 1)
SELECT pg_notify(%s, %s) FROM noted
"""
# The lowest transaction kept marks how far back the log is whole; so none may go that one still running could undercut.
_TRIM = """
DELETE FROM feed_change
 WHERE transaction < (SELECT transaction FROM feed_change ORDER BY transaction DESC OFFSET %s LIMIT 1)
   AND transaction < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
"""


def next_version() -> int:
    """Call with the row to be changed locked (or not yet visible to anybody)."""
    assert connection.in_atomic_block
    return _next(SEQUENCE)


def next_data_key_version() -> int:
    """Names a data key for good, within the installation."""
    return _next(DATA_KEYS)


def next_encryption_key_version() -> int:
    """Names a version of an encryption key for good, within the installation."""
    return _next(ENCRYPTION_KEYS)


def announce(kind: RecordKind, key: str, version: int) -> None:
    """Heard by the metadata service, and by requests that wait for a queue, once this transaction is committed."""
    assert connection.in_atomic_block
    payload = json.dumps({"kind": kind.value, "key": key, "version": version}, separators=(",", ":"))
    with connection.cursor() as cursor:
        cursor.execute(_ANNOUNCE, (version, kind.value, key, CHANNEL, payload))


def trim_changes() -> int:
    """Forgets all but the newest FEED_CHANGES_KEPT_MAX changes; returns how many went. Called by the resync tick."""
    with connection.cursor() as cursor:
        cursor.execute(_TRIM, (limits.FEED_CHANGES_KEPT_MAX,))
        return int(cursor.rowcount)


def _next(sequence: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT nextval('{sequence}')")
        row = cursor.fetchone()
    return int(row[0])
