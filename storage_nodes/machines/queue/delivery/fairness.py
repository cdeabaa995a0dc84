"""Fair queues: which message groups are noisy.

A group is *noisy* while it has NOISY_IN_FLIGHT_MIN messages in flight and more than NOISY_SHARE_PERCENT of all that are
(so at most nine are at a time). Messages of other groups go first then; a noisy group is served when nobody else waits,
so no consumer idles for fairness. A group that is passed over has fewer and fewer in flight, and is not noisy any more:
nobody starves.

Counted here: messages that this leader, or by the replicated state an earlier one, handed out under a group and whose
lease holds. Messages without a group count for nobody, but are part of what is in flight.
"""

from __future__ import annotations

from collections import Counter

from storage_nodes.limits import NOISY_IN_FLIGHT_MIN, NOISY_SHARE_PERCENT


class GroupsInFlight:
    __slots__ = ("_counts", "_group_of")

    def __init__(self, group_of: dict[int, bytes] | None = None) -> None:
        """`group_of`: of the messages that are in flight by now, those with a group."""
        self._group_of = group_of or {}
        self._counts: dict[bytes, int] = Counter(self._group_of.values())

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, offset: int, group: bytes) -> None:
        if group and offset not in self._group_of:
            self._group_of[offset] = group
            self._counts[group] = self._counts.get(group, 0) + 1

    def remove(self, offset: int) -> None:
        """It is in flight no more, if it was."""
        group = self._group_of.pop(offset, None)
        if group is None:
            return
        count = self._counts[group] - 1
        if count:
            self._counts[group] = count
        else:
            del self._counts[group]

    def clear(self) -> None:
        self._group_of.clear()
        self._counts.clear()

    def is_noisy(self, group: bytes, in_flight: int) -> bool:
        count = self._counts.get(group, 0)
        return count >= NOISY_IN_FLIGHT_MIN and count * 100 > in_flight * NOISY_SHARE_PERCENT

    def until_noisy(self, group: bytes, in_flight: int) -> int:
        """How many messages more of a quiet group make it noisy."""
        return max(NOISY_IN_FLIGHT_MIN, in_flight * NOISY_SHARE_PERCENT // 100 + 1) - self._counts.get(group, 0)

    def noisy(self, in_flight: int) -> list[bytes]:
        return [group for group in self._counts if self.is_noisy(group, in_flight)]
