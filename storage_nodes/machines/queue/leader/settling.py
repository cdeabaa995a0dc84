"""What the leader of a queue partition keeps, and how it *settles* after every input: expired messages at the head go,
waiters are served, the window is read ahead, the driver is told that commands are staged. So whatever made messages
available, waiters see it.

Time: `now_ms` is the time of the partition, which never falls and goes on where its last leader was; decisions use
max(it, the highest time in the log) all the same. It may be `ahead_ms` ahead of what most clocks of the cluster say:
what a wrong clock must not bring about, that messages expire or scheduled ones are released, waits for those clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from storage_nodes.limits import (
    CLOCK_LOOK_MS,
    PROPOSALS_PENDING_MAX,
    READ_AHEAD_MESSAGES_MAX,
    WAITERS_PER_PARTITION_MAX,
)
from storage_nodes.machines.driver_contract import Propose, Refuse, Token
from storage_nodes.machines.queue.delivery.leases import Leases, Removals
from storage_nodes.machines.queue.delivery.window import Window
from storage_nodes.machines.queue.effects import Deliver, Effect, Fetch, Pick, Tags
from storage_nodes.machines.queue.leader.letters import Letters
from storage_nodes.machines.queue.leader.pending_commands import PendingCommands
from storage_nodes.machines.queue.leader.probes import Probes
from storage_nodes.machines.queue.leader.releases import Releases
from storage_nodes.machines.queue.leader.waiters import Waiters
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.errors import ErrorCode

# How often a queue that holds messages looks for expired ones.
RETENTION_CHECK_MS_MIN = 1_000
RETENTION_CHECKS_PER_RETENTION = 100
# How long a short poll may wait for the read of the log that will find its messages.
FETCH_PATIENCE_MS = 1_000


class Settling:
    """Standard queues whose messages have no groups and tags; `FifoLeader` and `KeyedLeader` hand out otherwise."""

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
        self._window = Window(state)
        self._staging = PendingCommands(term)
        self._waiters = Waiters()
        self._probes = Probes()
        self._fetching = -1  # the offset that the outstanding Fetch named, -1 = none
        self._fetch_again_ms = 0  # the last Fetch found nothing to go by: not before this time; 0 = at once
        self._retention_check_ms = 0  # 0 = nothing to look after
        self._letters = Letters(term)
        self.releases = Releases(state.scheduled)
        self._pauses_staged = 0  # configurations on their way that pause the queue
        self._removals = Removals()
        self._coming_back = 0  # messages handed out without a visibility that is not folded yet: ready then

    # --- how things stand -------------------------------------------------------------------------------------

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
            self._window.became_ready(due)
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
        """Drop what outlived its retention at the head of the window; False where nothing can be staged now."""
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

    # --- what is different for FIFO queues, and where messages have groups or tags ----------------------------

    @property
    def _tags_may_come(self) -> bool:
        """May reading on find messages for one who waits for tags?"""
        return False

    def _hide(self, changes: Sequence[tuple[int, int, int]]) -> list[int]:
        """Receipts of leases that ran out put messages off too; those that were ready."""
        return self._leases.hide([offset for offset, delivery, wanted_ms in changes if delivery > 0 and wanted_ms >= 0])
