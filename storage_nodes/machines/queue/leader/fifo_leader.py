"""The leader's side of a FIFO queue: the same leader, but messages are handed out by group and only after commit.

    acquire  ->  pick runs off the front of groups, lock those, stage a lease  ->  log  ->  fold  ->  Deliver

A lease is committed before anybody sees its messages (R26): a leader that is deposed in between delivered nothing, and
its successor finds them leased, by the fold, or free. While a lease is under way its groups are locked here; from the
fold on each message in flight holds back what follows it in its group, and nothing that stands before it. Deletes and
changes are decided by the fold too: a receipt whose lease ran out, or whose message was handed out again, is refused
(RECEIPT_STALE), not taken as done.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage_nodes.limits import (
    ATTEMPT_MS_MAX,
    FIFO_READ_AHEAD_MESSAGES_MAX,
    PARKED_GROUPS_MAX,
    READ_AHEAD_MESSAGES_MAX,
)
from storage_nodes.machines.driver_contract import Refuse, Token
from storage_nodes.machines.queue.commands import (
    DEAD_LETTERED,
    EXPIRED,
    FIRST_FIELD,
    KIND,
    LEASED,
    REMOVED,
    UNPARKED,
    Command,
)
from storage_nodes.machines.queue.delivery.groups import GroupWindow, MessageGroup
from storage_nodes.machines.queue.effects import CommandAnswer, Deliver, Effect, answers_of, overloaded
from storage_nodes.machines.queue.leader.leader import Leader
from storage_nodes.machines.queue.leader.pending_commands import InFlightCommand, StagedLease
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges
from storage_nodes.protocol.errors import ErrorCode


class FifoLeader(Leader):
    __slots__ = ("_attempts_under_way", "_is_hungry")

    _state: FifoState

    def __init__(self, state: FifoState, term: int) -> None:
        super().__init__(state, term)
        self._window: GroupWindow = GroupWindow(state, self._leases)  # type: ignore[assignment]
        self._attempts_under_way: set[bytes] = set()
        self._is_hungry = False  # somebody asked for more than the window has to hand out

    # --- requests ---------------------------------------------------------------------------------------------

    def acquire(
        self,
        token: Token,
        messages_max: int,
        visibility_ms: int,
        wait_until_ms: int,
        now_ms: int,
        attempt: bytes = b"",
    ) -> list[Effect]:
        time_ms = self._advance(now_ms)
        if self._is_overloaded:
            return [overloaded(token)]
        if attempt and attempt in self._attempts_under_way:
            return [Refuse(token, ErrorCode.OVERLOADED, "this attempt is on its way")]
        effects: list[Effect] = []
        if attempt and not self._is_paused and self._renew(token, attempt, visibility_ms, time_ms):
            return self._settle(effects, time_ms)
        if not messages_max:
            return self._settle([Deliver(token, [])], time_ms)  # it was only asked whether the attempt is known here
        if self._waiters:
            self._serve(effects, time_ms)  # those who came first
        if not self._lease(token, messages_max, visibility_ms, attempt, time_ms):
            effects += self._park(token, messages_max, visibility_ms, wait_until_ms, now_ms, attempt)
        return self._settle(effects, time_ms)

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> list[Effect]:
        if self._is_overloaded:
            return [overloaded(token)]
        self._staging.receipts(receipts, token)
        return self._settle([], self._time_ms)

    def unpark(self, token: Token, groups: list[bytes], now_ms: int) -> list[Effect]:
        """Hand these groups out again; none named = all. Answered with a code each."""
        return self._single([UNPARKED, groups], token, self._advance(now_ms))

    def known_count(self, group: bytes) -> int:
        return self._window.known_count(group)

    def take_commands(self, now_ms: int) -> list[bytes]:
        return self._staging.take(self._advance(now_ms), 0)  # the fold of a FIFO queue moves the cursor by itself

    # --- leases -----------------------------------------------------------------------------------------------

    def _serve(self, effects: list[Effect], time_ms: int) -> None:
        while self._waiters:
            waiter = self._waiters.first()
            if not self._lease(waiter.token, waiter.messages_max, waiter.visibility_ms, waiter.attempt, time_ms):
                return
            self._waiters.remove_first()

    def _lease(self, token: Token, messages_max: int, visibility_ms: int, attempt: bytes, time_ms: int) -> bool:
        """Stage a lease on as many messages of as few groups as may be; False if there is nothing."""
        if self._is_paused:
            return False
        window, staging = self._window, self._staging
        room = min(messages_max, self._state.config.in_flight_max - self.in_flight_count, staging.leased_room)
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
        if attempt:
            self._attempts_under_way.add(attempt)
        lease = [time_ms, time_ms + visibility_ms, attempt, False, parts]
        staging.leased(lease, StagedLease(token, attempt, groups), fresh_count, again_count)
        return True

    def _take_run(
        self, group: MessageGroup, again_count: int, fresh_count: int, time_ms: int
    ) -> tuple[list[int], list[int]]:
        """Take messages off the front of a group: offsets of those in `live`, flat (offset, sent_ms) of fresh ones."""
        window = self._window
        again = group.back[:again_count]
        for offset in again:
            self._leases.take_one(offset)
        fresh: list[int] = []
        if fresh_count:
            window.count -= fresh_count
            oldest_ms = self._outlived_ms(time_ms)
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
        lease = [time_ms, time_ms + visibility_ms, attempt, True, parts]
        self._staging.leased(lease, StagedLease(token, attempt, []), 0, len(offsets))
        return True

    # --- the fold's hooks -------------------------------------------------------------------------------------

    def _fold_rare(self, command: Command, offset: int, taken: InFlightCommand, effects: list[Effect]) -> None:
        kind = command[KIND]
        if kind == LEASED:
            self._fold_leased(command, taken, effects)
        elif kind in (EXPIRED, DEAD_LETTERED, REMOVED):
            offsets = command[FIRST_FIELD + 2] if kind == EXPIRED else command[FIRST_FIELD]
            keys = self._keys(offsets)
            super()._fold_rare(command, offset, taken, effects)
            self._follow_gone(offsets, keys)
        elif kind == UNPARKED:
            parked = list(self._state.parked)
            codes = self._state.fold_unparked(command)
            self._window.unparked(parked)
            effects += [CommandAnswer(asker.token, codes) for asker in taken.askers]
        else:
            parked = list(self._state.parked)
            super()._fold_rare(command, offset, taken, effects)
            self._window.unparked(parked)

    def _move_dead(self, effects: list[Effect], time_ms: int) -> None:
        state = self._state
        if state.config.park_groups and len(state.parked) >= PARKED_GROUPS_MAX:
            self._letters.again_ms = 0  # looked at again when groups are unparked
            return
        super()._move_dead(effects, time_ms)

    def _fold_leased(self, command: Command, taken: InFlightCommand, effects: list[Effect]) -> None:
        leases, window = self._leases, self._window
        picked = self._state.fold_leased(command)
        live = self._state.live
        for lease, staged, picks in zip(command[FIRST_FIELD], taken.leases, picked, strict=True):
            deadline_ms, parts = lease[1], lease[4]
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
            effects.append(Deliver(staged.token, picks))

    def _fold_deleted(self, command: Command, taken: InFlightCommand, effects: list[Effect]) -> None:
        gone: list[tuple[bytes, int]] = []
        codes = self._state.fold_receipts(command, gone)
        self._leases.forget(command[FIRST_FIELD][::2])
        self._window.left_live(gone)
        effects += answers_of(codes, taken.askers)

    def commands_arrived(self, before: int, effects: list[Effect], now_ms: int) -> None:
        state, window = self._state, self._window
        if window.end >= before:
            window.end = state.log_end
        elif state.fresh_count == 0:
            window.reach(state.log_end)
        self._settle(effects, self._advance(now_ms))

    def _keys(self, offsets: Sequence[int]) -> list[bytes | None]:
        group_of = self._state.group_of
        return [group_of.get(offset) for offset in offsets]

    def _follow_gone(self, offsets: Sequence[int], keys: list[bytes | None]) -> None:
        """Of these some left `live`: their groups go on."""
        live = self._state.live
        known = zip(offsets, keys, strict=True)
        self._window.left_live([(key, offset) for offset, key in known if key is not None and offset not in live])

    # --- the window -------------------------------------------------------------------------------------------

    def _hide(self, changes: Sequence[tuple[int, int, int]]) -> list[int]:
        return []  # a lease that ran out is not changed

    @property
    def _fetch_may_help(self) -> bool:
        return self._may_read_on and not self._window.has_offers and not self._is_paused

    @property
    def _may_read_on(self) -> bool:
        state, window = self._state, self._window
        return state.fresh_count > 0 and window.end < state.log_end and window.count < FIFO_READ_AHEAD_MESSAGES_MAX

    def _wanted_offset(self) -> int:
        window = self._window
        if self._may_read_on and (self._is_hungry or window.count < READ_AHEAD_MESSAGES_MAX // 2):
            return window.end
        return -1

    def _expire_head(self, time_ms: int) -> None:
        """Nothing: a lease leaves out what is too old, and the retention check drops the rest."""

    def _expire_live(self, time_ms: int) -> None:
        super()._expire_live(time_ms)
        staging = self._staging
        expired = OffsetRanges()
        oldest_ms = self._outlived_ms(time_ms)
        for offset in self._window.take_expired(oldest_ms, max(0, staging.expired_room)):
            expired.add(offset, offset + 1)
        for first, end in expired.ranges():
            staging.expired_range(first, end - 1)
