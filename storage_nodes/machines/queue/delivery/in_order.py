"""Delivery in log order: standard queues whose messages have no groups and tags.

Fresh messages go in the order of the log, those that came back in the order in which they did, and both in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from storage_nodes.limits import READ_AHEAD_MESSAGES_MAX
from storage_nodes.machines.driver_contract import Refuse, Token
from storage_nodes.machines.queue.commands import AcquiredCommand, DeletedCommand, LeasedCommand, UnparkedCommand
from storage_nodes.machines.queue.delivery.pending_commands import InFlightCommand
from storage_nodes.machines.queue.delivery.strategy import DeliveryContext
from storage_nodes.machines.queue.delivery.window import Window
from storage_nodes.machines.queue.effects import Deliver, Effect, Pick, Tags
from storage_nodes.protocol.errors import ErrorCode


class InOrderDelivery:
    __slots__ = ("_context", "_leases", "_staging", "_state", "_waiters", "window")

    commits_leases = False
    holds_dead_letters = False

    def __init__(self, context: DeliveryContext) -> None:
        self._context = context
        self._state, self._leases = context.state, context.leases
        self._staging, self._waiters = context.staging, context.waiters
        self.window = Window(context.state)

    def check(self) -> None:
        self._context.check(self.window)

    # --- requests ---------------------------------------------------------------------------------------------

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
        if self._waiters:
            self.serve(effects, time_ms)  # those who came first
        picks = self._pick(messages_max, visibility_ms, time_ms)
        context = self._context
        if picks:
            effects.append(Deliver(token, picks))
        elif not (wait_until_ms or context.is_paused) and context.in_flight_count >= self._state.config.in_flight_max:
            effects.append(Refuse(token, ErrorCode.OVER_LIMIT, "too many messages are in flight"))
        else:
            return False
        return True

    def tags_parked(self, tags: Tags) -> None:
        raise AssertionError("tags are looked at by FairDelivery")

    def serve(self, effects: list[Effect], time_ms: int) -> None:
        while self._waiters:
            waiter = self._waiters.first()
            picks = self._pick(waiter.messages_max, waiter.visibility_ms, time_ms)
            if not picks:
                return
            self._waiters.remove_first()
            effects.append(Deliver(waiter.token, picks))

    def is_under_way(self, attempt: bytes) -> bool:
        return False

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> None:
        self._context.probes.delete(token, receipts, self.window)

    def hide(self, changes: Sequence[tuple[int, int, int]]) -> None:
        self._leases.hide(changes)

    def _pick(self, messages_max: int, visibility_ms: int, time_ms: int) -> list[Pick]:
        """Take messages out; empty when there is nothing or a limit is reached.

        Half of them are fresh ones and half were delivered before, while there are both: a consumer that gives
        everything back sees the others all the same, and what came back does not wait for all that is fresh.
        """
        context, state, staging, window = self._context, self._state, self._staging, self.window
        room = min(messages_max, state.config.in_flight_max - context.in_flight_count, staging.picks_room)
        picks: list[Pick] = []
        if room <= 0 or state.config.paused or context.pauses_staged:
            return picks
        deadline_ms = time_ms + visibility_ms
        fresh_room = room - self._leases.share_of(room)
        oldest_ms = context.outlived_ms(time_ms)
        while len(picks) < fresh_room and window.ranges:
            if window.ranges[0].timestamp_ms <= oldest_ms:
                if not self._drop_outlived(oldest_ms):
                    break
                continue
            taken = window.take(fresh_room - len(picks))
            staging.acquired_fresh(time_ms, deadline_ms, taken)
            first, last, sent_ms = taken
            picks += map(Pick, range(first, last + 1), repeat(1), repeat(time_ms), repeat(sent_ms))
        if self._leases.ready_count and len(picks) < room:
            again = self._leases.take(room - len(picks))
            staging.acquired_again(time_ms, deadline_ms, again)
            for offset in again:
                _, delivery, first_received_ms, sent_ms = state.live[offset]
                picks.append(Pick(offset, delivery + 1, first_received_ms or time_ms, sent_ms))
        if not visibility_ms:
            context.coming_back += len(picks)
        return picks

    # --- what comes next --------------------------------------------------------------------------------------

    def may_find(self, tags: Tags) -> bool:
        state, window = self._state, self.window
        is_beyond = not window.ranges and window.end < state.log_end and state.fresh_count > 0
        return is_beyond and not self._context.is_paused

    def wanted_offset(self) -> int:
        window = self.window
        if window.end < self._state.log_end and window.count < READ_AHEAD_MESSAGES_MAX // 2:
            return window.end
        return -1

    def expire_head(self, time_ms: int) -> None:
        ranges = self.window.ranges
        if ranges and ranges[0].timestamp_ms <= (oldest_ms := self._context.outlived_ms(time_ms)):
            self._drop_outlived(oldest_ms)

    def _drop_outlived(self, oldest_ms: int) -> bool:
        """Drop what was sent at or before then at the head of the window; False where nothing can be staged now."""
        window, staging = self.window, self._staging
        while window.ranges and window.ranges[0].timestamp_ms <= oldest_ms:
            if staging.expired_room <= 0:
                return False
            taken = window.take(staging.expired_room)
            staging.expired_range(taken.first_offset, taken.last_offset)
        return True

    def expire_fresh(self, time_ms: int) -> None:
        """Nothing: `expire_head` did."""

    def noisy_counts(self) -> tuple[int, int]:
        return 0, 0

    # --- the fold ---------------------------------------------------------------------------------------------

    def fold_deleted(self, command: DeletedCommand, taken: InFlightCommand, effects: list[Effect]) -> None:
        if ahead := self._context.fold_deleted(command):
            self.window.cut(ahead)

    def fold_leased(self, command: LeasedCommand, taken: InFlightCommand, effects: list[Effect]) -> None:
        raise AssertionError("a lease by group in a standard queue")

    def fold_unparked(self, command: UnparkedCommand) -> list[ErrorCode]:
        raise AssertionError("groups of a standard queue")

    def acquired(self, command: AcquiredCommand) -> None:
        """Nothing: the leases know."""

    def groups_of(self, offsets: Sequence[int]) -> Sequence[bytes | None]:
        return ()

    def left(self, offsets: Sequence[int], groups: Sequence[bytes | None]) -> None:
        """Nothing: no message has a group."""

    def expired(self, ranges: Sequence[int]) -> None:
        """Nothing: the window was cut when they were staged."""

    def purged(self) -> None:
        """Nothing: the window was cleared."""

    def parked_groups(self) -> Sequence[bytes]:
        return ()

    def unparked(self, groups: Sequence[bytes]) -> None:
        """Nothing: no group is parked."""
