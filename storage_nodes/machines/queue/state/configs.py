"""Configurations of queues as commands and checkpoints hold them, one object for all queues of the same one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from storage_nodes.limits import (
    DEAD_LETTER_GROUPS_MAX,
    DEDUP_WINDOW_MS_MAX,
    IN_FLIGHT_MESSAGES_MAX,
    RECEIVES_MAX,
    RETENTION_MS_MAX,
    RETENTION_MS_MIN,
)
from storage_nodes.machines.queue.state.retry import policy_problem
from storage_nodes.protocol.messages import QueueConfig

CONFIGS_SHARED_MAX = 1_024


def config_fields(config: QueueConfig) -> list[Any]:
    """As commands and checkpoints hold a configuration: its fields by position."""
    return list(msgspec.structs.astuple(config))


def config_of(fields: Sequence[Any], rest: QueueConfig) -> QueueConfig:
    """The inverse; what an earlier version did not write yet is as in `rest`."""
    config = QueueConfig(*fields, *config_fields(rest)[len(fields) :])
    # It came as a list; configurations are shared by what they are, and a list is nothing to go by.
    return msgspec.structs.replace(config, dead_letter_groups=tuple(config.dead_letter_groups))


@lru_cache(CONFIGS_SHARED_MAX)
def shared_config(config: QueueConfig) -> QueueConfig:
    return config


def config_problem(config: QueueConfig, present: QueueConfig) -> str | None:
    """What is wrong with a configuration that is to follow the present one; None = nothing."""
    if not RETENTION_MS_MIN <= config.retention_ms <= RETENTION_MS_MAX:
        return "retention_ms is out of range"
    if not 1 <= config.in_flight_max <= IN_FLIGHT_MESSAGES_MAX:
        return "in_flight_max is out of range"
    if not 1 <= config.dedup_window_ms <= DEDUP_WINDOW_MS_MAX:
        return "dedup_window_ms is out of range"
    if not 0 <= config.max_receives <= RECEIVES_MAX or config.dead_letter_partition < 0:
        return "max_receives or dead_letter_partition is out of range"
    problem = policy_problem(config)
    if problem is not None:
        return problem
    if config.park_groups and not config.fifo:
        return "a standard queue parks no groups"
    if config.fifo != present.fifo:
        return "whether a queue is FIFO cannot be changed"
    if not config.fifo and (config.closed or config.dead_letter_groups):
        return "closed and dead_letter_groups are for FIFO queues"
    if len(config.dead_letter_groups) > DEAD_LETTER_GROUPS_MAX or min(config.dead_letter_groups, default=1) < 1:
        return "dead_letter_groups is out of range"
    return None
