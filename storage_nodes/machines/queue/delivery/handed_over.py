"""What a leader tells the meter of its deliveries, in its memory: which leases became deliveries, and how large their
messages are (docs/storage/metering.md).

    Deliver -> the driver reads the bodies and answers -> `handed_over` -> HANDED_OVER in the log

What is to be told goes with the next commands; where none come, with a batch of its own after HANDED_OVER_MS. What was
told and then seen by no consumer is taken back by the command that makes it available again (UNSEEN).

Sizes are remembered of messages in flight that were handed out here, or that the driver read for another reason. The
command that takes a message out of the queue names its size.

Of a message its head is kept, which says its size (`protocol/usage.py`): bytes that go into the log as they are. What
heads say together is read for all answers of a batch at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from storage_nodes.limits import HANDED_OVER_MS
from storage_nodes.machines.queue.state.checkpoint import Live
from storage_nodes.protocol.usage import head_of_size, heads_of, size_of_head, sums_of_heads

# Sizes beyond those of messages in flight, and the newest that are kept though they are none yet.
_GARBAGE_MAX = 1_024
_NEWEST_KEPT = 512


Told = tuple[int, int, int, int]
"""Fields of HANDED_OVER: leases, messages, billed bytes, units."""


class HandedOver:
    __slots__ = (
        "_billed_bytes", "_heads", "_known", "_leases", "_messages", "_offsets", "_under_way", "_units", "due_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self._leases = self._messages = self._billed_bytes = self._units = 0
        # Messages handed over whose heads were not looked at yet, and these.
        self._offsets: list[int] = []
        self._heads: list[bytes] = []
        self._known: dict[int, bytes] = {}  # offset -> head
        self._under_way = 0  # what was told is in so many commands that are not folded yet
        self.due_ms = 0  # when what is to be told goes alone; 0 = nothing is to be told

    # --- in -----------------------------------------------------------------------------------------------------

    def handed_over(self, bodies: Mapping[int, bytes], kept_back: int, time_ms: int) -> None:
        """Leases of these messages (offset -> record body) became deliveries. So many others did not: their client had
        left, the answer was full, the message was gone."""
        self._leases += len(bodies) + kept_back
        self._offsets += bodies
        self._heads += heads_of(bodies.values())
        if not self.due_ms:
            self.due_ms = time_ms + HANDED_OVER_MS

    def note_sizes(self, sizes_bytes: dict[int, int]) -> None:
        """Billed bytes of messages in the queue."""
        self._all_known().update(zip(sizes_bytes, map(head_of_size, sizes_bytes.values()), strict=True))

    def forget(self, offsets: Iterable[int], live: Live, fresh_picked: int) -> None:
        """These are out of the queue, by a command that named their sizes."""
        if known := self._all_known():
            deque(map(known.pop, offsets, repeat(None)), maxlen=0)
            self.trim(live, fresh_picked)

    def trim(self, live: Live, fresh_picked: int) -> None:
        """Those go that are neither in flight nor about to be, where they have become many: `fresh_picked` leases are
        on their way, which came last."""
        if len(self._known) > 2 * (len(live) + fresh_picked) + _GARBAGE_MAX:
            known = self._known
            newest = set(list(known)[-_NEWEST_KEPT - fresh_picked :])
            self._known = {offset: head for offset, head in known.items() if offset in live or offset in newest}

    def folded(self) -> None:
        """A command that told came back."""
        self._under_way -= 1

    def clear(self) -> None:
        """The queue was emptied."""
        self._all_known().clear()

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
        return offset in self._all_known()

    def take(self) -> Told | None:
        """None: nothing is to be told."""
        if not self.due_ms:
            return None
        self._all_known()
        self.due_ms = 0
        told = (self._leases, self._messages, self._billed_bytes, self._units)
        self._leases = self._messages = self._billed_bytes = self._units = 0
        self._under_way += told[0] > 0
        return told if told[0] else None

    def heads_of(self, offsets: Sequence[int], keep: bool) -> list[bytes | None]:
        """For a command that takes these out of the queue: their heads, None where they are not known. Unless they are
        to be kept, they are known no more: the command says them. Empty where none is known."""
        known = self._all_known()
        if not known:
            return []
        return list(map(known.get, offsets) if keep else map(known.pop, offsets, repeat(None)))

    def sizes_of(self, offsets: Sequence[int]) -> list[int | None]:
        """For a command that takes these out of the queue, or makes them available again: billed bytes each, None where
        they are not known; empty if none is."""
        heads = self.heads_of(offsets, keep=True)
        return [None if head is None else size_of_head(head) for head in heads] if any(heads) else []

    # --- inside -------------------------------------------------------------------------------------------------

    def _all_known(self) -> dict[int, bytes]:
        """Heads by offset, those of the last answers too."""
        if heads := self._heads:
            billed_bytes, units = sums_of_heads(b"".join(heads))
            self._messages += len(heads)
            self._billed_bytes += billed_bytes
            self._units += units
            self._known.update(zip(self._offsets, heads, strict=True))
            self._offsets, self._heads = [], []
        return self._known
