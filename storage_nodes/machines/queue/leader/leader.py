"""The leader's side of a queue partition: decides who gets what, stages it, and follows the fold.

Every input does its own part and then settles (`settling.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from storage_nodes.machines.driver_contract import Refuse, Token
from storage_nodes.machines.queue.commands import (
    ACQUIRED,
    CONFIGURED,
    DEAD_LETTERED,
    DELETED,
    EXPIRED,
    FIRST_FIELD,
    KIND,
    PURGED,
    REMOVED,
    RESCHEDULED,
    USAGE_COMMANDS,
    VISIBILITY_CHANGED,
    Command,
)
from storage_nodes.machines.queue.effects import (
    CommandAnswer,
    Deliver,
    Effect,
    FreshRange,
    Groups,
    Keys,
    answers_of,
    overloaded,
)
from storage_nodes.machines.queue.leader.pending_commands import InFlightCommand
from storage_nodes.machines.queue.leader.settling import Settling
from storage_nodes.machines.queue.state.configs import config_fields
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.meter_entries import fold_usage
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig, QueueStats

# After a read of the log that got nowhere.
FETCH_RETRY_MS = 50


class Leader(Settling):
    """Exists only while leading and while there is something to do."""

    __slots__ = ()

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
        """`attempt` is for FIFO queues."""
        time_ms = self._advance(now_ms)
        effects: list[Effect] = []
        if self._waiters:
            self._serve(effects, time_ms)  # those who came first
        picks = self._pick(messages_max, visibility_ms, time_ms)
        if picks:
            effects.append(Deliver(token, picks))
        elif not (wait_until_ms or self._is_paused) and self.in_flight_count >= self._state.config.in_flight_max:
            effects.append(Refuse(token, ErrorCode.OVER_LIMIT, "too many messages are in flight"))
        else:
            effects += self._park(token, messages_max, visibility_ms, wait_until_ms, now_ms, b"")
        return self._settle(effects, time_ms)

    def cancel(self, token: Token) -> list[Effect]:
        if self._waiters.remove(token):
            return [Refuse(token, ErrorCode.CANCELLED, "given up by the caller")]
        return []

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> list[Effect]:
        if self._is_overloaded:
            return [overloaded(token)]
        count = len(receipts)
        if not receipts or max(receipts) < (self._window.head,):
            self._staging.deleted(receipts, CommandAnswer(token, [ErrorCode.OK] * count))
        else:
            self._probes.add(token, receipts, self._window, self._state)
            self._stage_probed()
        return self._settle([], self._time_ms)

    def change_visibility(
        self, token: Token | None, changes: Sequence[tuple[int, int, int]], now_ms: int
    ) -> list[Effect]:
        time_ms = self._advance(now_ms)
        if self._is_overloaded and token is not None:
            return [overloaded(token)]
        self._hide(changes)
        for offset in [offset for offset, delivery, _ in changes if delivery > 0]:
            self._leases.hold(offset)
        self._staging.changed(changes, token)
        return self._settle([], time_ms)

    def purge(self, token: Token, now_ms: int, attempt: bytes) -> list[Effect]:
        return self._single([PURGED, attempt], token, self._advance(now_ms))

    def remove(self, token: Token, offsets: Sequence[int], groups: Mapping[int, bytes], moved: bool) -> list[Effect]:
        if self._is_overloaded or not set(self._letters.under_way).isdisjoint(offsets):
            return [overloaded(token)]  # or a dead letter is on its way: it will have gone
        self._removals.begin(offsets, groups, self._leases, self._state.live)
        return self._single([REMOVED, list(offsets), moved], token, self._time_ms)

    def configure(self, token: Token, config: QueueConfig) -> list[Effect]:
        # A pause begins here, so that nothing is handed out once it is answered: leases of FIFO queues take a while.
        self._pauses_staged += config.paused and not self._is_overloaded
        return self._single([CONFIGURED, *config_fields(config)], token, self._time_ms)

    def reschedule(self, token: Token, changes: Sequence[tuple[int, int]], now_ms: int) -> list[Effect]:
        flat = [number for change in changes for number in change]
        return self._single([RESCHEDULED, flat], token, self._advance(now_ms))

    def moved(self, offsets: list[int], now_ms: int) -> list[Effect]:
        """These dead letters stand in the other queue, committed."""
        self._letters.succeeded()
        if offsets:
            self._staging.dead_lettered(offsets)
        else:
            self._letters.under_way = []  # purged since
        return self._settle([], self._advance(now_ms))

    def move_failed(self, is_final: bool, now_ms: int) -> list[Effect]:
        """The move under way did not succeed. If it never will (there is no such queue), the messages may be received
        again; else it is tried again after a pause, and they are not."""
        time_ms = self._advance(now_ms)
        moving = self._letters.failed(time_ms)
        if is_final:
            self._window.became_ready(self._leases.revive(moving))
        return self._settle([], time_ms)

    # --- the driver's other inputs ----------------------------------------------------------------------------

    def fetched(
        self,
        from_offset: int,
        ranges: Sequence[FreshRange],
        groups: Sequence[Groups] | Sequence[Keys],
        next_offset: int,
        now_ms: int,
    ) -> list[Effect]:
        time_ms = self._advance(now_ms)
        if from_offset != self._fetching:
            return []
        self._fetching = -1
        # The log may hold more than was folded: what is not committed is nobody's message yet. A read that got nowhere
        # says nothing about what is there: taking it for "nothing" would skip messages for good.
        end = min(next_offset, self._state.log_end)
        self._fetch_again_ms = 0 if end > from_offset else time_ms + FETCH_RETRY_MS
        if self._probes.asks(from_offset):
            self._probes.fetched(from_offset, ranges, end)
            self._stage_probed()
        if from_offset == self._window.end or from_offset < self._window.end < end:
            self._window.fetched(ranges, groups, end)
        effects = self._settle([], time_ms)
        self._answer_hasty(effects)
        return effects

    def tick(self, now_ms: int) -> list[Effect]:
        time_ms = self._advance(now_ms)
        if self._retention_check_ms and time_ms >= self._retention_check_ms:
            self._expire_live(time_ms)
            self._retention_check_ms = 0
        effects = self._settle([], time_ms)
        effects += [Deliver(token, []) for token in self._waiters.remove_overdue(now_ms)]
        return effects

    def next_tick_ms(self) -> int:
        """Leases that run out are only waited for when somebody waits for messages, or when messages may be dead then;
        else the next acquire looks."""
        # Asked for after every input.
        due_ms = [self._retention_check_ms, self._fetch_again_ms, self._letters.again_ms]
        if self._state.scheduled:
            due_ms.append(self._next_release_ms())
        if self._waiters:
            due_ms += (self._waiters.next_deadline_ms(), self._leases.next_deadline_ms())
        elif self._leases.receives_max:
            due_ms.append(self._leases.next_deadline_ms())
        return min([due for due in due_ms if due], default=0) if any(due_ms[1:]) else due_ms[0]

    def take_commands(self, now_ms: int) -> list[bytes]:
        return self._staging.take(self._advance(now_ms), self._window.head)

    def stats(self, now_ms: int) -> QueueStats:
        self._advance(now_ms)
        state, staging, leases = self._state, self._staging, self._leases
        fresh = max(0, state.fresh_count - staging.fresh_picked - staging.fresh_expired)
        first_ready = leases.first_ready()
        oldest_ms = self._window.oldest_ms
        if first_ready is not None:
            sent_ms = state.live[first_ready][3]
            oldest_ms = min(oldest_ms, sent_ms) if oldest_ms else sent_ms
        return QueueStats(
            fresh + leases.ready_count,
            self.in_flight_count,
            leases.delayed + len(state.scheduled),
            oldest_ms,
            *self._window.group_counts(),
            state.duplicates,
            state.dead_lettered,
            state.parked_count,
            scheduled=len(state.scheduled),
        )

    def start(self, now_ms: int) -> list[Effect]:
        return self._settle([], self._advance(now_ms))

    def stop(self) -> list[Effect]:
        """The leadership ended: nobody who waits here will hear from the fold."""
        effects: list[Effect] = [
            Refuse(token, ErrorCode.NOT_LEADER, "another node leads now") for token in self._waiters.tokens()
        ]
        tokens = self._staging.tokens() + self._probes.tokens()
        effects += [Refuse(token, ErrorCode.OUTCOME_UNKNOWN, "the leader changed before commit") for token in tokens]
        return effects

    # --- the fold's hooks -------------------------------------------------------------------------------------

    def messages_arrived(
        self, first: int, last: int, timestamp_ms: int, before: int, noted: FoldedHeaders | None, now_ms: int
    ) -> list[Effect]:
        self._window.arrived(first, last, timestamp_ms, before, noted)
        for offset in noted.delayed if noted is not None else ():
            self._leases.delayed += 1
            self._leases.set_timer(self._state.live[offset][0], offset, offset)
        if noted is not None and noted.released:
            self.releases.folded(noted.released)
        elif not self._waiters and self._retention_check_ms and self._fetching < 0 and self._window.end > last:
            return []  # nothing to settle: the fast way of a queue that only fills
        return self._settle([], self._advance(now_ms))

    def fold(self, command: Command, offset: int, effects: list[Effect]) -> None:
        """Fold a command of our own into the state, follow it here, and answer whoever waits for it."""
        taken = self._staging.folded(command)
        kind = command[KIND]
        effects += taken.answers
        if kind == ACQUIRED:
            self._state.fold_acquired(command)
            self._follow_acquired(command)
        elif kind == DELETED:
            self._fold_deleted(command, taken, effects)
        elif kind == VISIBILITY_CHANGED:
            codes = self._state.fold_visibility(command)
            self._follow_visibility(command, codes, effects, taken.askers)
        else:
            self._fold_rare(command, offset, taken, effects)

    def _fold_rare(self, command: Command, offset: int, taken: InFlightCommand, effects: list[Effect]) -> None:
        kind, state = command[KIND], self._state
        if kind == EXPIRED:
            self._leases.expire(command[FIRST_FIELD + 2])
            state.fold_expired(command)
        elif kind == PURGED:
            is_repeat = state.is_last_purge(command)
            result = state.fold_purged(command, offset)
            if result[0] == ErrorCode.OK and not is_repeat:
                self._leases.clear()
                self._window.clear(offset)
            effects += [CommandAnswer(asker.token, result) for asker in taken.askers]
        elif kind == DEAD_LETTERED:
            state.fold_dead_lettered(command)
            self._leases.forget(command[FIRST_FIELD])
            self._letters.under_way = []
        elif kind == RESCHEDULED:
            codes = state.fold_rescheduled(command)
            effects += [CommandAnswer(asker.token, codes) for asker in taken.askers]
        elif kind == REMOVED:
            groups = self._removals.end(command[FIRST_FIELD], self._leases)
            codes = state.fold_removed(command)
            self._window.removed(command[FIRST_FIELD], groups)
            effects += [CommandAnswer(asker.token, codes) for asker in taken.askers]
        elif kind in USAGE_COMMANDS:
            fold_usage(state, command)
        else:
            assert kind == CONFIGURED, f"command kind {kind}"
            state.fold_configured(command)
            self._pauses_staged -= state.config.paused
            self._window.became_ready(self._leases.configure(state.receives_max, state.retry))
            effects += [CommandAnswer(asker.token, (ErrorCode.OK, state.held_count)) for asker in taken.askers]

    def commands_arrived(self, before: int, effects: list[Effect], now_ms: int) -> None:
        """A control batch was folded when the log ended at `before`."""
        state, window = self._state, self._window
        if state.fresh_count == 0:
            window.clear(state.log_end)
        elif window.end >= before:
            window.end = state.log_end
        self._settle(effects, self._advance(now_ms))
        self._answer_hasty(effects)

    def note(self, command: list[Any], now_ms: int) -> list[Effect]:
        """A command that nobody waits for; not staged when there is too much already."""
        return self._single(command, None, self._advance(now_ms))

    def _single(self, command: list[Any], token: Token, time_ms: int) -> list[Effect]:
        if self._is_overloaded:
            return [overloaded(token)]
        self._staging.single(command, token)
        return self._settle([], time_ms)

    # --- following the fold -----------------------------------------------------------------------------------

    def _fold_deleted(self, command: Command, taken: InFlightCommand, effects: list[Effect]) -> None:
        ahead = self._state.fold_deleted(command)
        self._leases.forget(command[FIRST_FIELD][::2])
        if ahead:
            self._window.cut(ahead)

    def _follow_acquired(self, command: Command) -> None:
        leases = self._leases
        for time_ms, deadline_ms, fresh, again in command[FIRST_FIELD + 1]:
            for at in range(0, len(fresh), 3):
                leases.set_timer(deadline_ms, fresh[at], fresh[at + 1])
            for offset in again:
                leases.release(offset)
            if deadline_ms == time_ms:
                self._coming_back -= len(again) + sum(fresh[1::3]) - sum(fresh[::3]) + len(fresh) // 3

    def _follow_visibility(
        self, command: Command, codes: list[ErrorCode], effects: list[Effect], askers: Sequence[tuple[Token, int]]
    ) -> None:
        flat = command[FIRST_FIELD]
        for at in range(0, len(flat), 3):
            if flat[at + 1] > 0:
                self._leases.release(flat[at])
        effects += answers_of(codes, askers)
