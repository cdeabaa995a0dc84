"""At the leader: scheduled and delayed messages that are due, on their way into the log once more.

A slice at a time, so that messages follow each other in the order in which they are due, and a million that are due at
once do not stand in memory:

    due -> Release(slice) -> the driver reads and appends them -> begun(which) -> committed, folded -> the next slice

What is under way is known here only, and forgotten with the leadership: a record that comes twice releases once, by
the fold (state/queue_state.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from storage_nodes.limits import RELEASE_PAUSE_MS, RELEASES_AT_ONCE_MAX
from storage_nodes.machines.queue.effects import Release
from storage_nodes.machines.queue.state.schedule import Schedule


class Releases:
    __slots__ = ("_again_ms", "_schedules", "_under_way", "is_reading")

    def __init__(self, *schedules: Schedule) -> None:
        self._schedules = schedules
        self.is_reading = False  # a slice is with the driver, which says `begun` for it
        self._under_way: set[int] = set()  # offsets of scheduled messages that were appended once more
        self._again_ms = 0  # the last slice got nowhere: not before this time; 0 = at once

    def due(self, time_ms: int, due_by_ms: int) -> Release | None:
        """The next slice of what is due by then, if there is one and none is under way."""
        if self._again_ms and time_ms >= self._again_ms:
            self._again_ms = 0
        if self.is_reading or self._under_way or self._again_ms or not 0 < self._first_due_ms() <= due_by_ms:
            return None
        self.is_reading = True
        due = [pair for schedule in self._schedules for pair in schedule.due_by(due_by_ms, RELEASES_AT_ONCE_MAX)]
        return Release(sorted(due)[:RELEASES_AT_ONCE_MAX])

    def begun(self, offsets: Sequence[int], time_ms: int) -> None:
        """These, the first of the slice, were appended; none: try again later."""
        self.is_reading = False
        self._under_way = set(offsets)
        if not offsets:
            self._again_ms = time_ms + RELEASE_PAUSE_MS

    def folded(self, offsets: Sequence[int]) -> None:
        self._under_way.difference_update(offsets)

    def next_ms(self) -> int:
        """When something is to be done here; 0 = never, or after what is under way. With everything cancelled meanwhile
        a pause is for nothing: asked for, a tick that does nothing would be asked for again and again."""
        first_due_ms = self._first_due_ms()
        if self.is_reading or self._under_way or not first_due_ms:
            return 0
        return self._again_ms or first_due_ms

    def _first_due_ms(self) -> int:
        """0 = nothing waits for its time."""
        return min([due_ms for schedule in self._schedules if (due_ms := schedule.first_due_ms())], default=0)
