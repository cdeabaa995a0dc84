"""What a queue partition is billed for, a part of its fold (docs/storage/metering.md). Pure.

    entries -> counters of the open window -> closed window -> appended to the usage stream -> EXPORTED -> forgotten

A *window* is what the partition did in one hour of its log's time, which never falls. The first entry of a later hour
closes it; so does a UsageClosedCommand, at its own time: then the window stays open, and the record of its end says all
of it once more. A closed window waits here until UsageExportedCommand names it, or one of a later time.

    hour_ms, until_ms   the open window: where its hour begins, how far its integral goes
    counters            of the open window, by origin
    held_bytes          of all messages held
    stored_byte_ms      integral of held_bytes from hour_ms to until_ms
    is_changed          does the open window say anything that no closed one says? Only then it is closed
    is_said             was it closed early, in part?
    is_final            is the partition retired? Then its last window says that nothing is stored after it
    leased              messages that were leased, and of which no leader has said yet what became of them
    owed                messages, bytes and units that were counted as delivered, and that nobody saw: set off against
                        what is delivered later, where the window that counts them was named already
    closed              windows that wait for confirmation, oldest first, one an hour

No replica remembers sizes by message. The leader does, of what it read for a consumer: it says what was handed over
(HandedOverCommand: a lease whose messages left for nobody is no delivery), and how large each message was that
leaves. What
no leader said has the mean size of what was held then: leases of a leader that was lost before it told, messages that
expire, or that are deleted under a later leader. An empty queue holds no bytes, so no error lasts longer than a
backlog. A duplicate is taken out by its own size.

Bounds: WINDOWS_HELD_MAX closed windows. Where another one cannot be kept, the open window goes on into the next hour
with its counters: it was not exported under its own hour, so none is counted twice or lost. The integral begins again
with the later hour; for an hour without a record the reader takes the level that the last record names.
"""

from __future__ import annotations

from typing import Any

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.queue.effects import MeteredHour
from storage_nodes.protocol.usage import Origin, units_of

HOUR_MS = LEVEL_1.usage_hour_ms
USAGE_WINDOWS_HELD_MAX = LEVEL_1.usage_windows_held_max

# Positions of the counters of one origin, as the usage stream has them.
(SENT, DELIVERED, DELETED, MOVED, DEAD_LETTERED, SCHEDULED,
 SENT_BYTES, DELIVERED_BYTES, SENT_UNITS, DELIVERED_UNITS) = range(10)  # fmt: skip
COUNTERS = 10

_CLIENT, _REDRIVE = int(Origin.CLIENT), int(Origin.REDRIVE)


_OF_DELIVERIES = (DELIVERED, DELIVERED_BYTES, DELIVERED_UNITS)
_NOTHING = (0, 0, 0)

Totals = tuple[int, int, int, int]
"""Of the queue, before an entry or after it; messages: held, received, deleted, dead-lettered."""


class Metering:
    """Of one partition, from its first message on. Changed in log order only, like the state that it is a part of."""

    __slots__ = (
        "_handed_over_bytes",
        "_handed_over_messages",
        "_handed_over_units",
        "_left_bytes",
        "_left_messages",
        "_settled_leases",
        "closed",
        "counters",
        "held_bytes",
        "hour_ms",
        "is_changed",
        "is_final",
        "is_said",
        "leased",
        "owed",
        "stored_byte_ms",
        "until_ms",
    )

    def __init__(self, time_ms: int) -> None:
        self.hour_ms = time_ms - time_ms % HOUR_MS
        self.until_ms = time_ms  # hour_ms <= until_ms < hour_ms + HOUR_MS
        self.counters: dict[int, list[int]] = {}
        self.held_bytes = self.stored_byte_ms = self.leased = 0
        self.is_changed = self.is_said = self.is_final = False
        self.owed = _NOTHING
        self.closed: list[MeteredHour] = []
        # What the commands of one entry say, until `settle`.
        self._settled_leases = 0
        self._handed_over_messages = self._handed_over_bytes = self._handed_over_units = 0
        self._left_messages = self._left_bytes = 0

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
        counters = self._of(origin)
        if origin == _REDRIVE:
            counters[MOVED] += messages
            return
        counters[SENT] += messages
        counters[SENT_BYTES] += billed_bytes
        counters[SENT_UNITS] += units

    def scheduled(self, origin: int, messages: int) -> None:
        self._of(origin)[SCHEDULED] += messages

    def left(self, messages: int, billed_bytes: int) -> None:
        """Of the messages that this entry takes out of the queue so many have this size together."""
        self._left_messages += messages
        self._left_bytes += billed_bytes

    def handed_over(self, leases: int, messages: int, billed_bytes: int, units: int) -> None:
        """The leader says what became of leases, in this entry or before: so many are settled; of those, and of earlier
        ones, so much was handed over."""
        self._settled_leases += leases
        self._handed_over_messages += messages
        self._handed_over_bytes += billed_bytes
        self._handed_over_units += units

    def take_back(self, messages: int, billed_bytes: int, units: int) -> None:
        """So much of what was handed over, in this entry or before, was seen by nobody."""
        owed_messages, owed_bytes, owed_units = self.owed
        self.owed = owed_messages + messages, owed_bytes + billed_bytes, owed_units + units

    def settle(self, before: Totals, after: Totals) -> None:
        """Commands changed the queue from the one to the other: no message came, some may have left."""
        held_before, received_before, deleted_before, dead_before = before
        held, received, deleted, dead = after
        if deleted != deleted_before or dead != dead_before:
            counters = self._of(_CLIENT)
            counters[DELETED] += deleted - deleted_before
            counters[DEAD_LETTERED] += dead - dead_before
        self.leased += received - received_before
        if self._settled_leases or self._handed_over_messages:
            self._bill_handed_over()
        if self.owed is not _NOTHING and not self.is_said and _CLIENT in self.counters:
            self._set_off(self.counters[_CLIENT])
        if held != held_before:
            self.is_changed = True
            self._take_out(held_before - held, held_before)
        self._left_messages = self._left_bytes = 0

    def end_leadership(self, held: int) -> None:
        """Nobody will say what became of the leases of this leader, of which `held` messages are in the queue now: they
        are taken for handed over. The client may have them."""
        leased, self.leased = self.leased, 0
        if leased:
            billed_bytes = self.held_bytes * leased // max(held, leased)
            self._deliver(leased, billed_bytes, max(units_of(billed_bytes), leased))

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
        """Nothing is stored, counted or waiting: where the queue holds no message either, the partition needs no meter
        until its next one. A retired one keeps it, as it says so."""
        if self.is_final:
            return False
        is_open = self.counters or self.is_changed or self.is_said or self.owed is not _NOTHING
        return not (self.closed or is_open or self.held_bytes or self.leased)

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
            self.hour_ms, self.until_ms, self.held_bytes, self.stored_byte_ms, self.leased,
            int(self.is_changed), int(self.is_said),
        ]  # fmt: skip
        if self.is_final or self.owed is not _NOTHING:
            scalars += (int(self.is_final), *self.owed)
        return [scalars, self.window().origins, self.closed]

    @classmethod
    def unpack(cls, packed: list[Any]) -> Metering:
        scalars, origins, closed = packed
        meter = cls(scalars[0])
        (
            meter.hour_ms, meter.until_ms, meter.held_bytes, meter.stored_byte_ms, meter.leased,
            is_changed, is_said, *later,
        ) = scalars  # fmt: skip
        meter.is_changed, meter.is_said, meter.is_final = bool(is_changed), bool(is_said), bool(later and later[0])
        if any(later[1:]):
            meter.owed = later[1], later[2], later[3]
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

    def _bill_handed_over(self) -> None:
        """A message that was deleted by an earlier receipt, before its lease was folded, is no delivery; its share of
        the sums goes with it."""
        messages, billed_bytes, units = self._handed_over_messages, self._handed_over_bytes, self._handed_over_units
        delivered = min(messages, self.leased)
        if delivered < messages:
            billed_bytes, units = billed_bytes * delivered // messages, max(units * delivered // messages, delivered)
        self.leased -= min(self._settled_leases, self.leased)
        self._settled_leases = self._handed_over_messages = self._handed_over_bytes = self._handed_over_units = 0
        if delivered:
            self._deliver(delivered, billed_bytes, units)

    def _deliver(self, messages: int, billed_bytes: int, units: int) -> None:
        counters = self._of(_CLIENT)
        if self.owed is not _NOTHING:
            delivered = [0] * COUNTERS
            delivered[DELIVERED], delivered[DELIVERED_BYTES], delivered[DELIVERED_UNITS] = messages, billed_bytes, units
            self._set_off(delivered)
            messages, billed_bytes, units = (delivered[place] for place in _OF_DELIVERIES)
        counters[DELIVERED] += messages
        counters[DELIVERED_BYTES] += billed_bytes
        counters[DELIVERED_UNITS] += units

    def _set_off(self, counters: list[int]) -> None:
        """What is owed is taken out of these, as far as they go."""
        rest = []
        for place, owed in zip(_OF_DELIVERIES, self.owed, strict=True):
            taken = min(counters[place], owed)
            counters[place] -= taken
            rest.append(owed - taken)
            self.is_changed = self.is_changed or taken > 0
        self.owed = (rest[0], rest[1], rest[2]) if any(rest) else _NOTHING

    def _take_out(self, left: int, held: int) -> None:
        """So many of the messages held leave: by the sizes that were said, the others by their mean."""
        said = min(self._left_messages, left)
        self.held_bytes = max(0, self.held_bytes - self._left_bytes)
        if left == held:
            self.held_bytes = 0
        elif left > said:
            self.held_bytes -= self.held_bytes * (left - said) // (held - said)

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
