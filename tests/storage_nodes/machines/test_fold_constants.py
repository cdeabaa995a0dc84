"""What folds go by is frozen: a change of any of these numbers forks the state of replicas of two releases, and of
every log that is folded again. Who needs another value adds a level; see machines/fold_constants.py."""

from __future__ import annotations

import ast
from pathlib import Path

import storage_nodes
from storage_nodes import limits
from storage_nodes.machines import fold_constants
from storage_nodes.machines.fold_constants import LEVEL_1, ROWS, FoldConstants, constants_at
from storage_nodes.protocol.levels import FEATURE_LEVEL, FEATURE_LEVEL_MIN
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.usage import UNIT_BYTES

FROZEN_AT_1 = {
    "delayed_live_max": 150_000,
    "dead_letters_by_age_max": 200_000,
    "schedule_ms_max": 31_622_400_000,
    "delay_ms_max": 900_000,
    "purge_interval_ms": 60_000,
    "group_bytes_max": 128,
    "tag_bytes_max": 128,
    "attempts_max": 10_000,
    "attempt_ms_max": 300_000,
    "letters_taken_max": 100_000,
    "letters_taken_per_source_max": 1_000,
    "dedup_window_ms_default": 300_000,
    "dedup_slices_per_window": 8,
    "usage_windows_held_max": 48,
    "usage_hour_ms": 3_600_000,
    "producer_window_records": 65_536,
    "producer_memory_ms": 60_000,
    "producer_jump_ms_max": 10_000,
    "producer_forget_ms": 900_000,
    "producers_per_partition_max": 128,
    "mark_bytes_min": 1_048_576,
    "marks_max": 1_024,
    "marks_per_retention": 100,
    "consumer_groups_max": 256,
    "consumer_members_max": 256,
    "moves_per_node_max": 16,
    "partitions_per_node_max": 200_000,
    "replication_factor": 3,
}
# Fields that stand in a log and in checkpoints by position; one that a log does not name has its default.
FROZEN_CONFIG = (345_600_000, 120_000, False, 300_000, 0, 0, False, 0, 0, 0, 0, False, False, (), "")

# Modules that fold. Of `limits` they may take what they compare with nothing in the log.
MACHINES = Path(storage_nodes.__file__).parent / "machines"
FOLDING = [
    *sorted((MACHINES / "queue" / "state").glob("*.py")),
    MACHINES / "producers.py",
    *(MACHINES / "cluster" / name for name in ("machine.py", "commands.py", "placement.py")),
    *(MACHINES / "stream" / name for name in ("consumers.py", "retention.py", "assignment.py")),
]
NOT_FOLDED = {
    "CHECKPOINT_PIECES_MESSAGES",  # how a checkpoint is put together
    "PRODUCER_SEQUENCE_MAX",  # of requests
    "RETRY_PAUSE_MS_MAX",  # of configurations, which are judged before they are logged
}


def test_values_of_level_1_are_frozen() -> None:
    assert LEVEL_1._asdict() == FROZEN_AT_1
    assert QueueConfig() == QueueConfig(*FROZEN_CONFIG)
    assert UNIT_BYTES == 65_536


def test_lookup_gives_the_row_of_the_last_level_that_changed_something() -> None:
    assert all(constants_at(level) is LEVEL_1 for level in range(FEATURE_LEVEL_MIN, FEATURE_LEVEL + 1))
    assert [since for since, _ in ROWS] == sorted({since for since, _ in ROWS}) and ROWS[0][0] == 1


def test_lookup_knows_rows_of_later_levels() -> None:
    later = LEVEL_1._replace(attempts_max=5)
    fold_constants.ROWS = (*ROWS, (3, later))
    try:
        assert [constants_at(level).attempts_max for level in (1, 2, 3, 4)] == [10_000, 10_000, 5, 5]
    finally:
        fold_constants.ROWS = ROWS


def test_leaders_go_by_the_newest_row() -> None:
    newest = constants_at(FEATURE_LEVEL)
    named = [name for name in FoldConstants._fields if hasattr(limits, name.upper())]
    assert len(named) > 20
    assert {name: getattr(limits, name.upper()) for name in named} == {name: getattr(newest, name) for name in named}


def test_no_module_that_folds_takes_a_number_from_limits() -> None:
    found = set()
    for path in FOLDING:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "storage_nodes.limits":
                found |= {alias.name for alias in node.names if path.name != "configs.py"}
    assert found <= NOT_FOLDED
