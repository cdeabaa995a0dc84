"""What a leader tells the meter of its deliveries, in its memory: which leases became deliveries, and how large their
messages are (docs/storage/metering.md).

    Deliver -> the driver reads the bodies and answers -> `handed_over` -> HANDED_OVER in the log

What is to be told goes with the next commands; where none come, with a batch of its own after HANDED_OVER_MS. Sums that
fell below zero wait: an answer that was told and then lost with its connection is available again, and counts with the
next delivery instead.

Sizes are remembered of messages in flight that were handed out here, or that the driver read for another reason. The
command that takes a message out of the queue takes its size along.

An answer costs next to nothing: the heads of its messages are kept, and the sizes in them are read for all answers of a
batch at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from storage_nodes.limits import HANDED_OVER_MS
from storage_nodes.machines.queue.state.checkpoint import Live
from storage_nodes.protocol.usage import billed_bytes_of_heads, head_of, units_of_all

# Sizes beyond those of messages in flight, and the newest that are kept though they are none yet.
_GARBAGE_MAX = 1_024
_NEWEST_KEPT = 512


Told = tuple[int, int, int, int]
"""Fields of HANDED_OVER: leases, messages, billed bytes, units."""


class HandedOver:
    __slots__ = (
        "_billed_bytes", "_heads", "_leases", "_lengths", "_messages", "_offsets", "_sizes", "_units", "due_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self._leases = self._messages = self._billed_bytes = self._units = 0
        # Messages handed over whose sizes were not read yet, and what they are read from.
        self._offsets: list[int] = []
        self._heads: list[bytes] = []
        self._lengths: list[int] = []
        self._sizes: dict[int, int] = {}  # offset -> billed bytes
        self.due_ms = 0  # when what is to be told goes alone; 0 = nothing is to be told

    # --- in -----------------------------------------------------------------------------------------------------

    def handed_over(self, bodies: Mapping[int, bytes], kept_back: int, time_ms: int) -> None:
        """Leases of these messages (offset -> record body) became deliveries. So many others did not: nobody was there
        any more, the answer was full, the message was gone."""
        self._leases += len(bodies) + kept_back
        self._offsets += bodies
        self._heads += map(head_of, bodies.values())
        self._lengths += map(len, bodies.values())
        if not self.due_ms:
            self.due_ms = time_ms + HANDED_OVER_MS

    def came_back(self, offsets: Iterable[int]) -> None:
        """These were told as handed over, but their answer never left."""
        known = self._known()
        sizes_bytes = [known[offset] for offset in offsets if offset in known]
        self._messages -= len(sizes_bytes)
        self._billed_bytes -= sum(sizes_bytes)
        self._units -= units_of_all(sizes_bytes)

    def note_sizes(self, sizes_bytes: dict[int, int]) -> None:
        """Billed bytes of messages in the queue."""
        self._known().update(sizes_bytes)

    def let_go(self, live: Live) -> None:
        """From time to time: forgets sizes of messages that are in flight no more, and that no command took along."""
        if len(self._sizes) > 2 * len(live) + _GARBAGE_MAX:
            newest = set(list(self._sizes)[-_NEWEST_KEPT:])
            self._sizes = {offset: size for offset, size in self._sizes.items() if offset in live or offset in newest}

    def clear(self) -> None:
        """The queue was emptied."""
        self._known().clear()

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
        return offset in self._known()

    def take(self) -> Told | None:
        """None: nothing is to be told."""
        if not self.due_ms:
            return None
        self._known()
        self.due_ms = 0
        leases, self._leases = self._leases, 0
        if self._messages < 0 or self._billed_bytes < 0 or self._units < 0:
            return (leases, 0, 0, 0) if leases else None
        told = (leases, self._messages, self._billed_bytes, self._units)
        self._messages = self._billed_bytes = self._units = 0
        return told if any(told) else None

    def take_sizes(self, offsets: Sequence[int]) -> list[int | None]:
        """For a command that takes these out of the queue: billed bytes each, None where they are not known; empty if
        none is. They are known no more."""
        known = self._known()
        if not known:
            return []
        sizes = list(map(known.pop, offsets, repeat(None)))
        return sizes if sizes.count(None) < len(sizes) else []

    # --- inside -------------------------------------------------------------------------------------------------

    def _known(self) -> dict[int, int]:
        """Sizes by offset, those of the last answers too."""
        if self._heads:
            sizes_bytes = billed_bytes_of_heads(self._heads, self._lengths)
            self._messages += len(sizes_bytes)
            self._billed_bytes += sum(sizes_bytes)
            self._units += units_of_all(sizes_bytes)
            self._sizes.update(zip(self._offsets, sizes_bytes, strict=True))
            self._offsets, self._heads, self._lengths = [], [], []
        return self._sizes
