"""The leader's side of a queue partition: decides who gets what, stages it, and follows the fold.

Every input does its own part and then *settles*: expired messages at the head go, waiters are served, the window is
read ahead, the driver is told that commands are staged. So whatever made messages available, waiters see it.
Which message goes to whom: delivery/strategy.py.

Time: `now_ms` is the time of the partition, which never falls and goes on where its last leader was; decisions use
max(it, the highest time in the log) all the same. It may be `ahead_ms` ahead of what most clocks of the cluster say:
what a wrong clock must not bring about, that messages expire or scheduled ones are released, waits for those clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage_nodes.limits import CLOCK_LOOK_MS, PROPOSALS_PENDING_MAX, WAITERS_PER_PARTITION_MAX
from storage_nodes.machines.driver_contract import Propose, Refuse, Token
from storage_nodes.machines.queue.commands import (
    NOT_ISSUED,
    Command,
    ConfiguredCommand,
    PurgedCommand,
    RemovedCommand,
    RescheduledCommand,
    UnparkedCommand,
)
from storage_nodes.machines.queue.delivery.by_group import ByGroupDelivery
from storage_nodes.machines.queue.delivery.fair import FairDelivery
from storage_nodes.machines.queue.delivery.in_order import InOrderDelivery
from storage_nodes.machines.queue.delivery.leases import Removals
from storage_nodes.machines.queue.delivery.strategy import DeliveryContext, DeliveryStrategy
from storage_nodes.machines.queue.effects import (
    Deliver,
    Effect,
    Fetch,
    FreshRange,
    Groups,
    Keys,
    Tags,
    overloaded,
)
from storage_nodes.machines.queue.leader.following import LeaderFold
from storage_nodes.machines.queue.leader.letters import Letters
from storage_nodes.machines.queue.leader.queue_stats import queue_stats
from storage_nodes.machines.queue.leader.releases import Releases
from storage_nodes.machines.queue.state.configs import config_fields
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import MessageState, QueueConfig, QueueStats

# After a read of the log that got nowhere.
FETCH_RETRY_MS = 50
# How often a queue that holds messages looks for expired ones.
RETENTION_CHECK_MS_MIN = 1_000
RETENTION_CHECKS_PER_RETENTION = 100
# How long a short poll may wait for the read of the log that will find its messages.
FETCH_PATIENCE_MS = 1_000


class Leader:
    """Exists only while leading and while there is something to do."""

    __slots__ = (
        "_context", "_fetch_again_ms", "_fetching", "_following", "_leases", "_letters", "_probes", "_removals",
        "_retention_check_ms", "_staging", "_state", "_waiters", "delivery", "handed_over", "releases",
        "time_ms",
    )  # fmt: skip

    def __init__(self, state: QueueState, term: int, ahead_ms: int) -> None:
        self._context = context = DeliveryContext(state, term, ahead_ms)
        self._state, self._leases, self._staging = state, context.leases, context.staging
        self._waiters, self._probes = context.waiters, context.probes
        self.handed_over = context.staging.handed_over
        self.time_ms = state.last_ms
        self._fetching = -1  # the offset that the outstanding Fetch named, -1 = none
        self._fetch_again_ms = 0  # the last Fetch found nothing to go by: not before this time; 0 = at once
        self._retention_check_ms = 0  # 0 = nothing to look after
        self._letters = Letters(term)
        self.releases = Releases(state.scheduled, state.delayed)
        self._removals = Removals()
        self.delivery: DeliveryStrategy = InOrderDelivery(context)
        if isinstance(state, FifoState):
            self.delivery = ByGroupDelivery(context, state)
        self._following = LeaderFold(context, self.delivery, self._letters, self._removals)
        if not isinstance(state, FifoState) and (state.keys or state.keyed_end > state.cursor):
            self.track_keys()

    def track_keys(self) -> None:
        """Groups and tags of a standard queue matter from now on."""
        if isinstance(self.delivery, InOrderDelivery):
            self.delivery = self._following.delivery = FairDelivery(self._context, self.delivery.window)

    @property
    def tracks_keys(self) -> bool:
        return isinstance(self.delivery, FairDelivery)

    @property
    def is_idle(self) -> bool:
        """Nothing here that the replicated state does not say as well, and no answer of the driver to come."""
        state = self._state
        held = state.held_count or self._waiters or self._probes
        asked = self._fetching >= 0 or self._letters.under_way or self.releases.is_reading
        return not held and not asked and self._staging.is_settled

    @property
    def _is_overloaded(self) -> bool:
        return self._staging.outstanding + len(self._probes) >= PROPOSALS_PENDING_MAX

    def clocks_say(self, ahead_ms: int) -> None:
        """So far is the time here ahead of what most clocks of the cluster say."""
        self._context.ahead_ms = ahead_ms

    # --- requests ---------------------------------------------------------------------------------------------

    def acquire(
        self,
        token: Token,
        messages_max: int,
        visibility_ms: int,
        wait_until_ms: int,
        now_ms: int,
        attempt: bytes = b"",
        tags: Tags = (),
    ) -> list[Effect]:
        """`attempt` is for FIFO queues, tags are for those that track keys."""
        time_ms = self._advance(now_ms)
        delivery = self.delivery
        if delivery.commits_leases and self._is_overloaded:
            return [overloaded(token)]
        if attempt and delivery.is_under_way(attempt):
            return [Refuse(token, ErrorCode.OVERLOADED, "this attempt is on its way")]
        effects: list[Effect] = []
        if not delivery.acquire(token, messages_max, visibility_ms, wait_until_ms, attempt, tags, effects, time_ms):
            effects += self._park(token, messages_max, visibility_ms, wait_until_ms, now_ms, attempt, tags)
            if tags:
                delivery.tags_parked(tags)
        return self._settle(effects, time_ms)

    def cancel(self, token: Token) -> list[Effect]:
        if self._waiters.remove(token):
            return [Refuse(token, ErrorCode.CANCELLED, "given up by the caller")]
        return []

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> list[Effect]:
        if self._is_overloaded:
            return [overloaded(token)]
        self.delivery.delete(token, receipts)
        return self._settle([], self.time_ms)

    def change_visibility(
        self, token: Token | None, changes: Sequence[tuple[int, int, int]], now_ms: int
    ) -> list[Effect]:
        time_ms = self._advance(now_ms)
        if self._is_overloaded and token is not None:
            return [overloaded(token)]
        self.delivery.hide(changes)
        for offset in [offset for offset, delivery, _ in changes if delivery > 0]:
            self._leases.hold(offset)
        self._staging.changed(changes, token)
        return self._settle([], time_ms)

    def is_held(self, offset: int) -> bool:
        """Is a command on this message under way?"""
        return self._leases.is_held(offset)

    def look_at(self, offset: int, now_ms: int) -> tuple[MessageState, int, int, int] | None:
        """As the state says it, but for a dead letter: it waits for nobody, and counts as in flight, as in `stats`."""
        found = self._state.look_at(offset, now_ms)
        if found is None or found[0] is not MessageState.WAITING or not self._leases.is_dying(offset):
            return found
        return (MessageState.IN_FLIGHT, found[1], 0, found[3])

    def purge(self, token: Token, now_ms: int, attempt: bytes) -> list[Effect]:
        return self._single(PurgedCommand(*NOT_ISSUED, attempt), token, self._advance(now_ms))

    def remove(self, token: Token, offsets: Sequence[int], groups: Mapping[int, bytes], moved: bool) -> list[Effect]:
        if self._is_overloaded or not set(self._letters.under_way).isdisjoint(offsets):
            return [overloaded(token)]  # or a dead letter is on its way: it will have gone
        self._removals.begin(offsets, groups, self._leases, self._state.live)
        command = RemovedCommand(*NOT_ISSUED, list(offsets), moved, self.handed_over.sizes_of(offsets))
        return self._single(command, token, self.time_ms)

    def configure(self, token: Token, config: QueueConfig) -> list[Effect]:
        # A pause begins here, so that nothing is handed out once it is answered: leases of FIFO queues take a while.
        self._context.pauses_staged += config.paused and not self._is_overloaded
        return self._single(ConfiguredCommand(*NOT_ISSUED, *config_fields(config)), token, self.time_ms)

    def reschedule(self, token: Token, changes: Sequence[tuple[int, int]], now_ms: int) -> list[Effect]:
        flat = [number for change in changes for number in change]
        sizes = self.handed_over.sizes_of(flat[::2])
        return self._single(RescheduledCommand(*NOT_ISSUED, flat, sizes), token, self._advance(now_ms))

    def unpark(self, token: Token, groups: list[bytes], now_ms: int) -> list[Effect]:
        """Hand these groups of a FIFO queue out again; none named = all. Answered with a code each."""
        return self._single(UnparkedCommand(*NOT_ISSUED, groups), token, self._advance(now_ms))

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
        again; else it is tried again after a pause, and they are not, unless the configuration lets them by now."""
        time_ms = self._advance(now_ms)
        moving = self._letters.failed(time_ms)
        self._leases.spare(moving)
        if is_final:
            self.delivery.window.became_ready(self._leases.revive(moving))
        return self._settle([], self._advance(now_ms))

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
        if self._probes:
            self._probes.fetched(from_offset, ranges, end)
        window = self.delivery.window
        if from_offset == window.end or from_offset < window.end < end:
            window.fetched(ranges, groups, end)
        effects = self._settle([], time_ms)
        self._answer_hasty(effects)
        return effects

    def tick(self, now_ms: int) -> list[Effect]:
        time_ms = self._advance(now_ms)
        if self._retention_check_ms and time_ms >= self._retention_check_ms:
            has_more = self._expire_live(time_ms)
            self.delivery.expire_fresh(time_ms)
            self._retention_check_ms = time_ms + RETENTION_CHECK_MS_MIN if has_more else 0
            self.delivery.check()
        elif 0 < self._context.expiry_goes_on_ms <= time_ms:
            self.delivery.expire_fresh(time_ms)
        effects = self._settle([], time_ms)
        return effects + [Deliver(token, []) for token in self._waiters.remove_overdue(now_ms)]

    def next_tick_ms(self) -> int:
        """Leases that run out are only waited for when somebody waits for messages, or when messages may be dead then;
        else the next acquire looks. Where more was due than one input looks at, the rest is next."""
        # Asked for after every input.
        expiry_ms = self._context.expiry_goes_on_ms
        due_ms = [self._retention_check_ms, self._fetch_again_ms, self._letters.again_ms, expiry_ms]
        if not self._staging.announced:
            due_ms.append(self.handed_over.due_ms)
        if self._state.scheduled or self._state.delayed:
            due_ms.append(self._next_release_ms())
        if self._waiters:
            due_ms += (self._waiters.next_deadline_ms(), self._leases.next_deadline_ms())
        elif self._leases.receives_max or self._leases.is_behind:
            due_ms.append(self._leases.next_deadline_ms())
        return min([due for due in due_ms if due], default=0) if any(due_ms[1:]) else due_ms[0]

    def take_commands(self, now_ms: int, level: int) -> list[bytes]:
        self._staging.cursor = max(self._staging.cursor, self._state.cursor)
        return self._staging.take(self._advance(now_ms), self.delivery.window.head, level)

    def stats(self, now_ms: int) -> QueueStats:
        self._advance(now_ms)
        return queue_stats(self._context, self.delivery)

    def start(self, now_ms: int) -> list[Effect]:
        return self._settle([], self._advance(now_ms))

    def stop(self) -> list[Effect]:
        """The leadership ended: nobody who waits here will hear from the fold."""
        waiting = self._waiters.tokens()
        effects: list[Effect] = [Refuse(token, ErrorCode.NOT_LEADER, "another node leads now") for token in waiting]
        tokens = self._staging.tokens() + self._probes.tokens()
        effects += [Refuse(token, ErrorCode.OUTCOME_UNKNOWN, "the leader changed before commit") for token in tokens]
        return effects

    def retire(self) -> list[Effect]:
        """The partition is retired: nobody who waits here is handed anything any more."""
        tokens = self._waiters.tokens()
        for token in tokens:
            self._waiters.remove(token)
        return [Refuse(token, ErrorCode.UNKNOWN_PARTITION, "the partition is being deleted") for token in tokens]

    @property
    def is_quiet(self) -> bool:  # nothing is on its way that the meter will count
        return self._staging.is_settled and not self._letters.under_way and not self._probes

    # --- the fold --------------------------------------------------------------------------------------------

    def messages_arrived(
        self, first: int, last: int, timestamp_ms: int, before: int, noted: FoldedHeaders | None, now_ms: int
    ) -> list[Effect]:
        window = self.delivery.window
        window.arrived(first, last, timestamp_ms, before, noted)
        if noted is not None and noted.delayed:
            self._leases.delayed_arrived(noted.delayed)
        if noted is not None and noted.released:
            self.releases.folded(noted.released)
        elif not self._waiters and self._retention_check_ms and self._fetching < 0 and window.end > last:
            return []  # nothing to settle: the fast way of a queue that only fills
        return self._settle([], self._advance(now_ms))

    def fold(self, command: Command, offset: int, effects: list[Effect]) -> None:
        """A command of our own is committed."""
        self._following.fold(command, offset, effects)

    def commands_arrived(self, before: int, effects: list[Effect], now_ms: int) -> None:
        """A control batch was folded when the log ended at `before`."""
        self.delivery.window.commands_arrived(before)
        self._settle(effects, self._advance(now_ms))
        if not self.delivery.commits_leases:
            self._answer_hasty(effects)

    def note(self, command: Command, now_ms: int) -> list[Effect]:
        """A command that nobody waits for; not staged when there is too much already."""
        return self._single(command, None, self._advance(now_ms))

    def _single(self, command: Command, token: Token, time_ms: int) -> list[Effect]:
        if self._is_overloaded:
            return [overloaded(token)]
        self._staging.single(command, token)
        return self._settle([], time_ms)

    # --- settling ---------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int) -> int:
        """The time of this input; leases that ran out by then are ready."""
        time_ms = now_ms if now_ms > self.time_ms else self.time_ms
        self.time_ms = time_ms = time_ms if time_ms > self._state.last_ms else self._state.last_ms
        due = self._leases.advance(time_ms)
        if due:
            self.delivery.window.became_ready(due)
        return time_ms

    def _settle(self, effects: list[Effect], time_ms: int) -> list[Effect]:
        state, staging, delivery = self._state, self._staging, self.delivery
        delivery.expire_head(time_ms)
        if self._waiters:
            delivery.serve(effects, time_ms)
        if self._leases.dead or self._letters.again_ms:
            self._move_dead(effects, time_ms)
        if state.scheduled or state.delayed:
            release = self.releases.due(time_ms, time_ms - self._context.ahead_ms)
            effects += (release,) if release is not None else ()
        if self._fetch_again_ms and time_ms >= self._fetch_again_ms:
            self._fetch_again_ms = 0
        if self._fetching < 0 and not self._fetch_again_ms:
            from_offset = self._probes.wanted_offset() if self._probes else delivery.wanted_offset()
            if from_offset >= 0:
                self._fetching = from_offset
                effects.append(Fetch(from_offset))
        if not staging.announced and staging.is_wanted(time_ms):
            staging.announced = True
            effects.append(Propose())
        if not self._retention_check_ms and (state.fresh_count or state.live):
            every_ms = state.config.retention_ms // RETENTION_CHECKS_PER_RETENTION
            self._retention_check_ms = time_ms + max(RETENTION_CHECK_MS_MIN, every_ms)
        elif self._retention_check_ms and not (state.fresh_count or state.live):
            self._retention_check_ms = 0
        return effects

    def _next_release_ms(self) -> int:
        """When to look for scheduled messages that are due; how far the time is ahead may be another by then."""
        due_ms, ahead_ms = self.releases.next_ms(), self._context.ahead_ms
        if due_ms and ahead_ms:
            return min(due_ms + ahead_ms, max(due_ms, self.time_ms + CLOCK_LOOK_MS))
        return due_ms

    def _expire_live(self, time_ms: int) -> bool:
        """Drops messages in `live` that outlived their retention, as many as there is room for; are there more?"""
        if self._staging.live_expired:
            return True  # the last ones are still on their way through the log
        oldest_ms = self._context.outlived_ms(time_ms)
        expired = [offset for offset, entry in self._state.live.items() if entry[3] <= oldest_ms]
        room = max(0, self._staging.expired_room)
        self._staging.expired_offsets(expired[:room])
        return len(expired) > room

    def _park(
        self,
        token: Token,
        messages_max: int,
        visibility_ms: int,
        wait_until_ms: int,
        now_ms: int,
        attempt: bytes,
        tags: Tags,
    ) -> list[Effect]:
        """There is nothing to hand out: wait if the caller does, or if a read of the log may change that."""
        is_long_poll = wait_until_ms > now_ms
        if not is_long_poll and not (self._context.is_more_coming or self.delivery.may_find(tags)):
            return [Deliver(token, [])]
        if len(self._waiters) >= WAITERS_PER_PARTITION_MAX:
            return [Refuse(token, ErrorCode.OVERLOADED, "too many requests wait for messages")]
        until_ms = wait_until_ms if is_long_poll else now_ms + FETCH_PATIENCE_MS
        self._waiters.park(token, messages_max, visibility_ms, until_ms, is_long_poll, attempt, tags)
        return []

    def _answer_hasty(self, effects: list[Effect]) -> None:
        """Short polls waited for what is known now."""
        if self._waiters and not (self._context.is_more_coming or self.delivery.may_find(())):
            effects += [Deliver(token, []) for token in self._waiters.remove_hasty()]

    def _move_dead(self, effects: list[Effect], time_ms: int) -> None:
        if self.delivery.holds_dead_letters:
            self._letters.again_ms = 0  # looked at again when groups are unparked
            return
        move = self._letters.next_move(self._state, self._leases, self._removals, time_ms)
        if move is not None:
            effects.append(move)
