"""What a leader does for the meter: closes the window of a queue that went quiet, has closed windows exported, and
notes in the log that they are. Pure; one step at a time.

    is_changed, the hour is over  ->  UsageClosedCommand  ->  closed  ->  ExportUsage  ->  committed in the usage stream
                                                                      later      ->  UsageExportedCommand  ->  forgotten

The note is for the next leader, and nobody waits for it: it follows after a while, and those of thousands of queues
that were closed at once follow apart. A retired partition closes its window at once, and the note follows at once; the
last record says that it is the last one.

A step that is lost, by a full queue of proposals or a stream without leader, is done again after a pause. A leader that
dies between the append and that command leaves the windows to the next one, which appends the same records again.
"""

from __future__ import annotations

from storage_nodes.limits import (
    USAGE_CLOSE_SPREAD_MS,
    USAGE_EXPORT_PAUSE_MS,
    USAGE_NOTE_AFTER_MS,
    USAGE_NOTE_SPREAD_MS,
    USAGE_WINDOWS_PER_EXPORT_MAX,
)
from storage_nodes.machines.queue.commands import (
    NOT_ISSUED,
    RetiredCommand,
    UsageClosedCommand,
    UsageCommand,
    UsageExportedCommand,
)
from storage_nodes.machines.queue.effects import ExportUsage
from storage_nodes.machines.queue.state.metering import HOUR_MS, Metering

_AT_ONCE_MS = 1
# Windows that were closed in neighbouring milliseconds are noted far apart.
_SCATTER = 7_919

Window = tuple[int, int]
"""(hour_ms, until_ms); later windows are greater."""

_NONE: Window = (0, 0)


class UsageExport:
    """Of one partition, while it leads."""

    __slots__ = (
        "_again_ms", "_exported", "_is_under_way", "_note_again_ms", "_note_due_ms", "_noted", "_retire_again_ms",
        "is_asked",
    )  # fmt: skip

    def __init__(self) -> None:
        self._again_ms = 0  # no step before
        self._is_under_way = False  # an ExportUsage was not answered yet
        self._exported = _NONE  # windows up to this one stand in the usage stream, as far as this leader knows
        self._noted = _NONE  # the same, of the UsageExportedCommand that was proposed last
        self._note_due_ms = self._note_again_ms = 0
        self._retire_again_ms = 0  # the RetiredCommand is on its way: not once more before
        self.is_asked = False  # is the open window to be closed early?

    def is_told(self, meter: Metering) -> bool:
        """Does the usage stream have all closed windows?"""
        return not meter.closed or meter.closed[-1][:2] <= self._exported

    def next_ms(self, meter: Metering) -> int:
        """When there is something to do; 0 = nothing before the next entry."""
        if self._is_under_way:
            return 0
        note_ms = self._note_ms(meter)
        if not self.is_told(meter) or (meter.is_changed and (self.is_asked or meter.is_final)):
            due_ms = max(self._again_ms, _AT_ONCE_MS)
        elif meter.is_changed:
            # Not the hours of all queues at once: when each had its last entry tells them apart.
            due_ms = max(meter.hour_ms + HOUR_MS + meter.until_ms % USAGE_CLOSE_SPREAD_MS, self._again_ms)
        else:
            return note_ms
        return min(due_ms, note_ms) if note_ms else due_ms

    def step(self, meter: Metering, now_ms: int) -> ExportUsage | UsageExportedCommand | UsageClosedCommand | None:
        """What to do now: an effect, or a command. The note goes before the one that closes,
        for which it makes room."""
        if not 0 < self.next_ms(meter) <= now_ms:
            return None
        if not self.is_told(meter) and self._again_ms <= now_ms:
            self._is_under_way = True
            waiting = [window for window in meter.closed if window[:2] > self._exported]
            windows = tuple(waiting[:USAGE_WINDOWS_PER_EXPORT_MAX])
            is_last = meter.is_final and not meter.is_changed and len(windows) == len(waiting)
            return ExportUsage(windows, is_last)
        if 0 < self._note_ms(meter) <= now_ms:
            self._note_again_ms = now_ms + USAGE_EXPORT_PAUSE_MS
            self._noted = self._exported
            return UsageExportedCommand(*NOT_ISSUED, *self._noted)
        self._again_ms = now_ms + USAGE_EXPORT_PAUSE_MS
        return UsageClosedCommand(*NOT_ISSUED)

    def ask(self, is_open: bool) -> None:
        """Close the open window now, if it says anything new or is about to, and export what is closed."""
        self.is_asked, self._again_ms = is_open, 0

    def retire(self, now_ms: int) -> RetiredCommand | None:
        """The command that retires the partition; None while it is on its way."""
        if now_ms < self._retire_again_ms:
            return None
        self._retire_again_ms = now_ms + USAGE_EXPORT_PAUSE_MS
        return RetiredCommand(*NOT_ISSUED)

    def exported(self, window: Window, now_ms: int) -> None:
        """ExportUsage was answered: its windows, up to this one, are committed in the usage stream."""
        self._is_under_way = False
        self._again_ms = 0
        if self._exported in (_NONE, self._noted):  # else one is due: a later export does not put it off
            self._note_due_ms = now_ms + USAGE_NOTE_AFTER_MS + now_ms * _SCATTER % USAGE_NOTE_SPREAD_MS
        self._exported = window

    def not_exported(self, now_ms: int) -> None:
        """ExportUsage was answered: it failed. Tried again after a pause."""
        self._is_under_way = False
        self._again_ms = now_ms + USAGE_EXPORT_PAUSE_MS

    def folded(self, command: UsageCommand) -> None:
        """A command of the meter came back: the next step may follow."""
        self._again_ms = 0
        if isinstance(command, UsageClosedCommand):
            self.is_asked = False
        elif isinstance(command, UsageExportedCommand):
            self._note_again_ms = 0
            if self._noted == self._exported:
                self._exported = self._noted = _NONE

    def _note_ms(self, meter: Metering) -> int:
        """When the log is to say what was exported; 0 = it does, or nothing was. At once where many are held: few may
        be."""
        if self._exported == _NONE:
            return 0
        is_urgent = meter.is_final or len(meter.closed) >= USAGE_WINDOWS_PER_EXPORT_MAX
        return max(self._note_again_ms, _AT_ONCE_MS if is_urgent else self._note_due_ms)
