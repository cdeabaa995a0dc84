"""The leader's side of a queue partition: decides who gets what, stages it, and follows the fold.

Every input does its own part and then *settles* (`_settle`): expired messages at the head go, waiters are served, the
window is read ahead, the driver is told that commands are staged. So whatever made messages available, waiters see it.

Time: `now_ms` is the time of the partition, which never falls and goes on where its last leader was; decisions use
max(it, the highest time in the log) all the same. It may be `ahead_ms` ahead of what most clocks of the cluster say:
what a wrong clock must not bring about, that messages expire or scheduled ones are released, waits for those clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from storage_nodes.limits import (
    CLOCK_LOOK_MS,
    PROPOSALS_PENDING_MAX,
    READ_AHEAD_MESSAGES_MAX,
    WAITERS_PER_PARTITION_MAX,
)
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
from storage_nodes.machines.queue.delivery.leases import Leases, Removals
from storage_nodes.machines.queue.delivery.window import Window
from storage_nodes.machines.queue.effects import (
    Answer,
    Deliver,
    Effect,
    Fetch,
    FreshRange,
    Groups,
    Keys,
    Pick,
    Propose,
    Refuse,
    Tags,
    Token,
    answers_of,
    overloaded,
)
from storage_nodes.machines.queue.leader.letters import Letters
from storage_nodes.machines.queue.leader.pending_commands import InFlightCommand, PendingCommands
from storage_nodes.machines.queue.leader.probes import Probes
from storage_nodes.machines.queue.leader.releases import Releases
from storage_nodes.machines.queue.leader.waiters import Waiters
from storage_nodes.machines.queue.state.configs import config_fields
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.meter_entries import fold_usage
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig, QueueStats

# How often a queue that holds messages looks for expired ones.
RETENTION_CHECK_MS_MIN = 1_000
RETENTION_CHECKS_PER_RETENTION = 100
# How long a short poll may wait for the read of the log that will find its messages.
FETCH_PATIENCE_MS = 1_000
# After a read of the log that got nowhere.
FETCH_RETRY_MS = 50


class Leader:
    """Exists only while leading and while there is something to do."""

    __slots__ = (
        "_coming_back", "_fetch_again_ms", "_fetching", "_leases", "_letters", "_pauses_staged", "_probes",
        "_removals", "_retention_check_ms", "_staging", "_state", "_time_ms", "_waiters", "_window", "ahead_ms",
        "releases",
    )  # fmt: skip

    def __init__(self, state: QueueState, term: int) -> None:
        self._state = state
        self._time_ms = state.last_ms
        self.ahead_ms = 0
        self._leases = Leases(state.live, state.receives_max, state.retry)
        self._window = Window(state.cursor)
        self._staging = PendingCommands(term)
        self._waiters = Waiters()
        self._probes = Probes()
        self._fetching = -1  # the offset that the outstanding Fetch named, -1 = none
        self._fetch_again_ms = 0  # the last Fetch found nothing to go by: not before this time; 0 = at once
        self._retention_check_ms = 0  # 0 = nothing to look after
        self._letters = Letters()
        self.releases = Releases(state.scheduled)
        self._pauses_staged = 0  # configurations on their way that pause the queue
        self._removals = Removals()
        self._coming_back = 0  # messages handed out without a visibility that is not folded yet: ready then

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
            self._staging.deleted(receipts, Answer(token, [ErrorCode.OK] * count))
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
            self._became_ready(self._leases.revive(moving))
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
            self._window_fetched(ranges, groups, end)
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
        oldest_ms = self._oldest_fresh_ms()
        if first_ready is not None:
            sent_ms = state.live[first_ready][3]
            oldest_ms = min(oldest_ms, sent_ms) if oldest_ms else sent_ms
        return QueueStats(
            fresh + leases.ready_count,
            self.in_flight_count,
            leases.delayed + len(state.scheduled),
            oldest_ms,
            *self._count_groups(),
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
        self._window_arrived(first, last, timestamp_ms, before, noted)
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
            effects += [Answer(asker.token, result) for asker in taken.askers]
        elif kind == DEAD_LETTERED:
            state.fold_dead_lettered(command)
            self._leases.forget(command[FIRST_FIELD])
            self._letters.under_way = []
        elif kind == RESCHEDULED:
            codes = state.fold_rescheduled(command)
            effects += [Answer(asker.token, codes) for asker in taken.askers]
        elif kind == REMOVED:
            groups = self._removals.end(command[FIRST_FIELD], self._leases)
            codes = state.fold_removed(command)
            self._window_removed(command[FIRST_FIELD], groups)
            effects += [Answer(asker.token, codes) for asker in taken.askers]
        elif kind in USAGE_COMMANDS:
            fold_usage(state, command)
        else:
            assert kind == CONFIGURED, f"command kind {kind}"
            state.fold_configured(command)
            self._pauses_staged -= state.config.paused
            self._became_ready(self._leases.configure(state.receives_max, state.retry))
            effects += [Answer(asker.token, (ErrorCode.OK, state.held_count)) for asker in taken.askers]

    def commands_arrived(self, before: int, effects: list[Effect], now_ms: int) -> None:
        """A control batch was folded when the log ended at `before`."""
        state, window = self._state, self._window
        if state.fresh_count == 0:
            window.clear(state.log_end)
        elif window.end >= before:
            window.end = state.log_end
        self._settle(effects, self._advance(now_ms))
        self._answer_hasty(effects)

    # --- inside -----------------------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        return self._leases.in_flight_count + self._staging.fresh_picked

    @property
    def is_idle(self) -> bool:
        """Nothing here that the replicated state does not say as well, and no answer of the driver to come."""
        state = self._state
        held = state.fresh_count or state.live or state.scheduled or self._waiters or self._probes
        asked = self._fetching >= 0 or self._letters.under_way or self.releases.is_reading
        return not held and not asked and self._staging.is_settled

    @property
    def _is_overloaded(self) -> bool:
        return self._staging.outstanding + len(self._probes) >= PROPOSALS_PENDING_MAX

    @property
    def _fetch_may_help(self) -> bool:
        state, window = self._state, self._window
        return not window.ranges and window.end < state.log_end and state.fresh_count > 0 and not self._is_paused

    @property
    def _is_paused(self) -> bool:
        return self._state.config.paused or self._pauses_staged > 0

    def _advance(self, now_ms: int) -> int:
        """The time of this input; leases that ran out by then are ready."""
        time_ms = now_ms if now_ms > self._time_ms else self._time_ms
        self._time_ms = time_ms = time_ms if time_ms > self._state.last_ms else self._state.last_ms
        due = self._leases.advance(time_ms)
        if due:
            self._became_ready(due)
        return time_ms

    def _settle(self, effects: list[Effect], time_ms: int) -> list[Effect]:
        state, staging = self._state, self._staging
        self._expire_head(time_ms)
        if self._waiters:
            self._serve(effects, time_ms)
        if self._leases.dead or self._letters.again_ms:
            self._move_dead(effects, time_ms)
        if state.scheduled and (release := self.releases.due(time_ms, time_ms - self.ahead_ms)) is not None:
            effects.append(release)
        if self._fetch_again_ms and time_ms >= self._fetch_again_ms:
            self._fetch_again_ms = 0
        if self._fetching < 0 and not self._fetch_again_ms and (from_offset := self._wanted_offset()) >= 0:
            self._fetching = from_offset
            effects.append(Fetch(from_offset))
        if not staging.announced and not staging.is_empty:
            staging.announced = True
            effects.append(Propose())
        if not self._retention_check_ms and (state.fresh_count or state.live):
            every_ms = state.config.retention_ms // RETENTION_CHECKS_PER_RETENTION
            self._retention_check_ms = time_ms + max(RETENTION_CHECK_MS_MIN, every_ms)
        elif self._retention_check_ms and not (state.fresh_count or state.live):
            self._retention_check_ms = 0
        return effects

    def _outlived_ms(self, time_ms: int) -> int:
        """What was sent then, or before, has outlived its retention."""
        return time_ms - self.ahead_ms - self._state.config.retention_ms

    def _next_release_ms(self) -> int:
        """When to look for scheduled messages that are due; how far the time is ahead may be another by then."""
        due_ms = self.releases.next_ms()
        if due_ms and self.ahead_ms:
            return min(due_ms + self.ahead_ms, max(due_ms, self._time_ms + CLOCK_LOOK_MS))
        return due_ms

    def _serve(self, effects: list[Effect], time_ms: int) -> None:
        while self._waiters:
            waiter = self._waiters.first()
            picks = self._pick(waiter.messages_max, waiter.visibility_ms, time_ms)
            if not picks:
                return
            self._waiters.remove_first()
            effects.append(Deliver(waiter.token, picks))

    def _pick(self, messages_max: int, visibility_ms: int, time_ms: int) -> list[Pick]:
        """Take messages out; empty when there is nothing or a limit is reached.

        Half of them are fresh ones and half were delivered before, while there are both: a consumer that gives
        everything back sees the others all the same, and what came back does not wait for all that is fresh.
        """
        state, staging, window = self._state, self._staging, self._window
        room = min(messages_max, state.config.in_flight_max - self.in_flight_count, staging.picks_room)
        picks: list[Pick] = []
        if room <= 0 or state.config.paused or self._pauses_staged:
            return picks
        deadline_ms = time_ms + visibility_ms
        fresh_room = room - self._leases.share_of(room)
        oldest_ms = self._outlived_ms(time_ms)
        while len(picks) < fresh_room and window.ranges:
            if window.ranges[0].timestamp_ms <= oldest_ms:
                if not self._expire_fresh(time_ms):
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
            self._coming_back += len(picks)
        return picks

    def _expire_head(self, time_ms: int) -> None:
        ranges = self._window.ranges
        if ranges and ranges[0].timestamp_ms <= self._outlived_ms(time_ms):
            self._expire_fresh(time_ms)

    def _expire_fresh(self, time_ms: int) -> bool:
        """Drop what outlived its retention at the head of the window; False if no more may be staged now."""
        oldest_ms = self._outlived_ms(time_ms)
        window, staging = self._window, self._staging
        while window.ranges and window.ranges[0].timestamp_ms <= oldest_ms:
            if staging.expired_room <= 0:
                return False
            taken = window.take(staging.expired_room)
            staging.expired_range(taken.first_offset, taken.last_offset)
        return True

    def _expire_live(self, time_ms: int) -> None:
        if self._staging.live_expired:
            return  # the last ones are still on their way through the log
        oldest_ms = self._outlived_ms(time_ms)
        expired = [offset for offset, entry in self._state.live.items() if entry[3] <= oldest_ms]
        self._staging.expired_offsets(expired[: max(0, self._staging.expired_room)])

    def _wanted_offset(self) -> int:
        """Where the log should be read next, -1 = nowhere."""
        if self._probes:
            return self._probes.wanted_offset()
        window = self._window
        if window.end < self._state.log_end and window.count < READ_AHEAD_MESSAGES_MAX // 2:
            return window.end
        return -1

    def _stage_probed(self) -> None:
        for receipts, answer in self._probes.take_decided():
            self._staging.deleted(receipts, answer)

    def _park(
        self,
        token: Token,
        messages_max: int,
        visibility_ms: int,
        wait_until_ms: int,
        now_ms: int,
        attempt: bytes,
        tags: Tags = (),
    ) -> list[Effect]:
        """There is nothing to hand out: wait if the caller does, or if a read of the log may change that."""
        is_long_poll = wait_until_ms > now_ms
        if not is_long_poll and not (self._coming_back or (self._tags_may_come if tags else self._fetch_may_help)):
            return [Deliver(token, [])]
        if len(self._waiters) >= WAITERS_PER_PARTITION_MAX:
            return [Refuse(token, ErrorCode.OVERLOADED, "too many requests wait for messages")]
        until_ms = wait_until_ms if is_long_poll else now_ms + FETCH_PATIENCE_MS
        self._waiters.park(token, messages_max, visibility_ms, until_ms, is_long_poll, attempt, tags)
        return []

    def _answer_hasty(self, effects: list[Effect]) -> None:
        """Short polls waited for what is known now."""
        if self._waiters and not (self._coming_back or self._fetch_may_help):
            effects += [Deliver(token, []) for token in self._waiters.remove_hasty()]

    def _move_dead(self, effects: list[Effect], time_ms: int) -> None:
        move = self._letters.next_move(self._state, self._leases, time_ms)
        if move is not None:
            effects.append(move)

    def note(self, command: list[Any], now_ms: int) -> list[Effect]:
        """A command that nobody waits for; not staged when there is too much already."""
        return self._single(command, None, self._advance(now_ms))

    def _single(self, command: list[Any], token: Token, time_ms: int) -> list[Effect]:
        if self._is_overloaded:
            return [overloaded(token)]
        self._staging.single(command, token)
        return self._settle([], time_ms)

    # --- what is different for FIFO queues, and where messages have groups or tags ----------------------------

    def _window_arrived(
        self, first: int, last: int, timestamp_ms: int, before: int, noted: FoldedHeaders | None
    ) -> None:
        self._window.arrived(
            first, last, timestamp_ms, before, noted.unavailable_offsets() if noted is not None else ()
        )

    def _window_fetched(self, ranges: Sequence[FreshRange], groups: Sequence[Any], end: int) -> None:
        self._window.fetched(ranges, end, self._state)

    @property
    def _tags_may_come(self) -> bool:
        """May reading on find messages for one who waits for tags?"""
        return False

    def _became_ready(self, offsets: list[int]) -> None:
        """These may be received again."""

    def _hide(self, changes: Sequence[tuple[int, int, int]]) -> list[int]:
        """Receipts of leases that ran out put messages off too; those that were ready."""
        return self._leases.hide([offset for offset, delivery, wanted_ms in changes if delivery > 0 and wanted_ms >= 0])

    def _window_removed(self, offsets: list[int], groups: Mapping[int, bytes]) -> None:
        self._window.cut(offsets)

    def _oldest_fresh_ms(self) -> int:
        return self._window.ranges[0].timestamp_ms if self._window.ranges else 0

    def _count_groups(self) -> tuple[int, int]:
        """Groups in view, and the locked ones among them."""
        return 0, 0

    def _fold_deleted(self, command: Command, taken: InFlightCommand, effects: list[Effect]) -> None:
        ahead = self._state.fold_deleted(command)
        self._leases.forget(command[FIRST_FIELD][::2])
        if ahead:
            self._window.cut(ahead)

    # --- following the fold -----------------------------------------------------------------------------------

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
