"""What a queue partition holds, with the questions that its state answers, its checkpoint, and its little memory while
nothing goes on. `queue_state.py` says what the fields mean, and folds the log into them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage_nodes.limits import CHECKPOINT_PIECES_MESSAGES
from storage_nodes.machines.driver_contract import Piece
from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.packed_later import PackedLater, PackedPieces
from storage_nodes.machines.producers import ProducerTable
from storage_nodes.machines.queue.effects import Key
from storage_nodes.machines.queue.state.checkpoint import (
    Checkpoint,
    Entry,
    Live,
    checkpoint_pieces,
    encode_checkpoint,
)
from storage_nodes.machines.queue.state.configs import config_fields, config_of, shared_config
from storage_nodes.machines.queue.state.dedup import DedupWindow
from storage_nodes.machines.queue.state.message_keys import pack_keys, unpack_keys
from storage_nodes.machines.queue.state.metering import Metering
from storage_nodes.machines.queue.state.offset_ranges import LAZY_RANGES_MIN, OffsetRanges
from storage_nodes.machines.queue.state.retry import RetryPolicy
from storage_nodes.machines.queue.state.schedule import Schedule
from storage_nodes.machines.queue.state.shared_empty import EMPTY_ENTRIES, EMPTY_IDS, EMPTY_OFFSETS, EMPTY_SCHEDULE
from storage_nodes.machines.queue.state.taken_letters import TakenLetters
from storage_nodes.protocol.levels import LEVEL_FIRST
from storage_nodes.protocol.messages import MessageState, QueueConfig, QueueStats

_NEVER_PURGED = -LEVEL_1.purge_interval_ms


class HeldMessages:
    """The fields of a queue partition's state. They are changed by the `fold_*` methods of `QueueState` only."""

    __slots__ = (
        "config",
        "cursor",
        "dead_lettered",
        "dedup",
        "delayed",
        "deleted",
        "duplicates",
        "expired",
        "fresh_count",
        "keyed_end",
        "keys",
        "last_ms",
        "letters_taken",
        "level",
        "live",
        "log_end",
        "metering",
        "producers",
        "purge",
        "purged",
        "received",
        "removed_above_cursor",
        "scheduled",
        "sent",
    )

    def __init__(self, config: QueueConfig) -> None:
        self.config = shared_config(config)
        self.level = LEVEL_FIRST  # of the partition, at this place in its log
        self.cursor = 0  # <= log_end
        self.log_end = 0  # end of the last entry folded
        self.fresh_count = 0
        # Shared with all idle queues until there is something to put into them.
        self.live: Live = EMPTY_ENTRIES
        self.removed_above_cursor = EMPTY_OFFSETS  # all >= cursor, none in live
        self.dedup = EMPTY_IDS
        self.scheduled = EMPTY_SCHEDULE
        self.delayed = EMPTY_SCHEDULE
        self.keys: dict[int, Key] = EMPTY_ENTRIES
        self.keyed_end = 0
        self.last_ms = 0  # highest time seen in the log
        # Time of the last purge, and (attempt id, messages purged) where its caller named it; None = it had none.
        self.purge: tuple[int, tuple[bytes, int] | None] | None = None
        # Made with the first record that has a producer.
        self.producers: ProducerTable | None = None
        # Made with the first dead letter that came here.
        self.letters_taken: TakenLetters | None = None
        # Made with the first message, dropped when there is nothing left to meter.
        self.metering: Metering | None = None
        # Totals since the partition was made, in messages; `received` counts deliveries.
        self.sent = self.received = self.deleted = self.expired = self.purged = 0
        self.duplicates = self.dead_lettered = 0

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def last_purge_ms(self) -> int:
        return _NEVER_PURGED if self.purge is None else self.purge[0]

    @property
    def last_purge(self) -> tuple[bytes, int] | None:
        return None if self.purge is None else self.purge[1]

    @property
    def held_count(self) -> int:
        """Messages of whatever state, those that are due another day too."""
        return self.fresh_count + len(self.live) + self.scheduled.count + self.delayed.count

    def is_live(self, base_offset: int, last_offset: int) -> bool:
        """May any offset of the range still hold a message? O(length of the range, or of `live`) at most: a flush and a
        rewrite ask it of stretches of any length, and of halves of them."""
        if last_offset >= self.cursor:
            ahead = self.removed_above_cursor
            if not ahead or not ahead.covers(max(base_offset, self.cursor), last_offset + 1):
                return True
        # First what is found in a few steps: where millions wait for their time it is nearly always so.
        if self.scheduled.any_between(base_offset, last_offset) or self.delayed.any_between(base_offset, last_offset):
            return True
        live = self.live
        if last_offset - base_offset < len(live):
            return not live.keys().isdisjoint(range(base_offset, last_offset + 1))
        return any(base_offset <= offset <= last_offset for offset in live)

    def due_of(self, offset: int) -> int | None:
        """When a message is appended once more that waits for its time in the schedules; None: it does not."""
        due_ms = self.scheduled.due_ms(offset)
        return self.delayed.due_ms(offset) if due_ms is None else due_ms

    def due_ms(self, offset: int, entry: Entry) -> int:
        """When a message in `live` is available: at the end of its lease, or a pause later."""
        retry = self.retry
        return entry[0] if retry is None else retry.due_ms(offset, entry, self.receives_max)

    @property
    def retry(self) -> RetryPolicy | None:
        """None: what failed is available at once."""
        return RetryPolicy.of(self.config)

    @property
    def receives_max(self) -> int:
        """So many receives make a message a dead letter; 0 = none do."""
        return self.config.max_receives if self.config.dead_letter_partition else 0

    @property
    def parked_count(self) -> int:
        """Groups that are held; only FIFO queues have any."""
        return 0

    def low_watermark(self) -> int:
        """No message stands below it. O(in flight)."""
        low = min(self.cursor, min(self.live)) if self.live else self.cursor
        firsts = (self.scheduled.first_offset(), self.delayed.first_offset())
        return min(low, *(first for first in firsts if first is not None), low)

    def look_at(self, offset: int, now_ms: int) -> tuple[MessageState, int, int, int] | None:
        """(state, delivery, deadline_ms, sent_ms, 0 = that of its batch) of a message, None for one that is gone.

        As the state of this moment has it; nothing changes by looking. Meaningless for what is no message.
        """
        entry = self.live.get(offset)
        if entry is None:
            due_ms = self.due_of(offset)
            if due_ms is not None:
                return MessageState.DELAYED, 0, due_ms, 0
            waits = self.cursor <= offset < self.log_end and offset not in self.removed_above_cursor
            return (MessageState.WAITING, 0, 0, 0) if waits else None
        deadline_ms, delivery, _, sent_ms = entry
        due_ms = self.due_ms(offset, entry)
        if due_ms <= now_ms:
            return MessageState.WAITING, delivery, 0, sent_ms
        is_leased = delivery and deadline_ms > now_ms
        return MessageState.IN_FLIGHT if is_leased else MessageState.DELAYED, delivery, due_ms, sent_ms

    def stats(self, now_ms: int) -> QueueStats:
        """As a replica counts that does not lead; O(messages in `live`)."""
        ready = [entry[3] for offset, entry in self.live.items() if self.due_ms(offset, entry) <= now_ms]
        in_flight = sum(entry[1] > 0 and entry[0] > now_ms for entry in self.live.values())
        delayed = len(self.live) - len(ready) - in_flight + len(self.delayed)
        oldest_ms = min(ready, default=0)
        scheduled = len(self.scheduled)
        totals = (self.duplicates, self.dead_lettered, self.parked_count)
        waiting = self.fresh_count + len(ready)
        return QueueStats(
            waiting, in_flight, delayed + scheduled, oldest_ms, 0, 0, *totals, scheduled=scheduled,
            expired=self.expired, purged=self.purged,
        )  # fmt: skip

    def check(self) -> None:
        """Asserts what holds at the end of every entry. O(1). Where it does not, the replica stops before a checkpoint
        is made of it, and does not lead (docs/storage/stopped_replicas.md)."""
        gone = self.deleted + self.expired + self.purged + self.dead_lettered
        counts = (self.fresh_count, self.received, self.deleted, self.expired, self.purged, self.dead_lettered)
        assert self.sent == self.held_count + gone, f"{self.sent} sent, {self.held_count} here, {gone} gone"
        assert min(counts) >= 0 <= self.duplicates, f"a count below 0: {counts}, {self.duplicates} duplicates"
        assert self.cursor <= self.log_end, f"the cursor is at {self.cursor}, the log ends at {self.log_end}"

    def checkpoint(self) -> bytes:
        return encode_checkpoint(self._checkpoint())

    def checkpoint_pieces(self) -> bytes | list[Piece]:
        """The same; not joined where that would take long."""
        return checkpoint_pieces(self._checkpoint(True), True) if self._is_much() else self.checkpoint()

    def _is_much(self) -> bool:
        """Would packing it all at once stall the event loop?"""
        waiting, most = len(self.scheduled) + len(self.delayed), CHECKPOINT_PIECES_MESSAGES
        if waiting >= most or len(self.live) >= most or self.dedup.packed_numbers + self._remembered_numbers >= most:
            return True
        return len(self.removed_above_cursor) >= LAZY_RANGES_MIN or (
            self.producers is not None and self.producers.is_large
        )

    @property
    def _remembered_numbers(self) -> int:
        """Receives that may be repeated, and their messages."""
        return 0

    def _checkpoint(self, later: bool = False) -> Checkpoint:
        """`later`: groups, ids and producers are copied, and packed by who writes."""
        self.check()
        scalars = [
            self.cursor, self.log_end, self.fresh_count, self.last_ms, self.last_purge_ms,
            self.sent, self.received, self.deleted, self.expired, self.purged,
            self.duplicates, self.dead_lettered,
        ]  # fmt: skip
        producers: list[Any] | PackedPieces = []
        if self.producers is not None:
            producers = self.producers.pack_later() if later else self.producers.pack()
        return Checkpoint(
            scalars,
            self.live,
            self.removed_above_cursor,
            self.dedup.pack_later() if later else self.dedup.pack(),
            (PackedLater(self._groups_packer(True)),) if later else self._groups_packer(False)(),
            config_fields(self.config),
            self.scheduled,
            producers,
            list(self.last_purge or ()),
            self.metering.pack() if self.metering is not None else [],
            self.letters_taken.pack() if self.letters_taken is not None else [],
            self.delayed,
            self.level,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        self.level = checkpoint.level
        self.live, self.removed_above_cursor = checkpoint.live, checkpoint.ahead
        self.scheduled, self.delayed = checkpoint.scheduled, checkpoint.delayed
        (
            self.cursor, self.log_end, self.fresh_count, self.last_ms, last_purge_ms,
            self.sent, self.received, self.deleted, self.expired, self.purged,
            self.duplicates, self.dead_lettered,
        ) = checkpoint.scalars  # fmt: skip
        self.config = shared_config(config_of(checkpoint.config, QueueConfig()))
        self.dedup = DedupWindow(self.config.dedup_window_ms)
        packed = (checkpoint.dedup, checkpoint.groups, checkpoint.producers)
        dedup, groups, producers = (field for field in packed if isinstance(field, list))  # as they were read
        self.dedup.unpack(dedup)
        self._unpack_groups(groups)
        self.producers = ProducerTable.unpack(producers) if producers else None
        is_purged = last_purge_ms != _NEVER_PURGED
        self.purge = (last_purge_ms, tuple(checkpoint.last_purge) or None) if is_purged else None
        self.metering = Metering.unpack(checkpoint.metering) if checkpoint.metering else None
        self.letters_taken = TakenLetters.unpack(checkpoint.letters_taken) if checkpoint.letters_taken else None
        self.rest()

    # --- little memory where nothing is going on ---------------------------------------------------------------

    def allocate(self) -> None:
        """Who leads holds on to these: they are this queue's own from now on."""
        if self.live is EMPTY_ENTRIES:
            self.live = {}
        if self.scheduled is EMPTY_SCHEDULE:
            self.scheduled = Schedule()
        if self.delayed is EMPTY_SCHEDULE:
            self.delayed = Schedule()

    def rest(self) -> None:
        """Nobody leads: let go of what is empty."""
        self.live = self.live or EMPTY_ENTRIES
        self.keys = self.keys or EMPTY_ENTRIES
        self.removed_above_cursor = self.removed_above_cursor or EMPTY_OFFSETS
        if not len(self.scheduled):
            self.scheduled = EMPTY_SCHEDULE
        if not len(self.delayed):
            self.delayed = EMPTY_SCHEDULE
        if self.dedup.is_empty:
            self.dedup = EMPTY_IDS

    # --- groups and tags: FIFO queues keep them otherwise -----------------------------------------------------

    def _groups_packer(self, copied: bool) -> Callable[[], list[Any]]:
        """Packs [keyed_end, flat (group, tag, flat (gap, length)...)...]; empty once it says nothing any more.
        `copied`: as they are now, whatever becomes of them."""
        if self.keyed_end <= self.cursor and not self.keys:
            return list
        keyed_end, keys = self.keyed_end, self.keys.copy() if copied else self.keys
        return lambda: [keyed_end, pack_keys(keys)]

    def _unpack_groups(self, packed: list[Any]) -> None:
        self.keyed_end, flat = packed or (0, ())
        self.keys = unpack_keys(flat)

    # --- inside ----------------------------------------------------------------------------------------------

    def _own_keys(self) -> dict[int, Key]:
        if self.keys is EMPTY_ENTRIES:
            self.keys = {}
        return self.keys

    def _mark_removed(self, first: int, end: int) -> None:
        """What stands in [first, end) does not wait any more."""
        if self.removed_above_cursor is EMPTY_OFFSETS:
            self.removed_above_cursor = OffsetRanges()
        self.removed_above_cursor.add(first, end)

    def _move_cursor(self, cursor: int) -> None:
        if cursor <= self.cursor:
            return
        assert cursor <= self.log_end or self.fresh_count == 0, "the cursor passed messages that were not folded"
        self.cursor = cursor
        if self.removed_above_cursor:
            self.removed_above_cursor.drop_below(cursor)
