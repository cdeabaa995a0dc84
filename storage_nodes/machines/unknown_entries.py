"""Entries of a kind that this version does not know: a later one wrote them, and what they do to the state nobody here
can say.

Passing over one would make another state of the same log than the others have, without a trace. So the fold raises, and
the replica stops (`node/replicas/stopped_replicas.py`).
"""

from __future__ import annotations

import struct

# Control records that stand in the logs of all kinds of partitions, and are none of their machines' business: the start
# of an epoch, and the configuration of the Raft group.
_OF_EVERY_LOG = frozenset((struct.pack(">hh", 0, 16), struct.pack(">hh", 0, 19)))


class UnknownEntryError(Exception):
    """A committed entry says something that this version cannot fold."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not known to this version: a later one wrote it")


class LevelTooHighError(UnknownEntryError):
    """A log, or a checkpoint, is at a feature level that this process does not speak."""

    def __init__(self, what: str, level: int, highest: int) -> None:
        self.level = level
        Exception.__init__(
            self,
            f"{what} is at feature level {level}, this release speaks {highest} at most: start one that speaks level "
            f"{level} (docs/upgrades.md)",
        )


def require_known(key: bytes | None) -> None:
    """Of a control record that is not for the machine that folds it. Raises UnknownEntryError."""
    if key not in _OF_EVERY_LOG:
        raise UnknownEntryError(f"control record {key.hex() if key else 'without a key'}")
