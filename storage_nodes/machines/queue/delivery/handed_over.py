"""What a leader tells the meter of its deliveries, in its memory: which leases became deliveries, and how large their
messages are (docs/storage/metering.md).

    Deliver -> the driver reads the bodies and answers -> `handed_over` -> HandedOverCommand in the log

What is to be told goes with the next commands; where none come, with a batch of its own after HANDED_OVER_MS. What was
told and then seen by no consumer is taken back by the command that makes it available again (UNSEEN).

Sizes are remembered of messages in flight that were handed out here, or that the driver read for another reason. The
command that takes a message out of the queue names its size.

An answer costs next to nothing: the heads of its messages are kept, and the sizes in them are read for all answers of a
batch at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from storage_nodes.limits import HANDED_OVER_MS
from storage_nodes.machines.queue.commands import Told
from storage_nodes.machines.queue.state.checkpoint import Live
from storage_nodes.protocol.usage import billed_bytes_of_heads, heads_of, units_of_all

# Sizes beyond those of messages in flight, and the newest that are kept though they are none yet.
_GARBAGE_MAX = 1_024
_NEWEST_KEPT = 512


class HandedOver:
    __slots__ = (
        "_billed_bytes", "_heads", "_leases", "_messages", "_offsets", "_sizes", "_under_way", "_units", "due_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self._leases = self._messages = self._billed_bytes = self._units = 0
        # Messages handed over whose sizes were not read yet, and what they are read from.
        self._offsets: list[int] = []
        self._heads: list[bytes] = []  # one an answer
        self._sizes: dict[int, int] = {}  # offset -> billed bytes
        self._under_way = 0  # what was told is in so many commands that are not folded yet
        self.due_ms = 0  # when what is to be told goes alone; 0 = nothing is to be told

    # --- in -----------------------------------------------------------------------------------------------------

    def handed_over(self, bodies: Mapping[int, bytes], kept_back: int, time_ms: int) -> None:
        """Leases of these messages (offset -> record body) became deliveries. So many others did not: their client had
        left, the answer was full, the message was gone."""
        self._leases += len(bodies) + kept_back
        self._offsets += bodies
        self._heads.append(heads_of(bodies.values()))
        if not self.due_ms:
            self.due_ms = time_ms + HANDED_OVER_MS

    def note_sizes(self, sizes_bytes: dict[int, int]) -> None:
        """Billed bytes of messages in the queue."""
        self._known().update(sizes_bytes)

    def forget(self, offsets: Iterable[int], live: Live, fresh_picked: int) -> None:
        """These are out of the queue, by a command that named their sizes. From time to time those go, too, that
        are neither in flight nor about to be: `fresh_picked` leases are on their way, which came last."""
        sizes = self._known()
        if not sizes:
            return
        deque(map(sizes.pop, offsets, repeat(None)), maxlen=0)
        if len(sizes) > 2 * (len(live) + fresh_picked) + _GARBAGE_MAX:
            newest = set(list(sizes)[-_NEWEST_KEPT - fresh_picked :])
            self._sizes = {offset: size for offset, size in sizes.items() if offset in live or offset in newest}

    def folded(self) -> None:
        """A command that told came back."""
        self._under_way -= 1

    def clear(self) -> None:
        """The queue was emptied."""
        self._known().clear()

    # --- out ----------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Is there nothing to be told?"""
        return not self.due_ms

    @property
    def is_folded(self) -> bool:
        """Does the meter have all of it?"""
        return not self.due_ms and not self._under_way

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
        told = (self._leases, self._messages, self._billed_bytes, self._units)
        self._leases = self._messages = self._billed_bytes = self._units = 0
        self._under_way += told[0] > 0
        return told if told[0] else None

    def sizes_of(self, offsets: Sequence[int]) -> list[int | None]:
        """For a command that takes these out of the queue, or makes them available again: billed bytes each, None where
        they are not known; empty if none is."""
        known = self._known()
        sizes = list(map(known.get, offsets)) if known else []
        return sizes if sizes.count(None) < len(sizes) else []

    # --- inside -------------------------------------------------------------------------------------------------

    def _known(self) -> dict[int, int]:
        """Sizes by offset, those of the last answers too."""
        if self._heads:
            sizes_bytes = billed_bytes_of_heads(b"".join(self._heads))
            self._messages += len(sizes_bytes)
            self._billed_bytes += sum(sizes_bytes)
            self._units += units_of_all(sizes_bytes)
            self._sizes.update(zip(self._offsets, sizes_bytes, strict=True))
            self._offsets, self._heads = [], []
        return self._sizes
