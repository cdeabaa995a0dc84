"""What a leader asks of its delivery strategy: which waiting message goes to whom, and when that is in the log.

    in_order.py   standard queues whose messages have no groups and tags: in log order
    fair.py       standard queues with groups or tags: noisy groups let the others go first, receives ask for tags
    by_group.py   FIFO queues: group by group, delivered after commit

The leader has one of them, and shares a `DeliveryContext` with it: leases, waiters, and commands under way. A standard
queue begins in order; with its first group or tag the leader gets the fair strategy instead, and everything else stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from storage_nodes.machines.driver_contract import Token
from storage_nodes.machines.queue.commands import (
    EXPIRED_PER_COMMAND_MAX,
    AcquiredCommand,
    DeletedCommand,
    LeasedCommand,
    UnparkedCommand,
)
from storage_nodes.machines.queue.delivery.leases import Leases
from storage_nodes.machines.queue.delivery.pending_commands import InFlightCommand, PendingCommands
from storage_nodes.machines.queue.delivery.probes import Probes
from storage_nodes.machines.queue.delivery.waiters import Waiters
from storage_nodes.machines.queue.effects import Effect, FreshRange, Tags
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.errors import ErrorCode

# Between two looks for outlived messages, of which each lets go of a part.
EXPIRY_PAUSE_MS = 50


class WaitingMessages(Protocol):
    """The stretch of the log in which a leader knows every waiting message."""

    end: int  # every waiting message below it is known or was taken
    count: int  # waiting messages in view

    @property
    def head(self) -> int:
        """No message below it waits, unless it is in `live`."""

    @property
    def oldest_ms(self) -> int:
        """When the first waiting message was sent; 0 where none is in view."""

    def arrived(self, base: int, last: int, timestamp_ms: int, before: int, noted: FoldedHeaders | None, /) -> None:
        """A data batch was folded when the log ended at `before`."""

    def commands_arrived(self, before: int, /) -> None:
        """A control batch was folded when the log ended at `before`."""

    def fetched(self, ranges: Iterable[FreshRange], keys: Sequence[Any], end: int, /) -> None:
        """The log was read up to `end`."""

    def became_ready(self, offsets: Sequence[int], /) -> None:
        """These may be received again, or are due."""

    def removed(self, offsets: Sequence[int], groups: Mapping[int, bytes], /) -> None:
        """Messages were removed from wherever they stood."""

    def clear(self, end: int, /) -> None:
        """Nothing below `end` waits."""

    def group_counts(self) -> tuple[int, int]:
        """Groups in view, and the locked ones among them."""

    def check(self) -> None:
        """Asserts what holds between two inputs. O(messages in `live` and in view)."""


class DeliveryContext:
    """What a leader shares with its delivery strategy."""

    __slots__ = (
        "ahead_ms", "coming_back", "expiry_goes_on_ms", "leases", "pauses_staged", "probes", "staging", "state",
        "waiters",
    )  # fmt: skip

    def __init__(self, state: QueueState, term: int, ahead_ms: int) -> None:
        self.state = state
        self.leases = Leases(state.live, state.receives_max, state.retry)
        self.staging = PendingCommands(term, state.level)
        self.waiters = Waiters()
        self.probes = Probes(state, self.staging)
        self.ahead_ms = ahead_ms  # so far the time here may be ahead of what most clocks of the cluster say
        self.pauses_staged = 0  # configurations on their way that pause the queue
        self.expiry_goes_on_ms = 0  # when `expire_fresh` is to look at what it left for later; 0 = nothing was left
        self.coming_back = 0  # messages handed out without a visibility that is not folded yet: ready then

    @property
    def in_flight_count(self) -> int:
        return self.leases.in_flight_count + self.staging.fresh_picked

    @property
    def is_more_coming(self) -> bool:
        """Will messages be ready that are not yet, without anything being sent?"""
        return bool(self.coming_back) or self.leases.is_behind

    @property
    def is_paused(self) -> bool:
        return self.state.config.paused or self.pauses_staged > 0

    def outlived_ms(self, time_ms: int) -> int:
        """What was sent then, or before, has outlived its retention."""
        return time_ms - self.ahead_ms - self.state.config.retention_ms

    @property
    def expiry_room(self) -> int:
        """Messages that a look for outlived ones may let go of: no more are on their way through the log than one
        command names."""
        staging = self.staging
        return max(0, min(staging.expired_room, EXPIRED_PER_COMMAND_MAX - staging.fresh_expired))

    def pause_expiry(self, time_ms: int, window: WaitingMessages, found_some: bool) -> None:
        """After a look for outlived messages: another one follows soon where this one found some, or has nothing in
        view while there is more to be read. Else it is made again with the next check."""
        state = self.state
        is_read_on = not window.count and window.end < state.log_end and state.fresh_count > 0
        self.expiry_goes_on_ms = time_ms + EXPIRY_PAUSE_MS if found_some or is_read_on else 0

    def check(self, window: WaitingMessages) -> None:
        """As `DeliveryStrategy.check`."""
        self.leases.check()
        window.check()
        waiting = self.state.fresh_count
        assert window.count <= waiting, f"{window.count} messages are in view, {waiting} wait"

    def fold_deleted(self, command: DeletedCommand) -> list[int]:
        """Deletes of a standard queue; which of them were ahead of the cursor."""
        receipts = command.receipts
        if self.leases.delayed:
            self.leases.delayed_deleted(receipts)
        ahead = self.state.fold_deleted(command)
        self.forget(receipts[::2])
        return ahead

    def forget(self, offsets: Sequence[int]) -> None:
        """These may have left `live`."""
        self.leases.forget(offsets)
        self.staging.handed_over.forget(offsets, self.state.live, self.staging.fresh_picked)


class DeliveryStrategy(Protocol):
    @property
    def commits_leases(self) -> bool:
        """Before anybody sees the messages? Then the fold decides on receipts too (R26)."""

    @property
    def window(self) -> WaitingMessages: ...

    def check(self) -> None:
        """Asserts what holds between two inputs: what was derived from the fold still says the same. Where it does not,
        this replica stops leading, and its successor derives it again. O(messages in `live` and in view)."""

    # --- requests

    def acquire(
        self,
        token: Token,
        messages_max: int,
        visibility_ms: int,
        wait_until_ms: int,
        attempt: bytes,
        tags: Tags,
        effects: list[Effect],
        time_ms: int,
    ) -> bool:
        """Serves those who came first, then this one: answered here or by the fold. False: there is nothing for it."""

    def tags_parked(self, tags: Tags) -> None:
        """One who asks for tags was parked."""

    def serve(self, effects: list[Effect], time_ms: int) -> None:
        """Gives messages to waiters, as far as there are any."""

    def is_under_way(self, attempt: bytes) -> bool:
        """Is there a lease on its way for this attempt of a receive?"""

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> None: ...

    def hide(self, changes: Sequence[tuple[int, int, int]]) -> None:
        """Changes of visibility are about to be staged."""

    # --- what comes next

    def may_find(self, tags: Tags) -> bool:
        """May a read of the log find messages for one who found none, and asks for these tags?"""

    def wanted_offset(self) -> int:
        """Where the log should be read next, -1 = nowhere."""

    def expire_head(self, time_ms: int) -> None:
        """Drops what outlived its retention, after every input: only where that costs next to nothing."""

    def expire_fresh(self, time_ms: int) -> None:
        """Drops what outlived its retention, from time to time; or a part of it, and says when to go on (the context's
        `expiry_goes_on_ms`)."""

    @property
    def holds_dead_letters(self) -> bool:
        """Do dead letters stay here for now?"""

    def noisy_counts(self) -> tuple[int, int]:
        """Groups that let the others go first, and messages of theirs that wait."""

    # --- the fold

    def fold_deleted(self, command: DeletedCommand, taken: InFlightCommand, effects: list[Effect]) -> None: ...

    def fold_leased(self, command: LeasedCommand, taken: InFlightCommand, effects: list[Effect]) -> None:
        """Only where leases are committed."""

    def fold_unparked(self, command: UnparkedCommand) -> list[ErrorCode]:
        """Only by group; one code for each group named."""

    def acquired(self, command: AcquiredCommand) -> None:
        """The command was folded."""

    def groups_of(self, offsets: Sequence[int]) -> Sequence[bytes | None]:
        """Of messages that are about to leave `live`; for `left`."""

    def left(self, offsets: Sequence[int], groups: Sequence[bytes | None]) -> None:
        """These may have left `live`."""

    def expired(self, ranges: Sequence[int]) -> None:
        """Waiting messages in flat (first, last)... were dropped."""

    def purged(self) -> None:
        """The queue was emptied."""

    def parked_groups(self) -> Sequence[bytes]:
        """Groups that are held, before a command that may hand them out again; for `unparked`."""

    def unparked(self, groups: Sequence[bytes]) -> None:
        """These may be free now."""
