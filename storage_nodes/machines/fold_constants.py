"""The numbers that folds use, by feature level: frozen, as the kinds of commands are.

A fold makes the same state of the same log on every replica, in every release, at every restart. So a number that it
uses belongs to the log as much as an entry does: nobody changes one here. Who wants another value adds a level
(`protocol/levels.py`) with a row of its own, and the fold asks `constants_at` for that of its partition's level where
it takes the value of level 1 today. `limits.py` has the values that leaders go by, of the newest row; a test holds both
(`tests/storage_nodes/machines/test_fold_constants.py`).

No module that folds takes a number from `limits.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from storage_nodes.protocol.levels import LEVEL_FIRST


class FoldConstants(NamedTuple):
    # Queues: what is delayed, scheduled, purged, moved as a dead letter, read of headers, remembered of attempts.
    delayed_live_max: int
    dead_letters_by_age_max: int
    schedule_ms_max: int
    delay_ms_max: int
    purge_interval_ms: int
    group_bytes_max: int
    tag_bytes_max: int
    attempts_max: int
    attempt_ms_max: int
    letters_taken_max: int
    letters_taken_per_source_max: int
    dedup_window_ms_default: int
    dedup_slices_per_window: int
    usage_windows_held_max: int
    usage_hour_ms: int
    # Producers, of queues and streams.
    producer_window_records: int
    producer_memory_ms: int
    producer_jump_ms_max: int
    producer_forget_ms: int
    producers_per_partition_max: int
    # Streams and their consumer groups.
    mark_bytes_min: int
    marks_max: int
    marks_per_retention: int
    consumer_groups_max: int
    consumer_members_max: int
    # The cluster.
    moves_per_node_max: int
    partitions_per_node_max: int
    replication_factor: int


LEVEL_1 = FoldConstants(
    delayed_live_max=150_000,
    dead_letters_by_age_max=200_000,
    schedule_ms_max=31_622_400_000,
    delay_ms_max=900_000,
    purge_interval_ms=60_000,
    group_bytes_max=128,
    tag_bytes_max=128,
    attempts_max=10_000,
    attempt_ms_max=300_000,
    letters_taken_max=100_000,
    letters_taken_per_source_max=1_000,
    dedup_window_ms_default=300_000,
    dedup_slices_per_window=8,
    usage_windows_held_max=48,
    usage_hour_ms=3_600_000,
    producer_window_records=65_536,
    producer_memory_ms=60_000,
    producer_jump_ms_max=10_000,
    producer_forget_ms=900_000,
    producers_per_partition_max=128,
    mark_bytes_min=1_048_576,
    marks_max=1_024,
    marks_per_retention=100,
    consumer_groups_max=256,
    consumer_members_max=256,
    moves_per_node_max=16,
    partitions_per_node_max=200_000,
    replication_factor=3,
)

# A row for each level that changed a value, lowest first.
ROWS: tuple[tuple[int, FoldConstants], ...] = ((LEVEL_FIRST, LEVEL_1),)


def constants_at(level: int) -> FoldConstants:
    """Of a partition at this level."""
    return next(row for since, row in reversed(ROWS) if since <= level)
