"""Queue attributes that SQS does not have. Pure.

They travel in the ordinary map of attributes, whose names SQS clients do not check, and are stored as strings like the
others. An empty value takes one away again: the queue is then as SQS has it. The control plane stores what this table
lets through; the front end refuses with the same table before it asks.

Surface: other planes may import this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from frontend.queues.retry_policy import RETRY_POLICY_MUST_BE, RetryJson, normal_retry_policy, retry_policy
from storage_nodes.limits import DEDUP_WINDOW_MS_DEFAULT, DEDUP_WINDOW_MS_MAX
from storage_nodes.model import Acks

DEDUPLICATION_WINDOW = "Penstock.DeduplicationWindow"
# Also a message attribute, for one message.
ACKS = "Penstock.Acks"
PARK_GROUPS = "Penstock.ParkGroups"
PAUSED = "Penstock.Paused"
RETRY_POLICY = "Penstock.RetryPolicy"
UNCOUNTED_RELEASE = "Penstock.UncountedRelease"

ACKS_WORDS = {acks.name.lower(): acks for acks in Acks}

_INTEGER = re.compile(r"[0-9]{1,10}", re.ASCII)


class Extension(NamedTuple):
    """`normal` gives a value's normal form, None for one that is not allowed; `must_be` says what is."""

    normal: Callable[[str], str | None]
    must_be: str
    fifo_only: bool = False


def dedup_window_ms(attributes: Mapping[str, str]) -> int:
    """How long a deduplication id counts; as SQS has it where nothing was set."""
    seconds = attributes.get(DEDUPLICATION_WINDOW)
    return 1000 * int(seconds) if seconds else DEDUP_WINDOW_MS_DEFAULT


def is_paused(attributes: Mapping[str, str]) -> bool:
    return attributes.get(PAUSED) == "true"


def acks_of(word: str | None) -> Acks:
    """When a send is answered; None: once a majority has it on disk."""
    return ACKS_WORDS[word] if word else Acks.QUORUM


def retry_of(attributes: Mapping[str, str]) -> RetryJson | None:
    text = attributes.get(RETRY_POLICY)
    return retry_policy(text) if text else None


def parks_groups(attributes: Mapping[str, str]) -> bool:
    return attributes.get(PARK_GROUPS) == "true"


def _choice(*values: str, fifo_only: bool = False) -> Extension:
    return Extension(lambda value: value if value in values else None, f"one of {', '.join(values)}", fifo_only)


def _integer(low: int, high: int) -> Extension:
    def normal(value: str) -> str | None:
        return str(int(value)) if _INTEGER.fullmatch(value) and low <= int(value) <= high else None

    return Extension(normal, f"an integer from {low} to {high}")


EXTENSIONS: dict[str, Extension] = {
    ACKS: _choice(*ACKS_WORDS),
    DEDUPLICATION_WINDOW: _integer(1, DEDUP_WINDOW_MS_MAX // 1000),
    PARK_GROUPS: _choice("true", "false", fifo_only=True),
    PAUSED: _choice("true", "false"),
    RETRY_POLICY: Extension(normal_retry_policy, RETRY_POLICY_MUST_BE),
    UNCOUNTED_RELEASE: _choice("true", "false"),
}
# What the partitions of a queue have to be told of.
ENFORCED_BY_STORAGE = (DEDUPLICATION_WINDOW, PARK_GROUPS, PAUSED, RETRY_POLICY)
