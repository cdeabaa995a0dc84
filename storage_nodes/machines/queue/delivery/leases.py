"""Leases that may run out, and what became available again, in the leader's memory.

Derived from the replicated state, and thrown away with the leadership.

Timers are per range, or list, of messages acquired together, not per message. A timer is only a hint: `live` decides
when it rings. Messages on which a command of ours is not folded yet are *held*: whatever their timer says they do not
become ready, because the command may move the deadline; when it is folded their timer is set again. Messages that were
received `receives_max` times, where the queue has a dead-letter queue, are not ready when their lease runs out but
*dead*. With a retry policy a lease is followed by a pause: then the message is *paused*, which uses up none of what may
be in flight, up to a bound of its own. Each message has its own timer, for the end of its lease, then of its pause.

Much may be due at once: after a change of the leader all that ran out since. One input makes LEASE_STEPS_PER_INPUT_MAX
of it ready, and says that it is behind; ticks follow until it is not.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import itemgetter, not_

from storage_nodes.limits import AGAIN_READY_MAX, LEASE_STEPS_PER_INPUT_MAX, RETRIES_PAUSED_MAX
from storage_nodes.machines.queue.state.checkpoint import Entry, Live
from storage_nodes.machines.queue.state.retry import RetryPolicy
from storage_nodes.protocol.deliveries import RECEIVES_MASK

# Garbage that a heap with lazy deletion may hold beside as many valid entries again.
_GARBAGE_MAX = 1_024
# A timer is (deadline_ms, first, last, offsets).
_Timer = tuple[int, int, int, tuple[int, ...]]
_ALL: tuple[int, ...] = ()  # no offsets: those from the first to the last


class Leases:
    """Messages in `live`: when they become available, and which of them are."""

    __slots__ = (
        "_held", "_is_our_turn", "_live", "_order", "_paused", "_ready", "_retry", "_taken_first", "_timers", "dead",
        "delayed", "is_behind", "receives_max",
    )  # fmt: skip

    def __init__(self, live: Live, receives_max: int, retry: RetryPolicy | None = None) -> None:
        self._live = live
        self.receives_max = receives_max  # 0 = messages may be received for ever
        self._retry = retry
        self.dead: set[int] = set()  # to be moved to the dead-letter queue
        self._ready: set[int] = set()  # available again: lease ran out or was released, or delay is over
        self._paused: set[int] = set()  # lease ran out, and the pause before the next try did not
        self._order: deque[int] = deque()  # _ready in the order in which they came, and offsets that left it
        self._timers: list[_Timer] = []  # heap
        self._held: dict[int, int] = {}  # offset -> commands of ours on it that are not folded yet
        self._taken_first: set[int] = set()  # of these, delayed ones that were taken: they count as delayed no more
        self._is_our_turn = False
        self.is_behind = False  # more is due than one input made ready
        self.delayed = sum(map(not_, map(itemgetter(1), live.values())))  # delivery 0: not due yet
        self._rebuild()

    @property
    def ready_count(self) -> int:
        return len(self._ready)

    @property
    def ready(self) -> Set[int]:
        """Which they are, to look at before the next input."""
        return self._ready

    @property
    def is_crowded(self) -> bool:
        """So many came back that fresh ones wait for them: memory is bounded by what is in flight and this."""
        return len(self._ready) >= AGAIN_READY_MAX

    @property
    def in_flight_count(self) -> int:
        """Messages whose lease holds, and the dead: all but the ready, the delayed and the paused."""
        return len(self._live) - len(self._ready) - self.delayed - self.paused_count

    @property
    def paused_count(self) -> int:
        """Messages that wait for their next try; what exceeds the bound counts as in flight."""
        return min(len(self._paused), RETRIES_PAUSED_MAX)

    def check(self) -> None:
        """Asserts that each message in `live` is counted as what it is: in flight are those that are left."""
        live, ready, dead, paused = self._live, self._ready, self.dead, self._paused
        assert live.keys() >= ready | dead | paused, "a message that is gone is available, dead or paused"
        assert len(ready) + len(dead) + len(paused) == len(ready | dead | paused), "a message is in two states"
        undelivered = sum(map(not_, map(itemgetter(1), live.values())))
        undelivered -= sum(not live[offset][1] for offset in ready)
        # Of those on which a command is under way it is not known here whether they were available.
        held = sum(offset in live and not live[offset][1] and offset not in ready for offset in self._held)
        assert undelivered - held <= self.delayed <= undelivered, f"{self.delayed} of {undelivered} count as delayed"

    def next_deadline_ms(self) -> int:
        """0 = none. Timers that mean nothing any more are dropped on the way."""
        timers, live = self._timers, self._live
        while timers:
            deadline_ms, first, last, offsets = timers[0]
            for offset in offsets or range(first, last + 1):
                entry = live.get(offset)
                if entry is not None and self._next_ms(offset, entry) == deadline_ms and not self._is_due(offset):
                    return deadline_ms
            heapq.heappop(timers)
        return 0

    def set_timer(self, deadline_ms: int, first: int, last: int) -> None:
        if self._retry is None:
            self._push((deadline_ms, first, last, _ALL))
        else:
            self._set_each(range(first, last + 1))

    def set_timer_of(self, deadline_ms: int, offsets: Sequence[int]) -> None:
        """One for messages that were acquired together and do not stand together."""
        if self._retry is None:
            self._push((deadline_ms, offsets[0], offsets[-1], tuple(offsets)))
        else:
            self._set_each(offsets)

    def delayed_arrived(self, offsets: Sequence[int]) -> None:
        """Ascending. One timer for neighbours that are due together, which those of one send are."""
        self.delayed += len(offsets)
        live = self._live
        first = last = offsets[0]
        due_ms = live[first][0]
        for offset in offsets[1:]:
            if offset != last + 1 or live[offset][0] != due_ms:
                self.set_timer(due_ms, first, last)
                first, due_ms = offset, live[offset][0]
            last = offset
        self.set_timer(due_ms, first, last)

    def delayed_deleted(self, receipts: Sequence[int]) -> None:
        """These are about to be deleted: flat (offset, delivery)... What is not due yet by the time here was due for an
        earlier leader, whose lease of it was lost."""
        live = self._live
        deleted = {offset for offset, delivery in zip(receipts[::2], receipts[1::2], strict=True) if delivery > 0}
        undelivered = [offset for offset in deleted if offset in live and not live[offset][1]]
        self.delayed -= sum(offset not in self._ready and offset not in self._taken_first for offset in undelivered)

    def advance(self, now_ms: int) -> list[int]:
        """Make ready what is due, up to a bound; what that is."""
        timers, live, ready, retry = self._timers, self._live, self._ready, self._retry
        due: list[int] = []
        room = LEASE_STEPS_PER_INPUT_MAX
        while timers and timers[0][0] <= now_ms:
            if room <= 0:
                self.is_behind = True
                return due
            deadline_ms, first, last, offsets = heapq.heappop(timers)
            named: Sequence[int] = offsets or range(first, last + 1)
            if len(named) > room:
                heapq.heappush(timers, (deadline_ms, named[room], last, offsets[room:] if offsets else _ALL))
                named = named[:room]
            room -= len(named)
            for offset in named:
                entry = live.get(offset)
                if entry is None or offset in ready or offset in self._held:
                    continue
                if (entry[0] if retry is None else self._next_ms(offset, entry)) != deadline_ms:
                    continue
                if retry is not None and self._pauses(offset, entry):
                    continue
                if self.receives_max and entry[1] & RECEIVES_MASK >= self.receives_max:
                    self.dead.add(offset)
                    continue
                due.append(offset)
                ready.add(offset)
                self._order.append(offset)
                if entry[1] == 0:
                    self.delayed -= 1
        self.is_behind = False
        return due

    def revive(self, offsets: Iterable[int]) -> list[int]:
        """Dead messages that may be received once more, because they cannot be moved; those that still are here."""
        revived = [offset for offset in offsets if offset in self.dead]
        self.dead.difference_update(revived)
        self._ready.update(revived)
        self._order.extend(revived)
        return revived

    def configure(self, receives_max: int, retry: RetryPolicy | None, moving: Sequence[int]) -> None:
        """The configuration changed. What is ready stays so. Dead messages that may be received again get a timer, as
        everything else that is due: a hundred thousand of them become ready in many inputs. Those that are moving wait
        for the outcome, since nobody is given what stands in the dead-letter queue by then."""
        self.receives_max = receives_max
        live, dead = self._live, self.dead
        spared = {offset for offset in dead if self._may_live(offset)}
        spared.difference_update(moving)
        dead -= spared
        if receives_max:
            died = {offset for offset in self._ready if live[offset][1] & RECEIVES_MASK >= receives_max}
            self._ready -= died
            dead |= died
        has_policy = retry is not None or self._retry is not None
        if has_policy:
            self._retry = retry
            self._paused.clear()
        if has_policy or spared:
            self._rebuild()

    def spare(self, offsets: Iterable[int]) -> None:
        """Dead messages that did not move, and that the configuration lets live by now: they are ready when they are
        due, which a change of their visibility may have put off. One that is held gets its timer when it is not."""
        for offset in offsets:
            if offset in self.dead and self._may_live(offset):
                self.dead.remove(offset)
                if offset not in self._held:
                    self.set_timer(self._live[offset][0], offset, offset)

    def _may_live(self, offset: int) -> bool:
        return not self.receives_max or self._live[offset][1] & RECEIVES_MASK < self.receives_max

    def is_dying(self, offset: int) -> bool:
        """Of one whose lease is over: is it a dead letter, which nobody receives here any more? One that was revived is
        ready."""
        return offset in self._live and offset not in self._ready and not self._may_live(offset)

    def ready_offsets(self) -> list[int]:
        return sorted(self._ready)

    def is_ready(self, offset: int) -> bool:
        return offset in self._ready

    def is_held(self, offset: int) -> bool:
        return offset in self._held

    def take_one(self, offset: int) -> None:
        """Take a ready message, whatever stands before it; now held."""
        self._ready.remove(offset)
        self._hold_taken(offset)
        self._tidy_order()

    def hide(self, changes: Sequence[tuple[int, int, int]]) -> list[int]:
        """Changes (offset, delivery, visibility_ms) on their way may put off messages that are ready, by receipts of
        leases that ran out: nobody gets them until the changes are folded. Which they are.

        None that was delayed: no lease of it is known, so it is not put off.
        """
        live, ready = self._live, self._ready
        hidden = []
        if ready:
            hidden = [o for o, delivery, wanted_ms in changes if delivery > 0 and wanted_ms >= 0 and o in ready]
            hidden = [offset for offset in hidden if live[offset][1]]
        ready.difference_update(hidden)
        self._tidy_order()
        return hidden

    def share_of(self, room: int) -> int:
        """How many of so many are to be messages that are ready here, and not fresh ones: half of them. Of an odd
        number each kind gets the larger share in turn. All, where many came back: each fresh one makes it more."""
        if not self._ready:
            return 0
        if self.is_crowded:
            return min(room, len(self._ready))
        share = (room + self._is_our_turn) // 2
        if room % 2:
            self._is_our_turn = not self._is_our_turn
        return min(share, len(self._ready))

    def take(self, count_max: int) -> list[int]:
        """The offsets that have been ready longest, now held."""
        ready, order = self._ready, self._order
        taken: list[int] = []
        while ready and len(taken) < count_max:
            offset = order.popleft()
            if offset in ready:
                ready.remove(offset)
                taken.append(offset)
                self._hold_taken(offset)
        return taken

    def first_ready(self) -> int | None:
        """That with the lowest offset. O(ready)."""
        return min(self._ready, default=None)

    def hold(self, offset: int) -> None:
        self._held[offset] = self._held.get(offset, 0) + 1

    def release(self, offset: int) -> None:
        """A command of ours on this message was folded."""
        count = self._held[offset] - 1
        if count:
            self._held[offset] = count
        else:
            del self._held[offset]
            self._taken_first.discard(offset)
        entry = self._live.get(offset)
        self._paused.discard(offset)
        if entry is not None and not self._is_due(offset):
            self.set_timer(entry[0], offset, offset)

    def expire(self, offsets: Iterable[int]) -> None:
        """These are about to leave `live`, whatever state they are in."""
        for offset in offsets:
            entry = self._live.get(offset)
            self.dead.discard(offset)
            self._paused.discard(offset)
            if offset in self._ready:
                self._ready.remove(offset)
            elif entry is not None and entry[1] == 0 and offset not in self._taken_first:
                self.delayed -= 1

    def forget(self, offsets: Sequence[int]) -> None:
        """These may have left `live`."""
        if self.dead:
            self.dead.difference_update([offset for offset in offsets if offset not in self._live])
        if self._paused:
            self._paused.difference_update([offset for offset in offsets if offset not in self._live])
        if not self._ready:
            return
        self._ready.difference_update(offset for offset in offsets if offset not in self._live)
        self._tidy_order()

    def clear(self) -> None:
        """`live` was emptied."""
        self._ready.clear()
        self._paused.clear()
        self.dead.clear()
        self._order.clear()
        self._timers.clear()
        self.is_behind = False
        self.delayed = 0

    def _hold_taken(self, offset: int) -> None:
        self.hold(offset)
        if not self._live[offset][1]:
            self._taken_first.add(offset)

    def _tidy_order(self) -> None:
        if len(self._order) > 2 * len(self._ready) + _GARBAGE_MAX:
            self._order = deque(offset for offset in dict.fromkeys(self._order) if offset in self._ready)

    def _is_due(self, offset: int) -> bool:
        return offset in self._ready or offset in self.dead

    def _due_ms(self, offset: int, entry: Entry) -> int:
        return entry[0] if self._retry is None else self._retry.due_ms(offset, entry, self.receives_max)

    def _next_ms(self, offset: int, entry: Entry) -> int:
        """When its lease ends, or the pause that it is in."""
        return self._due_ms(offset, entry) if offset in self._paused else entry[0]

    def _pauses(self, offset: int, entry: Entry) -> bool:
        """Its lease ended, or its pause did: does a pause begin?"""
        due_ms = self._due_ms(offset, entry)
        if due_ms <= entry[0] or offset in self._paused:
            self._paused.discard(offset)
            return False
        self._paused.add(offset)
        self._push((due_ms, offset, offset, _ALL))
        return True

    def _push(self, timer: _Timer) -> None:
        heapq.heappush(self._timers, timer)
        if len(self._timers) > 2 * len(self._live) + _GARBAGE_MAX:
            self._rebuild()

    def _set_each(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            entry = self._live.get(offset)
            if entry is not None:
                self._push((self._next_ms(offset, entry), offset, offset, _ALL))

    def _rebuild(self) -> None:
        """Timers from `live`: neighbours that share a deadline share a timer, where nothing is due later than that."""
        if self._retry is not None:
            ready, dead, paused = self._ready, self.dead, self._paused
            each = [
                (self._next_ms(offset, entry) if offset in paused else entry[0], offset, offset, _ALL)
                for offset, entry in self._live.items()
                if offset not in ready and offset not in dead
            ]
            heapq.heapify(each)
            self._timers = each
            return
        timers: list[_Timer] = []
        first = end = deadline_ms = -1
        is_any_due = bool(self._ready or self.dead)  # of a new leader nothing is
        for offset, entry in self._live.items():
            if is_any_due and self._is_due(offset):
                continue
            if offset == end and entry[0] == deadline_ms:
                end += 1
                continue
            if end >= 0:
                timers.append((deadline_ms, first, end - 1, _ALL))
            first, end, deadline_ms = offset, offset + 1, entry[0]
        if end >= 0:
            timers.append((deadline_ms, first, end - 1, _ALL))
        heapq.heapify(timers)
        self._timers = timers


class Removals:
    """Removals by place that are on their way through the log.

    Until the fold has decided, leased messages among them do not become available, and none moves as a dead letter.
    What is available, or becomes so after a delay, may still be handed out.
    """

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        # In the order of their commands: all messages that they name, those held for them, groups of those that nobody
        # had received.
        self._under_way: deque[tuple[frozenset[int], list[int], Mapping[int, bytes]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def among(self, offsets: Iterable[int]) -> set[int]:
        """Which of these are to be removed."""
        return {offset for named, _, _ in self._under_way for offset in named.intersection(offsets)}

    def begin(self, offsets: Sequence[int], groups: Mapping[int, bytes], leases: Leases, live: Live) -> None:
        before = {offset for _, held, _ in self._under_way for offset in held}
        delivered = [o for o in offsets if (entry := live.get(o)) is not None and entry[1]]
        held = [o for o in delivered if o not in before and not leases.is_ready(o)]
        for offset in held:
            leases.hold(offset)
        leases.dead.difference_update(held)
        self._under_way.append((frozenset(offsets), held, groups))

    def end(self, offsets: Sequence[int], leases: Leases) -> Mapping[int, bytes]:
        """The first command is about to be folded; the groups that came with it."""
        _, held, groups = self._under_way.popleft()
        for offset in held:
            leases.release(offset)
        leases.expire(offsets)
        return groups
