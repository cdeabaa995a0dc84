"""The leader's side of a standard queue whose messages have groups or tags, or of which somebody asks for tags.

The same leader with another view of what waits (delivery/backlog.py): messages of noisy groups let the others go
first, and an acquire may ask for tags. What is handed out lies anywhere ahead of the cursor then. The fold takes that
as it takes a lease that was lost: what was acquired stands in `live`, what is deleted stands in `removed_above_cursor`
until the cursor passes.

A queue without groups and tags never comes here (`Leader` serves it), and one that is drained begins as such a queue
again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from storage_nodes.limits import READ_AHEAD_MESSAGES_MAX, TAKEN_AHEAD_RANGES_MAX
from storage_nodes.machines.driver_contract import Refuse, Token
from storage_nodes.machines.queue.commands import DEAD_LETTERED, EXPIRED, FIRST_FIELD, KIND, PURGED, REMOVED, Command
from storage_nodes.machines.queue.delivery.backlog import Backlog
from storage_nodes.machines.queue.delivery.fairness import GroupsInFlight
from storage_nodes.machines.queue.delivery.tag_queues import TagQueue
from storage_nodes.machines.queue.delivery.window import Window
from storage_nodes.machines.queue.effects import NO_KEY, Deliver, Effect, Pick, Tags
from storage_nodes.machines.queue.leader.leader import Leader
from storage_nodes.machines.queue.leader.pending_commands import InFlightCommand
from storage_nodes.machines.queue.leader.settling import Settling
from storage_nodes.machines.queue.leader.waiters import TagWaiters, Waiter
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueStats


class KeyedLeader(Leader):
    __slots__ = ("_in_flight",)

    _in_flight: GroupsInFlight
    _waiters: TagWaiters
    _window: Backlog  # type: ignore[assignment]

    def __init__(self, state: QueueState, term: int) -> None:
        super().__init__(state, term)
        self._begin(Window(state))

    @classmethod
    def after(cls, plain: Leader) -> KeyedLeader:
        """Go on where a leader stands that never met a group or a tag."""
        leader = cls.__new__(cls)
        for name in Settling.__slots__:
            setattr(leader, name, getattr(plain, name))
        leader._begin(plain._window)
        return leader

    def _begin(self, plain: Window) -> None:
        """Take over what waits in a window that knew no keys."""
        state, leases = self._state, self._leases
        self._in_flight = GroupsInFlight()
        self._waiters = TagWaiters.after(self._waiters)
        self._window = Backlog(state, leases, self._in_flight, self._waiters.by_tag)
        self._window.end = plain.head
        self._window.fetched(plain.ranges, [()] * len(plain.ranges), plain.end)
        self._window.became_ready(leases.ready_offsets())
        for offset, (group, _) in state.keys.items():
            if state.live[offset][1] and not leases.is_ready(offset):
                self._in_flight.add(offset, group)
        self._window.throttle(self._in_flight.noisy(self.in_flight_count))

    # --- requests ---------------------------------------------------------------------------------------------

    def acquire_tagged(
        self, token: Token, messages_max: int, visibility_ms: int, wait_until_ms: int, tags: Tags, now_ms: int
    ) -> list[Effect]:
        time_ms = self._advance(now_ms)
        effects: list[Effect] = []
        if self._waiters:
            self._serve(effects, time_ms)  # those who came first
        picks = self._take(messages_max, visibility_ms, time_ms, tags)
        if picks:
            effects.append(Deliver(token, picks))
        elif self._is_paused:
            effects += self._park(token, messages_max, visibility_ms, wait_until_ms, now_ms, b"", tags)
            self._wake(tags)
        elif wait_until_ms == 0 and self.in_flight_count >= self._state.config.in_flight_max:
            effects.append(Refuse(token, ErrorCode.OVER_LIMIT, "too many messages are in flight"))
        elif self._takes_in_order or (self._has_tags_beyond and not self._window.has_room):
            text = "too many messages that do not match wait in front: receive some of them without a filter"
            effects.append(Refuse(token, ErrorCode.OVER_LIMIT, text))
        else:
            effects += self._park(token, messages_max, visibility_ms, wait_until_ms, now_ms, b"", tags)
            if not self._may_take:
                self._wake(tags)
        return self._settle(effects, time_ms)

    def stats(self, now_ms: int) -> QueueStats:
        stats = super().stats(now_ms)
        noisy = len(self._in_flight.noisy(self.in_flight_count))
        return msgspec.structs.replace(stats, noisy_groups=noisy, noisy_waiting=self._window.noisy_count)

    # --- handing out ------------------------------------------------------------------------------------------

    @property
    def _may_take(self) -> bool:
        """Is there room for one message more that is handed out?"""
        staging = self._staging
        in_flight_room = 0 if self._is_paused else self._state.config.in_flight_max - self.in_flight_count
        return in_flight_room > 0 and min(staging.picks_room, staging.expired_room) > 0 and staging.has_keys_room

    @property
    def _takes_in_order(self) -> bool:
        """So much was taken out ahead of waiting messages that no more may be."""
        return len(self._state.removed_above_cursor) >= TAKEN_AHEAD_RANGES_MAX

    def _pick(self, messages_max: int, visibility_ms: int, time_ms: int) -> list[Pick]:
        return self._take(messages_max, visibility_ms, time_ms, ())

    def _take(self, messages_max: int, visibility_ms: int, time_ms: int, tags: Tags) -> list[Pick]:
        staging, backlog, in_flight = self._staging, self._window, self.in_flight_count
        room = min(messages_max, self._state.config.in_flight_max - in_flight, staging.picks_room)
        picks: list[Pick] = []
        in_order = self._takes_in_order
        if room <= 0 or self._is_paused or (tags and in_order):
            return picks
        backlog.refresh_throttled(in_flight)
        deadline_ms = time_ms + visibility_ms
        while 0 < room - len(picks) <= staging.expired_room and staging.has_keys_room:
            tag_queue = backlog.next_tag_queue(tags, in_flight, in_order)
            if tag_queue is None:
                break
            if (offset := backlog.take_again(tag_queue)) >= 0:
                picks.append(self._take_again(offset, time_ms, deadline_ms))
            else:
                most = room - len(picks)
                if not (in_order or tag_queue.is_noisy) and (group := tag_queue.fresh_group):
                    most = min(most, self._in_flight.until_noisy(group, in_flight))
                self._take_fresh(tag_queue, most, time_ms, deadline_ms, picks)
        if not visibility_ms:
            self._coming_back += len(picks)
        return picks

    def _take_again(self, offset: int, time_ms: int, deadline_ms: int) -> Pick:
        self._leases.take_one(offset)
        self._staging.acquired_again(time_ms, deadline_ms, [offset])
        self._in_flight.add(offset, self._state.keys.get(offset, NO_KEY)[0])
        _, delivery, first_received_ms, sent_ms = self._state.live[offset]
        return Pick(offset, delivery + 1, first_received_ms or time_ms, sent_ms)

    def _take_fresh(self, tag_queue: TagQueue, room: int, time_ms: int, deadline_ms: int, picks: list[Pick]) -> None:
        key = (tag_queue.fresh_group, tag_queue.tag)
        first, last, sent_ms = taken = self._window.take_fresh(tag_queue, room)
        if sent_ms <= self._outlived_ms(time_ms):
            self._staging.expired_range(first, last)
            return
        self._staging.acquired_fresh(time_ms, deadline_ms, taken)
        if key != NO_KEY:
            self._staging.keyed(key, first, last)
        for offset in range(first, last + 1):
            self._in_flight.add(offset, key[0])
            picks.append(Pick(offset, 1, time_ms, sent_ms))

    def _serve(self, effects: list[Effect], time_ms: int) -> None:
        waiters, backlog = self._waiters, self._window
        line = [(first.number, tag) for tag in backlog.tags_with_new if (first := waiters.first_of(tag)) is not None]
        heapq.heapify(line)
        backlog.tags_with_new.clear()
        while (waiter := self._next_waiter(line)) is not None:
            picks = self._take(waiter.messages_max, waiter.visibility_ms, time_ms, waiter.tags)
            if picks:
                waiters.remove(waiter.token)
                effects.append(Deliver(waiter.token, picks))
            elif self._takes_in_order or not self._may_take:
                backlog.tags_with_new.update(tag for _, tag in line)  # their messages are there, and wait
                return
            elif waiter.tags:
                heapq.heappop(line)
            else:
                return  # there is nothing for anybody

    def _wake(self, tags: Tags) -> None:
        """Messages with these tags may be there that nobody was given yet."""
        self._window.tags_with_new.update(tag for tag in tags if tag in self._waiters.by_tag)

    def _next_waiter(self, line: list[tuple[int, bytes]]) -> Waiter | None:
        """Who came first of those for whom there may be something; `line` is a heap of who is first of a tag."""
        plain = self._waiters.first_plain()
        while line:
            number, tag = line[0]
            first = self._waiters.first_of(tag)
            if first is None:
                heapq.heappop(line)
            elif first.number != number:
                heapq.heapreplace(line, (first.number, tag))
            else:
                return plain if plain is not None and plain.number < number else first
        return plain

    # --- the fold's hooks -------------------------------------------------------------------------------------

    def _follow_acquired(self, command: Command) -> None:
        super()._follow_acquired(command)
        taken = self._window.taken
        for _, _, fresh, again in command[FIRST_FIELD + 1]:
            for at in range(0, len(fresh), 3):
                offsets = range(fresh[at], fresh[at + 1] + 1)
                taken.difference_update(offsets)
                self._left(offsets)
            self._left(again)

    def _fold_deleted(self, command: Command, taken: InFlightCommand, effects: list[Effect]) -> None:
        super()._fold_deleted(command, taken, effects)
        self._left(command[FIRST_FIELD][::2])

    def _fold_rare(self, command: Command, offset: int, taken: InFlightCommand, effects: list[Effect]) -> None:
        super()._fold_rare(command, offset, taken, effects)
        kind = command[KIND]
        if kind == EXPIRED:
            ends = iter(command[FIRST_FIELD + 1])
            for first, last in zip(ends, ends, strict=True):
                self._window.taken.difference_update(range(first, last + 1))
            self._left(command[FIRST_FIELD + 2])
        elif kind in (DEAD_LETTERED, REMOVED):
            self._left(command[FIRST_FIELD])
        elif kind == PURGED and not self._state.live:
            self._in_flight.clear()

    def _left(self, offsets: Iterable[int]) -> None:
        """These may have left `live`, or never came there."""
        live = self._state.live
        for offset in offsets:
            if offset not in live:
                self._in_flight.remove(offset)

    # --- the view ---------------------------------------------------------------------------------------------

    def _hide(self, changes: Sequence[tuple[int, int, int]]) -> list[int]:
        hidden = super()._hide(changes)
        for offset in hidden:
            self._in_flight.add(offset, self._state.keys.get(offset, NO_KEY)[0])
        return hidden

    @property
    def _may_read_on(self) -> bool:
        state, backlog = self._state, self._window
        return state.fresh_count > 0 and backlog.end < state.log_end and backlog.has_room

    @property
    def _has_tags_beyond(self) -> bool:
        """May messages with tags wait beyond what is in view?"""
        return self._state.fresh_count > 0 and self._window.end < self._state.keyed_end

    @property
    def _tags_may_come(self) -> bool:
        return self._has_tags_beyond and self._may_read_on and not self._is_paused

    @property
    def _fetch_may_help(self) -> bool:
        found_none = not self._window.count or (bool(self._waiters.by_tag) and self._has_tags_beyond)
        return found_none and self._may_read_on and not self._is_paused

    def _wanted_offset(self) -> int:
        if self._probes:
            return self._probes.wanted_offset()
        backlog = self._window
        backlog.look_ahead(self.in_flight_count)
        is_short = backlog.count - backlog.noisy_count < READ_AHEAD_MESSAGES_MAX // 2
        if self._may_read_on and (is_short or (self._waiters.by_tag and self._has_tags_beyond)):
            return backlog.end
        return -1

    def _expire_head(self, time_ms: int) -> None:
        """Nothing: what is too old is dropped when its turn comes, and the retention check drops the rest."""

    def _expire_live(self, time_ms: int) -> None:
        super()._expire_live(time_ms)
        oldest_ms = self._outlived_ms(time_ms)
        for first, last, _ in self._window.take_expired(oldest_ms, max(0, self._staging.expired_room)):
            self._staging.expired_range(first, last)
