"""What the leader of a standard queue sees of its waiting messages, where they have groups or tags.

Takes the place of the plain `Window`. In view is the stretch [.., end) of the log: every waiting message of it stands
on a tag queue (tag_queues.py), by its tag, in log order. Two questions are answered without a search:

    what goes next?           the tag queue with the first message, from a heap; if the group of that message is noisy
                              (fairness.py) the run goes to a tag queue aside, once, and the next one is looked at
    what goes next of a tag?  its tag queues: the common one, and those aside

Tag queues of groups that are noisy now wait in a heap of their own, from which is served when the other has nothing. A
group that is no longer noisy has its tag queues back among the others; they are older and go first there.

Memory is a bounded number of runs, not of messages (SIGHT_* in limits.py): a flood of a million messages of one group
is a run, or some thousands. Everything is derived from the replicated state and the log, and thrown away with the
leadership.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, groupby

from storage_nodes.limits import LOOKAHEAD_RUNS_MAX, LOOKAHEAD_STEPS_MAX, LOOKAHEAD_TAG_QUEUES_MAX, SIGHT_RUNS_NEAR
from storage_nodes.machines.queue.delivery.fairness import GroupsInFlight
from storage_nodes.machines.queue.delivery.leases import Leases
from storage_nodes.machines.queue.delivery.placed_keys import PlacedKeys
from storage_nodes.machines.queue.delivery.tag_queues import NOTHING, TagQueue
from storage_nodes.machines.queue.effects import NO_KEY, FreshRange, Keys, Tags
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.queue_state import QueueState

# Entries that mean nothing any more which a heap may hold beside as many others again.
_GARBAGE_MAX = 1_024


class Backlog:
    __slots__ = (
        "_again_count", "_again_place", "_bases", "_fronts", "_in_flight", "_leases", "_next_number", "_noisy",
        "_passed_over", "_placed", "_quiet", "_runs", "_state", "_tag_queues", "_tags", "_throttled", "_times_ms",
        "count", "end", "noisy_count", "tags_waited_for", "tags_with_new", "taken",
    )  # fmt: skip

    def __init__(
        self, state: QueueState, leases: Leases, in_flight: GroupsInFlight, tags_waited_for: Collection[bytes]
    ) -> None:
        self._state = state
        self._leases = leases
        self._in_flight = in_flight
        self.end = state.cursor
        self.count = 0  # fresh messages in view
        self.noisy_count = 0  # of them those on tag queues of noisy groups
        self.taken: set[int] = set()  # ... and those that a command of ours takes that is not folded yet
        self.tags_waited_for = tags_waited_for  # tags that receives wait for
        self.tags_with_new: set[bytes] = set()  # those of them that new messages have
        self._runs = 0
        self._next_number = 0
        self._tag_queues: dict[int, TagQueue] = {}  # by number; none of them is empty for long
        self._tags: dict[bytes, dict[bytes | None, TagQueue]] = {}
        self._throttled: dict[bytes, dict[bytes, TagQueue]] = {}  # group -> tag -> tag queue
        self._placed = PlacedKeys()
        self._passed_over: set[bytes] = set()  # groups whose throttled tag queues count as noisy
        # Heaps of (standing, tag queue number). What stands there is true or too low; an entry counts if it is what the
        # tag queue was offered by.
        self._quiet: list[tuple[int, int]] = []
        self._noisy: list[tuple[int, int]] = []
        self._fronts: list[tuple[int, int]] = []  # the same by the first fresh message alone
        # Messages from _bases[i] on were appended at _times_ms[i].
        self._bases = array("q")
        self._times_ms = array("q")
        self._again_count = 0  # entries in `again`, or more
        self._again_place = 0  # where the next one that comes back stands, unless the log went on

    # --- messages come ----------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """May more of the log be taken into view?"""
        if len(self._bases) >= LOOKAHEAD_RUNS_MAX:
            self._forget_times()
        if len(self._tag_queues) >= LOOKAHEAD_TAG_QUEUES_MAX and self._again_count > self._leases.ready_count:
            self._forget_gone()
        return (
            max(self._runs, len(self._bases)) < LOOKAHEAD_RUNS_MAX and len(self._tag_queues) < LOOKAHEAD_TAG_QUEUES_MAX
        )

    def arrived(self, first: int, last: int, timestamp_ms: int, before: int, noted: FoldedHeaders | None) -> None:
        """A data batch was folded when the log ended at `before`; take it in if it continues the view."""
        if self.end < before or (self._runs >= SIGHT_RUNS_NEAR and not self.tags_waited_for) or not self.has_room:
            if not self._state.fresh_count:
                # Nothing of it waits, and the fold's cursor passed it: read from the log later, what is scheduled or
                # gone there would look as if it waited.
                self.end = last + 1
            return
        self._note_time(first, timestamp_ms)
        keys: Keys = ()
        if noted is not None and noted.keys:
            keys = [noted.keys.get(offset, NO_KEY) for offset in range(first, last + 1)]
        start = first
        for offset in noted.unavailable_offsets() if noted is not None else ():
            self._put_all(start, offset, keys, first)
            start = offset + 1
        self._put_all(start, last + 1, keys, first)
        self.end = last + 1

    def commands_arrived(self, before: int) -> None:
        """A control batch was folded when the log ended at `before`."""
        if self._state.fresh_count == 0:
            self.clear(self._state.log_end)
        elif self.end >= before:
            self.end = self._state.log_end

    def fetched(self, ranges: Iterable[FreshRange], keys_of: Sequence[Keys], end: int) -> None:
        """The log was read up to `end`; its ranges may hold messages that are delayed, leased or gone."""
        gone, live = self._state.removed_above_cursor, self._state.live
        for (first, last, timestamp_ms), keys in zip(ranges, keys_of, strict=True):
            if not self.has_room:
                end = min(end, max(first, self.end))
                break
            gaps = gone.gaps(max(first, self.end), min(last, end - 1) + 1)
            if gaps:
                self._note_time(gaps[0][0], timestamp_ms)
            for start, stop in gaps:
                if not live.keys().isdisjoint(range(start, stop)):
                    for offset in range(start, stop):
                        if offset in live:
                            self._put_all(start, offset, keys, first)
                            start = offset + 1
                self._put_all(start, stop, keys, first)
        self.end = max(self.end, end)

    def became_ready(self, offsets: Sequence[int]) -> None:
        """These may be received again, or are due."""
        for offset in offsets:
            self._in_flight.remove(offset)
        keys = self._state.keys
        first = self._place_behind(len(offsets))
        for place, offset in enumerate(offsets, first):
            tag = keys.get(offset, NO_KEY)[1]
            tag_queue = self._common(tag)
            tag_queue.add_again(place, offset)
            self._offer(tag_queue)
            if tag in self.tags_waited_for:
                self.tags_with_new.add(tag)
        self._again_place = first + len(offsets)
        self._again_count += len(offsets)
        if self._again_count > 2 * self._leases.ready_count + _GARBAGE_MAX:
            self._forget_gone()

    # --- what goes next ---------------------------------------------------------------------------------------

    def refresh_throttled(self, in_flight: int) -> None:
        """Groups that are noisy no more are not passed over any more."""
        for group in [g for g in self._passed_over if not self._in_flight.is_noisy(g, in_flight)]:
            self._passed_over.remove(group)
            self._set_noisy(group, False)
        if not self._passed_over:
            self._noisy.clear()

    def throttle(self, groups: Iterable[bytes]) -> None:
        """These are noisy, as an earlier leader knew."""
        self._passed_over.update(groups)

    def look_ahead(self, in_flight: int) -> None:
        """Where a group is noisy, put what it has in front aside: `noisy_count` then tells whether others wait."""
        if self._passed_over:
            self.refresh_throttled(in_flight)
            self.next_tag_queue((), in_flight, False)

    def next_tag_queue(self, tags: Tags, in_flight: int, in_order: bool) -> TagQueue | None:
        """Where to take from now; None if nothing in view may be handed out. `in_order`: whatever the groups."""
        if in_order:
            both = [
                tag_queue for tag_queue in (self._first(tags, False), self._first(tags, True)) if tag_queue is not None
            ]
            return min(both, key=_standing, default=None)
        for _ in range(LOOKAHEAD_STEPS_MAX):
            tag_queue = self._first(tags, False)
            if tag_queue is None:
                break
            group = self._group_at(tag_queue)
            if not group or not self._in_flight.is_noisy(group, in_flight):
                return tag_queue
            self._pass_over(tag_queue, group)
        return self._first(tags, True)

    def take_again(self, tag_queue: TagQueue) -> int:
        """The message that goes next from a tag queue, if that is one that may be received again; else -1."""
        if not tag_queue.is_again_next:
            return -1
        _, offset = heapq.heappop(tag_queue.again)
        self._remove_if_empty(tag_queue)
        return offset

    def take_fresh(self, tag_queue: TagQueue, count_max: int) -> FreshRange:
        """Neighbours off the front of a tag queue that has fresh messages, of one group and batch time."""
        first, end = tag_queue.first_run()
        at = bisect_right(self._bases, first)
        end = min(end, first + count_max, self._bases[at] if at < len(self._bases) else NOTHING)
        sent_ms = self._times_ms[at - 1]
        if tag_queue.take(end):
            self._runs -= 1
        self.count -= end - first
        if tag_queue.is_noisy:
            self.noisy_count -= end - first
        self.taken.update(range(first, end))
        self._remove_if_empty(tag_queue)
        return FreshRange(first, end - 1, sent_ms)

    def take_expired(self, oldest_ms: int, room: int) -> list[FreshRange]:
        """Take messages that were sent at or before `oldest_ms`, up to `room` of them."""
        at = bisect_right(self._times_ms, oldest_ms)
        boundary = self._bases[at] if at < len(self._bases) else self.end
        expired: list[FreshRange] = []
        if not at or self.head >= boundary:
            return expired
        for tag_queue in list(self._tag_queues.values()):
            while room > 0 and tag_queue.first_fresh < boundary:
                expired.append(self.take_fresh(tag_queue, min(room, boundary - tag_queue.first_fresh)))
                room -= expired[-1].last_offset - expired[-1].first_offset + 1
        return expired

    # --- as the plain window ----------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """No message below it waits, unless it is in `live`."""
        fronts = self._fronts
        while fronts:
            first, number = fronts[0]
            tag_queue = self._tag_queues.get(number)
            now = tag_queue.first_fresh if tag_queue is not None else NOTHING
            if now == first:
                return first
            if now != NOTHING:
                heapq.heapreplace(fronts, (now, number))
                continue
            heapq.heappop(fronts)
            if tag_queue is not None:
                tag_queue.in_fronts = False
        return self.end

    @property
    def oldest_ms(self) -> int:
        """When the first waiting message was sent; 0 where none is in view."""
        return self._times_ms[bisect_right(self._bases, self.head) - 1] if self.count else 0

    def group_counts(self) -> tuple[int, int]:
        """Groups with messages in flight; none is locked."""
        return len(self._in_flight), 0

    def check(self) -> None:
        tag_queues = self._tag_queues.values()
        waiting = sum([each.count for each in tag_queues])
        assert waiting == self.count, f"{waiting} messages stand on tag queues, {self.count} are counted"
        noisy = sum([each.count for each in tag_queues if each.is_noisy])
        assert noisy == self.noisy_count, f"{noisy} messages are of noisy groups, {self.noisy_count} are counted"

    def removed(self, offsets: Sequence[int], groups: Mapping[int, bytes]) -> None:
        """Messages were removed from wherever they stood."""
        self.cut(offsets)

    def holds(self, offset: int) -> bool:
        """Does a message that waits in view, or is on its way out, stand here?"""
        return offset in self.taken or self._holder_of(offset) is not None

    def cut(self, gone: Sequence[int]) -> None:
        """Messages that were deleted ahead of the cursor (rare: their lease was lost in a failover)."""
        for offset in gone:
            tag_queue = self._holder_of(offset)
            if tag_queue is not None:
                self._runs += tag_queue.cut(offset)
                self.count -= 1
                self.noisy_count -= tag_queue.is_noisy
                self._remove_if_empty(tag_queue)

    def clear(self, end: int) -> None:
        """Nothing below `end` is fresh."""
        if self.count:
            for tag_queue in list(self._tag_queues.values()):
                tag_queue.clear_fresh()
                self._remove_if_empty(tag_queue)
        self.count = self.noisy_count = self._runs = 0
        self._placed.clear()
        del self._bases[:], self._times_ms[:]
        self.end = max(self.end, end)

    # --- inside -----------------------------------------------------------------------------------------------

    def _put_all(self, start: int, stop: int, keys: Keys, base: int) -> None:
        """Waiting messages [start, stop) of a batch of which `keys` are those from `base` on."""
        if start >= stop:
            return
        if not keys:
            self._put(start, stop, b"", b"")
            return
        at = start
        for (group, tag), run in groupby(keys[start - base : stop - base]):
            end = at + len(list(run))
            self._put(at, end, group, tag)
            at = end

    def _put(self, first: int, end: int, group: bytes, tag: bytes) -> None:
        tag_queue = self._common(tag)
        self._runs += tag_queue.add(first, end, group)
        self.count += end - first
        self._placed.note(first, (group, tag))
        if len(self._placed) > 2 * self._runs + _GARBAGE_MAX:
            self._placed.replace(chain.from_iterable(each.placed() for each in self._tag_queues.values()))
        self._put_on(tag_queue)
        if tag in self.tags_waited_for:
            self.tags_with_new.add(tag)

    def _holder_of(self, offset: int) -> TagQueue | None:
        """The tag queue on which the message waits."""
        group, tag = self._placed.key_at(offset)
        of_tag = self._tags.get(tag, {})
        for tag_queue in (of_tag.get(None), of_tag.get(group)):
            if tag_queue is not None and tag_queue.holds(offset):
                return tag_queue
        return None

    def _put_on(self, tag_queue: TagQueue) -> None:
        """A run was added to it."""
        if not tag_queue.in_fronts:
            tag_queue.in_fronts = True
            self._push(self._fronts, tag_queue.first_fresh, tag_queue.number)
        self._offer(tag_queue)

    def _pass_over(self, tag_queue: TagQueue, group: bytes) -> None:
        """What goes next on this tag queue is of a noisy group: aside with it."""
        if group not in self._passed_over:
            self._passed_over.add(group)
            self._set_noisy(group, True)
        if tag_queue.group is not None:
            return
        throttled = self._tags[tag_queue.tag].get(group)
        if throttled is None:
            throttled = self._new_tag_queue(tag_queue.tag, group)
            throttled.is_noisy = True
            self._throttled.setdefault(group, {})[tag_queue.tag] = throttled
        if tag_queue.is_again_next:
            throttled.add_again(*heapq.heappop(tag_queue.again))
            self._offer(throttled)
        else:
            first, end = tag_queue.first_run()
            tag_queue.take(end)
            self._runs += throttled.add(first, end, group) - 1
            self.noisy_count += end - first
            self._put_on(throttled)
        self._remove_if_empty(tag_queue)

    def _set_noisy(self, group: bytes, is_noisy: bool) -> None:
        for tag_queue in self._throttled.get(group, {}).values():
            if tag_queue.is_noisy != is_noisy:
                tag_queue.is_noisy = is_noisy
                self.noisy_count += tag_queue.count if is_noisy else -tag_queue.count
                tag_queue.offered = NOTHING
                self._offer(tag_queue)

    def _group_at(self, tag_queue: TagQueue) -> bytes:
        if tag_queue.group is not None:
            return tag_queue.group
        return (
            self._state.keys.get(tag_queue.again[0][1], NO_KEY)[0] if tag_queue.is_again_next else tag_queue.fresh_group
        )

    def _first(self, tags: Tags, is_noisy: bool) -> TagQueue | None:
        if not tags:
            return self._first_of_all(self._noisy if is_noisy else self._quiet, is_noisy)
        tag_queues = [tag_queue for tag in tags for tag_queue in list(self._tags.get(tag, {}).values())]
        for tag_queue in tag_queues:
            self._forget_taken(tag_queue)
            self._remove_if_empty(tag_queue)
        found = [tag_queue for tag_queue in tag_queues if tag_queue.is_noisy == is_noisy and not tag_queue.is_empty]
        return min(found, key=_standing, default=None)

    def _first_of_all(self, heap: list[tuple[int, int]], is_noisy: bool) -> TagQueue | None:
        while heap:
            sort_key, number = heap[0]
            tag_queue = self._tag_queues.get(number)
            if tag_queue is None or tag_queue.is_noisy != is_noisy or tag_queue.offered != sort_key:
                heapq.heappop(heap)
                continue
            self._forget_taken(tag_queue)
            tag_queue.offered = now = tag_queue.sort_key
            if now == sort_key:
                return tag_queue
            if now == NOTHING:
                heapq.heappop(heap)
                self._remove_if_empty(tag_queue)
            else:
                heapq.heapreplace(heap, (now, number))
        return None

    def _forget_taken(self, tag_queue: TagQueue) -> None:
        """At the front, messages that cannot be received again any more: taken in another order, or gone."""
        again = tag_queue.again
        while again and not self._leases.is_ready(again[0][1]):
            heapq.heappop(again)

    def _place_behind(self, coming: int) -> int:
        """Behind all that came back before the last `coming` ones, and not before what is fresh."""
        head, others = self.head, self._leases.ready_count - coming
        if others <= 0:
            return head
        if self._again_place - head > 2 * others + _GARBAGE_MAX:
            self._line_up(head)
        return max(self._again_place, head)

    def _line_up(self, head: int) -> None:
        """What came back again and again stands far beyond the log: from `head` on, one behind the other, once more."""
        self._forget_gone()
        again = sorted((*entry, number) for number, tag_queue in self._tag_queues.items() for entry in tag_queue.again)
        for tag_queue in self._tag_queues.values():
            tag_queue.again.clear()
        for place, (_, offset, number) in enumerate(again, head):
            self._tag_queues[number].add_again(place, offset)
        for tag_queue in self._tag_queues.values():
            self._offer(tag_queue)
        self._again_place = head + len(again)

    def _forget_gone(self) -> None:
        """The same for all of `again`."""
        self._again_count = 0
        for tag_queue in list(self._tag_queues.values()):
            places = {offset: place for place, offset in sorted(tag_queue.again, reverse=True)}  # the first of each
            tag_queue.again = sorted((place, o) for o, place in places.items() if self._leases.is_ready(o))
            self._again_count += len(tag_queue.again)
            self._remove_if_empty(tag_queue)

    def _offer(self, tag_queue: TagQueue) -> None:
        """Something of the tag queue changed: it may go earlier than it did."""
        sort_key = tag_queue.sort_key
        if sort_key < tag_queue.offered:
            tag_queue.offered = sort_key
            self._push(self._noisy if tag_queue.is_noisy else self._quiet, sort_key, tag_queue.number)

    def _push(self, heap: list[tuple[int, int]], sort_key: int, number: int) -> None:
        heapq.heappush(heap, (sort_key, number))
        if len(heap) > 2 * len(self._tag_queues) + _GARBAGE_MAX:
            heap[:] = sorted({entry for entry in heap if self._counts(heap, *entry)})

    def _counts(self, heap: list[tuple[int, int]], sort_key: int, number: int) -> bool:
        tag_queue = self._tag_queues.get(number)
        return tag_queue is not None and (heap is self._fronts or tag_queue.offered == sort_key)

    def _common(self, tag: bytes) -> TagQueue:
        tag_queues = self._tags.get(tag)
        tag_queue = tag_queues.get(None) if tag_queues is not None else None
        return tag_queue if tag_queue is not None else self._new_tag_queue(tag, None)

    def _new_tag_queue(self, tag: bytes, group: bytes | None) -> TagQueue:
        self._next_number += 1
        tag_queue = self._tag_queues[self._next_number] = TagQueue(self._next_number, tag, group)
        self._tags.setdefault(tag, {})[group] = tag_queue
        return tag_queue

    def _remove_if_empty(self, tag_queue: TagQueue) -> None:
        if not tag_queue.is_empty or self._tag_queues.pop(tag_queue.number, None) is None:
            return
        of_tag = self._tags[tag_queue.tag]
        del of_tag[tag_queue.group]
        if not of_tag:
            del self._tags[tag_queue.tag]
        if tag_queue.group is not None:
            of_group = self._throttled[tag_queue.group]
            del of_group[tag_queue.tag]
            if not of_group:
                del self._throttled[tag_queue.group]

    def _note_time(self, base: int, timestamp_ms: int) -> None:
        times_ms = self._times_ms
        if times_ms:
            timestamp_ms = max(timestamp_ms, times_ms[-1])
            if timestamp_ms == times_ms[-1]:
                return
            if len(times_ms) > _GARBAGE_MAX and self._bases[len(times_ms) // 2] <= self.head:
                self._forget_times()
        self._bases.append(base)
        times_ms.append(timestamp_ms)

    def _forget_times(self) -> None:
        """Of batches of which no message waits."""
        passed = bisect_right(self._bases, self.head) - 1 if self.count else len(self._bases)
        if passed > 0:
            del self._bases[:passed], self._times_ms[:passed]


def _standing(tag_queue: TagQueue) -> int:
    return tag_queue.sort_key
