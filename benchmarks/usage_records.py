"""A month of usage windows as Parquet, of tenants as unequal as real ones: for `benchmarks/usage.py`.

Accounts have queues by a power law (a few have thousands, most have one), queues have traffic by another. Busy queues
have a window in every hour, quiet ones in some, so that there is something to integrate between them. A few windows are
there twice, and a few were closed early first. The same seed gives the same rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOUR_MS = 3_600_000
MONTH_HOURS = 720
# 2026-11-01 00:00 UTC.
MONTH_MS = 1_793_491_200_000
CLIENT = 1
ROWS_OF_FILE = 1_000_000
SCALING_STEPS = 10
REPEATED_PART = 0.01
EARLY_PART = 0.005
UUID_BYTES = 16

COUNTERS = (
    "sent", "delivered", "deleted", "moved", "dead_lettered", "scheduled",
    "sent_bytes", "delivered_bytes", "sent_units", "delivered_units",
)  # fmt: skip


def write_month(
    directory: Path, rows: int, seed: int = 1, queues: int = 0, month_ms: int = MONTH_MS
) -> tuple[int, int]:
    """About `rows` windows in files of a million, of one queue for each 500 where nothing else is said; how many
    accounts and queues there are."""
    chance = np.random.default_rng(seed)
    queues = queues or max(10, rows // 500)
    accounts = max(5, queues // 20)
    # Zipf over the accounts: the first one has some percent of all queues. Each has one.
    owner = np.minimum(chance.zipf(1.3, queues) - 1, accounts - 1).astype(np.int64)
    owner[chance.permutation(queues)[:accounts]] = np.arange(accounts)
    busy = _busy_hours(queues, rows)
    directory.mkdir(parents=True, exist_ok=True)
    at, number = 0, 0
    while at < queues:
        upto = min(queues, at + 1 + int(np.searchsorted(np.cumsum(busy[at:]), ROWS_OF_FILE)))
        table = _windows(chance, owner, busy, at, upto, month_ms)
        pq.write_table(table, directory / f"part-{number:05d}.parquet", compression="zstd", row_group_size=250_000)
        at, number = upto, number + 1
    return accounts, queues


def account_id(number: int) -> str:
    return str(100_000_000_000 + number)


def _busy_hours(queues: int, rows: int) -> np.ndarray:
    """In how many hours each queue has traffic: a power law, cut at all of them; together about `rows`."""
    share = 1.0 / (1 + np.arange(queues)) ** 0.6
    for _ in range(SCALING_STEPS):
        share *= rows / (np.minimum(1.0, share).sum() * MONTH_HOURS)
    return np.maximum(1, (np.minimum(1.0, share) * MONTH_HOURS).astype(np.int64))


def _windows(
    chance: np.random.Generator, owner: np.ndarray, busy: np.ndarray, at: int, upto: int, month_ms: int
) -> pa.Table:
    """Windows of the queues `at` to before `upto`, shuffled as a stream of many partitions is."""
    queue: np.ndarray = np.repeat(np.arange(at, upto), busy[at:upto])
    hours = np.concatenate([np.sort(chance.permutation(MONTH_HOURS)[: busy[one]]) for one in range(at, upto)])
    early = np.flatnonzero(chance.random(len(queue)) < EARLY_PART)
    repeated = np.flatnonzero(chance.random(len(queue)) < REPEATED_PART)
    figures = _figures(chance, len(queue))
    order = np.concatenate([np.arange(len(queue)), early, repeated])
    until = np.full(len(order), HOUR_MS)
    until[len(queue) : len(queue) + len(early)] = HOUR_MS // 3
    # What was closed early had a third of it.
    divisor = HOUR_MS // until
    columns = {name: values[order] // divisor for name, values in figures.items() if name != "stored_bytes"}
    columns["stored_bytes"] = figures["stored_bytes"][order]
    mixed = chance.permutation(len(order))
    hour_ms = month_ms + hours[order].astype(np.int64) * HOUR_MS
    return _table(queue[order], owner[queue[order]], hour_ms, until, columns, mixed)


def _figures(chance: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    sent = chance.pareto(1.2, count).clip(0, 1e6).astype(np.int64) + 1
    size = chance.integers(100, 200_000, count)
    stored = np.where(chance.random(count) < 0.5, 0, sent * size // 10)
    figures = {
        "sent": sent, "delivered": sent, "deleted": sent - sent // 50, "moved": sent // 1000,
        "dead_lettered": sent // 500, "scheduled": sent // 20, "sent_bytes": sent * size,
        "delivered_bytes": sent * size, "sent_units": sent * (1 + size // 65_536),
        "delivered_units": sent * (1 + size // 65_536),
    }  # fmt: skip
    return {**figures, "stored_byte_ms": stored * (HOUR_MS // 2), "stored_bytes": stored}


def _table(
    queue: np.ndarray,
    account: np.ndarray,
    hour_ms: np.ndarray,
    until: np.ndarray,
    columns: dict[str, np.ndarray],
    mixed: np.ndarray,
) -> pa.Table:
    uuids = [int(one).to_bytes(UUID_BYTES) for one in queue[mixed]]
    accounts = [account_id(int(one)) for one in account[mixed]]
    figures = {name: pa.array(columns[name][mixed].astype(np.int64)) for name in columns}
    return pa.table(
        {
            "cluster": pa.array(["one"] * len(mixed)),
            "partition": pa.array(queue[mixed].astype(np.int64)),
            "account_id": pa.array(accounts),
            "queue_uuid": pa.array(uuids, pa.binary()),
            "hour_ms": pa.array(hour_ms[mixed]),
            "until_ms": pa.array((hour_ms + until)[mixed]),
            "final": pa.array(np.zeros(len(mixed), bool)),
            "stored_byte_ms": figures["stored_byte_ms"],
            "stored_bytes": figures["stored_bytes"],
            "origin": pa.array(np.full(len(mixed), CLIENT, np.int32)),
            **{name: figures[name] for name in COUNTERS},
        }
    )
