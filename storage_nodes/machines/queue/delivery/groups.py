"""What the leader of a FIFO queue can hand out: the messages it knows of, by group, and which groups are free.

Derived from the replicated state and the log, thrown away with the leadership.

    back    the group's messages in `live`, in order: leased, ready again, delayed, dead. Those that were delivered are
            the first of the group: leases are taken from the front
    fresh   its messages that were never delivered, as far as the window reaches; eight bytes each
    offers  heap of the groups that may have something to hand out, by their first message; a group whose messages
            came back goes behind all that waited then. An entry is only a hint: `run` decides. A group whose first
            message is in flight leaves the heap and is offered again when something of it changes

What a new leader finds in flight becomes a `MessageGroup` with the first input that concerns it (untouched_groups.py).

The window is the stretch [.., end) of the log in which every waiting message is known here. New messages extend it
while it reaches to the log's end and holds fewer than FIFO_READ_AHEAD_MESSAGES_MAX; the rest is read from the log when
needed.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import itemgetter, not_
from typing import NoReturn

from storage_nodes.limits import FIFO_READ_AHEAD_MESSAGES_MAX
from storage_nodes.machines.queue.delivery.leases import Leases
from storage_nodes.machines.queue.delivery.untouched_groups import UntouchedGroups
from storage_nodes.machines.queue.effects import FreshRange, Groups
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.headers import FoldedHeaders

# Handed-out offsets at the front of an array before it is cut.
_HEAD_MAX = 256
_TIMES_GARBAGE_MAX = 1_024
# Sums over all groups are compared up to so many: a millisecond or two.
_GROUPS_CHECKED_MAX = 10_000
# Groups in which one input looks for outlived messages.
_GROUPS_PER_LOOK_MAX = 20_000
# Where a group stands: at the place of a message in the log; of those that came back, in the order in which they did.
_Standing = tuple[int, int]
_NOT_OFFERED: _Standing = (-1, 0)
_IN_PLACE: _Standing = (-1, 0)
_NOTHING = (0, 0)
_delivery_of = itemgetter(1)
# Up to this part of the messages in `live` the groups of those that lock nothing are counted, beyond it the others.
_FREE_PART = 3


class _NoneFresh(array):
    """What groups share that have none: one of its own takes 80 bytes."""

    def append(self, offset: int) -> NoReturn:
        raise AssertionError("nothing is put into what many groups share")


_NONE_FRESH: array[int] = _NoneFresh("q")


class MessageGroup:
    __slots__ = ("back", "behind", "fresh", "head", "key", "leases_under_way", "offered")

    def __init__(self, key: bytes, back: list[int]) -> None:
        self.key = key
        self.back = back
        self.fresh = _NONE_FRESH
        self.head = 0  # fresh[head:] wait
        self.leases_under_way = 0  # leases of ours that are not folded yet: 0 or 1
        self.offered = _NOT_OFFERED
        self.behind = _IN_PLACE  # where it went to stand as messages of it came back

    @property
    def is_empty(self) -> bool:
        return not self.back and self.head == len(self.fresh) and not self.leases_under_way

    def first(self) -> int:
        """Offset of the first message, which must exist."""
        if self.head == len(self.fresh):
            return self.back[0]
        return min(self.back[0], self.fresh[self.head]) if self.back else self.fresh[self.head]

    def take_fresh(self, count: int) -> array[int]:
        head = self.head
        taken = self.fresh[head : head + count]
        self.head = head + count
        if self.head == len(self.fresh):
            self.fresh = _NONE_FRESH
            self.head = 0
        elif self.head > _HEAD_MAX and 2 * self.head > len(self.fresh):
            del self.fresh[: self.head]
            self.head = 0
        return taken


class GroupWindow:
    __slots__ = (
        "_bases", "_expired_to", "_expiring", "_expiring_to", "_leases", "_offers", "_returns", "_state", "_times_ms",
        "_untouched", "_with_back", "count", "end", "groups",
    )  # fmt: skip

    head = 0  # commands need not say what waits from where on: the fold of a FIFO queue moves the cursor by itself

    def __init__(self, state: FifoState, leases: Leases) -> None:
        self._state = state
        self._leases = leases
        self._untouched = UntouchedGroups(state.group_of)
        self.groups: dict[bytes, MessageGroup] = {}  # all others
        self._with_back = len(self._untouched)  # groups that have messages in `live`
        self.count = 0  # fresh messages known
        self.end = state.cursor
        self._offers: list[tuple[_Standing, bytes]] = []
        self._returns = 0  # groups that went behind the others
        # Fresh messages from _bases[i] on were appended at _times_ms[i].
        self._bases = array("q")
        self._times_ms = array("q")
        # Groups in which outlived messages below the first offset are still to be looked for, the next one last; no
        # fresh ones are left below the second.
        self._expiring: list[MessageGroup] = []
        self._expiring_to = 0
        self._expired_to = 0

    # --- messages come ----------------------------------------------------------------------------------------

    def arrived(self, base: int, last: int, timestamp_ms: int, before: int, noted: FoldedHeaders | None) -> None:
        """A data batch was folded when the log ended at `before`; `noted.groups` leaves out the duplicates in it."""
        groups, delayed = (noted.groups, noted.delayed) if noted is not None else (None, ())
        for offset in delayed:
            self.came_live(offset)
        if self.end < before or self.count + last + 1 - base > FIFO_READ_AHEAD_MESSAGES_MAX:
            if not self._state.fresh_count:
                self.reach(last + 1)  # nothing of it waits: it needs no room, and nobody will read on for it
            return
        self._note_time(base, timestamp_ms)
        if groups is None:
            groups = dict.fromkeys(range(base, last + 1), b"")
        unavailable_offsets = set(delayed)
        self._add_fresh((offset, key) for offset, key in groups.items() if offset not in unavailable_offsets)
        self.end = last + 1

    def commands_arrived(self, before: int) -> None:
        """A control batch was folded when the log ended at `before`."""
        if self.end >= before:
            self.end = self._state.log_end
        elif self._state.fresh_count == 0:
            self.reach(self._state.log_end)

    def fetched(self, ranges: Iterable[FreshRange], groups_of: Sequence[Groups], end: int) -> None:
        """The log was read up to `end`; its ranges may hold messages that do not wait any more."""
        taken = self._state.removed_above_cursor
        start = max(self.end, self._state.cursor)  # the cursor may have passed what is delayed beyond the window
        for (first, last, timestamp_ms), keys in zip(ranges, groups_of, strict=True):
            gaps = taken.gaps(max(first, start), min(last, end - 1) + 1)
            if gaps:
                self._note_time(gaps[0][0], timestamp_ms)
            for at, stop in gaps:
                self._add_fresh(zip(range(at, stop), keys[at - first : stop - first], strict=True))
        self.reach(end)

    def reach(self, end: int) -> None:
        """All that waits below `end` is known: what became due beyond the window had to wait for that."""
        group_of, beyond = self._state.group_of, range(self.end, end)
        self.end = max(self.end, end)
        for offset in group_of if len(group_of) < len(beyond) else beyond:
            if offset in beyond and offset in group_of:
                self.offer(self._group(group_of[offset]))

    def came_live(self, offset: int) -> None:
        """A delayed message arrived."""
        back = self._group(self._state.group_of[offset]).back
        self._with_back += not back
        insort(back, offset)

    def run_came_live(self, key: bytes, offsets: list[int]) -> None:
        """The lease of fresh messages of a group was folded; offsets ascend."""
        back = self._group(key).back
        self._with_back += not back
        back += offsets
        if len(back) > len(offsets):
            back.sort()  # delayed ones stood there: two runs, merged in one step each

    # --- messages go ------------------------------------------------------------------------------------------

    def left_live(self, gone: Iterable[tuple[bytes, int]]) -> None:
        """Messages left `live`, each with its group: that goes on. Those of one group mostly follow each other."""
        group: MessageGroup | None = None
        for key, offset in gone:
            if group is None or group.key != key:
                if group is not None:
                    self.offer(group)
                group = self._group(key) if key in self._untouched else self.groups.get(key)
                if group is None:
                    continue
            back = group.back
            at = bisect_left(back, offset)
            if at < len(back) and back[at] == offset:
                del back[at]
                self._with_back -= not back
        if group is not None:
            self.offer(group)

    def remove_fresh(self, offset: int, key: bytes) -> None:
        """One that waits was removed, from wherever it stood in its group."""
        group = self.groups.get(key)
        if group is None:
            return
        at = bisect_left(group.fresh, offset, group.head)
        if at < len(group.fresh) and group.fresh[at] == offset:
            del group.fresh[at]
            self.count -= 1
        self.offer(group)

    def removed(self, offsets: Sequence[int], groups: Mapping[int, bytes]) -> None:
        """Messages were removed; `groups` has those that waited here."""
        for offset, key in groups.items():
            self.remove_fresh(offset, key)

    def clear(self, end: int) -> None:
        """Nothing below `end` waits or is in `live`."""
        self.groups.clear()
        self._untouched.clear()
        self._with_back = 0
        self._expiring.clear()
        self._offers.clear()
        self.count = 0
        self.end = max(self.end, end)

    def take_expired(self, oldest_ms: int, room: int) -> list[int]:
        """Take up to `room` fresh messages that were sent at or before `oldest_ms`, of so many groups as one input may
        look at; the next call goes on where this one stopped (`is_expiring`)."""
        at = bisect_right(self._times_ms, oldest_ms)
        boundary = self._bases[at] if at < len(self._bases) else self.end
        expired: list[int] = []
        expiring = self._expiring
        if not at or boundary <= max(self._state.cursor, self._expired_to):
            expiring.clear()
            return expired
        if not expiring:
            expiring += reversed(self.groups.values())
            self._expiring_to = boundary
        # Groups that come later have no messages below it; less has outlived once the retention was raised.
        self._expiring_to = boundary = min(boundary, self._expiring_to)
        for _ in range(min(len(expiring), _GROUPS_PER_LOOK_MAX)):
            group = expiring[-1]
            fresh, head = group.fresh, group.head
            if head < len(fresh) and fresh[head] < boundary:
                found = bisect_left(fresh, boundary, head) - head
                count = min(found, room - len(expired))
                if count:
                    expired += group.take_fresh(count)
                    self.count -= count
                    self.offer(group)
                if count < found:
                    return expired
            expiring.pop()
        if not expiring:
            self._expired_to = boundary
        return expired

    @property
    def is_expiring(self) -> bool:
        """Has a search for outlived messages to go on in other groups?"""
        return bool(self._expiring)

    # --- what may be handed out -------------------------------------------------------------------------------

    @property
    def has_offers(self) -> bool:
        """May some group have something? Drops offers that mean nothing any more."""
        while self._offers:
            standing, key = self._offers[0]
            group = self.groups.get(key)
            if group is not None and group.offered == standing and self.run(group, 1) != _NOTHING:
                return True
            self._withdraw_first()
        return False

    def take_offer(self, room: int) -> tuple[MessageGroup, int, int] | None:
        """The group whose turn it is, out of the heap, with its `run`; None when no group has anything to give."""
        offers, groups = self._offers, self.groups
        while offers:
            standing, key = heapq.heappop(offers)
            group = groups.get(key)
            if group is None or group.offered != standing:
                continue
            group.offered = _NOT_OFFERED
            again, fresh = self.run(group, room)
            if again or fresh:
                group.behind = _IN_PLACE
                return group, again, fresh
        return None

    def run(self, group: MessageGroup, room: int) -> tuple[int, int]:
        """How many messages may be leased now, from the front of the group: (of `back`, of `fresh`).

        None from one on that is in flight (R26), dead or delayed; none while the group is parked.
        """
        if group.key in self._state.parked:
            return _NOTHING
        assert not group.leases_under_way, "a group is offered when its lease is folded"
        live, leases = self._state.live, self._leases
        again = 0
        for offset in group.back:
            if again > room or not leases.is_ready(offset):
                break  # one more than there is room for tells as much as all of them
            if offset >= self.end and live[offset][1] == 0:
                break  # messages in front of it may not have been read yet
            again += 1
        fresh = len(group.fresh) - group.head
        if fresh and again < len(group.back):
            fresh = bisect_left(group.fresh, group.back[again], group.head) - group.head
        if not again or not fresh or group.fresh[group.head] > group.back[again - 1]:
            again = min(again, room)
            return again, min(fresh, room - again)
        # A fresh message stands among those in `back` (they were delayed longer than it): what is before it goes first.
        before = bisect_left(group.back, group.fresh[group.head])
        if before:
            return min(before, room), 0
        return 0, min(bisect_left(group.fresh, group.back[0], group.head) - group.head, room)

    def offer(self, group: MessageGroup) -> None:
        """Something of the group changed: it may have messages to hand out."""
        if group.is_empty:
            self.groups.pop(group.key, None)
            return
        if group.leases_under_way or (not group.back and group.head == len(group.fresh)):
            return
        standing = max((group.first(), 0), group.behind)
        if group.offered != standing:
            group.offered = standing
            heapq.heappush(self._offers, (standing, group.key))

    def unparked(self, keys: Iterable[bytes]) -> None:
        """These are held no more."""
        for key in keys:
            group = self.groups.get(key)  # of an untouched one nothing is ready
            if group is not None:
                self.offer(group)

    def known_count(self, key: bytes) -> int:
        """Messages of a group, as far as the window reaches."""
        group = self.groups.get(key)
        return self._untouched.count_of(key) if group is None else len(group.back) + len(group.fresh) - group.head

    def became_ready(self, offsets: Sequence[int]) -> None:
        """These may be received again, or are due: their groups have something to hand out."""
        state = self._state
        for offset in offsets:
            group = self._group(state.group_of[offset])
            if state.live[offset][1] and group.behind == _IN_PLACE:
                self._returns += 1
                group.behind = (state.log_end - 1, self._returns)
            self.offer(group)

    def sent_ms(self, offset: int) -> int:
        """Append time of a fresh message in the window."""
        return self._times_ms[bisect_right(self._bases, offset) - 1]

    @property
    def oldest_ms(self) -> int:
        """Append time of the first waiting message; 0 where none is known to wait."""
        return self.sent_ms(max(self._state.cursor, self._bases[0])) if self.count and self._bases else 0

    def group_counts(self) -> tuple[int, int]:
        """Groups in view, and the locked ones among them: some message of theirs was delivered and is not ready. Asked
        for by callers, so what is looked at message by message is the smaller part of `live`."""
        live, group_of = self._state.live, self._state.group_of
        free = self._leases.ready
        if not all(map(_delivery_of, live.values())):
            free = free | set(compress(live, map(not_, map(_delivery_of, live.values()))))
        if len(live) == self._with_back:  # each is alone in its group
            locked = len(live) - len(free)
        elif _FREE_PART * len(free) > len(live):
            locked = len(set(map(group_of.__getitem__, live.keys() - free)))
        else:
            free_counts = Counter(map(group_of.__getitem__, free))
            locked = self._with_back - sum(count == self._back_count(key) for key, count in free_counts.items())
        return len(self.groups) + len(self._untouched), locked

    def check(self) -> None:
        live, group_of = self._state.live, self._state.group_of
        assert live.keys() == group_of.keys(), "other messages have groups than are in flight or delayed"

    def check_groups(self, leased: int) -> None:
        """Asserts that each message in `live`, and no other, holds back what follows it in its group, and that no group
        is locked for a lease that is not under way; `leased` groups are named by those that are. Not of many groups."""
        groups, live = self.groups.values(), self._state.live
        if len(groups) + len(self._untouched) > _GROUPS_CHECKED_MAX:
            return
        back = self._untouched.messages + sum([len(group.back) for group in groups])
        assert back == len(live), f"{back} messages hold back what follows them, of {len(live)}"
        waiting = sum([len(group.fresh) - group.head for group in groups])
        assert waiting == self.count, f"{waiting} messages wait in their groups, {self.count} are counted"
        locked = sum([group.leases_under_way for group in groups])
        assert locked <= leased, f"{locked} groups wait for the commit of a lease, {leased} are leased"
        holding = len(self._untouched) + sum([bool(group.back) for group in groups])
        assert holding == self._with_back, f"{holding} groups hold something back, {self._with_back} are counted"

    # --- inside -----------------------------------------------------------------------------------------------

    def _group(self, key: bytes) -> MessageGroup:
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = MessageGroup(key, self._untouched.take(key))
        return group

    def _back_count(self, key: bytes) -> int:
        group = self.groups.get(key)
        return self._untouched.count_of(key) if group is None else len(group.back)

    def _add_fresh(self, messages: Iterable[tuple[int, bytes]]) -> None:
        """Each with its group."""
        known = self.groups.get
        for offset, key in messages:
            group = known(key) or self._group(key)
            fresh = group.fresh
            if fresh is _NONE_FRESH:
                fresh = group.fresh = array("q")
            fresh.append(offset)
            self.count += 1
            if len(fresh) - group.head == 1:
                self.offer(group)

    def _note_time(self, base: int, timestamp_ms: int) -> None:
        times_ms = self._times_ms
        if times_ms:
            timestamp_ms = max(timestamp_ms, times_ms[-1])
            if timestamp_ms == times_ms[-1]:
                return
        self._bases.append(base)
        times_ms.append(timestamp_ms)
        if len(times_ms) > _TIMES_GARBAGE_MAX:
            passed = bisect_right(self._bases, self._state.cursor) - 1
            if 2 * passed > len(times_ms):
                del self._bases[:passed], times_ms[:passed]

    def _withdraw_first(self) -> None:
        standing, key = heapq.heappop(self._offers)
        group = self.groups.get(key)
        if group is not None and group.offered == standing:
            group.offered = _NOT_OFFERED
