"""How much room is left on a node's disk, and what that means. Pure: told the free bytes, says the level.

    ROOMY      everything
    READ_ONLY  below the reserve: no messages are taken as a leader, leadership goes elsewhere; what frees space
               (receives, deletes, purges, flushes) goes on, and so does following: what others accepted is not refused
    CLOSED     below a quarter of it: messages of other leaders are not taken either, only commands (deletes, votes).
               Their groups go on with the others, and feed this replica when it has room again. So only commands could
               still meet the end of the disk, which ends the process and loses nothing (R21)

Between the two lies what deletes and flushes need. A level is left only once there is clearly more room than where it
began: a node that hovers at the edge would move leaders to and fro.
"""

from __future__ import annotations

import enum


class SpaceLevel(enum.IntEnum):
    ROOMY = 0
    READ_ONLY = 1
    CLOSED = 2


class SpaceWatch:
    def __init__(self, reserve_bytes: int) -> None:
        self.reserve_bytes = reserve_bytes
        self.level = SpaceLevel.ROOMY

    def look(self, free_bytes: int) -> SpaceLevel:
        """The level now."""
        reserve = self.reserve_bytes
        if free_bytes < reserve // 4 or (self.level is SpaceLevel.CLOSED and free_bytes < reserve // 2):
            self.level = SpaceLevel.CLOSED
        elif free_bytes < reserve or (self.level is not SpaceLevel.ROOMY and free_bytes < reserve + reserve // 4):
            self.level = SpaceLevel.READ_ONLY
        else:
            self.level = SpaceLevel.ROOMY
        return self.level
