"""The change feed: how a committed change reaches every cache.

Every change of an account, key or queue takes the next value of one sequence as the row's `version`, and announces it
on the channel `penstock_changes` in the same transaction: PostgreSQL delivers the announcement if and only if the
transaction commits, and after its rows are visible. The value is drawn while the row (or its account's row) is
locked, so versions of one thing never fall.
"""

from __future__ import annotations

import json

from django.db import connection

from frontend.metadata.records import RecordKind

CHANNEL = "penstock_changes"
SEQUENCE = "penstock_version"
DATA_KEYS = "penstock_data_key"


def next_version() -> int:
    """Call with the row to be changed locked (or not yet visible to anybody)."""
    assert connection.in_atomic_block
    return _next(SEQUENCE)


def next_data_key_version() -> int:
    """Names a data key for good, within the installation."""
    return _next(DATA_KEYS)


def announce(kind: RecordKind, key: str, version: int) -> None:
    """Heard by the metadata service, and by requests that wait for a queue, once this transaction is committed."""
    assert connection.in_atomic_block
    payload = json.dumps({"kind": kind.value, "key": key, "version": version}, separators=(",", ":"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", (CHANNEL, payload))


def _next(sequence: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT nextval('{sequence}')")
        row = cursor.fetchone()
    return int(row[0])
