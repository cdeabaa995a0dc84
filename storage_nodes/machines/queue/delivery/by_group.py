"""Delivery by group: FIFO queues, where messages are handed out group by group and only after commit.

    acquire  ->  pick runs off the front of groups, lock those, stage a lease  ->  log  ->  fold  ->  Deliver

A lease is committed before anybody sees its messages (R26): a leader that is deposed in between delivered nothing, and
its successor finds them leased, by the fold, or free. While a lease is under way its groups are locked here; from the
fold on each message in flight holds back what follows it in its group, and nothing that stands before it. Deletes and
changes are decided by the fold too: a receipt whose lease ran out, or whose message was handed out again, is refused
(RECEIPT_STALE), not taken as done.

What the fold remembers of receives, so that they can be repeated, is bounded here, by the messages that they got: the
log keeps its rule. A receive that the storage client named itself goes without first, which costs something only where
its answer is lost; one that its caller named is refused at the second bound (OVER_LIMIT), not served without the
repeat that it was promised.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage_nodes.limits import (
    ATTEMPT_MS_MAX,
    FIFO_READ_AHEAD_MESSAGES_MAX,
    PARKED_GROUPS_MAX,
    READ_AHEAD_MESSAGES_MAX,
    REMEMBERED_MESSAGES_MAX,
    REMEMBERED_UNASKED_MESSAGES_MAX,
)
from storage_nodes.machines.driver_contract import Refuse, Token
from storage_nodes.machines.queue.commands import (
    AcquiredCommand,
    DeletedCommand,
    FifoLease,
    LeasedCommand,
    UnparkedCommand,
)
from storage_nodes.machines.queue.delivery.groups import GroupWindow, MessageGroup
from storage_nodes.machines.queue.delivery.pending_commands import InFlightCommand, StagedLease
from storage_nodes.machines.queue.delivery.strategy import DeliveryContext
from storage_nodes.machines.queue.effects import Deliver, Effect, Tags, answers_of
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import is_client_attempt

# Outlived messages stand in any of the groups: so many one input lets go of, and the rest after a pause.
_EXPIRED_PER_LOOK_MAX = 2_000


class ByGroupDelivery:
    __slots__ = ("_attempts_under_way", "_context", "_is_hungry", "_leases", "_staging", "_state", "_waiters", "window")

    commits_leases = True

    def __init__(self, context: DeliveryContext, state: FifoState) -> None:
        self._context, self._state, self._leases = context, state, context.leases
        self._staging, self._waiters = context.staging, context.waiters
        self.window = GroupWindow(state, self._leases)
        self._attempts_under_way: set[bytes] = set()
        self._is_hungry = False  # somebody asked for more than the window has to hand out

    def check(self) -> None:
        self._context.check(self.window)
        self.window.check_groups(self._staging.groups_leased)

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
        if attempt and not self._context.is_paused and self._renew(token, attempt, visibility_ms, time_ms):
            return True
        if not messages_max:
            effects.append(Deliver(token, []))  # it was only asked whether the attempt is known here
            return True
        if self._waiters:
            self.serve(effects, time_ms)  # those who came first
        if self._remembers_too_much(attempt, time_ms):
            if not self._has_something:
                return False
            effects.append(_cannot_remember(token))
            return True
        return self._lease(token, messages_max, visibility_ms, attempt, time_ms)

    def tags_parked(self, tags: Tags) -> None:
        raise AssertionError("a FIFO queue keeps an order: no tags")

    def is_under_way(self, attempt: bytes) -> bool:
        return attempt in self._attempts_under_way

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> None:
        self._staging.receipts(receipts, token)

    def hide(self, changes: Sequence[tuple[int, int, int]]) -> None:
        """Nothing: a lease that ran out is not changed."""

    def noisy_counts(self) -> tuple[int, int]:
        return 0, 0

    # --- leases -----------------------------------------------------------------------------------------------

    def serve(self, effects: list[Effect], time_ms: int) -> None:
        while self._waiters:
            waiter = self._waiters.first()
            if self._remembers_too_much(waiter.attempt, time_ms):
                if not self._has_something:
                    return
                effects.append(_cannot_remember(waiter.token))
            elif not self._lease(waiter.token, waiter.messages_max, waiter.visibility_ms, waiter.attempt, time_ms):
                return
            self._waiters.remove_first()

    def _remembers_too_much(self, attempt: bytes, time_ms: int) -> bool:
        """For a receive that its caller named."""
        if not attempt or is_client_attempt(attempt):
            return False
        return self._state.remembered_count(time_ms, REMEMBERED_MESSAGES_MAX) >= REMEMBERED_MESSAGES_MAX

    @property
    def _has_something(self) -> bool:
        return not self._context.is_paused and self.window.has_offers

    def _lease(self, token: Token, messages_max: int, visibility_ms: int, attempt: bytes, time_ms: int) -> bool:
        """Stage a lease on as many messages of as few groups as may be; False if there is nothing."""
        context, window, staging = self._context, self.window, self._staging
        if context.is_paused:
            return False
        room = min(messages_max, self._state.config.in_flight_max - context.in_flight_count, staging.leased_room)
        parts: list[bytes | Sequence[int]] = []
        groups: list[MessageGroup] = []
        again_count = fresh_count = 0
        while 0 < room <= staging.expired_room and (offer := window.take_offer(room)) is not None:
            group = offer[0]
            again, fresh = self._take_run(*offer, time_ms)
            if not again and not fresh:
                window.offer(group)  # all of them were too old
                continue
            parts += (group.key, again, fresh)
            group.leases_under_way += 1
            groups.append(group)
            again_count += len(again)
            fresh_count += len(fresh) // 2
            room -= len(again) + len(fresh) // 2
        self._is_hungry = room > 0
        if not parts:
            return False
        bound = REMEMBERED_UNASKED_MESSAGES_MAX
        if is_client_attempt(attempt) and self._state.remembered_count(time_ms, bound) >= bound:
            attempt = b""
        if attempt:
            self._attempts_under_way.add(attempt)
        lease = FifoLease(time_ms, time_ms + visibility_ms, attempt, False, parts)
        staging.leased(lease, StagedLease(token, attempt, groups), fresh_count, again_count)
        return True

    def _take_run(
        self, group: MessageGroup, again_count: int, fresh_count: int, time_ms: int
    ) -> tuple[list[int], list[int]]:
        """Take messages off the front of a group: offsets of those in `live`, flat (offset, sent_ms) of fresh ones."""
        window = self.window
        again = group.back[:again_count]
        for offset in again:
            self._leases.take_one(offset)
        fresh: list[int] = []
        if fresh_count:
            window.count -= fresh_count
            oldest_ms = self._context.outlived_ms(time_ms)
            for offset in group.take_fresh(fresh_count):
                sent_ms = window.sent_ms(offset)
                if sent_ms <= oldest_ms:
                    self._staging.expired_range(offset, offset)
                else:
                    fresh += (offset, sent_ms)
        return again, fresh

    def _renew(self, token: Token, attempt: bytes, visibility_ms: int, time_ms: int) -> bool:
        """The same receive once more: its messages, if their state is as that receive left it."""
        state = self._state
        known = state.attempts.get(attempt)
        if known is None or known.time_ms <= time_ms - ATTEMPT_MS_MAX or self._staging.leased_room <= 0:
            return False
        offsets = known.receipts[::2]
        for offset, delivery in zip(offsets, known.receipts[1::2], strict=True):
            entry = state.live.get(offset)
            as_left = entry is not None and entry[0] == known.deadline_ms and entry[1] == delivery
            if not as_left or known.deadline_ms <= time_ms or self._leases.is_held(offset):
                return False
        parts: list[bytes | Sequence[int]] = []
        for offset in offsets:
            self._leases.hold(offset)
            parts += (state.group_of[offset], [offset], [])
        self._attempts_under_way.add(attempt)
        # Another one than before: it is all that tells this lease from the one that it takes the place of.
        deadline_ms = time_ms + visibility_ms
        deadline_ms += deadline_ms == known.deadline_ms
        lease = FifoLease(time_ms, deadline_ms, attempt, True, parts)
        self._staging.leased(lease, StagedLease(token, attempt, []), 0, len(offsets))
        return True

    # --- the fold ---------------------------------------------------------------------------------------------

    def fold_unparked(self, command: UnparkedCommand) -> list[ErrorCode]:
        parked = self.parked_groups()
        codes = self._state.fold_unparked(command)
        self.unparked(parked)
        return codes

    def acquired(self, command: AcquiredCommand) -> None:
        raise AssertionError("a FIFO queue is leased by group")

    def groups_of(self, offsets: Sequence[int]) -> Sequence[bytes | None]:
        group_of = self._state.group_of
        return [group_of.get(offset) for offset in offsets]

    def left(self, offsets: Sequence[int], groups: Sequence[bytes | None]) -> None:
        """Their groups go on."""
        live = self._state.live
        known = zip(offsets, groups, strict=True)
        self.window.left_live([(key, offset) for offset, key in known if key is not None and offset not in live])

    def expired(self, ranges: Sequence[int]) -> None:
        """Nothing: they were taken out of the window when they were staged."""

    def purged(self) -> None:
        """Nothing: the window was cleared."""

    def parked_groups(self) -> Sequence[bytes]:
        return list(self._state.parked)

    def unparked(self, groups: Sequence[bytes]) -> None:
        self.window.unparked(groups)

    def fold_leased(self, command: LeasedCommand, taken: InFlightCommand, effects: list[Effect]) -> None:
        leases, window = self._leases, self.window
        picked = self._state.fold_leased(command)
        live = self._state.live
        for lease, staged, picks in zip(command.leases, taken.leases, picked, strict=True):
            deadline_ms, parts = lease.deadline_ms, lease.parts
            fresh: list[int] = []
            for at in range(0, len(parts), 3):
                for offset in parts[at + 1]:
                    leases.release(offset)
                run = [offset for offset in parts[at + 2][::2] if offset in live]
                if run:
                    window.run_came_live(parts[at], run)
                    fresh += run
            if fresh:
                leases.set_timer_of(deadline_ms, fresh)
            for group in staged.groups:
                group.leases_under_way -= 1
                if window.groups.get(group.key) is group:
                    window.offer(group)
            self._attempts_under_way.discard(staged.attempt)
            effects.append(Deliver(staged.token, picks, deadline_ms, is_repeat=lease.is_renewal))

    def fold_deleted(self, command: DeletedCommand, taken: InFlightCommand, effects: list[Effect]) -> None:
        gone: list[tuple[bytes, int]] = []
        codes = self._state.fold_receipts(command, gone)
        offsets = command.receipts[::2]
        self._leases.forget(offsets)
        left = [offset for _, offset in gone]  # of others the lease had run out: they stay
        self._staging.handed_over.forget(left, self._state.live, self._staging.fresh_picked)
        self.window.left_live(gone)
        effects += answers_of(codes, taken.askers)

    # --- what comes next --------------------------------------------------------------------------------------

    def may_find(self, tags: Tags) -> bool:
        return self._may_read_on and not self.window.has_offers and not self._context.is_paused

    @property
    def _may_read_on(self) -> bool:
        state, window = self._state, self.window
        return state.fresh_count > 0 and window.end < state.log_end and window.count < FIFO_READ_AHEAD_MESSAGES_MAX

    def wanted_offset(self) -> int:
        window = self.window
        if self._may_read_on and (self._is_hungry or window.count < READ_AHEAD_MESSAGES_MAX // 2):
            return window.end
        return -1

    @property
    def holds_dead_letters(self) -> bool:
        """So many groups are parked that none may be parked besides."""
        state = self._state
        return state.config.park_groups and len(state.parked) >= PARKED_GROUPS_MAX

    def expire_head(self, time_ms: int) -> None:
        """Nothing: a lease leaves out what is too old, and `expire_fresh` drops the rest."""

    def expire_fresh(self, time_ms: int) -> None:
        context, window = self._context, self.window
        room = min(_EXPIRED_PER_LOOK_MAX, context.expiry_room)
        expired = OffsetRanges()
        for offset in window.take_expired(context.outlived_ms(time_ms), room):
            expired.add(offset, offset + 1)
        for first, end in expired.ranges():
            self._staging.expired_range(first, end - 1)
        context.pause_expiry(time_ms, window, bool(expired) or window.is_expiring)


def _cannot_remember(token: Token) -> Refuse:
    return Refuse(token, ErrorCode.OVER_LIMIT, "receives with an attempt id got too many messages in the last minutes")
