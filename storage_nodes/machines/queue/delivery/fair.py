"""Fair delivery: standard queues whose messages have groups or tags, or of which somebody asks for tags.

Messages of noisy groups let the others go first, and a receive may ask for tags (backlog.py). What is handed out lies
anywhere ahead of the cursor then. The fold takes that as it takes a lease that was lost: what was acquired stands in
`live`, what is deleted stands in `removed_above_cursor` until the cursor passes.

A queue without groups and tags never comes here (in_order.py), and one that is drained begins as such a queue again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from storage_nodes.limits import READ_AHEAD_MESSAGES_MAX, TAKEN_AHEAD_RANGES_MAX
from storage_nodes.machines.driver_contract import Refuse, Token
from storage_nodes.machines.queue.commands import AcquiredCommand, DeletedCommand, LeasedCommand, UnparkedCommand
from storage_nodes.machines.queue.delivery.backlog import Backlog
from storage_nodes.machines.queue.delivery.fairness import GroupsInFlight
from storage_nodes.machines.queue.delivery.pending_commands import InFlightCommand
from storage_nodes.machines.queue.delivery.strategy import DeliveryContext
from storage_nodes.machines.queue.delivery.tag_queues import TagQueue
from storage_nodes.machines.queue.delivery.waiters import Waiter
from storage_nodes.machines.queue.delivery.window import Window
from storage_nodes.machines.queue.effects import NO_KEY, Deliver, Effect, Pick, Tags
from storage_nodes.protocol.errors import ErrorCode


class FairDelivery:
    __slots__ = ("_context", "_in_flight", "_leases", "_staging", "_state", "_waiters", "window")

    commits_leases = False
    holds_dead_letters = False

    def __init__(self, context: DeliveryContext, plain: Window) -> None:
        """Takes over what waits in a window that knew no keys."""
        state, leases = context.state, context.leases
        self._context, self._state, self._leases = context, state, leases
        self._staging, self._waiters = context.staging, context.waiters
        self._waiters.track_tags()
        group_of = {offset: group for offset, (group, _) in state.keys.items() if group}
        for offset in [offset for offset, entry in state.live.items() if not entry[1]] + leases.ready_offsets():
            group_of.pop(offset, None)
        self._in_flight = GroupsInFlight(group_of)
        self.window = Backlog(state, leases, self._in_flight, self._waiters.by_tag)
        self.window.end = plain.head
        self.window.fetched(plain.ranges, [()] * len(plain.ranges), plain.end)
        self.window.became_ready(leases.ready_offsets())
        self.window.throttle(self._in_flight.noisy(context.in_flight_count))

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
        picks = self._take(messages_max, visibility_ms, time_ms, tags)
        context = self._context
        if picks:
            effects.append(Deliver(token, picks))
        elif context.is_paused:
            return False
        elif not wait_until_ms and context.in_flight_count >= self._state.config.in_flight_max:
            effects.append(Refuse(token, ErrorCode.OVER_LIMIT, "too many messages are in flight"))
        elif tags and (
            self._takes_in_order or self._leases.is_crowded or (self._has_tags_beyond and not self.window.has_room)
        ):
            text = "too many messages that do not match wait in front: receive some of them without a filter"
            effects.append(Refuse(token, ErrorCode.OVER_LIMIT, text))
        else:
            return False
        return True

    def tags_parked(self, tags: Tags) -> None:
        if not self._may_take:  # messages with these tags may be there that nobody was given yet
            self.window.tags_with_new.update(tag for tag in tags if tag in self._waiters.by_tag)

    def is_under_way(self, attempt: bytes) -> bool:
        return False

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> None:
        self._context.probes.delete(token, receipts, self.window)

    def hide(self, changes: Sequence[tuple[int, int, int]]) -> None:
        for offset in self._leases.hide(changes):
            self._in_flight.add(offset, self._state.keys.get(offset, NO_KEY)[0])

    def noisy_counts(self) -> tuple[int, int]:
        return len(self._in_flight.noisy(self._context.in_flight_count)), self.window.noisy_count

    # --- handing out ------------------------------------------------------------------------------------------

    @property
    def _may_take(self) -> bool:
        """Is there room for one message more that is handed out?"""
        staging = self._staging
        context = self._context
        in_flight_room = 0 if context.is_paused else self._state.config.in_flight_max - context.in_flight_count
        return in_flight_room > 0 and min(staging.picks_room, staging.expired_room) > 0 and staging.has_keys_room

    @property
    def _takes_in_order(self) -> bool:
        """So much was taken out ahead of waiting messages that no more may be."""
        return len(self._state.removed_above_cursor) >= TAKEN_AHEAD_RANGES_MAX

    def _take(self, messages_max: int, visibility_ms: int, time_ms: int, tags: Tags) -> list[Pick]:
        staging, backlog, in_flight = self._staging, self.window, self._context.in_flight_count
        room = min(messages_max, self._state.config.in_flight_max - in_flight, staging.picks_room)
        picks: list[Pick] = []
        in_order = self._takes_in_order
        if room <= 0 or self._context.is_paused or (tags and (in_order or self._leases.is_crowded)):
            return picks
        backlog.refresh_throttled(in_flight)
        deadline_ms = time_ms + visibility_ms
        if self._leases.is_crowded:
            # Whatever the groups: what came back goes first, in its order, until there is room for fresh ones.
            for offset in self._leases.take(room):
                picks.append(self._pick_again(offset, time_ms, deadline_ms))
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
            self._context.coming_back += len(picks)
        return picks

    def _take_again(self, offset: int, time_ms: int, deadline_ms: int) -> Pick:
        self._leases.take_one(offset)
        return self._pick_again(offset, time_ms, deadline_ms)

    def _pick_again(self, offset: int, time_ms: int, deadline_ms: int) -> Pick:
        self._staging.acquired_again(time_ms, deadline_ms, [offset])
        self._in_flight.add(offset, self._state.keys.get(offset, NO_KEY)[0])
        _, delivery, first_received_ms, sent_ms = self._state.live[offset]
        return Pick(offset, delivery + 1, first_received_ms or time_ms, sent_ms)

    def _take_fresh(self, tag_queue: TagQueue, room: int, time_ms: int, deadline_ms: int, picks: list[Pick]) -> None:
        key = (tag_queue.fresh_group, tag_queue.tag)
        first, last, sent_ms = taken = self.window.take_fresh(tag_queue, room)
        if sent_ms <= self._context.outlived_ms(time_ms):
            self._staging.expired_range(first, last)
            return
        self._staging.acquired_fresh(time_ms, deadline_ms, taken)
        if key != NO_KEY:
            self._staging.keyed(key, first, last)
        for offset in range(first, last + 1):
            self._in_flight.add(offset, key[0])
            picks.append(Pick(offset, 1, time_ms, sent_ms))

    def serve(self, effects: list[Effect], time_ms: int) -> None:
        waiters, backlog = self._waiters, self.window
        line = [(first.number, tag) for tag in backlog.tags_with_new if (first := waiters.first_of(tag)) is not None]
        heapq.heapify(line)
        backlog.tags_with_new.clear()
        while (waiter := self._next_waiter(line)) is not None:
            picks = self._take(waiter.messages_max, waiter.visibility_ms, time_ms, waiter.tags)
            if picks:
                waiters.remove(waiter.token)
                effects.append(Deliver(waiter.token, picks))
            elif waiter.tags and self._may_take:
                _, tag = heapq.heappop(line)
                if self._takes_in_order or self._leases.is_crowded:
                    backlog.tags_with_new.add(tag)  # its messages are there, and wait; those who take any go first
            elif self._takes_in_order or self._leases.is_crowded or not self._may_take:
                backlog.tags_with_new.update(tag for _, tag in line)
                return
            else:
                return  # there is nothing for anybody

    def _next_waiter(self, line: list[tuple[int, bytes]]) -> Waiter | None:
        """Who came first of those for whom there may be something; `line` is a heap of who is first of a tag."""
        plain = self._waiters.first_untagged()
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

    # --- the fold ---------------------------------------------------------------------------------------------

    def fold_deleted(self, command: DeletedCommand, taken: InFlightCommand, effects: list[Effect]) -> None:
        if ahead := self._context.fold_deleted(command):
            self.window.cut(ahead)
        self._left(command.receipts[::2])

    def fold_leased(self, command: LeasedCommand, taken: InFlightCommand, effects: list[Effect]) -> None:
        raise AssertionError("a lease by group in a standard queue")

    def fold_unparked(self, command: UnparkedCommand) -> list[ErrorCode]:
        raise AssertionError("groups of a standard queue")

    def acquired(self, command: AcquiredCommand) -> None:
        taken = self.window.taken
        for leased in command.acquisitions:
            fresh = leased.fresh
            for at in range(0, len(fresh), 3):
                offsets = range(fresh[at], fresh[at + 1] + 1)
                taken.difference_update(offsets)
                self._left(offsets)
            self._left(leased.again)

    def groups_of(self, offsets: Sequence[int]) -> Sequence[bytes | None]:
        return ()

    def left(self, offsets: Sequence[int], groups: Sequence[bytes | None]) -> None:
        self._left(offsets)

    def expired(self, ranges: Sequence[int]) -> None:
        ends = iter(ranges)
        for first, last in zip(ends, ends, strict=True):
            self.window.taken.difference_update(range(first, last + 1))

    def purged(self) -> None:
        self._in_flight.clear()

    def parked_groups(self) -> Sequence[bytes]:
        return ()

    def unparked(self, groups: Sequence[bytes]) -> None:
        """Nothing: no group is parked."""

    def _left(self, offsets: Iterable[int]) -> None:
        """These may have left `live`, or never came there."""
        live = self._state.live
        for offset in offsets:
            if offset not in live:
                self._in_flight.remove(offset)

    # --- what comes next --------------------------------------------------------------------------------------

    @property
    def _may_read_on(self) -> bool:
        state, backlog = self._state, self.window
        return state.fresh_count > 0 and backlog.end < state.log_end and backlog.has_room

    @property
    def _has_tags_beyond(self) -> bool:
        """May messages with tags wait beyond what is in view?"""
        return self._state.fresh_count > 0 and self.window.end < self._state.keyed_end

    def may_find(self, tags: Tags) -> bool:
        if tags:
            is_sought = self._has_tags_beyond
        else:
            is_sought = not self.window.count or (bool(self._waiters.by_tag) and self._has_tags_beyond)
        return is_sought and self._may_read_on and not self._context.is_paused

    def wanted_offset(self) -> int:
        backlog = self.window
        backlog.look_ahead(self._context.in_flight_count)
        is_short = backlog.count - backlog.noisy_count < READ_AHEAD_MESSAGES_MAX // 2
        if self._may_read_on and (is_short or (self._waiters.by_tag and self._has_tags_beyond)):
            return backlog.end
        return -1

    def expire_head(self, time_ms: int) -> None:
        """Nothing: what is too old is dropped when its turn comes, and by `expire_fresh`."""

    def expire_fresh(self, time_ms: int) -> None:
        context, window = self._context, self.window
        room = context.expiry_room
        expired = window.take_expired(context.outlived_ms(time_ms), room)
        for first, last, _ in expired:
            self._staging.expired_range(first, last)
        context.pause_expiry(time_ms, window, room <= 0 or bool(expired))
