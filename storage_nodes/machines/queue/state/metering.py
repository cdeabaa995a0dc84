"""What a queue partition is billed for, a part of its fold (docs/storage/metering.md). Pure.

    entries -> counters of the open window -> closed window -> appended to the usage stream -> EXPORTED -> forgotten

A *window* is what the partition did in one hour of its log's time, which never falls. The first entry of a later hour
closes it; so does a USAGE_CLOSED command, at its own time: then the window stays open, and the record of its end says
all of it once more. A closed window waits here until USAGE_EXPORTED names it, or one of a later time.

    hour_ms, until_ms   the open window: where its hour begins, how far its integral goes
    counters            of the open window, by origin
    held_bytes/_units   of all messages held
    stored_byte_ms      integral of held_bytes from hour_ms to until_ms
    is_changed          does the open window say anything that no closed one says? Only then it is closed
    is_said             was it closed early, in part?
    is_final            is the partition retired? Then its last window says that nothing is stored after it
    closed              windows that wait for confirmation, oldest first, one an hour

No size is remembered by message: what leaves the queue, and what is delivered, has the mean size of what was held
then. An empty queue holds no bytes, so no error lasts longer than a backlog. A duplicate is taken out by its own size.

Bounds: WINDOWS_HELD_MAX closed windows. Where another one cannot be kept, the open window goes on into the next hour
with its counters: it was not exported under its own hour, so none is counted twice or lost. The integral begins again
with the later hour; for an hour without a record the reader takes the level that the last record names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from storage_nodes.limits import USAGE_WINDOWS_HELD_MAX
from storage_nodes.machines.queue.effects import MeteredHour
from storage_nodes.protocol.usage import Origin

HOUR_MS = 3_600_000

# Positions of the counters of one origin, as the usage stream has them.
(SENT, DELIVERED, DELETED, MOVED, DEAD_LETTERED, SCHEDULED,
 SENT_BYTES, DELIVERED_BYTES, SENT_UNITS, DELIVERED_UNITS) = range(10)  # fmt: skip
COUNTERS = 10

_CLIENT, _REDRIVE = int(Origin.CLIENT), int(Origin.REDRIVE)


class Totals(NamedTuple):
    """Of the queue, before an entry or after it; messages."""

    held: int
    received: int
    deleted: int
    dead_lettered: int


class Metering:
    """Of one partition, from its first message on. Changed in log order only, like the state that it is a part of."""

    __slots__ = (
        "closed",
        "counters",
        "held_bytes",
        "held_units",
        "hour_ms",
        "is_changed",
        "is_final",
        "is_said",
        "stored_byte_ms",
        "until_ms",
    )

    def __init__(self, time_ms: int) -> None:
        self.hour_ms = time_ms - time_ms % HOUR_MS
        self.until_ms = time_ms  # hour_ms <= until_ms < hour_ms + HOUR_MS
        self.counters: dict[int, list[int]] = {}
        self.held_bytes = self.held_units = self.stored_byte_ms = 0
        self.is_changed = self.is_said = self.is_final = False
        self.closed: list[MeteredHour] = []

    # --- entries ----------------------------------------------------------------------------------------------

    def advance(self, time_ms: int) -> None:
        """An entry of this time follows."""
        passed_ms = time_ms - self.until_ms
        if passed_ms <= 0:
            return
        if time_ms - self.hour_ms >= HOUR_MS:
            self._cross(time_ms)
            return
        self.stored_byte_ms += self.held_bytes * passed_ms
        self.until_ms = time_ms

    def sent(self, origin: int, messages: int, billed_bytes: int, units: int) -> None:
        """These stand in the queue now. What a move brought is not sent once more."""
        self.held_bytes += billed_bytes
        self.held_units += units
        counters = self._of(origin)
        if origin == _REDRIVE:
            counters[MOVED] += messages
            return
        counters[SENT] += messages
        counters[SENT_BYTES] += billed_bytes
        counters[SENT_UNITS] += units

    def scheduled(self, origin: int, messages: int) -> None:
        self._of(origin)[SCHEDULED] += messages

    def settle(self, before: Totals, after: Totals) -> None:
        """Commands changed the queue from the one to the other: no message came, some may have left."""
        delivered = after.received - before.received
        if delivered or after.deleted != before.deleted or after.dead_lettered != before.dead_lettered:
            counters = self._of(_CLIENT)
            counters[DELETED] += after.deleted - before.deleted
            counters[DEAD_LETTERED] += after.dead_lettered - before.dead_lettered
            if delivered:
                counters[DELIVERED] += delivered
                counters[DELIVERED_BYTES] += self.held_bytes * delivered // before.held
                counters[DELIVERED_UNITS] += max(self.held_units * delivered // before.held, delivered)
        left = before.held - after.held
        if left:
            self.is_changed = True
            self.held_bytes -= _share(self.held_bytes, left, before.held)
            self.held_units -= _share(self.held_units, left, before.held)

    def close(self, time_ms: int) -> None:
        """Close the open window early, at this time, or a moment later where its figures up to then were named."""
        self.advance(time_ms)
        if self.is_changed and self.is_said:
            self.advance(self.until_ms + 1)
        if self.is_changed and len(self.closed) < USAGE_WINDOWS_HELD_MAX:
            self._say()
            self.is_said = True

    def end(self) -> None:
        """The partition is retired. What it stores is billed up to now: that has to be said, also where nothing else
        happened in this hour."""
        self.is_final = True
        self.is_changed = self.is_changed or self.held_bytes > 0

    def exported(self, hour_ms: int, until_ms: int) -> None:
        """Windows up to this one stand in the usage stream, committed."""
        self.closed = [window for window in self.closed if window[:2] > (hour_ms, until_ms)]

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nothing is held, counted or waiting: the partition needs no meter until its next message. A retired one
        keeps it, as it says so."""
        if self.is_final:
            return False
        return not (self.closed or self.counters or self.held_bytes or self.is_changed or self.is_said)

    @property
    def is_ended(self) -> bool:
        """Retired, and the last window stands in the usage stream."""
        return self.is_final and not self.is_changed and not self.closed

    def window(self) -> MeteredHour:
        """The open window as it is now."""
        origins = tuple((origin, *self.counters[origin]) for origin in sorted(self.counters))
        return MeteredHour(self.hour_ms, self.until_ms, self.stored_byte_ms, self.held_bytes, origins)

    def pack(self) -> list[Any]:
        """For the checkpoint; the inverse is `unpack`. The counters stand by origin, so equal states give equal
        bytes."""
        scalars = [
            self.hour_ms, self.until_ms, self.held_bytes, self.held_units, self.stored_byte_ms,
            int(self.is_changed), int(self.is_said),
        ]  # fmt: skip
        if self.is_final:
            scalars.append(1)
        return [scalars, self.window().origins, self.closed]

    @classmethod
    def unpack(cls, packed: list[Any]) -> Metering:
        scalars, origins, closed = packed
        meter = cls(scalars[0])
        (
            meter.hour_ms, meter.until_ms, meter.held_bytes, meter.held_units, meter.stored_byte_ms,
            is_changed, is_said, *is_final,
        ) = scalars  # fmt: skip
        meter.is_changed, meter.is_said, meter.is_final = bool(is_changed), bool(is_said), bool(is_final)
        meter.counters = {origin: counters for origin, *counters in origins}
        meter.closed = [
            MeteredHour(hour_ms, until_ms, stored_byte_ms, stored_bytes, tuple(map(tuple, origins)))
            for hour_ms, until_ms, stored_byte_ms, stored_bytes, origins in closed
        ]
        return meter

    # --- inside -----------------------------------------------------------------------------------------------

    def _of(self, origin: int) -> list[int]:
        """Something is counted under this origin."""
        self.is_changed = True
        counters = self.counters.get(origin)
        if counters is None:
            counters = self.counters[origin] = [0] * COUNTERS
        return counters

    def _cross(self, time_ms: int) -> None:
        """An entry of a later hour: the window ends with its own, and another begins."""
        end_ms = self.hour_ms + HOUR_MS
        is_full = len(self.closed) >= USAGE_WINDOWS_HELD_MAX and not self.is_said
        if not (self.is_changed and is_full):
            self.stored_byte_ms += self.held_bytes * (end_ms - self.until_ms)
            self.until_ms = end_ms
            if self.is_changed:
                self._say()
            self.counters = {}
        self.hour_ms = time_ms - time_ms % HOUR_MS
        self.stored_byte_ms = self.held_bytes * (time_ms - self.hour_ms)
        self.until_ms = time_ms
        self.is_said = False

    def _say(self) -> None:
        """The open window as it is now waits for its export, in the place of what was said of its hour before."""
        if self.closed and self.closed[-1].hour_ms == self.hour_ms:
            self.closed.pop()
        self.closed.append(self.window())
        self.is_changed = False


def _share(held: int, count: int, held_count: int) -> int:
    """What so many of so many messages weigh, by their mean; of all of them, all."""
    return held * count // held_count
