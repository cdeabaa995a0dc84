"""Feature levels: what a release writes into logs, and which releases may run side by side (docs/upgrades.md).

    FEATURE_LEVEL       the highest level that this release writes and folds
    FEATURE_LEVEL_MIN   the lowest level of a cluster that it still works in

A level is a number for all that was added to logs and folds since the level before: kinds of commands, fields of them,
what a fold makes of an entry, constants of folds (`machines/fold_constants.py`). Everything that is not named below
came with level 1.

    the cluster's level     raised in `__cluster` once every node speaks it and no operator holds it
    a partition's level     raised in its own log by its leader, with the first commands after the cluster's level rose

A fold goes by the level of its partition at that place in the log; a leader writes nothing that is above it. So a log
is folded the same by every release that knows its level, and an older release can take over until the level rises.

Surface: other planes may import this module.
"""

from __future__ import annotations

from typing import NamedTuple

FEATURE_LEVEL = 2
FEATURE_LEVEL_MIN = 1
# Of a log, a checkpoint or a process that says nothing of levels.
LEVEL_FIRST = 1

# --- what is newer than level 1, by the level that brought it ---------------------------------------------------

# Queues: a message that is deleted by a receipt, and was never leased by what the log says, was delivered: its lease
# was lost with the leader that answered before it was committed (docs/storage/metering.md).
DELETES_OF_LOST_LEASES_BILLED = 2


class Speaks(NamedTuple):
    """What a process speaks: levels from `lowest` to `highest`. `allowed`: to which one its operator lets the cluster
    rise, as far as that is up to this process."""

    lowest: int = LEVEL_FIRST
    highest: int = LEVEL_FIRST
    allowed: int = LEVEL_FIRST

    def objection(self, other: Speaks, what: str) -> str:
        """Why the two cannot talk with each other; "" = they can. `what`: the other one, in words."""
        if self.lowest <= other.highest and other.lowest <= self.highest:
            return ""
        theirs, ours = f"{other.lowest} to {other.highest}", f"{self.lowest} to {self.highest}"
        return f"{what} speaks feature levels {theirs}, this process {ours}: they do not meet (docs/upgrades.md)"


def spoken(allowed_max: int = 0) -> Speaks:
    """By this release; `allowed_max` is the operator's setting, 0 = none."""
    return Speaks(FEATURE_LEVEL_MIN, FEATURE_LEVEL, min(allowed_max or FEATURE_LEVEL, FEATURE_LEVEL))


def fits_cluster(node: Speaks, cluster_level: int, what: str) -> str:
    """Why a node cannot work in a cluster of this level; "" = it can. The text says what to do."""
    if node.highest < cluster_level:
        return (
            f"the cluster is at feature level {cluster_level}, and {what} speaks {node.highest} at most: "
            f"start a release there that speaks level {cluster_level} (docs/upgrades.md)"
        )
    if node.lowest > cluster_level:
        return (
            f"the cluster is at feature level {cluster_level}, and {what} works from level {node.lowest} on: a release "
            "was skipped, start the one before it first, on all nodes (docs/upgrades.md)"
        )
    return ""
