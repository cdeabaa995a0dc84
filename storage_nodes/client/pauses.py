"""How long a call waits before it is tried again: pauses that grow, no two the same.

Many calls fail in the same moment when a leader is lost. If all came back in the same moment too, whoever leads next
would be met by all of them at once, again and again.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

from storage_nodes.protocol.errors import ErrorCode, StorageError

RETRY_PAUSE_S_MIN = 0.02
RETRY_PAUSE_S_MAX = 0.25
# Where the node is short of room, everybody who comes again costs it some.
OVERLOADED_PAUSE_S_MAX = 1.0
# After a word of who leads, it is only a matter of asking there.
HINTED_PAUSE_S = 0.005


class Chance(Protocol):
    """`random.Random`, or the module: a simulation has one of its own."""

    def random(self) -> float: ...
    def getrandbits(self, k: int, /) -> int: ...


class Pauses:
    """Of one call, which makes `attempts_max` attempts; 0 = as many as it has time for."""

    __slots__ = ("_attempts_left", "_chance", "_next_s")

    def __init__(self, chance: Chance, attempts_max: int = 0) -> None:
        self._chance = chance
        self._attempts_left = attempts_max
        self._next_s = RETRY_PAUSE_S_MIN

    def after(self, error: StorageError) -> float:
        """Half of the pause is left to chance. Infinite after the last attempt."""
        self._attempts_left -= 1
        if self._attempts_left == 0:
            return inf
        share = 0.5 + self._chance.random() / 2
        is_overloaded = error.code is ErrorCode.OVERLOADED
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, OVERLOADED_PAUSE_S_MAX if is_overloaded else RETRY_PAUSE_S_MAX)
        if error.code is ErrorCode.NOT_LEADER and error.leader:
            return share * HINTED_PAUSE_S
        return share * max(pause_s, error.retry_after_ms / 500)
