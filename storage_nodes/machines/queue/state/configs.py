"""Configurations of queues as commands and checkpoints hold them, one object for all queues of the same one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

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
