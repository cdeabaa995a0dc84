"""The numbers a client gives to the records it sends, one sequence per partition (storage_nodes/machines/producers.py).

A number stays with its record through all attempts. A partition remembers the last PRODUCER_WINDOW_RECORDS of them, so
no more than that may lie between the lowest one that is outstanding and the highest one that was given: a send beyond
waits for its turn here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from storage_nodes.client.pauses import Chance
from storage_nodes.limits import PRODUCER_PARTITIONS_MAX, PRODUCER_SEQUENCE_MAX, PRODUCER_WINDOW_RECORDS

PRODUCER_ID_BITS = 63


class Line:
    """What this client sends to one partition."""

    __slots__ = ("_lowest", "_outstanding", "_waiting", "next", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.next = 0
        # First numbers that are outstanding, in order, and a bound that none of them is below.
        self._outstanding: dict[int, None] = {}
        self._lowest = 0
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()

    def number(self, count: int, go: Callable[[int], None]) -> None:
        """Calls `go` with the first of `count` numbers, as soon as they are within the window."""
        if self._waiting or not self._has_room(count):
            self._waiting.append((count, go))
        else:
            go(self._give(count))

    def done(self, first: int) -> None:
        """The outcome of these is known, or nobody asks for it any more."""
        self._outstanding.pop(first, None)
        while self._waiting and self._has_room(self._waiting[0][0]):
            count, go = self._waiting.popleft()
            go(self._give(count))

    def _give(self, count: int) -> int:
        first = self.next
        self._outstanding[first] = None
        self.next += count
        return first

    def _has_room(self, count: int) -> bool:
        if self.next + count - self._lowest > PRODUCER_WINDOW_RECORDS:
            self._lowest = next(iter(self._outstanding), self.next)
        return self.next + count - self._lowest <= PRODUCER_WINDOW_RECORDS


class Sequences:
    """Of one client."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._producer_id = chance.getrandbits(PRODUCER_ID_BITS)
        self._lines: dict[int, Line] = {}

    def line(self, partition: int, count: int) -> Line:
        """The line that the next `count` records for this partition go by. There is no way back to low numbers: who
        runs out of them, or of room for partitions, is another producer from then on."""
        line = self._lines.get(partition)
        if line is None:
            if len(self._lines) >= PRODUCER_PARTITIONS_MAX:
                self._lines.clear()
                self._producer_id = self._chance.getrandbits(PRODUCER_ID_BITS)
            line = self._lines[partition] = Line(self._producer_id)
        elif line.next > PRODUCER_SEQUENCE_MAX - 2 * PRODUCER_WINDOW_RECORDS:
            # Those that wait in it still get their numbers from it.
            line = self._lines[partition] = Line(self._chance.getrandbits(PRODUCER_ID_BITS))
        return line
