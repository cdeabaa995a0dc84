"""What a leader does for the meter: closes the window of a queue that went quiet, has closed windows exported, and
notes in the log that they are. Pure; one step at a time.

    is_changed, the hour is over  ->  USAGE_CLOSED  ->  closed  ->  ExportUsage  ->  committed in the usage stream
                                                                                 ->  USAGE_EXPORTED  ->  forgotten

A retired partition closes its window at once; the last record says that it is the last one.

A step that is lost, by a full queue of proposals or a stream without leader, is done again after a pause. A leader that
dies between the append and USAGE_EXPORTED leaves the windows to the next one, which appends the same records again.
"""

from __future__ import annotations

from storage_nodes.limits import USAGE_CLOSE_SPREAD_MS, USAGE_EXPORT_PAUSE_MS, USAGE_WINDOWS_PER_EXPORT_MAX
from storage_nodes.machines.queue.commands import RETIRED, USAGE_CLOSED, Command
from storage_nodes.machines.queue.effects import ExportUsage
from storage_nodes.machines.queue.state.metering import HOUR_MS, Metering

_AT_ONCE_MS = 1


class UsageExport:
    """Of one partition, while it leads."""

    __slots__ = ("_again_ms", "_is_under_way", "_retire_again_ms", "is_asked")

    def __init__(self) -> None:
        self._again_ms = 0  # no step before
        self._is_under_way = False  # an ExportUsage was not answered yet
        self._retire_again_ms = 0  # RETIRED is on its way: not once more before
        self.is_asked = False  # is the open window to be closed early?

    def next_ms(self, meter: Metering) -> int:
        """When there is something to do; 0 = nothing before the next entry."""
        if self._is_under_way:
            return 0
        if meter.closed or (meter.is_changed and (self.is_asked or meter.is_final)):
            return max(self._again_ms, _AT_ONCE_MS)
        if meter.is_changed:
            # Not the hours of all queues at once: when each had its last entry tells them apart.
            due_ms = meter.hour_ms + HOUR_MS + meter.until_ms % USAGE_CLOSE_SPREAD_MS
            return due_ms if due_ms > self._again_ms else self._again_ms
        return 0

    def step(self, meter: Metering, now_ms: int) -> ExportUsage | Command | None:
        """What to do now: an effect, or a command without what all commands have."""
        due_ms = self.next_ms(meter)
        if not 0 < due_ms <= now_ms:
            return None
        if meter.closed:
            self._is_under_way = True
            windows = tuple(meter.closed[:USAGE_WINDOWS_PER_EXPORT_MAX])
            is_last = meter.is_final and not meter.is_changed and len(windows) == len(meter.closed)
            return ExportUsage(windows, is_last)
        self._again_ms = now_ms + USAGE_EXPORT_PAUSE_MS
        return [USAGE_CLOSED]

    def ask(self, is_open: bool) -> None:
        """Close the open window now, if it says anything new or is about to, and export what is closed."""
        self.is_asked, self._again_ms = is_open, 0

    def retire(self, now_ms: int) -> Command | None:
        """The command that retires the partition; None while it is on its way."""
        if now_ms < self._retire_again_ms:
            return None
        self._retire_again_ms = now_ms + USAGE_EXPORT_PAUSE_MS
        return [RETIRED]

    def ended(self, now_ms: int) -> None:
        """ExportUsage was answered. What was exported is noted now, or tried again after a pause."""
        self._is_under_way = False
        self._again_ms = now_ms + USAGE_EXPORT_PAUSE_MS

    def folded(self, kind: int) -> None:
        """A command of the meter came back: the next step may follow."""
        self._again_ms = 0
        if kind == USAGE_CLOSED:
            self.is_asked = False
