"""What a leader tells the meter of its deliveries, in its memory: which leases became deliveries, and how large their
messages are (docs/storage/metering.md).

    Deliver -> the driver reads the bodies and answers -> `handed_over` -> HANDED_OVER in the log

What is to be told goes with the next commands; where none come, with a batch of its own after HANDED_OVER_MS. Sums that
fell below zero wait: an answer that was told and then lost with its connection is available again, and counts with the
next delivery instead.

Sizes are remembered of messages in flight that were handed out here, or that the driver read for another reason: they
go with the commands that take messages out of the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage_nodes.limits import HANDED_OVER_MS
from storage_nodes.machines.queue.state.checkpoint import Live
from storage_nodes.protocol.usage import units_of_all

# Sizes beyond those of messages in flight, and the newest that are kept though they are none yet.
_GARBAGE_MAX = 1_024
_NEWEST_KEPT = 512


class HandedOver:
    __slots__ = ("_billed_bytes", "_leases", "_messages", "_sizes", "_units", "due_ms")

    def __init__(self) -> None:
        self._leases = self._messages = self._billed_bytes = self._units = 0
        self._sizes: dict[int, int] = {}  # offset -> billed bytes
        self.due_ms = 0  # when what is to be told goes alone; 0 = nothing is to be told

    # --- in -----------------------------------------------------------------------------------------------------

    def handed_over(self, sizes_bytes: dict[int, int], kept_back: int, time_ms: int) -> None:
        """Leases of these messages (offset -> billed bytes) became deliveries. So many others did not: nobody was there
        any more, the answer was full, the message was gone."""
        count = len(sizes_bytes)
        self._leases += count + kept_back
        self._messages += count
        self._billed_bytes += sum(sizes_bytes.values())
        self._units += units_of_all(sizes_bytes.values())
        self.due_ms = self.due_ms or time_ms + HANDED_OVER_MS
        self._sizes.update(sizes_bytes)

    def came_back(self, offsets: Iterable[int]) -> None:
        """These were told as handed over, but their answer never left."""
        sizes_bytes = [self._sizes[offset] for offset in offsets if offset in self._sizes]
        self._messages -= len(sizes_bytes)
        self._billed_bytes -= sum(sizes_bytes)
        self._units -= units_of_all(sizes_bytes)

    def note_sizes(self, sizes_bytes: dict[int, int]) -> None:
        """Billed bytes of messages in the queue."""
        self._sizes.update(sizes_bytes)

    def forget(self, offsets: Iterable[int], live: Live) -> None:
        """These may have left `live`."""
        sizes = self._sizes
        if not sizes:
            return
        for offset in offsets:
            if offset not in live:
                sizes.pop(offset, None)
        if len(sizes) > 2 * len(live) + _GARBAGE_MAX:
            newest = set(list(sizes)[-_NEWEST_KEPT:])
            self._sizes = {offset: size for offset, size in sizes.items() if offset in live or offset in newest}

    def clear(self) -> None:
        """The queue was emptied."""
        self._sizes.clear()

    # --- out ----------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Is there nothing to be told?"""
        return not self.due_ms

    def hurry(self, now_ms: int) -> bool:
        """Is there something to be told? Then it is due now."""
        if self.due_ms:
            self.due_ms = min(self.due_ms, now_ms)
        return self.due_ms > 0

    def knows(self, offset: int) -> bool:
        return offset in self._sizes

    def take(self) -> tuple[int, int, int, int] | None:
        """Leases, messages, bytes and units for HANDED_OVER; None: nothing is to be told."""
        if not self.due_ms:
            return None
        self.due_ms = 0
        leases, self._leases = self._leases, 0
        if self._messages < 0 or self._billed_bytes < 0 or self._units < 0:
            return (leases, 0, 0, 0) if leases else None
        told = (leases, self._messages, self._billed_bytes, self._units)
        self._messages = self._billed_bytes = self._units = 0
        return told if any(told) else None

    def sizes_of(self, offsets: Sequence[int]) -> list[int | None]:
        """For a command that takes these out of the queue: billed bytes each, None where they are not known; empty if
        none is."""
        sizes = list(map(self._sizes.get, offsets)) if self._sizes else []
        return sizes if sizes.count(None) < len(sizes) else []
